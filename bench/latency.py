"""From produce to consume: how long a record takes, one reader beside it, or many readers of many partitions.

Each record carries the time at which it was handed to the producer; both ends are one process, so it is one clock. One
reader and one producer are confluent-kafka's with its defaults but for what is named. Many readers are raw connections
that ask as consumers do, with sessions (KIP-227) or without, and one raw producer beside them: a client library for
each would take the processors that the brokers need. Peer: Apache Kafka 4.3.
"""

from __future__ import annotations

import selectors
import struct
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import quantiles
from typing import Any, NamedTuple
from uuid import uuid4

from kohort.records.batch import build_batch, iterate_records
from kohort.wire.codec import decode
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic
from kohort.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.registry import ApiKey
from load import RawConnection, frame
from report import APACHE_KAFKA, Row, Table, compare, take_turns, warmed
from servers import cpu_s, start_both
from topics import PAGE_CACHE, create_writable_topic, produce_request

RECORDS, PER_SECOND = 1_500, 500
#: How a record's value begins: nanoseconds of the process's clock.
SENT_AT = struct.Struct(">q")
FETCH_VERSION = 12
PATIENCE_S = 60.0
#: As many as one request may create.
TOPIC_PARTITIONS = 1_000


class Latency(NamedTuple):
    """Of one run: milliseconds, and cores that the broker kept busy."""

    p50: float
    p99: float
    cores: float


def latency_of(taken_ms: Sequence[float], cores: float) -> Latency:
    cuts = quantiles(taken_ms, n=100)
    return Latency(cuts[49], cuts[98], cores)


