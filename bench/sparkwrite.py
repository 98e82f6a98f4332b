"""Spark writes 5 M records of 100 B with keys of 8 B, `local[2]`: a DataFrame that is in memory, and a stream of five
files.

Each run writes to a topic of its own, which is deleted behind it. Peer: Spark's own sink.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

from load import RawConnection
from report import Row, Table, take_turns, warmed
from sparkbatch import rows_of_processors
from sparksides import OURS, PLAIN, Cost, Side, brokers, cost_of, rows_of, spark_session
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
    return [Table("sparkwrite", "Spark write", found, left_out)]
