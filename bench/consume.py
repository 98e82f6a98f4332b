"""`poll_arrow` of 100 B values from 4 partitions, from Apache Kafka 4.3 and from our broker.

Peer: confluent-kafka `consume(10000)` from the same broker, tuned: as it comes it waits a second whenever its queue of
100,000 records is full (`fetch.queue.backoff.ms`), which a reader that is only counting meets all the time.
"""

from __future__ import annotations

import time
from contextlib import ExitStack

from report import Row, alternate, compare, show
from servers import start_both
from topics import fill

PARTITIONS = 4
RECORDS = 4_000_000
TOPIC = "consume"
TUNED = {"fetch.queue.backoff.ms": 5}


def with_kohort(bootstrap: str) -> float:
    """Records per second of `poll_arrow`, from the first poll to the last record."""
    import kohort

    partitions = [kohort.TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    with kohort.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        began = time.perf_counter()
        seen = 0
        while seen < RECORDS:
            seen += sum(batch.num_rows for batch in consumer.poll_arrow(5.0))
        return seen / (time.perf_counter() - began)


def with_confluent(bootstrap: str) -> float:
    """The same records by confluent-kafka."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "bench",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            **TUNED,
        }
    )
    consumer.assign([TopicPartition(TOPIC, number, 0) for number in range(PARTITIONS)])
    began = time.perf_counter()
    seen = 0
    while seen < RECORDS:
        messages = consumer.consume(10_000, 5.0)
        for message in messages:
            assert message.error() is None, message.error()
        seen += len(messages)
    rate = seen / (time.perf_counter() - began)
    consumer.close()
    return rate


def main(runs: int) -> None:
    rows: list[Row] = []
    with ExitStack() as stack:
        mine, peer, left_out = start_both(stack)
        servers = [server for server in (mine, peer) if server]
        for server in servers:
            fill(server, TOPIC, partitions=PARTITIONS, records=RECORDS, value=b"x" * 100)
            address = server.bootstrap_servers
            ours, peers = alternate(runs, lambda a=address: with_kohort(a), lambda a=address: with_confluent(a))
            what = f"poll_arrow from {server.name}"
            rows.append(
                compare(what, ours, peers, unit="rec/s", reach=">= 3x", peer_name="confluent-kafka consume, tuned")
            )
    show("Consume", rows, left_out=left_out)
