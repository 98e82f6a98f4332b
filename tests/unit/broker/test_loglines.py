"""The broker's lines on standard error."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

pytestmark = pytest.mark.process


@pytest.mark.parametrize(
    ("before", "expected"),
    [
        ("", r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING event=recovered partitions=5\n"),
        ("logging.basicConfig(format='mine %(message)s')", r"mine event=recovered partitions=5\n"),
    ],
)
def test_lines_say_when_and_how_serious_unless_the_program_has_its_own_way(before: str, expected: str) -> None:
    script = f"""
import logging
from kohort.broker.loglines import write_to_stderr
{before}
write_to_stderr()
write_to_stderr()
logging.getLogger("kohort.broker").info("event=started")
logging.getLogger("kohort.broker").warning("event=recovered partitions=%d", 5)
"""
    run = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env={"PYTHONPATH": ":".join(sys.path), "TZ": "Asia/Tokyo"},
    )
    assert re.fullmatch(expected, run.stderr), run.stderr
