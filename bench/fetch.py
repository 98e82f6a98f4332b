"""Fetch over one connection, 5 in flight, from data that lies in the page cache: 1 MB and 64 KB a request.

Peer: Apache Kafka 4.3, which answers by sendfile.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any

from kohort.wire.registry import ApiKey
from load import RawConnection, frame
from report import Row, alternate, compare, show
from servers import start_both
from topics import PAGE_CACHE, batch_of, create_topic, fetch_request, produce_request

BATCH_RECORDS = 280  # about 32 KB, so that a request of 64 KB or 1 MB is filled by whole batches
BATCHES = 4_000


def fill_partition(server: Any) -> int:
    """One partition of about 130 MB; returns its end offset."""
    connection = RawConnection(server.port)
    create_topic(connection, "fetch", 1, {"flush.messages": PAGE_CACHE})
    one = frame(ApiKey.PRODUCE, 8, produce_request("fetch", 0, batch_of(BATCH_RECORDS, b"x" * 100)))
    connection.run([one] * BATCHES, in_flight=5)
    connection.close()
    return BATCHES * BATCH_RECORDS


def main(runs: int) -> None:
    rows: list[Row] = []
    with ExitStack() as stack:
        mine, peer, left_out = start_both(stack)
        end = fill_partition(mine)
        if peer:
            fill_partition(peer)
        for what, size, count in (("1 MB", 1 << 20, 1_500), ("64 KB", 64 << 10, 10_000)):
            per_request = max(1, size // 32_500) * BATCH_RECORDS
            offsets = [index * per_request % (end - per_request) for index in range(count)]

            def rate(server: Any, offsets: list[int] = offsets, size: int = size) -> float:
                connection = RawConnection(server.port)
                frames = [
                    frame(ApiKey.FETCH, 11, fetch_request("fetch", 0, offset - offset % BATCH_RECORDS, size))
                    for offset in offsets
                ]
                seconds, received = connection.run(frames, in_flight=5)
                connection.close()
                return received / 1e6 / seconds

            ours, peers = alternate(runs, lambda r=rate: r(mine), (lambda r=rate: r(peer)) if peer else None)
            rows.append(compare(what, ours, peers, unit="MB/s", reach=">= 1x", peer_name="Apache Kafka 4.3"))
    show("Fetch", rows, left_out=left_out)
