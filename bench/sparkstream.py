"""Spark reads a topic as a stream, `local[2]`: AvailableNow in batches of 1 M, and how old rows are at trigger 0; what
queries of one group give each other, and when their offsets are in the group, is in `sparkgroup.py`.

Peer: Spark's own source, as it comes and tuned.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

from report import Row, Table, take_turns, warmed
from sparkbatch import rows_of_processors
from sparkgroup import group_rows
from sparksides import OURS, PLAIN, TUNED, Cost, Side, brokers, cost_of, rows_of, spark_session
from sparksteady import Batch, began_s, ended_s, percentile, steady_topic, wait
from topics import Server, fill

RECORDS = 10_000_000
PARTITIONS = 4
PER_BATCH = 1_000_000
#: Records a second while ages are measured, and for how many seconds: before it counts, and then.
STEADY = 20_000
WARM_S, COUNTED_S = 5.0, 10.0


def available_now(session: Any, server: Server, side: Side) -> Cost:
    """All of it, in batches of 1 M."""
    options = {"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": "streamed"}
    options |= {"startingOffsets": "earliest", "maxOffsetsPerTrigger": str(PER_BATCH), **side.options}
    with tempfile.TemporaryDirectory() as checkpoint:
        frame = session.readStream.format(side.format).options(**options).load()
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        queries = []
        cost = cost_of(session, lambda: queries.append(run_to_end(writer.trigger(availableNow=True))))
    assert sum(progress.numInputRows for progress in queries[0].recentProgress) == RECORDS
    return cost


def run_to_end(writer: Any) -> Any:
    """The query, when it is over."""
    query = writer.start()
    query.awaitTermination()
    return query


def ages_ms(session: Any, server: Server, side: Side) -> tuple[float, float]:
    """p50 and p99 from a record's timestamp to the end of the batch that has it, trigger 0."""
    with tempfile.TemporaryDirectory() as checkpoint, steady_topic(server, a_second=STEADY) as topic:
        options = {"kafka.bootstrap.servers": server.bootstrap_servers, "subscribe": topic}
        frame = session.readStream.format(side.format).options(**options, startingOffsets="latest").load()
        frame = frame.observe("batch", *what_is_seen())
        writer = frame.writeStream.format("noop").option("checkpointLocation", checkpoint)
        query = writer.trigger(processingTime="0 seconds").start()
        wait(lambda: any(progress.numInputRows for progress in query.recentProgress), "the first batch", query)
        time.sleep(WARM_S)
        counts_from = time.time()
        time.sleep(COUNTED_S)
        query.stop()
        said = [progress for progress in query.recentProgress if progress.numInputRows]
    batches = [batch_of(progress) for progress in said if began_s(progress) >= counts_from]
    return percentile(batches, 0.5) * 1e3, percentile(batches, 0.99) * 1e3


def what_is_seen() -> Sequence[Any]:
    """Of each batch."""
    from pyspark.sql.functions import col, count, max, min

    at = col("timestamp").cast("double")
    return count("*").alias("rows"), min(at).alias("first"), max(at).alias("last")


def batch_of(progress: Any) -> Batch:
    row = progress.observedMetrics["batch"]
    return Batch(ended_s(progress), row["rows"], row["first"], row["last"])


def throughput_rows(session: Any, server: Server, runs: int, peers: Sequence[Side]) -> list[Row]:
    """Rows a second, and what one takes of the processors."""
    ours, *theirs = take_turns(runs, *(partial(available_now, session, server, side) for side in (OURS, *peers)))
    by_peer = dict(zip(peers, theirs, strict=True))
    rates = {side: [RECORDS / each.wall_s for each in found] for side, found in by_peer.items()}
    what = f"stream, 1 M a batch, from {server.name}"
    mine = [RECORDS / each.wall_s for each in ours]
    rows = rows_of(what, mine, rates, unit="rows/s", reaches=(">= 1.5x", ">= 1x"), how=warmed(runs))
    return rows + rows_of_processors(what, RECORDS, ours, by_peer, runs=runs, reach="<= 0.7 us")


def age_rows(session: Any, server: Server, runs: int, peers: Sequence[Side]) -> list[Row]:
    """p50 and p99 beside the peer as it comes."""
    sides = [side for side in (OURS, *peers) if side is not TUNED]
    found = [[ages_ms(session, server, side) for side in sides] for _ in range(runs)]
    ours, *theirs = [list(zip(*each, strict=True)) for each in zip(*found, strict=True)]
    by_rank = [dict(zip(sides[1:], (each[rank] for each in theirs), strict=True)) for rank in range(2)]
    return [
        row
        for rank, (name, reach) in enumerate((("p50", ">= 1x"), ("p99", ">= 1x")))
        for row in rows_of(
            f"age of rows at the end of their batch, {name}, 20 k rows/s, from {server.name}",
            ours[rank],
            by_rank[rank],
            unit="ms",
            reaches=[reach],
            how=f"{runs} of {COUNTED_S:g} s, each after {WARM_S:g} s",
            less_is_better=True,
        )
    ]


def measure(runs: int) -> list[Table]:
    with spark_session() as (session, left_out), brokers() as servers:
        peers = () if left_out else (PLAIN, TUNED)
        rows: list[Row] = []
        for server in servers:
            fill(server, "streamed", partitions=PARTITIONS, records=RECORDS, value=b"x" * 100, key=b"k" * 8)
            rows += throughput_rows(session, server, runs, peers)
        rows += age_rows(session, servers[-1], runs, peers)
        shared = group_rows(session, servers[0], runs)
    return [
        Table("sparkstream", "Spark stream", rows, left_out),
        Table("sparkgroup", "Spark queries in a group", shared),
    ]
