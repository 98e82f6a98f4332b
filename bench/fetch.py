"""Fetch, 5 in flight on each connection, from data that lies in the page cache: 1 MB and 64 KB a request.

One connection, and 50 with a partition each. Peer: Apache Kafka 4.3, which answers by sendfile.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from typing import Any

from generator import Line
from kohort.wire.registry import ApiKey
from load import RawConnection, frame, place_of_error
from pressure import Prepared, Pressure, under_pressure
from produce import over
from report import Row, Table
from servers import start_both
from topics import PAGE_CACHE, batch_of, create_writable_topic, fetch_request, produce_request

IN_FLIGHT = 5
BATCH_RECORDS = 280  # about 32 KB, so that a request of 64 KB or 1 MB is filled by whole batches
BATCH_BYTES = 32_500
#: Batches in all; each connection reads a partition of its own.
BATCHES = 4_000
TOPIC = "fetch-{connections}"
#: Requests of a circle: together they read a partition from its begin to its end, at least once.
CIRCLE = 400
LOADS = (
    ("1 MB", 1 << 20, 1, ">= 2x"),
    ("64 KB", 64 << 10, 1, ">= 1.5x"),
    ("64 KB", 64 << 10, 50, "report"),
)


def fill_partitions(server: Any, connections: int) -> None:
    """About 130 MB, spread over a partition for each connection."""
    connection = RawConnection(server.port)
    topic = TOPIC.format(connections=connections)
    create_writable_topic(connection, topic, connections, {"flush.messages": PAGE_CACHE})
    batch = batch_of(BATCH_RECORDS, b"x" * 100)
    for partition in range(connections):
        one = frame(ApiKey.PRODUCE, 8, produce_request(topic, partition, batch))
        connection.run([one] * (BATCHES // connections), in_flight=5)
    connection.close()


@contextmanager
def readers(server: Any, *, connections: int, size: int) -> Iterator[Prepared]:
    """A connection for each partition, which reads it over and over."""
    topic = TOPIC.format(connections=connections)
    at_once = max(1, size // BATCH_BYTES)
    batches = BATCHES // connections
    raw, lines, place = [], [], 0
    for partition in range(connections):
        connection = RawConnection(server.port)
        raw.append(connection)
        offsets = [turn * at_once % (batches - at_once) * BATCH_RECORDS for turn in range(CIRCLE)]
        requests = [fetch_request(topic, partition, offset, size) for offset in offsets]
        answer = connection.ask(ApiKey.FETCH, 11, requests[0])
        row = answer.responses[0].partitions[0]
        assert row.error_code == 0 and len(row.records) >= at_once * BATCH_BYTES * 0.9, answer
        place = place_of_error(ApiKey.FETCH, 11, answer, row)
        lines.append(Line(connection.descriptor, [frame(ApiKey.FETCH, 11, request) for request in requests]))
    yield Prepared(lines, place)
    for connection in raw:
        connection.close()


def measure(runs: int) -> list[Table]:
    rows: list[Row] = []
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        for server in servers:
            for connections in (1, 50):
                fill_partitions(server, connections)
        for what, size, connections, reach in LOADS:
            prepare = partial(readers, connections=connections, size=size)
            pressure = Pressure(what=f"{what}, {over(connections)}", in_flight=IN_FLIGHT, reach=reach, unit="MB/s")
            rows.append(under_pressure(pressure, prepare, servers, runs))
    return [Table("fetch", "Fetch", rows, left_out)]
