"""The warning that two sources of one application divide a group's topics."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from kohort.spark.driver_channel import announce

APPLICATION = 4711


def left(folder: Path, pid: int, name: str, group: str = "reports") -> None:
    """A note that another process has left."""
    announce(group, name, application=APPLICATION, folder=folder)
    (own,) = folder.glob(f"source-*.{os.getpid()}")
    own.rename(own.with_suffix(f".{pid}"))


def test_second_source_names_both(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """The process that started this one lives for sure."""
    left(tmp_path, os.getppid(), "q-1")
    assert caplog.messages == []
    announce("reports", "q-2", application=APPLICATION, folder=tmp_path)
    (sentence,) = caplog.messages
    assert "in group reports: q-1 and q-2 are members that divide the topics between them" in sentence
    assert "give each query a group of its own" in sentence


@pytest.mark.parametrize(
    ("group", "application", "name"),
    [("others", APPLICATION, "q-2"), ("reports", APPLICATION + 1, "q-2"), ("reports", APPLICATION, "q-1")],
    ids=["another group", "another application", "the same query again"],
)
def test_others_are_none_of_its_business(
    group: str, application: int, name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    left(tmp_path, os.getppid(), "q-1")
    announce(group, name, application=application, folder=tmp_path)
    assert caplog.messages == []


@pytest.mark.process
def test_source_that_has_ended_is_forgotten(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Killed, or ended without a word: its note is removed."""
    ended = subprocess.Popen(["true"])
    ended.wait()
    left(tmp_path, ended.pid, "q-1")
    announce("reports", "q-2", application=APPLICATION, folder=tmp_path)
    assert caplog.messages == []
    assert [path.suffix for path in tmp_path.iterdir()] == [f".{os.getpid()}"]


def test_what_cannot_be_looked_at_is_not_said(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No folder, notes that are none: the query goes on."""
    announce("reports", "q-1", application=APPLICATION, folder=tmp_path / "nowhere")
    announce("\ud800", "\ud800", application=APPLICATION, folder=tmp_path)
    (own,) = tmp_path.iterdir()
    own.unlink()
    left(tmp_path, os.getppid(), "q-1")
    (note,) = tmp_path.glob(f"*.{os.getppid()}")
    note.write_bytes(b"\xff" * 10_000)
    for wrong in ("x", "9" * 40, "-1"):
        note.with_suffix(f".{wrong}").touch()
    announce("reports", "q-2", application=APPLICATION, folder=tmp_path)
    assert len(caplog.messages) == 1
    assert len(caplog.messages[0]) < 2_000
