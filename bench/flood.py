"""Readers that ask for much and take little: what others wait meanwhile, and what the broker keeps afterwards.

A hundred connections ask for 27 MB twenty times each and read 1 KB/s. Beside them one connection asks for versions
every 10 ms, and new ones come every 50 ms and ask once. After ten seconds the flood goes; ten seconds later memory is
looked at. Peer: Apache Kafka 4.3.
"""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from statistics import quantiles
from typing import Any, NamedTuple

from kohort.records.batch import build_batch
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.registry import ApiKey
from load import RawConnection, frame
from report import APACHE_KAFKA, Row, Table, compare
from servers import resident_mb, start_both
from topics import PAGE_CACHE, create_writable_topic, produce_request

READERS, FETCHES = 100, 20
TOPIC_BYTES, BATCH_BYTES = 27_000_000, 900_000
TAKEN_BYTES_PER_S = 1_000
FLOOD_S, AFTER_S = 10.0, 10.0
ASK_EVERY_S, COME_EVERY_S = 0.01, 0.05
FETCH_VERSION, VERSIONS_VERSION = 12, 3
VERSIONS = ApiVersionsRequest(client_software_name="bench", client_software_version="1")


class Felt(NamedTuple):
    """Of one flood: the 99th percentile of what others waited, ms, and resident memory, MB."""

    old_ms: float
    new_ms: float
    before_mb: float
    most_mb: float
    after_mb: float


def fill(port: int) -> None:
    """One partition with what is asked for."""
    connection = RawConnection(port)
    create_writable_topic(connection, "flood", 1, {"flush.messages": PAGE_CACHE})
    batch = build_batch([(None, b"x" * BATCH_BYTES, 1_000, ())])
    for _ in range(TOPIC_BYTES // BATCH_BYTES):
        answer = connection.ask(ApiKey.PRODUCE, 9, produce_request("flood", 0, batch))
        assert answer.responses[0].partition_responses[0].error_code == 0, answer
    connection.close()


@contextmanager
def flood(port: int) -> Iterator[None]:
    """The slow readers, as long as the block goes on."""
    row = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=TOPIC_BYTES)
    request = FetchRequest(
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=TOPIC_BYTES,
        session_epoch=-1,
        topics=[FetchTopic(topic="flood", partitions=[row])],
    )
    asked = frame(ApiKey.FETCH, FETCH_VERSION, request) * FETCHES
    is_over = threading.Event()
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_connection(("127.0.0.1", port), 60)) for _ in range(READERS)]

        def take() -> None:
            while not is_over.wait(1.0):
                for each in sockets:
                    with suppress(BlockingIOError, ConnectionResetError):
                        each.recv(TAKEN_BYTES_PER_S)

        for each in sockets:
            each.sendall(asked)
            each.setblocking(False)
        taker = threading.Thread(target=take)
        taker.start()
        stack.callback(taker.join)
        stack.callback(is_over.set)
        yield


def keep_asking(port: int, until_s: float) -> list[float]:
    """What each question of one connection took, ms."""
    connection, took = RawConnection(port), list[float]()
    while time.monotonic() < until_s:
        took.append(timed(lambda: connection.ask(ApiKey.API_VERSIONS, VERSIONS_VERSION, VERSIONS)))
        time.sleep(ASK_EVERY_S)
    connection.close()
    return took


def keep_coming(port: int, until_s: float) -> list[float]:
    """What it took each new connection to be answered, ms."""

    def come() -> None:
        connection = RawConnection(port)
        connection.ask(ApiKey.API_VERSIONS, VERSIONS_VERSION, VERSIONS)
        connection.close()

    took = []
    while time.monotonic() < until_s:
        took.append(timed(come))
        time.sleep(COME_EVERY_S)
    return took


def timed(act: Callable[[], Any]) -> float:
    began = time.perf_counter()
    act()
    return (time.perf_counter() - began) * 1e3


def feel(server: Any) -> Felt:
    """One flood."""
    pid, old, new, most = server.process.pid, list[float](), list[float](), [0.0]
    before_mb = resident_mb(pid)
    until_s = time.monotonic() + FLOOD_S

    def watch() -> None:
        while time.monotonic() < until_s:
            most[0] = max(most[0], resident_mb(pid))
            time.sleep(0.1)

    others = [
        threading.Thread(target=lambda: old.extend(keep_asking(server.port, until_s))),
        threading.Thread(target=lambda: new.extend(keep_coming(server.port, until_s))),
        threading.Thread(target=watch),
    ]
    for each in others:
        each.start()
    with flood(server.port):
        for each in others:
            each.join()
    time.sleep(AFTER_S)
    return Felt(p99(old), p99(new), before_mb, most[0], resident_mb(pid))


def p99(took_ms: Sequence[float]) -> float:
    return quantiles(took_ms, n=100)[98]


def measure(runs: int) -> list[Table]:
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        for server in servers:
            fill(server.port)
        found: list[list[Felt]] = [[], []]
        for _ in range(runs):
            for place, server in enumerate(servers):
                found[place].append(feel(server))
    ours, peers = found

    def row(what: str, of: Callable[[Felt], float], unit: str, reach: str) -> Row:
        return compare(
            what,
            [of(each) for each in ours],
            [of(each) for each in peers],
            unit=unit,
            reach=reach,
            peer_name=APACHE_KAFKA,
            how=str(runs),
            less_is_better=True,
        )

    rows = [
        row("an open connection waits, p99", lambda felt: felt.old_ms, "ms", "<= 50 ms"),
        row("a new connection waits, p99", lambda felt: felt.new_ms, "ms", "<= 50 ms"),
        row("memory before", lambda felt: felt.before_mb, "MB", ""),
        row("memory at most", lambda felt: felt.most_mb, "MB", ""),
        row("memory 10 s after", lambda felt: felt.after_mb, "MB", "<= 100 MB"),
    ]
    title = f"{READERS} readers ask for {TOPIC_BYTES // 1_000_000} MB {FETCHES} times each and take 1 KB/s"
    return [Table("flood", title, rows, left_out)]
