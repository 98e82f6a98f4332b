"""Spark Connect: the example runs as a user runs it; `make soak` has it, since a server takes a minute to start."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from support.peers.late_readers import run_in_time
from support.peers.spark_session import require_spark

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_900)]

ROOT = Path(__file__).resolve().parents[2]


def test_reading_writing_and_streaming_work_without_a_jvm_of_ones_own(tmp_path: Path) -> None:
    """On a path whose python3 has no kohort: the server runs on this one."""
    require_spark()
    pytest.importorskip("grpc", reason="pyspark[connect] is not installed")
    other = tmp_path / "python3"
    other.write_text("#!/bin/sh\nexit 3\n")
    other.chmod(0o755)
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYSPARK_")}
    environment |= {"PATH": f"{tmp_path}:{environment['PATH']}", "PYTHONPATH": str(ROOT / "src")}
    example = [sys.executable, str(ROOT / "examples" / "spark_connect.py")]
    done = run_in_time(example, environment, folder=tmp_path, seconds=600)
    assert done.returncode == 0, done.stderr[-3000:]
    rows = [line for line in done.stdout.splitlines() if line.startswith("|carrier-")]
    assert rows == [f"|carrier-{number}|    200|" for number in range(5)]
