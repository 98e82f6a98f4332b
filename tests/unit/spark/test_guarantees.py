"""What a query in a group promises, by how it ends and what its sink keeps: a test a row of docs/reference/spark.md.

A sink keeps the first or the last writing of a batch, or appends whatever comes.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

import pytest

import kohort
from kohort.spark.driver_channel import BatchDone, Drain, fingerprint, is_open, post
from support.dialogues.spark_groups import of_group
from support.dialogues.spark_query import Checkpoint, Place, Start, places
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
