"""The broker's lines on standard error."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from support.peers.cli import started_python

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
from kohort.broker.embedded import write_log_to_stderr
{before}
write_log_to_stderr()
write_log_to_stderr()
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


@pytest.mark.parametrize(
    "command",
    [
        ["kohort.broker", "--config", "allow.anonymous.beyond.loopback=true"],
        ["kohort.cli.main", "up", "--allow-anonymous"],
    ],
)
def test_broker_of_a_command_dates_its_lines(command: list[str]) -> None:
    """A line without its time cannot be laid beside those of clients."""
    with started_python("-m", *command, "--host", "0.0.0.0", "--port", "0") as broker:
        broker.wait_for_lines(1, start="ready 0.0.0.0:")
        (line,) = broker.wait_for_complaints(1)
        assert broker.end() == 0
    assert re.match(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z WARNING event=open_to_network ", line), line
