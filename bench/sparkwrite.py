"""Spark writes 5 M records of 100 B with keys of 8 B: a DataFrame that is in memory, and a stream of five files.

A part of `sparkbatch`, in its session and on its brokers. Each run writes to a topic of its own, which is deleted
behind it. Peer: Spark's own sink.
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

from load import RawConnection
from report import alternate
from topics import PAGE_CACHE, Server, create_writable_topic, delete_topic

RECORDS = 5_000_000
FILES = 5
_NUMBERS = count()


def writing_rates(
    session: Any, server: Server, runs: int, *, has_peer: bool
) -> Iterator[tuple[str, list[float], list[float]]]:
    """Batch and stream: what it is, and records per second of our runs and the peer's."""
    rows = session.range(0, RECORDS, 1, FILES).selectExpr(
        "cast(lpad(cast(id as string), 8, '0') as binary) key", "cast(repeat('x', 100) as binary) value"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = str(Path(folder, "rows"))
        rows.write.parquet(path)
        stream = session.readStream.schema(rows.schema).option("maxFilesPerTrigger", 1).parquet(path)
        rows = rows.persist()
        rows.count()
        for what, rate, frame in (("write", batch_rate, rows), ("write, stream", stream_rate, stream)):
            peer = partial(rate, frame, "kafka", server) if has_peer else None
            yield what, *alternate(runs, partial(rate, frame, "kohort", server), peer)
        rows.unpersist()


def batch_rate(frame: Any, sink: str, server: Server) -> float:
    """A batch query."""
    with fresh_topic(server) as topic:
        writer = frame.write.format(sink).option("kafka.bootstrap.servers", server.bootstrap_servers)
        return timed(writer.option("topic", topic).mode("append").save)


def stream_rate(frame: Any, sink: str, server: Server) -> float:
    """A streaming query, a file a micro-batch."""
    with fresh_topic(server) as topic, tempfile.TemporaryDirectory() as checkpoint:
        writer = frame.writeStream.format(sink).option("kafka.bootstrap.servers", server.bootstrap_servers)
        writer = writer.option("topic", topic).option("checkpointLocation", checkpoint).trigger(availableNow=True)
        return timed(lambda: writer.start().awaitTermination())


def timed(work: Callable[[], None]) -> float:
    """Records per second."""
    began = time.perf_counter()
    work()
    return RECORDS / (time.perf_counter() - began)


@contextmanager
def fresh_topic(server: Server) -> Iterator[str]:
    """Of four partitions."""
    name = f"sparkwrite-{next(_NUMBERS)}"
    connection = RawConnection(server.port)
    create_writable_topic(connection, name, 4, {"flush.messages": PAGE_CACHE})
    yield name
    delete_topic(connection, name)
    connection.close()
