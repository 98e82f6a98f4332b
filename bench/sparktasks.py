"""Spark reads many partitions of few records, `local[2]`: a batch and a micro-batch of 60, 1,000 and 10,000 of them, a
small micro-batch of four, and what a task's client takes in topics of 4 and of 2,000 partitions.

Peer: Spark's own source, as it comes; it starts a task for each partition, and is left out at 10,000.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from kohort.wire.registry import ApiKey
from load import RawConnection, frame
from report import Row, Table, take_turns, warmed
from sparksides import OURS, PLAIN, Cost, Side, brokers, cost_of, rows_of, spark_session
from sparksteady import wait
from topics import PAGE_CACHE, Server, batch_of, create_writable_topic, fill, produce_request

PARTITIONS = (60, 1_000, 10_000)
#: With more of them the peer takes minutes for a batch.
MOST_OF_PEER = 1_000
EACH = 5
#: Records of a small micro-batch in each of four partitions, and micro-batches that are counted.
SMALL, SMALL_BATCHES = 50, 40
#: Tasks of one measurement of the client, the partitions of each, and records in each partition.
TASKS, SPANS, RECORDS = 200, 4, 50
_VALUE = b"x" * 100


def counted(session: Any, server: Server, partitions: int, side: Side) -> Cost:
    """One query that counts the rows."""
    options = {"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": f"few-{partitions}"}
    frame_ = session.read.format(side.format).options(**options, startingOffsets="earliest", **side.options).load()

    def count() -> None:
        assert frame_.count() == EACH * partitions

    return cost_of(session, count)


def micro_batches(
    session: Any, server: Server, side: Side, *, partitions: int, each: int, batches: int
) -> list[dict[str, int]]:
    """The parts of each micro-batch's time, ms; new records come to each partition as soon as the last were read."""
    topic = f"{side.format}-{partitions}-{time.monotonic_ns()}"
    connection = RawConnection(server.port)
    create_writable_topic(connection, topic, partitions, {"flush.messages": PAGE_CACHE})
    batch = batch_of(each, _VALUE)
    frames = [frame(ApiKey.PRODUCE, 8, produce_request(topic, number, batch)) for number in range(partitions)]
    options = {"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": topic, **side.options}
    # A batch waits until all partitions have theirs.
    options["minOffsetsPerTrigger"] = str(partitions * each)
    with tempfile.TemporaryDirectory() as checkpoint:
        source = session.readStream.format(side.format).options(**options, startingOffsets="earliest").load()
        writer = source.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime="0 seconds").start()
        for number in range(1, batches + 2):
            connection.run(frames, in_flight=3)
            wanted = number * partitions * each
            wait(
                lambda wanted=wanted: sum(each.numInputRows for each in query.recentProgress) >= wanted,
                "the rows",
                query,
                seconds=600,
            )
        query.stop()
        said = [progress.durationMs for progress in query.recentProgress if progress.numInputRows]
    connection.close()
    # The first one waits for processes to start.
    return said[1:]


def client_ms(server: Server, partitions: int) -> float:
    """Processor time of a task's reader, ms, without Spark: this process and its threads."""
    import kohort
    from kohort.spark.options import parse_options
    from kohort.spark.reading import SpansToRead, SpanToRead, read_spans

    topic = f"client-{partitions}"
    options = parse_options({"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": topic})
    with kohort.Consumer(bootstrap_servers=server.bootstrap_servers) as consumer:
        ids = {topic: consumer.describe_topics([topic])[topic].topic_id}

    def run(number: int) -> None:
        chosen = [(number * SPANS + index) % partitions for index in range(SPANS)]
        task = SpansToRead([SpanToRead(topic, each, 0, RECORDS) for each in chosen], ids)
        assert sum(batch.num_rows for batch in read_spans(options, task)) == SPANS * RECORDS

    run(0)
    began = time.process_time()
    for number in range(TASKS):
        run(number)
    return (time.process_time() - began) / TASKS * 1e3


