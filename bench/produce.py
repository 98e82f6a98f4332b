"""Ready-made batches over one connection, 5 in flight, acks=all: 1 MB, 64 KB, one record of 100 B.

Page cache (Kafka's default; ours by `flush.messages`) and each append synced. Peer: Apache Kafka 4.3.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import Any
from uuid import uuid4

from kohort.wire.registry import ApiKey
from load import RawConnection, frame
from report import Row, alternate, compare, show
from servers import start_both
from topics import PAGE_CACHE, batch_of, create_topic, produce_request

#: (what, records of 100 B in a batch, requests, unit, reach)
SHAPES = (
    ("1 MB", 8_900, 400, "MB/s", ">= 1x"),
    ("64 KB", 560, 3_000, "MB/s", ">= 2x"),
    ("one record", 1, 20_000, "req/s", ">= 1.5x"),
)


def main(runs: int) -> None:
    rows: list[Row] = []
    for title, flush, share in (("page cache", PAGE_CACHE, 1.0), ("synced", "1", 0.25)):
        with ExitStack() as stack:
            # Apache Kafka has a sync for each append by the same topic config.
            mine, peer, left_out = start_both(stack)
            for what, records, count, unit, reach in SHAPES:
                batch = batch_of(records, b"x" * 100)
                requests = int(count * share)

                def rate(
                    server: Any, batch: bytes = batch, requests: int = requests, unit: str = unit, flush: str = flush
                ) -> float:
                    connection = RawConnection(server.port)
                    topic = f"produce-{uuid4().hex[:8]}"
                    create_topic(connection, topic, 1, {"flush.messages": flush})
                    answer = connection.ask(ApiKey.PRODUCE, 8, produce_request(topic, 0, batch))
                    assert answer.responses[0].partition_responses[0].error_code == 0, answer
                    one = frame(ApiKey.PRODUCE, 8, produce_request(topic, 0, batch))
                    seconds, _ = connection.run([one] * requests, in_flight=5)
                    connection.close()
                    return (requests * len(batch) / 1e6 if unit == "MB/s" else requests) / seconds

                ours, peers = alternate(
                    runs, lambda r=rate, m=mine: r(m), (lambda r=rate, p=peer: r(p)) if peer else None
                )
                rows.append(
                    compare(f"{what}, {title}", ours, peers, unit=unit, reach=reach, peer_name="Apache Kafka 4.3")
                )
    show("Produce", rows, left_out=left_out)
