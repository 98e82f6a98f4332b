"""`make soak ONLY=clients`, for a few seconds: real clients on real sockets while brokers and members come and go."""

from __future__ import annotations

import runpy
import subprocess
import sys
from pathlib import Path

import pytest

TOOL = Path(__file__).resolve().parents[2] / "tools" / "client_soak.py"


@pytest.mark.parametrize(
    ("samples", "is_flat"),
    [
        ([40.0] * 5 + [80.0] * 20, True),
        ([80.0] * 25, True),
        ([80.0 + 0.1 * each for each in range(25)], True),
        ([80.0 + each for each in range(25)], False),
        ([80.0] * 20 + [120.0] * 5, False),
    ],
)
def test_memory_is_flat_or_not(samples: list[float], is_flat: bool) -> None:
    """What is held at the end is compared with what is held when it is warm."""
    why_not_flat = runpy.run_path(str(TOOL))["why_not_flat"]
    assert (why_not_flat(samples) is None) == is_flat


def test_clients_go_on_while_brokers_come_and_go() -> None:
    command = [sys.executable, str(TOOL), "--seconds", "6"]
    finished = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    assert finished.returncode == 0, finished.stdout + finished.stderr
    sent = int(finished.stdout.partition(" records sent")[0].split()[-1])
    assert sent > 1_000
