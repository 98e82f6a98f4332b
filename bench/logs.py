"""The log: starts with millions of batches, topics and written logs by the thousand, compaction, memory behind a GB.

A start is counted from the process to the right end of every partition, cold by nature: after an ordinary stop, and
after a kill. While topics are made another connection asks for the versions, again and again: its longest wait is how
long everybody's was. Compaction is counted from the moment at which a topic may be compacted until its files are as
small as its keys. Peer: Apache Kafka 4.3.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

from generator import Line, generate
from kohort.records.batch import build_batch
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.delete_topics import DeleteTopicsRequest
from kohort.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from kohort.wire.registry import ApiKey
from load import RawConnection, frame, place_of_error
from readiness import until
from report import APACHE_KAFKA, Row, Table, compare
from servers import KohortServer, cpu_s, resident_mb, start_both
from topics import PAGE_CACHE, batch_of, count_records, create_topic, create_writable_topic, fill, produce_request

TOPIC = "logs"
PARTITIONS, BATCHES = 10, 10_000_000
FILL_S = 110.0
#: How many are made at a time, as how many topics.
NEW_PARTITIONS = ((2_000, 1), (2_000, 20), (10_000, 10))
#: Records of the compacted topic, and how many keys they have.
RECORDS, KEYS = 10_000_000, 500_000
PER_BATCH, VALUE = 1_000, b"x" * 100
#: A topic resource, and the operation that sets a config.
TOPIC_RESOURCE, SET = 2, 0
#: Both look for something to compact ten times a second.
CLEANERS = {"log.cleaner.backoff.ms": 100}
OURS = {"log.flush.interval.messages": PAGE_CACHE}
SETTINGS = "ours: log.flush.interval.messages=2^63-1"
GB = 1e9
#: Topics of as many partitions, each of which is written to.
MANY_TOPICS, MANY_EACH = tuple(f"many-{number}" for number in range(10)), 1_000


def directory_of(server: Any) -> Path:
    """Where a broker keeps its partitions."""
    return Path(server.directory) if isinstance(server, KohortServer) else server.directory / "logs"


def fill_with_single_records(server: Any) -> None:
    """Batches of one record, by the compiled generator."""
    raw = [RawConnection(server.port) for _ in range(PARTITIONS)]
    create_writable_topic(raw[0], TOPIC, PARTITIONS)
    lines, place = [], 0
    for partition, connection in enumerate(raw):
        request = produce_request(TOPIC, partition, batch_of(1, VALUE))
        answer = connection.ask(ApiKey.PRODUCE, 8, request)
        place = place_of_error(ApiKey.PRODUCE, 8, answer, answer.responses[0].partition_responses[0])
        lines.append(Line(connection.descriptor, [frame(ApiKey.PRODUCE, 8, request)]))
    left = BATCHES
    while left > 0:
        left -= generate(lines, in_flight=20, seconds=FILL_S, limit=left, place=place).answers
    for connection in raw:
        connection.close()


def count(server: Any) -> int:
    """Records that the broker says it has; -1 while it does not say."""
    try:
        connection = RawConnection(server.port)
    except OSError:
        return -1
    try:
        return count_records(connection, TOPIC, PARTITIONS)
    except OSError:
        return -1
    finally:
        connection.close()


def seconds_to_start(server: Any, records: int, *, is_killed: bool) -> float:
    """From the process to the right ends of all partitions."""
    if is_killed:
        server.process.kill()
    else:
        server.process.terminate()
    server.process.wait(120)
    began = time.monotonic()
    server.start()
    until(lambda: count(server) == records, "every partition is served as far as it was written", seconds=300)
    return time.monotonic() - began


def starts(runs: int) -> tuple[list[Row], list[str]]:
    """Stopped, killed and started in turn."""
    with ExitStack() as stack:
        servers, left_out = start_both(stack, ours=OURS)
        for server in servers:
            fill_with_single_records(server)
        records = [count(server) for server in servers]
        took: dict[bool, list[list[float]]] = {False: [], True: []}
        for is_killed in (False, True):
            rounds = [
                [seconds_to_start(*pair, is_killed=is_killed) for pair in zip(servers, records, strict=True)]
                for _ in range(runs)
            ]
            took[is_killed] = [list(side) for side in zip(*rounds, strict=True)]
    what = f"start, {BATCHES // 10**6} M batches of one record in {PARTITIONS} partitions"
    return [
        _row(f"{what}, stopped", took[False], unit="s", reach="<= 1x", how=f"{runs}, cold", settings=SETTINGS),
        _row(f"{what}, killed", took[True], unit="s", reach="<= 0.3x", how=f"{runs}, cold", settings=SETTINGS),
    ], left_out


def write_to_each(server: Any) -> None:
    """One record into each partition of the many topics, a request for each topic."""
    connection = RawConnection(server.port)
    batch = batch_of(1, VALUE)
    for name in MANY_TOPICS:
        rows = [PartitionProduceData(index=number, records=batch) for number in range(MANY_EACH)]
        request = ProduceRequest(
            acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=name, partition_data=rows)]
        )
        answer = connection.ask(ApiKey.PRODUCE, 8, request)
        assert {row.error_code for row in answer.responses[0].partition_responses} == {0}, answer
    connection.close()


def is_serving_all(server: Any, rounds: int) -> bool:
    """Whether every partition has a record of each round."""
    try:
        connection = RawConnection(server.port)
    except OSError:
        return False
    try:
        return all(count_records(connection, name, MANY_EACH) == MANY_EACH * rounds for name in MANY_TOPICS)
    except OSError:
        return False
    finally:
        connection.close()


def stop_and_start(server: Any, rounds: int) -> tuple[float, float, float]:
    """Seconds that a clean stop takes after a write to each partition, that the start takes, and its CPU."""
    write_to_each(server)
    began = time.monotonic()
    server.process.terminate()
    server.process.wait(600)
    stopped = time.monotonic() - began
    began = time.monotonic()
    server.start()
    until(lambda: is_serving_all(server, rounds), "every partition is served again", seconds=600)
    return stopped, time.monotonic() - began, cpu_s(server.process.pid)


def wait_beside_deletion(server: Any) -> float:
    """Milliseconds, while all of the many topics are deleted in one request."""
    connection = RawConnection(server.port)
    request = DeleteTopicsRequest(topic_names=list(MANY_TOPICS), timeout_ms=60_000)
    longest = longest_wait_ms(server.port, lambda: connection.ask(ApiKey.DELETE_TOPICS, 5, request))
    connection.close()
    return longest


def many_partitions(runs: int) -> tuple[list[Row], list[str]]:
    """Stops and starts with thousands of partitions, each of which was written to since the last start."""
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        for server in servers:
            connection = RawConnection(server.port)
            for name in MANY_TOPICS:
                create_writable_topic(connection, name, MANY_EACH)
            connection.close()
        rounds = [[stop_and_start(server, number + 1) for server in servers] for number in range(runs)]
        waits = [[wait_beside_deletion(server)] for server in servers]
    columns = [[[found[at] for found in side] for side in zip(*rounds, strict=True)] for at in range(3)]
    what = f"{len(MANY_TOPICS) * MANY_EACH:,} written partitions"
    return [
        _row(f"clean stop, {what}", columns[0], unit="s", reach="<= 5 s", how=f"{runs}"),
        _row(f"start, {what}", columns[1], unit="s", reach="<= 0.5x", how=f"{runs}, after a clean stop"),
        _row(f"CPU of a start, {what}", columns[2], unit="s", reach="<= 1 s", how=f"{runs}, after a clean stop"),
        _row(f"longest wait of others, {what} deleted", waits, unit="ms", reach="<= 50 ms", how="1"),
    ], left_out


def longest_wait_ms(port: int, work: Callable[[], None]) -> float:
    """Of a connection that asks for the versions again and again while `work` goes on."""
    connection, is_over = RawConnection(port), threading.Event()
    request = frame(ApiKey.API_VERSIONS, 0, ApiVersionsRequest())
    waits: list[float] = []

    def ask() -> None:
        while not is_over.is_set():
            began = time.perf_counter()
            connection.send(request)
            connection.receive()
            waits.append((time.perf_counter() - began) * 1000)
            time.sleep(0.0005)

    asking = threading.Thread(target=ask)
    asking.start()
    try:
        work()
    finally:
        is_over.set()
        asking.join()
        connection.close()
    return max(waits)


def wait_beside_creation(server: Any, partitions: int, topics: int) -> float:
    """Milliseconds, while so many topics share the new partitions."""
    connection = RawConnection(server.port)

    def create() -> None:
        for _ in range(topics):
            create_topic(connection, f"new-{uuid4().hex[:8]}", partitions // topics)

    longest = longest_wait_ms(server.port, create)
    connection.close()
    return longest


def creations(runs: int) -> list[Row]:
    rows = []
    with ExitStack() as stack:
        servers, _ = start_both(stack)
        for partitions, topics in NEW_PARTITIONS:
            rounds = [[wait_beside_creation(server, partitions, topics) for server in servers] for _ in range(runs)]
            found = [list(side) for side in zip(*rounds, strict=True)]
            as_what = "one topic" if topics == 1 else f"{topics} topics"
            what = f"longest wait of others, {partitions:,} partitions made as {as_what}"
            rows.append(_row(what, found, unit="ms", reach="<= 20 ms", how=f"{runs}"))
    return rows


def seconds_to_compact(server: Any) -> float:
    """Until the files of a topic with many records of few keys are small."""
    topic = f"compacted-{uuid4().hex[:8]}"
    connection = RawConnection(server.port)
    configs = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "1", "segment.bytes": str(32 << 20)}
    create_writable_topic(connection, topic, 1, configs)
    now_ms = int(time.time() * 1000)
    frames = []
    for first in range(0, KEYS, PER_BATCH):
        keys = [b"%012d" % key for key in range(first, first + PER_BATCH)]
        batch = build_batch([(key, VALUE, now_ms, ()) for key in keys])
        frames.append(frame(ApiKey.PRODUCE, 8, produce_request(topic, 0, batch)))
    connection.run(frames * (RECORDS // KEYS), in_flight=3)
    folder = directory_of(server) / f"{topic}-0"
    closed_before = size_of(folder)
    change = AlterableConfig(name="min.cleanable.dirty.ratio", config_operation=SET, value="0.01")
    resource = AlterConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=topic, configs=[change])
    began = time.monotonic()
    answer = connection.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, IncrementalAlterConfigsRequest(resources=[resource]))
    assert answer.responses[0].error_code == 0, answer
    # The newest segment is never compacted; of the others no more is left than each key once.
    least = 2 * len(frames[0]) * len(frames) + (32 << 20)
    until(lambda: size_of(folder) <= least, f"{topic} is compacted, {closed_before >> 20} MB before", seconds=300)
    took = time.monotonic() - began
    connection.close()
    return took


def size_of(folder: Path) -> int:
    """Bytes of a partition's segments; those that are on their way out do not count."""
    total = 0
    for entry in os.scandir(folder):
        if entry.name.endswith(".log"):
            try:
                total += entry.stat().st_size
            except FileNotFoundError:
                continue
    return total


