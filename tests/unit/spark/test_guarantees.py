"""What a query in a group promises, by how it ends and what its sink keeps: a test a row of docs/reference/spark.md.

A sink keeps the first or the last writing of a batch, or appends whatever comes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest

import kohort
from kohort.client.consumer.consumer import Consumer
from kohort.errors import KohortTimeoutError
from kohort.spark import exactly_once
from kohort.spark.driver_channel import BatchDone, Drain, find_batch, fingerprint, is_open, note_batch, post
from kohort.spark.exactly_once import TransactionalWriteError
from support.dialogues.spark_groups import committed, of_group
from support.dialogues.spark_query import Checkpoint, Place, Start, places
from support.dialogues.spark_sink import Rows, SinkQuery, flow_of
from support.waiting import until

pytestmark = pytest.mark.large

Sink = Literal["first", "last", "all"]
SINKS: list[Sink] = ["first", "last", "all"]


def written(*checkpoints: Checkpoint) -> list[Place]:
    """What the sinks have; what was written twice is there twice."""
    return sorted(place for checkpoint in checkpoints for place in checkpoint.sink)


def twice(name: str, *, once: range, again: range) -> list[Place]:
    return sorted(places(name, {0: once}) + places(name, {0: again}))


def leave_in_doubt(start: Start, fill: Any, name: str, sink: Sink) -> Checkpoint:
    """Of 40 records 10 are in the sink, and not in the commit log of the query, which is away."""
    fill(name, {0: 40})
    kept = Checkpoint(keeps=sink)
    query = start(**of_group(name, maxOffsetsPerTrigger=10), checkpoint=kept)
    assert query.plan()
    kept.write(query.execute())
    query.stop()
    return kept


@pytest.mark.parametrize("how", ["checkpointLocation", "drained"])
@pytest.mark.parametrize("sink", SINKS)
def test_clean_end(
    start: Start, topic: Any, fill: Any, admin: kohort.Admin, tmp_path: Path, *, sink: Sink, how: str
) -> None:
    """Nothing is in doubt: others go on at once, the query comes back, and nothing is repeated."""
    name = topic(1)
    fill(name, {0: 40})
    looks = {"checkpointLocation": tmp_path} if how == "checkpointLocation" else {}
    kept = Checkpoint(keeps=sink, location=tmp_path)
    query = start(**of_group(name, **looks), checkpoint=kept)
    assert query.trigger()
    if how == "drained":
        assert kept.finished is not None
        post(query.name, BatchDone(fingerprint(kept.finished)))
        post(query.name, Drain())
        until(lambda: not is_open(query.name), what="it has left")
    query.stop()
    assert admin.describe_group(f"{name}-g").members == ()
    fill(name, {0: 5})
    other = start(**of_group(name), checkpoint=Checkpoint(keeps=sink))
    other.run()
    other.stop()
    assert other.checkpoint.places() == places(name, {0: range(40, 45)})
    fill(name, {0: 5})
    start(**of_group(name), checkpoint=kept).run()
    assert written(kept, other.checkpoint) == places(name, {0: range(50)})


@pytest.mark.parametrize(("sink", "again"), [("first", 0), ("last", 0), ("all", 10)])
def test_in_doubt_and_back_in_time(start: Start, topic: Any, fill: Any, *, sink: Sink, again: int) -> None:
    """The batch is in the sink and not in the commit log: Spark repeats it, as it was."""
    name = topic(1)
    kept = leave_in_doubt(start, fill, name, sink)
    other = start(**of_group(name), checkpoint=Checkpoint(keeps=sink), groupJoinTimeout="60s")
    start(**of_group(name), checkpoint=kept).run()
    other.stop()
    assert written(kept) == twice(name, once=range(40), again=range(again))


@pytest.mark.parametrize(("sink", "again"), [("first", 10), ("last", 0), ("all", 10)])
def test_in_doubt_and_taken_over(start: Start, topic: Any, fill: Any, *, sink: Sink, again: int) -> None:
    """The session has ended: others read the batch again; if the query comes back, its repetition leaves that out."""
    name = topic(1)
    kept = leave_in_doubt(start, fill, name, sink)
    other = start(**of_group(name), checkpoint=Checkpoint(keeps=sink))
    until(lambda: len(other.checkpoint.sink) == 40, what="the other takes over", step=other.trigger)
    assert written(kept, other.checkpoint) == twice(name, once=range(40), again=range(10))
    other.run()
    other.stop()
    start(**of_group(name), checkpoint=kept).run()
    assert written(kept, other.checkpoint) == twice(name, once=range(40), again=range(again))


@pytest.mark.parametrize("sink", SINKS)
def test_checkpoint_and_sink_are_put_back(start: Start, topic: Any, fill: Any, sink: Sink) -> None:
    """What the query has read since the copy is read again, into the sink that has lost it; what others have is not."""
    name = topic(1)
    fill(name, {0: 40})
    query = start(**of_group(name, maxOffsetsPerTrigger=10), checkpoint=Checkpoint(keeps=sink))
    query.trigger()
    copy = query.checkpoint.copy()
    query.run()
    query.stop()
    fill(name, {0: 5})
    other = start(**of_group(name), checkpoint=Checkpoint(keeps=sink))
    other.run()
    other.stop()
    start(**of_group(name), checkpoint=copy).run()
    assert copy.places() == places(name, {0: range(40)})
    assert written(copy, other.checkpoint) == places(name, {0: range(45)})


# -- Kafka, exactly once ----------------------------------------------------------------------------------------------


class Copying:
    """A query in a group that copies a topic into another one by transactions.

    Args:
        is_known: its reader knows the checkpoint.
        sink_options: options of its sink.
    """

    def __init__(
        self, start: Start, address: str, name: str, folder: Path, *, is_known: bool = False, **sink_options: str
    ) -> None:
        looks = {"checkpointLocation": folder} if is_known else {}
        self._begin = lambda: start(**of_group(name, maxOffsetsPerTrigger=10, **looks), checkpoint=self.kept)
        self.kept = Checkpoint(location=folder)
        self.query = self._begin()
        self.sink = SinkQuery(address, f"{name}-out", folder, [], **sink_options)

    def write(self) -> list[bytes]:
        """Run the tasks of the next batch, or of the open one; their messages."""
        if not self.kept.is_open and not self.query.plan():
            return []
        rows: Rows = {}
        for _, partition, offset in self.query.execute():
            rows.setdefault(partition, []).append(b"%d-%d" % (partition, offset))
        number = self.sink.number
        self.sink.batches = {number: [rows]}
        return self.sink.run_tasks(self.sink.begin())

    def trigger(self) -> bool:
        """Run a batch from plan to commit log."""
        messages = self.write()
        if messages:
            self.sink.commit(messages)
            self.kept.log_commit()
        return bool(messages)

    def run(self) -> None:
        while self.trigger():
            pass

    def come_back(self) -> None:
        """Be started again."""
        self.query = self._begin()


Copy = Callable[..., Copying]


@pytest.fixture
def copy(start: Start, address: str, admin: kohort.Admin, tmp_path: Path) -> Copy:
    """`copy(name, "one")` is a query of that checkpoint, which copies the topic."""

    def build(name: str, own: str, **more: Any) -> Copying:
        return Copying(start, address, name, tmp_path / own, **more)

    return build


def copied(one: Copying) -> list[bytes]:
    """What readers of committed records see of all queries."""
    return sorted(one.sink.rows())


def once(count: int) -> list[bytes]:
    return sorted(b"0-%d" % offset for offset in range(count))


def filled(topic: Any, fill: Any, admin: kohort.Admin) -> str:
    name: str = topic(1)
    admin.create_topic(f"{name}-out", 1)
    fill(name, {0: 40})
    return name


def end_in_doubt(one: Copying, *, is_committed: bool) -> None:
    """End a query whose batch is written, before or behind EndTxn, and not in its commit log."""
    one.trigger()
    messages = one.write()
    if is_committed:
        one.sink.commit(messages)
    one.query.stop()


def test_kafka_clean_end(copy: Copy, topic: Any, fill: Any, admin: kohort.Admin) -> None:
    """Others go on where it has ended, and it goes on where they have."""
    name = filled(topic, fill, admin)
    one, other = copy(name, "one", is_known=True), copy(name, "other", is_known=True)
    one.run()
    one.query.stop()
    fill(name, {0: 10})
    other.run()
    other.query.stop()
    fill(name, {0: 10})
    one.come_back()
    one.run()
    assert copied(one) == once(60)


@pytest.mark.parametrize("is_committed", [False, True])
def test_kafka_in_doubt_and_back_in_time(
    copy: Copy, topic: Any, fill: Any, admin: kohort.Admin, is_committed: bool
) -> None:
    """Spark repeats the batch: it is in the topic and is left out, or was aborted and is written."""
    name = filled(topic, fill, admin)
    one = copy(name, "one")
    end_in_doubt(one, is_committed=is_committed)
    one.come_back()
    one.write()
    # It may die again here, and others begin where the group says.
    assert committed(admin, f"{name}-g") == {0: 20 if is_committed else 10}
    one.query.stop()
    one.come_back()
    one.run()
    assert copied(one) == once(40)


@pytest.mark.parametrize("is_committed", [False, True])
def test_kafka_in_doubt_and_taken_over(
    copy: Copy, topic: Any, fill: Any, admin: kohort.Admin, is_committed: bool
) -> None:
    """The group knows by the transaction what was written; if the query comes back it repeats none of that."""
    name = filled(topic, fill, admin)
    # The batch that is never repeated keeps readers from what follows for as long.
    left = {} if is_committed else {"kafka__transaction__timeout__ms": "4000"}
    one = copy(name, "one", **left)
    end_in_doubt(one, is_committed=is_committed)
    other = copy(name, "other")
    until(lambda: copied(one) == once(40), what="the other takes over", step=other.trigger)
    other.query.stop()
    one.come_back()
    one.run()
    assert copied(one) == once(40)


def test_kafka_checkpoint_is_put_back(copy: Copy, topic: Any, fill: Any, admin: kohort.Admin) -> None:
    """A topic cannot be put back with it: the query is refused."""
    name = filled(topic, fill, admin)
    one = copy(name, "one")
    one.trigger()
    one.trigger()
    last = one.kept.location
    assert last is not None
    for log in ("offsets", "commits"):
        (last / log / "1").unlink()
    del one.kept.offsets[1:]
    one.kept.commits = 1
    one.query.stop()
    one.come_back()
    with pytest.raises(TransactionalWriteError, match="the checkpoint is an older copy"):
        one.run()
    assert copied(one) == once(20)


def test_kafka_member_that_is_fenced_while_its_batch_runs(
    copy: Copy, topic: Any, fill: Any, admin: kohort.Admin
) -> None:
    """Its transaction is aborted, since others may have read the batch."""
    name = filled(topic, fill, admin)
    one = copy(name, "one")
    one.trigger()
    messages = one.write()
    admin.remove_members(f"{name}-g", [one.query.name])
    with pytest.raises(TransactionalWriteError, match=r"batch 1 of .* is not written, its transaction is aborted"):
        one.sink.commit(messages)
    one.query.stop()
    one.come_back()
    one.run()
    assert copied(one) == once(40)


@pytest.mark.parametrize("fault", ["no note", "note of another batch", "no answer"])
def test_kafka_offsets_that_cannot_be_committed(
    copy: Copy, topic: Any, fill: Any, admin: kohort.Admin, monkeypatch: pytest.MonkeyPatch, *, fault: str
) -> None:
    """The rows are not committed without them: others would read the batch again."""
    name = filled(topic, fill, admin)
    one = copy(name, "one")
    messages = one.write()
    note = find_batch(one.query.name)
    assert note is not None
    with monkeypatch.context() as patch:
        if fault == "no answer":
            patch.setattr(Consumer, "committed", refuse)
        else:
            note_batch(one.query.name, None if fault == "no note" else replace(note, end="another"))
        with pytest.raises(TransactionalWriteError, match="no answer" if fault == "no answer" else "left no note of b"):
            one.sink.commit(messages)
    assert copied(one) == []
    one.query.stop()


def refuse(*_: object, **__: object) -> None:
    raise KohortTimeoutError("no answer")


@pytest.mark.parametrize("flow", [0, 2])
def test_kafka_member_whose_epoch_is_newer_than_its_note(
    copy: Copy, topic: Any, fill: Any, admin: kohort.Admin, monkeypatch: pytest.MonkeyPatch, *, flow: int
) -> None:
    """The group has moved others meanwhile: the next note has the new epoch, and the batch is committed."""
    name = filled(topic, fill, admin)
    one = copy(name, "one")
    with flow_of(flow):
        messages = one.write()
        note = find_batch(one.query.name)
        assert note is not None
        note_batch(one.query.name, replace(note, epoch=note.epoch - 1))
        notes: list[object] = []

        def leave_note(_: float) -> None:
            notes.append(note_batch(one.query.name, note))

        monkeypatch.setattr(exactly_once, "time", SimpleNamespace(time=time.time, sleep=leave_note))
        one.sink.commit(messages)
    assert len(notes) == 1
    assert copied(one) == once(10)
    one.query.stop()
