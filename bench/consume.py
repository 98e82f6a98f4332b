"""What is read from 4 partitions, from the first call to the last record: all columns at once, in lists, one by one.

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
    compression: str = "none"


CONTENTS = (
    Content("100 B", "plain", 2_000_000, b"x" * 100, None, ">= 3x"),
    Content("100 B, keys of 8 B", "keyed", 2_000_000, b"x" * 100, b"k" * 8, ">= 3.5x"),
    Content("1 KB, keys of 8 B", "large", 600_000, b"x" * 1024, b"k" * 8, ">= 1.3x"),
    Content("100 B, keys of 8 B, zstd", "zstd", 2_000_000, b"x" * 100, b"k" * 8, ">= 2.5x", "zstd"),
    Content("100 B, keys of 8 B, lz4", "lz4", 2_000_000, b"x" * 100, b"k" * 8, ">= 2.5x", "lz4"),
)
#: Of these, records are read as objects, too: as many at the most.
AS_OBJECTS = (CONTENTS[1], CONTENTS[2])
MOST_OBJECTS = 1_000_000


def arrow_batches(consumer: Any) -> int:
    return sum(batch.num_rows for batch in consumer.poll_arrow(5.0))


def our_records(consumer: Any) -> int:
    """The values are looked at, as they are of the peer."""
    return sum(record.value is not None for record in consumer.poll(5.0))


def our_list(consumer: Any) -> int:
    return len(consumer.consume(10_000, 5.0))


def our_record(consumer: Any) -> int:
    return consumer.poll_one(5.0).value is not None


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


class Reading(NamedTuple):
    """One way to read, the peer's that it is compared with, and what is reached for: with 100 B, with 1 KB."""

    call: str
    ours: Callable[[Any], int]
    peer_call: str
    theirs: Callable[[Any], int]
    reach: tuple[str, str]


READINGS = (
    Reading("poll, record by record", our_records, "poll()", one_message, (">= 2x", ">= 1.2x")),
    Reading("poll_one", our_record, "poll()", one_message, (">= 1x", ">= 1x")),
    Reading("consume(10000)", our_list, "consume(10000)", many_messages, (">= 1.5x", "report")),
)


def measure(runs: int) -> list[Table]:
    columns: list[Row] = []
    singles: list[Row] = []
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        for server in servers:
            columns += [as_columns(server, content, runs) for content in CONTENTS]
            for number, content in enumerate(AS_OBJECTS):
                singles += [as_objects(server, content, reading, reading.reach[number], runs) for reading in READINGS]
    return [
        Table("consume", "Consume as columns", columns, left_out),
        Table("poll", "Consume as records", singles, left_out),
    ]


def as_columns(server: Any, content: Content, runs: int) -> Row:
    """The topic is made on the way."""
    fill(
        server,
        content.topic,
        partitions=PARTITIONS,
        records=content.records,
        value=content.value,
        key=content.key,
        compression=content.compression,
    )
    where = (server.bootstrap_servers, content.topic, content.records)
    found = alternate(runs, partial(with_kohort, *where, arrow_batches), partial(with_confluent, *where, many_messages))
    return _row(f"poll_arrow, {content.what}, from {server.name}", found, "consume(10000)", content.reach, runs)


def as_objects(server: Any, content: Content, reading: Reading, reach: str, runs: int) -> Row:
    """Of a topic that is there already."""
    where = (server.bootstrap_servers, content.topic, min(content.records, MOST_OBJECTS))
    found = alternate(runs, partial(with_kohort, *where, reading.ours), partial(with_confluent, *where, reading.theirs))
    return _row(f"{reading.call}, {content.what}, from {server.name}", found, reading.peer_call, reach, runs)


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