def between_confluents(server: Any, flush: str) -> Latency:
    """One producer, one consumer, a record every two milliseconds."""
    from confluent_kafka import Consumer, Producer, TopicPartition

    topic = f"latency-{uuid4().hex[:8]}"
    connection = RawConnection(server.port)
    create_writable_topic(connection, topic, 1, {"flush.messages": flush})
    connection.close()
    consumer = Consumer({"bootstrap.servers": server.bootstrap_servers, "group.id": "latency"})
    consumer.assign([TopicPartition(topic, 0, 0)])
    producer = Producer({"bootstrap.servers": server.bootstrap_servers, "acks": "all", "linger.ms": 0})
    taken: list[float] = []
    deadline = time.monotonic() + PATIENCE_S

    def read() -> None:
        while len(taken) < RECORDS and time.monotonic() < deadline:
            message = consumer.poll(0.5)
            if message is not None and message.error() is None:
                taken.append((time.perf_counter_ns() - SENT_AT.unpack_from(message.value())[0]) / 1e6)

    reader = threading.Thread(target=read)
    reader.start()
    before, began = cpu_s(server.process.pid), time.monotonic()
    for number in range(RECORDS):
        time.sleep(max(0.0, began + number / PER_SECOND - time.monotonic()))
        producer.produce(topic, SENT_AT.pack(time.perf_counter_ns()) + b"x" * 92)
        producer.poll(0)
    producer.flush(PATIENCE_S)
    reader.join()
    used, took = cpu_s(server.process.pid) - before, time.monotonic() - began
    consumer.close()
    assert len(taken) == RECORDS, f"{RECORDS - len(taken)} records did not come"
    return latency_of(taken[RECORDS // 10 :], used / took)


class Reader:
    """One connection that always has a fetch of its partitions under way."""

    def __init__(self, port: int, topic: str, offsets: dict[int, int], *, with_session: bool) -> None:
        """`offsets`: partition -> the offset that is read next."""
        self.connection = RawConnection(port)
        self._topic = topic
        self._with_session = with_session
        self._session = (0, 0 if with_session else -1)
        self._offsets = offsets
        self._changed = list(offsets)

    def ask(self) -> None:
        """Send the next fetch: of everything, or within a session of what has moved on."""
        numbers = self._changed if self._with_session else self._offsets
        rows = [
            FetchPartition(partition=number, fetch_offset=self._offsets[number], partition_max_bytes=1 << 20)
            for number in numbers
        ]
        request = FetchRequest(
            replica_id=-1,
            max_wait_ms=500,
            min_bytes=1,
            max_bytes=50 << 20,
            session_id=self._session[0],
            session_epoch=self._session[1],
            topics=[FetchTopic(topic=self._topic, partitions=rows)] if rows else [],
        )
        self._changed = []
        self.connection.send(frame(ApiKey.FETCH, FETCH_VERSION, request))

    def take(self) -> Iterator[bytes]:
        """The values of the answer that has come."""
        answer, _ = decode(FetchResponse, FETCH_VERSION, self.connection.receive(), 5)
        assert answer.error_code == 0, answer
        if self._with_session:
            self._session = (answer.session_id, self._session[1] + 1)
        for topic in answer.responses:
            for row in topic.partitions:
                assert row.error_code == 0, row
                for record in iterate_records(memoryview(row.records or b"")):
                    self._offsets[row.partition_index] = record.offset + 1
                    self._changed.append(row.partition_index)
                    yield record.value or b""


@dataclass(frozen=True)
class Crowd:
    """Readers, each with partitions of its own, and what is written for them."""

    readers: int
    partitions: int
    per_second: int
    seconds: float
    with_session: bool = False

    @property
    def what(self) -> str:
        asks = ", with sessions" if self.with_session else ""
        return f"{self.readers} readers of {self.partitions:,} partitions each, {self.per_second} records/s{asks}"

    def places(self, prefix: str) -> list[tuple[str, range]]:
        """The topic of each reader, and its partitions there."""
        shared = max(1, TOPIC_PARTITIONS // self.partitions)
        firsts = [(reader // shared, reader % shared * self.partitions) for reader in range(self.readers)]
        return [(f"{prefix}-{topic}", range(first, first + self.partitions)) for topic, first in firsts]


#: Apache Kafka has a file open for each partition, and 20,000 are what a process may have here.
CROWDS = (
    (Crowd(100, 10, 500, 8.0), "<= 0.5x", "<= 1x"),
    (Crowd(18, 1_000, 100, 8.0), "<= 1x", "report"),
    (Crowd(18, 1_000, 100, 8.0, with_session=True), "<= 0.5x", "report"),
)


def among(crowd: Crowd, server: Any, topic: str) -> Latency:
    """Records at an even pace to partitions by chance, read by whoever has them."""
    with ExitStack() as stack:
        writer = RawConnection(server.port)
        stack.callback(writer.close)
        selector = stack.enter_context(selectors.DefaultSelector())
        for name, partitions in crowd.places(topic):
            offsets = ends_of(writer, name, partitions)
            reader = Reader(server.port, name, offsets, with_session=crowd.with_session)
            stack.callback(reader.connection.close)
            reader.ask()
            selector.register(reader.connection.descriptor, selectors.EVENT_READ, reader)
        selector.register(writer.descriptor, selectors.EVENT_READ)
        before, began = cpu_s(server.process.pid), time.monotonic()
        taken = carry(crowd, selector, writer, topic)
        return latency_of(taken, (cpu_s(server.process.pid) - before) / (time.monotonic() - began))


def ends_of(connection: RawConnection, topic: str, partitions: Sequence[int]) -> dict[int, int]:
    """Partition -> the end of its log."""
    rows = [ListOffsetsPartition(partition_index=number, timestamp=-1) for number in partitions]
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=rows)])
    found = connection.ask(ApiKey.LIST_OFFSETS, 4, request).topics[0].partitions
    return {row.partition_index: row.offset for row in found}


def carry(crowd: Crowd, selector: selectors.BaseSelector, writer: RawConnection, topic: str) -> list[float]:
    """Write for the crowd's seconds, read until all has come; milliseconds of each record behind the first second."""
    chance, places = Random(7), crowd.places(topic)
    count = int(crowd.per_second * crowd.seconds)
    taken: list[float] = []
    written = 0
    began = time.monotonic()
    while len(taken) < count:
        due = began + written / crowd.per_second - time.monotonic()
        if written < count and due <= 0:
            batch = build_batch([(None, SENT_AT.pack(time.perf_counter_ns()) + b"x" * 92, 0, ())])
            name, partitions = chance.choice(places)
            request = produce_request(name, chance.choice(partitions), batch)
            writer.send(frame(ApiKey.PRODUCE, 8, request))
            written += 1
            continue
        assert time.monotonic() < began + PATIENCE_S, f"{count - len(taken)} records did not come"
        for key, _ in selector.select(due if written < count else 1.0):
            if key.data is None:
                writer.receive()
                continue
            values = list(key.data.take())
            now_ns = time.perf_counter_ns()
            taken += [(now_ns - SENT_AT.unpack_from(value)[0]) / 1e6 for value in values]
            key.data.ask()
    return taken[crowd.per_second :]


def measure(runs: int) -> list[Table]:
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        rows = [row for flush in (PAGE_CACHE, "1") for row in _pairs(servers, flush, runs)]
        table = Table("throughlog", "Produce to consume", rows, left_out)
    crowded: list[Row] = []
    for crowd, reach, cpu_reach in CROWDS:
        with ExitStack() as stack:
            servers, _ = start_both(stack)
            crowded += _crowd(crowd, servers, runs, reach, cpu_reach)
    return [table, Table("crowds", "Many readers", crowded, left_out)]


def _pairs(servers: Sequence[Any], flush: str, runs: int) -> list[Row]:
    found = take_turns(runs, *(partial(between_confluents, server, flush) for server in servers))
    what, settings = ("synced", "theirs: flush.messages=1")
    if flush == PAGE_CACHE:
        what, settings = "page cache", "ours: flush.messages=2^63-1"
    row = partial(_row, found, runs, settings=f"{settings}; both clients: linger.ms=0")
    return [
        row(f"confluent-kafka both ends, {what}: p50", lambda run: run.p50, reach="<= 0.5x"),
        row(f"confluent-kafka both ends, {what}: p99", lambda run: run.p99, reach="<= 0.5x"),
    ]


def _crowd(crowd: Crowd, servers: Sequence[Any], runs: int, reach: str, cpu_reach: str) -> list[Row]:
    topic = f"crowd-{uuid4().hex[:8]}"
    for server in servers:
        connection = RawConnection(server.port)
        for name, count in Counter(name for name, partitions in crowd.places(topic) for _ in partitions).items():
            create_writable_topic(connection, name, count, {"flush.messages": PAGE_CACHE})
        connection.close()
    found = take_turns(runs, *(partial(among, crowd, server, topic) for server in servers))
    row = partial(_row, found, runs, settings="ours: flush.messages=2^63-1")
    return [
        row(f"{crowd.what}: p50", lambda run: run.p50, reach=reach),
        row(f"{crowd.what}: p99", lambda run: run.p99, reach=reach),
        row(f"{crowd.what}: broker", lambda run: run.cores, reach=cpu_reach, unit="cores"),
    ]


def _row(
    found: Sequence[Sequence[Latency]],
    runs: int,
    what: str,
    figure: Callable[[Latency], float],
    *,
    reach: str,
    settings: str,
    unit: str = "ms",
) -> Row:
    ours, *peers = [[figure(run) for run in side] for side in found]
    return compare(
        what,
        ours,
        peers[0] if peers else [],
        unit=unit,
        reach=reach,
        peer_name=APACHE_KAFKA,
        how=warmed(runs),
        settings=settings,
        less_is_better=True,
    )
