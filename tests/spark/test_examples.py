"""The examples that make no session of their own here: they get the one of these tests, as `session` returns it."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"


def test_batch_that_is_written_again_replaces_itself(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After what looks like a crash between the write and the commit log."""
    monkeypatch.setattr(sys, "argv", ["spark_batches.py"])
    runpy.run_path(str(EXAMPLES / "spark_batches.py"))
    lines = [line for line in capsys.readouterr().out.splitlines() if line.startswith(("batch", "1000"))]
    batches = [f"batch {number} is written" for number in (0, 1, 2)]
    assert lines == [*batches, "1000 rows, 1000 different ones", batches[2], "1000 rows, 1000 different ones"]


def test_the_journal_is_a_frame_in_pandas_and_in_spark(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two partitions go from the first member to the second; then both leave."""
    monkeypatch.setattr(sys, "argv", ["journal_frames.py"])
    runpy.run_path(str(EXAMPLES / "journal_frames.py"))
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].split() == ["partitions", "trigger"]
    assert lines[1].split() == ["orders-2", "orders-3", "member", "joined"]
    rows = [tuple(line.replace(" ", "").strip("|").split("|")) for line in lines if line.startswith("| billing")]
    assert rows[:2] == [("billing", "memberjoined", "0"), ("billing", "memberjoined", "2")]
    assert len(rows) >= 3, "they left"