def batch_rows(session: Any, server: Server, runs: int, partitions: int, peers: Sequence[Side]) -> list[Row]:
    """A batch: on the wall, and of processors."""
    ours, *theirs = take_turns(runs, *(partial(counted, session, server, partitions, side) for side in (OURS, *peers)))
    by_peer = dict(zip(peers, theirs, strict=True))
    what = f"{partitions:,} partitions x {EACH} records, batch, from {server.name}"
    walls, processors = {60: "<= 1.2 s", 1_000: "<= 3.6 s"}, {60: "<= 0.8 s", 1_000: "<= 2.4 s"}

    def of_processors(costs: Sequence[Cost]) -> list[float]:
        return [cost.jvm_s + cost.python_s for cost in costs]

    return [
        *rows_of(
            what,
            [cost.wall_s for cost in ours],
            {side: [cost.wall_s for cost in costs] for side, costs in by_peer.items()},
            unit="s",
            reaches=[walls.get(partitions, "report")],
            how=warmed(runs),
            less_is_better=True,
        ),
        *rows_of(
            f"CPU of JVM and Python, {what}",
            of_processors(ours),
            {side: of_processors(costs) for side, costs in by_peer.items()},
            unit="s",
            reaches=[processors.get(partitions, "report")],
            how=warmed(runs),
            less_is_better=True,
        ),
    ]


def micro_batch_rows(session: Any, server: Server, runs: int, partitions: int, peers: Sequence[Side]) -> list[Row]:
    """A micro-batch from its trigger to the commit log."""
    found = [
        micro_batches(session, server, side, partitions=partitions, each=EACH, batches=2 * runs)
        for side in (OURS, *peers)
    ]
    ours, *theirs = [[said["triggerExecution"] / 1e3 for said in batches] for batches in found]
    return rows_of(
        f"{partitions:,} partitions x {EACH} records, micro-batch, from {server.name}",
        ours,
        dict(zip(peers, theirs, strict=True)),
        unit="s",
        reaches=[">= 1x"],
        how=f"{len(ours)} in a row, after 1 to warm up",
        less_is_better=True,
    )


def small_rows(session: Any, server: Server, peers: Sequence[Side]) -> list[Row]:
    """`addBatch` of a small micro-batch, the least and the median."""
    sides = (OURS, *peers)
    small = partial(micro_batches, session, server, partitions=4, each=SMALL, batches=SMALL_BATCHES + 10)
    found = [[said["addBatch"] for said in small(side)] for side in sides]
    ours, *theirs = [each[-SMALL_BATCHES:] for each in found]
    rows = []
    for name, choose in (("median", list), ("least", lambda times: [min(times)])):
        rows += rows_of(
            f"addBatch of {4 * SMALL} records in 4 partitions, {name}, from {server.name}",
            choose(ours),
            {side: choose(times) for side, times in zip(peers, theirs, strict=True)},
            unit="ms",
            reaches=["<= 40 ms"],
            how=f"{SMALL_BATCHES} in a row, after 10 to warm up",
            less_is_better=True,
        )
    return rows


def client_rows(server: Server, runs: int) -> list[Row]:
    """Rows of the processor time that the client of one task takes."""
    rows = []
    for partitions in (4, 2_000):
        fill(server, f"client-{partitions}", partitions=partitions, records=RECORDS * partitions, value=_VALUE)
        (found,) = take_turns(runs, partial(client_ms, server, partitions))
        what = f"client CPU of a task of {SPANS} partitions, topic of {partitions:,}, from {server.name}"
        rows += rows_of(what, found, {}, unit="ms", reaches=["<= 3.5 ms"], how=f"{runs} of {TASKS} tasks")
    return rows


def measure(runs: int) -> list[Table]:
    with spark_session() as (session, left_out), brokers() as servers:
        rows: list[Row] = []
        for server in servers:
            for partitions in PARTITIONS:
                peers = () if left_out or partitions > MOST_OF_PEER else (PLAIN,)
                fill(server, f"few-{partitions}", partitions=partitions, records=EACH * partitions, value=_VALUE)
                # With many the peer takes long for each.
                counted_runs = runs if partitions < MOST_OF_PEER else 1
                rows += batch_rows(session, server, counted_runs, partitions, peers)
                rows += micro_batch_rows(session, server, counted_runs, partitions, peers)
            rows += small_rows(session, server, () if left_out else (PLAIN,))
            rows += client_rows(server, runs)
    return [Table("sparktasks", "Spark, many partitions", rows, left_out)]
