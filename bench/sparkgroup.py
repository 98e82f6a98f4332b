"""Queries of one group, `local[2]`, a trigger of 1 s: how long a partition that moves is nobody's, and how long the
group's offsets lie behind Spark's commit log; with nothing installed, and with the listener.

No peer: Spark's own source knows no groups, and commits nothing. A part of `sparkstream`.
"""

from __future__ import annotations

import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import count
from pathlib import Path
from threading import Event, Thread
from typing import Any

import kohort
from kohort import TopicPartition
from kohort.spark.offsets import from_json
from report import Row
from sparksides import rows_of
from sparksteady import PARTITIONS, began_s, ended_s, steady_topic, wait
from topics import Server

#: Records a second: each batch has some of each partition.
STEADY = 2_000
#: Batches of a query that has come to rest.
AT_REST = 4
#: Batches whose lag is looked at.
BATCHES = 10
_GROUPS = count()


@dataclass(frozen=True)
class GroupBatch:
    """When it began and was in Spark's commit log, seconds since 1970; partition -> the end of what it has read."""

    batch_id: int
    began_s: float
    ended_s: float
    ends: dict[TopicPartition, int]


def batches_of(query: Any) -> list[GroupBatch]:
    """Those with records, so far."""
    return [batch_of(progress) for progress in query.recentProgress if progress.numInputRows]


def batch_of(progress: Any) -> GroupBatch:
    end = from_json(json.loads(progress.sources[0].endOffset))
    ends = {partition: span.end for partition, span in end.spans.items() if span.size}
    return GroupBatch(progress.batchId, began_s(progress), ended_s(progress), ends)


@contextmanager
def query_of(session: Any, server: Server, topic: str, group: str, checkpoint: str) -> Iterator[Any]:
    """A streaming query of that group, a trigger every second."""
    options = {"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": topic, "kafka.group.id": group}
    frame = session.readStream.format("kohort").options(**options, startingOffsets="earliest").load()
    writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(processingTime="1 second").start()
    try:
        yield query
    finally:
        query.stop()


def pauses_s(session: Any, server: Server) -> list[float]:
    """Of each partition that moves, when a second query comes and when that one is drained: from the end of the last
    batch that read it here to the beginning of the first that reads it there.
    """
    from kohort.spark import drain_and_stop

    group = f"pauses-{next(_GROUPS)}"
    with ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        topic = stack.enter_context(steady_topic(server, a_second=STEADY))
        start = partial(query_of, session, server, topic, group)
        stays = stack.enter_context(start(f"{folder}/stays"))
        wait(lambda: len(batches_of(stays)) >= AT_REST, "the first query reads", stays)
        comes = stack.enter_context(start(f"{folder}/comes"))
        wait(lambda: len(batches_of(comes)) >= AT_REST, "the second query reads", comes)
        pauses = moves_s(batches_of(stays), batches_of(comes))
        drain_and_stop(comes)
        gone = batches_of(comes)
        wait(
            lambda: any(len(each.ends) == PARTITIONS for each in behind(gone, batches_of(stays))),
            "all come back",
            stays,
        )
        return pauses + moves_s(gone, behind(gone, batches_of(stays)))


def behind(gone: Sequence[GroupBatch], others: Sequence[GroupBatch]) -> list[GroupBatch]:
    """Batches that began when a query had finished its last."""
    return [batch for batch in others if batch.began_s >= gone[-1].ended_s]


def moves_s(here: Sequence[GroupBatch], there: Sequence[GroupBatch]) -> list[float]:
    """For each partition that was read here and then there."""
    found = []
    for moved in {partition for batch in there for partition in batch.ends}:
        taken_s = min(batch.began_s for batch in there if moved in batch.ends)
        left_s = [batch.ended_s for batch in here if moved in batch.ends and batch.ended_s <= taken_s]
        found += [taken_s - max(left_s)] if left_s else []
    return found


def lags_s(session: Any, server: Server) -> list[float]:
    """Of each batch: from its file in Spark's commit log to when the group is seen to have its offsets."""
    group = f"lags-{next(_GROUPS)}"
    with ExitStack() as stack:
        checkpoint = stack.enter_context(tempfile.TemporaryDirectory())
        topic = stack.enter_context(steady_topic(server, a_second=STEADY))
        seen = stack.enter_context(watched(server, group, topic))
        query = stack.enter_context(query_of(session, server, topic, group, checkpoint))
        wait(lambda: len(batches_of(query)) > BATCHES + 1, "the query reads", query)
        # The first ones come with what is only done once.
        batches = batches_of(query)[1:BATCHES]
        logged_s = [Path(checkpoint, "commits", str(batch.batch_id)).stat().st_mtime for batch in batches]
    lags = []
    for batch, done_s in zip(batches, logged_s, strict=True):
        told_s = [at_s for at_s, stands in seen if all(stands.get(each, 0) >= end for each, end in batch.ends.items())]
        lags.append(min(told_s) - done_s)
    return lags


@contextmanager
def watched(server: Server, group: str, topic: str) -> Iterator[list[tuple[float, dict[TopicPartition, int]]]]:
    """Where a group stands, time and time again: seconds since 1970, and partition -> offset."""
    seen: list[tuple[float, dict[TopicPartition, int]]] = []
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    is_over = Event()

    def look() -> None:
        with kohort.Consumer(bootstrap_servers=server.bootstrap_servers, group_id=group) as consumer:
            while not is_over.wait(0.01):
                stands = consumer.committed(places)
                seen.append((time.time(), {place: offset for place, offset in stands.items() if offset is not None}))

    watcher = Thread(target=look)
    watcher.start()
    try:
        yield seen
    finally:
        is_over.set()
        watcher.join()


def group_rows(session: Any, server: Server, runs: int) -> list[Row]:
    """Pauses and lags, as they come and with the listener."""
    from kohort.spark import QueryListener

    listener = QueryListener()
    rows = rows_with(session, server, runs, listening="", reaches=("report", "<= 1.2 s"))
    session.streams.addListener(listener)
    rows += rows_with(session, server, runs, listening=", with the listener", reaches=("<= 1.3 s", "<= 0.3 s"))
    session.streams.removeListener(listener)
    return rows


def rows_with(session: Any, server: Server, runs: int, *, listening: str, reaches: Sequence[str]) -> list[Row]:
    rows: list[Row] = []
    for what, measure, moments, reach in (
        ("a moved partition is nobody's", pauses_s, "moves", reaches[0]),
        ("the group's offsets behind Spark's commit log", lags_s, "batches", reaches[1]),
    ):
        found = [each for _ in range(runs) for each in measure(session, server)]
        how = f"{len(found)} {moments} in {runs} runs"
        rows += rows_of(
            f"{what}{listening}, from {server.name}", found, {}, unit="s", reaches=[reach], how=how, less_is_better=True
        )
    return rows
