"""Where a query's checkpoint is, learned from the files that another process has open."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

import pytest

from kohort.spark import checkpoint as module
from kohort.spark.checkpoint import CheckpointDiscovery
from kohort.spark.offsets import OffsetJson
from support.dialogues.spark_query import Checkpoint
from support.waiting import until


def end_of(name: str) -> OffsetJson:
    return {"kohort": 2, "name": name, "topics": {}}


@contextmanager
def writing(folder: Path, name: str) -> Iterator[None]:
    """As Spark does, in this process: a draft is open, and the log has a batch of the query of that name."""
    Checkpoint(location=folder).log_offset(json.dumps(end_of(name)))
    with open(folder / "offsets" / f".0.{UUID(int=1)}.tmp", "w"):
        yield


def test_checkpoint_is_found_by_the_file_that_spark_writes(tmp_path: Path) -> None:
    """It is open while the log of the planned batch is written; another query of that JVM writes at the same time."""
    lookout = CheckpointDiscovery(os.getpid())
    with writing(tmp_path / "other's", "q-2"), writing(tmp_path / "a checkpoint", "q-1"):
        until(lambda: lookout.location, what="it is found", step=lambda: lookout.watch(end_of("q-1")))
    assert lookout.location == str(tmp_path / "a checkpoint")


@pytest.mark.large
def test_checkpoint_of_another_query_is_nobody_s(tmp_path: Path) -> None:
    """Its log names that query."""
    lookout = CheckpointDiscovery(os.getpid())
    with writing(tmp_path, "q-2"):
        lookout.watch(end_of("q-1"))
        until(lambda: not lookout.is_watching, what="it gives up for now")
    assert lookout.location is None


def test_checkpoint_that_was_missed_is_found_by_the_commit(tmp_path: Path) -> None:
    """The log is written, which the next call of Spark says, and nothing was seen; the tasks are done later."""
    lookout = CheckpointDiscovery(os.getpid())
    Checkpoint(location=tmp_path).log_offset(json.dumps(end_of("q-1")))
    lookout.watch(end_of("q-1"))
    lookout.note_logged()
    (tmp_path / "commits").mkdir(exist_ok=True)
    with open(tmp_path / "commits" / f".0.{UUID(int=1)}.tmp", "w"):
        until(lambda: lookout.location, what="it is found")
    assert lookout.location == str(tmp_path)


def test_it_ends_when_nothing_is_seen_of_the_commit_either(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_COMMIT_S", 0.0)
    lookout = CheckpointDiscovery(os.getpid())
    lookout.watch(end_of("q-1"))
    lookout.note_logged()
    until(lambda: not lookout.is_watching, what="it rests")
    assert lookout.location is None


def test_where_nothing_can_be_seen_nothing_is_looked_for() -> None:
    """No process of that number, or none of this user."""
    lookout = CheckpointDiscovery(0)
    lookout.watch(end_of("q-1"))
    until(lambda: not lookout.is_watching, what="it gives up")
    lookout.watch(end_of("q-1"))
    assert not lookout.is_watching
    assert lookout.location is None