def compactions(runs: int) -> Row:
    with ExitStack() as stack:
        servers, _ = start_both(stack, CLEANERS, ours=OURS)
        rounds = [[seconds_to_compact(server) for server in servers] for _ in range(runs)]
    megabytes = RECORDS / KEYS * (KEYS / PER_BATCH) * len(batch_of(PER_BATCH, VALUE, b"k" * 12)) / 1e6
    rates = [[megabytes / took for took in side] for side in zip(*rounds, strict=True)]
    return compare(
        f"compaction of {RECORDS // 10**6} M records of {KEYS // 1000} k keys",
        rates[0],
        rates[1] if len(rates) > 1 else [],
        unit="MB/s",
        reach=">= 0.5x",
        peer_name=APACHE_KAFKA,
        how=f"{runs}",
        settings=f"both: log.cleaner.backoff.ms=100; {SETTINGS}",
    )


def memory_per_gb() -> Row:
    """What a broker that has taken and served a gigabyte has in memory more than before."""
    size = 2 * GB
    with KohortServer(OURS) as server:
        fill(server, "before", partitions=4, records=400_000, value=VALUE)
        assert server.process is not None
        before = resident_mb(server.process.pid)
        fill(server, "memory", partitions=4, records=int(size / 112), value=VALUE)
        grown = (resident_mb(server.process.pid) - before) / (size / GB)
    return compare("memory per GB of log", [grown], [], unit="MB", reach="<= 1 MB", peer_name="no peer", how="1")


def _row(what: str, found: Sequence[Sequence[float]], *, unit: str, reach: str, how: str, settings: str = "") -> Row:
    row = partial(compare, unit=unit, reach=reach, peer_name=APACHE_KAFKA, how=how, settings=settings)
    return row(what, found[0], found[1] if len(found) > 1 else [], less_is_better=True)


def measure(runs: int) -> list[Table]:
    started, left_out = starts(runs)
    many, _ = many_partitions(runs)
    return [
        Table("logstarts", "Starts with a long log", started, left_out),
        Table("manylogs", "Stops and starts with many logs", many, left_out),
        Table("logwork", "Beside the log's work", [*creations(runs), compactions(runs), memory_per_gb()], left_out),
    ]
