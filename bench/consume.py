"""What is read from 4 partitions, from the first poll to the last record: all columns at once, and record by record.

Peer: confluent-kafka from the same broker, by `consume(10000)` and `poll()`, tuned: as it comes it waits a second
whenever its queue of 100,000 records is full (`fetch.queue.backoff.ms`), which a reader that is only counting meets all
the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from functools import partial
from typing import Any, NamedTuple

from report import Row, Table, alternate, compare, warmed
from servers import start_both
from topics import fill

PARTITIONS = 4
TUNED = {"fetch.queue.backoff.ms": 5}
SETTINGS = "theirs: fetch.queue.backoff.ms=5"


class Content(NamedTuple):
    """A topic: what its records are, how many, and what is reached for when they are read as columns."""

    what: str
    topic: str
    records: int
    value: bytes
    key: bytes | None
    reach: str


CONTENTS = (
    Content("100 B", "plain", 2_000_000, b"x" * 100, None, ">= 3x"),
    Content("100 B, keys of 8 B", "keyed", 2_000_000, b"x" * 100, b"k" * 8, "report"),
    Content("1 KB, keys of 8 B", "large", 600_000, b"x" * 1024, b"k" * 8, "report"),
)
#: Of these so many are read one by one.
ONE_BY_ONE, ONE_BY_ONE_RECORDS = CONTENTS[0], 1_000_000


def arrow_batches(consumer: Any) -> int:
    return sum(batch.num_rows for batch in consumer.poll_arrow(5.0))


def our_records(consumer: Any) -> int:
    """The values are looked at, as they are of the peer."""
    return sum(record.value is not None for record in consumer.poll(5.0))


def with_kohort(bootstrap: str, topic: str, records: int, take: Callable[[Any], int]) -> float:
    """Records per second, from the first poll to the last record."""
    import kohort

    partitions = [kohort.TopicPartition(topic, number) for number in range(PARTITIONS)]
    with kohort.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        began = time.perf_counter()
        seen = 0
        while seen < records:
            seen += take(consumer)
        return seen / (time.perf_counter() - began)


def many_messages(consumer: Any) -> int:
    messages = consumer.consume(10_000, 5.0)
    for message in messages:
        assert message.error() is None, message.error()
    return len(messages)


def one_message(consumer: Any) -> int:
    message = consumer.poll(5.0)
    assert message is not None and message.error() is None, message
    return message.value() is not None


def with_confluent(bootstrap: str, topic: str, records: int, take: Callable[[Any], int]) -> float:
    """The same records by confluent-kafka."""
    from confluent_kafka import Consumer, TopicPartition

    config = {"bootstrap.servers": bootstrap, "group.id": "bench", "enable.auto.commit": False}
    consumer = Consumer({**config, "auto.offset.reset": "earliest", **TUNED})
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    began = time.perf_counter()
    seen = 0
    while seen < records:
        seen += take(consumer)
    rate = seen / (time.perf_counter() - began)
    consumer.close()
    return rate


def measure(runs: int) -> list[Table]:
    columns: list[Row] = []
    singles: list[Row] = []
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        for server in servers:
            for content in CONTENTS:
                fill(
                    server,
                    content.topic,
                    partitions=PARTITIONS,
                    records=content.records,
                    value=content.value,
                    key=content.key,
                )
                where = (server.bootstrap_servers, content.topic, content.records)
                found = alternate(
                    runs,
                    partial(with_kohort, *where, arrow_batches),
                    partial(with_confluent, *where, many_messages),
                )
                what = f"poll_arrow, {content.what}, from {server.name}"
                columns.append(_row(what, found, "consume(10000)", content.reach, runs))
            where = (server.bootstrap_servers, ONE_BY_ONE.topic, ONE_BY_ONE_RECORDS)
            found = alternate(
                runs, partial(with_kohort, *where, our_records), partial(with_confluent, *where, one_message)
            )
            singles.append(_row(f"poll, {ONE_BY_ONE.what}, from {server.name}", found, "poll()", "report", runs))
    return [
        Table("consume", "Consume as columns", columns, left_out),
        Table("poll", "Consume record by record", singles, left_out),
    ]


def _row(what: str, found: tuple[list[float], list[float]], call: str, reach: str, runs: int) -> Row:
    ours, peers = found
    return compare(
        what,
        ours,
        peers,
        unit="rec/s",
        reach=reach,
        peer_name=f"confluent-kafka {call}",
        how=warmed(runs),
        settings=SETTINGS,
    )
