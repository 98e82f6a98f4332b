"""Spark writes 5 M records of 100 B with keys of 8 B, `local[2]`: a DataFrame that is in memory, and a stream of five
files.

Each run writes to a topic of its own, which is deleted behind it. Peer: Spark's own sink. Exactly once has no peer but
our own sink: at least once with the same parted rows, so that the difference is the transactions', and as rows come.
The transaction's part of a batch is that of the driver: the epoch before the tasks, and the commit behind them.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from kohort.spark import write_stream
from kohort.spark.exactly_once import BatchTransaction, Part, begin, commit, with_transactional_id
from kohort.spark.options import SinkOptions, parse_sink_options
from kohort.spark.sink import Stored, Written
from kohort.spark.workers import keep_producer, take_producer
from load import RawConnection
from report import NO_PEER, Row, Table, compare, take_turns, warmed
from sparkbatch import rows_of_processors
from sparksides import OURS, PLAIN, SESSION, Cost, Side, brokers, cost_of, rows_of, spark_session
from topics import PAGE_CACHE, Server, create_writable_topic, delete_topic

RECORDS = 5_000_000
FILES = 5
_NUMBERS = count()


def batch(session: Any, frame: Any, server: Server, side: Side) -> Cost:
    """A batch query."""
    with fresh_topic(server) as topic:
        writer = frame.write.format(side.format).option("kafka.bootstrap.servers", server.bootstrap_servers)
        return cost_of(session, writer.option("topic", topic).mode("append").save)


def stream(session: Any, frame: Any, server: Server, side: Side) -> Cost:
    """A streaming query, a file a micro-batch."""
    with fresh_topic(server) as topic, tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format(side.format).option("kafka.bootstrap.servers", server.bootstrap_servers)
        writer = writer.option("topic", topic).option("checkpointLocation", checkpoint).trigger(availableNow=True)
        return cost_of(session, lambda: writer.start().awaitTermination())


def exactly_once(session: Any, frame: Any, server: Server, *, is_once: bool) -> Cost:
    """The same stream, its rows parted by the partitions of the topic, in transactions or without."""
    with fresh_topic(server) as topic, tempfile.TemporaryDirectory() as checkpoint:
        parted = write_stream(frame, topic, exactly_once=True, bootstrap_servers=server.bootstrap_servers)
        writer = parted.option("kohort.exactlyOnce", str(is_once).lower())
        writer = writer.option("checkpointLocation", checkpoint).trigger(availableNow=True)
        return cost_of(session, lambda: writer.start().awaitTermination())


def transaction_s(server: Server, batches: int) -> list[float]:
    """Seconds of each batch that the driver spends on its transaction: begin, an empty task's part, commit."""
    found = []
    with fresh_topic(server) as topic:
        given = {"kafka.bootstrap.servers": server.bootstrap_servers, "topic": topic, "kohort.exactlyOnce": "true"}
        options = with_transactional_id(parse_sink_options({**given, "kohort.transactionalId": topic}))
        for number in range(batches):
            began = time.perf_counter()
            transaction = begin(options)
            took_s = time.perf_counter() - began
            message = write_one(options, transaction, number)
            began = time.perf_counter()
            commit(options, [message], number)
            found.append(took_s + time.perf_counter() - began)
    return found


def write_one(options: SinkOptions, transaction: BatchTransaction, number: int) -> Written:
    """Write one row, as a task of the batch does."""
    producer = take_producer(options.client)
    producer._join(transaction.identity)
    stored = producer.send(str(options.topic), b"x", partition=0).result(30)
    producer._join(None)
    keep_producer(options.client, producer)
    row = Stored(stored.topic, stored.partition, stored.offset, stored.offset + 1, 1)
    return Written((row,), Part(transaction, "bench", number))


@contextmanager
def fresh_topic(server: Server) -> Iterator[str]:
    """Of four partitions."""
    name = f"sparkwrite-{next(_NUMBERS)}"
    connection = RawConnection(server.port)
    create_writable_topic(connection, name, 4, {"flush.messages": PAGE_CACHE})
    yield name
    delete_topic(connection, name)
    connection.close()


@contextmanager
def frames(session: Any) -> Iterator[list[tuple[str, Callable[..., Cost], Any]]]:
    """What is written: in memory, and as files that come one by one."""
    rows = session.range(0, RECORDS, 1, FILES).selectExpr(
        "cast(lpad(cast(id as string), 8, '0') as binary) key", "cast(repeat('x', 100) as binary) value"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "rows"))
        rows.write.parquet(path)
        files = session.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(path)
        rows = rows.persist()
        rows.count()
        yield [("write", batch, rows), ("write, stream", stream, files)]
        rows.unpersist()


def rows_of_transactions(session: Any, files: Any, server: Server, *, runs: int) -> list[Row]:
    """Rows of exactly once beside at least once, and of the transaction's part of a batch."""
    once, parted, plain = (
        [RECORDS / each.wall_s for each in costs]
        for costs in take_turns(
            runs,
            partial(exactly_once, session, files, server, is_once=True),
            partial(exactly_once, session, files, server, is_once=False),
            partial(stream, session, files, server, OURS),
        )
    )
    rows = [
        compare(
            f"write, stream, exactly once, to {server.name}{suffix}",
            once,
            peer,
            unit="rows/s",
            reach=reach,
            peer_name=f"kohort, at least once, {name}",
            how=warmed(runs),
            settings=SESSION,
        )
        for suffix, peer, reach, name in (
            ("", parted, ">= 0.85x", "the same parted rows"),
            (", rows not parted", plain, "report", "rows as they come"),
        )
    ]
    part_ms = [each * 1_000 for each in transaction_s(server, 20)[5:]]
    return [
        *rows,
        compare(
            f"a batch's transaction, to {server.name}",
            part_ms,
            [],
            unit="ms",
            reach="<= 30",
            peer_name=NO_PEER,
            how="median of 15 batches behind 5",
            less_is_better=True,
        ),
    ]


def measure(runs: int) -> list[Table]:
    found: list[Row] = []
    with spark_session() as (session, left_out), brokers() as servers, frames(session) as writes:
        sides = (OURS,) if left_out else (OURS, PLAIN)
        for server in servers:
            for name, write, frame in writes:
                ours, *theirs = take_turns(runs, *(partial(write, session, frame, server, side) for side in sides))
                by_peer = dict(zip(sides[1:], theirs, strict=True))
                rates = {side: [RECORDS / each.wall_s for each in costs] for side, costs in by_peer.items()}
                what = f"{name}, to {server.name}"
                mine = [RECORDS / each.wall_s for each in ours]
                found += rows_of(what, mine, rates, unit="rows/s", reaches=[">= 1x"], how=warmed(runs))
                found += rows_of_processors(what, RECORDS, ours, by_peer, runs=runs, reach="report")
            found += rows_of_transactions(session, writes[-1][2], server, runs=runs)
    return [Table("sparkwrite", "Spark write", found, left_out)]
