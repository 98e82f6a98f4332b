"""Ready-made batches, 5 in flight on each connection, acks=all: 1 MB, 64 KB plain and by zstd, one record of 100 B.

Page cache (Kafka's default; ours by `flush.messages`) and each append synced; one connection, and 50 with a partition
each. Each record of a batch is looked at before it is stored. Peer: Apache Kafka 4.3. Where KOHORT_BEFORE names the
interpreter of another checkout, e.g. /tmp/before/.venv/bin/python, its broker is a second peer: what a change costs.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any, TypeAlias
from uuid import uuid4

from generator import Line
from kohort.wire.registry import ApiKey
from load import RawConnection, frame, place_of_error
from pressure import Prepared, Pressure, under_pressure
from report import APACHE_KAFKA, Row, Table
from servers import KohortServer, start_both
from topics import PAGE_CACHE, batch_of, create_writable_topic, delete_topic, produce_request

IN_FLIGHT = 5
#: Records of 100 B in a batch and their codec, by the name of its size.
SIZES = {"1 MB": (8_900, "none"), "64 KB": (560, "none"), "64 KB zstd": (560, "zstd"), "one record": (1, "none")}
Load: TypeAlias = tuple[str, str, int, str]
#: (size, `flush.messages`, connections, reach): the JVM has seen small ones when the large ones come.
LOADS = (
    ("one record", PAGE_CACHE, 1, ">= 1.5x"),
    ("64 KB", PAGE_CACHE, 1, ">= 2x"),
    ("64 KB zstd", PAGE_CACHE, 1, ">= 1x"),
    ("1 MB", PAGE_CACHE, 1, ">= 1x"),
    ("one record", PAGE_CACHE, 50, "report"),
    ("64 KB", PAGE_CACHE, 50, "report"),
    ("one record", "1", 1, ">= 1.5x"),
    ("64 KB", "1", 1, ">= 2x"),
)
#: The same against another version of the broker.
LOADS_BEFORE = (
    ("one record", PAGE_CACHE, 1, ">= 0.97x"),
    ("64 KB", PAGE_CACHE, 1, ">= 0.97x"),
    ("64 KB zstd", PAGE_CACHE, 1, ">= 0.9x"),
    ("64 KB zstd", "1", 1, ">= 0.9x"),
)
SETTINGS = {PAGE_CACHE: "ours: flush.messages=2^63-1", "1": "theirs: flush.messages=1"}
#: What a run has written need not lie on the peer's disk for a minute more.
CLEAN_UP = {"log.segment.delete.delay.ms": 0}


@contextmanager
def partitions_to_fill(server: Any, *, batch: bytes, flush: str, connections: int) -> Iterator[Prepared]:
    """A new topic with a partition for each connection, deleted afterwards."""
    topic = f"produce-{uuid4().hex[:8]}"
    raw = [RawConnection(server.port) for _ in range(connections)]
    create_writable_topic(raw[0], topic, connections, {"flush.messages": flush})
    lines, place = [], 0
    for partition, connection in enumerate(raw):
        request = produce_request(topic, partition, batch)
        answer = connection.ask(ApiKey.PRODUCE, 8, request)
        row = answer.responses[0].partition_responses[0]
        assert row.error_code == 0, answer
        place = place_of_error(ApiKey.PRODUCE, 8, answer, row)
        lines.append(Line(connection.descriptor, [frame(ApiKey.PRODUCE, 8, request)]))
    yield Prepared(lines, place)
    delete_topic(raw[0], topic)
    for connection in raw:
        connection.close()


def measure(runs: int) -> list[Table]:
    with ExitStack() as stack:
        servers, left_out = start_both(stack, peer=CLEAN_UP)
        tables = [Table("produce", "Produce", load(servers, LOADS, runs), left_out)]
    if before := os.environ.get("KOHORT_BEFORE"):
        with KohortServer() as ours, KohortServer(python=before) as theirs:
            rows = load([ours, theirs], LOADS_BEFORE, runs, peer=before)
        tables.append(Table("produce-before", "Produce, beside another version", rows, []))
    return tables


def load(servers: Sequence[Any], loads: Sequence[Load], runs: int, *, peer: str = APACHE_KAFKA) -> list[Row]:
    """A row for each load."""
    rows = []
    for size, flush, connections, reach in loads:
        records, codec = SIZES[size]
        batch = batch_of(records, b"x" * 100, compression=codec)
        prepare = partial(partitions_to_fill, batch=batch, flush=flush, connections=connections)
        pressure = Pressure(
            what=f"{size}, {'page cache' if flush == PAGE_CACHE else 'synced'}, {over(connections)}",
            in_flight=IN_FLIGHT,
            reach=reach,
            unit="req/s" if size == "one record" else "MB/s",
            is_produced=True,
            settings=SETTINGS[flush] if peer == APACHE_KAFKA else "",
            peer=peer,
        )
        rows.append(under_pressure(pressure, prepare, servers, runs))
    return rows


def over(connections: int) -> str:
    """How many connections, in words."""
    return "1 connection" if connections == 1 else f"{connections:,} connections"
