"""Ten minutes of everything at once: what others wait meanwhile, and whether memory stays flat.

Writers, a reader that follows and commits after each answer, retention of a topic that rolls every second or two, and
compaction of one whose keys come again; each append is synced, as by default. All of that is another process, so that
its turns are not counted. One connection fetches a record of a topic at rest, again and again: its wait is that of
others. Memory is the broker's with the process that compacts. No peer: it is what a broker does to itself.
"""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from statistics import quantiles
from typing import Any

from kohort.records.batch import build_batch
from kohort.wire.codec import decode
from kohort.wire.messages.fetch import FetchResponse
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.registry import ApiKey
from latency import FETCH_VERSION, Reader, ends_of
from load import RawConnection, frame
from readiness import wait_for_coordinators
from report import NO_PEER, Row, Table, compare
from servers import KohortServer, resident_mb
from topics import create_writable_topic, fetch_request, produce_request

SECONDS, WARM_S = 600.0, 120.0
SAMPLE_S, PROBE_S = 5.0, 0.005
OURS = {"log.retention.check.interval.ms": 1000, "log.cleaner.backoff.ms": 500}
EXPIRING, KEYED, RESTING = "expiring", "keyed", "resting"
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    EXPIRING: (4, {"segment.bytes": str(8 << 20), "retention.bytes": str(32 << 20)}),
    KEYED: (
        2,
        {"segment.bytes": str(8 << 20), "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.3"},
    ),
    RESTING: (1, {}),
}
#: Batches a second, records of each, keys.
EXPIRING_PER_SECOND, KEYED_PER_SECOND, PER_BATCH, KEYS = 80, 20, 600, 100_000
VALUE = b"x" * 100


def paced(per_second: float, ends_at: float, act: Callable[[], None]) -> None:
    """At an even pace, and no faster afterwards if one takes long."""
    due = time.monotonic()
    while due < ends_at:
        time.sleep(max(0.0, due - time.monotonic()))
        act()
        due = max(due + 1 / per_second, time.monotonic())


def write(port: int, topic: str, per_second: float, ends_at: float) -> None:
    connection, chance = RawConnection(port), Random(7)

    def act() -> None:
        now_ms = int(time.time() * 1000)
        keys = (b"%012d" % chance.randrange(KEYS) for _ in range(PER_BATCH))
        batch = build_batch([(key, VALUE, now_ms, ()) for key in keys])
        request = produce_request(topic, chance.randrange(TOPICS[topic][0]), batch)
        answer = connection.ask(ApiKey.PRODUCE, 8, request)
        assert answer.responses[0].partition_responses[0].error_code == 0, answer

    paced(per_second, ends_at, act)
    connection.close()


def follow(port: int, ends_at: float) -> None:
    """Read what is written, and commit after each answer."""
    partitions = range(TOPICS[EXPIRING][0])
    commits = RawConnection(port)
    wait_for_coordinators(commits, ["followers"])
    reader = Reader(port, EXPIRING, ends_of(commits, EXPIRING, partitions), with_session=True)
    while time.monotonic() < ends_at:
        reader.ask()
        read = sum(1 for _ in reader.take())
        rows = [OffsetCommitRequestPartition(partition_index=number, committed_offset=read) for number in partitions]
        topics = [OffsetCommitRequestTopic(name=EXPIRING, partitions=rows)]
        commit = OffsetCommitRequest(group_id="followers", member_id="", topics=topics)
        answer = commits.ask(ApiKey.OFFSET_COMMIT, 8, commit)
        assert answer.topics[0].partitions[0].error_code == 0, answer
    reader.connection.close()
    commits.close()


def load(port: int, seconds: float) -> None:
    """All of it, in this process; exits with 1 if any of it fails."""
    ends_at = time.monotonic() + seconds
    failures: list[BaseException] = []

    def guarded(work: Callable[..., None], *arguments: Any) -> None:
        try:
            work(*arguments)
        except BaseException as why:
            failures.append(why)

    threads = [
        threading.Thread(target=guarded, args=(write, port, EXPIRING, EXPIRING_PER_SECOND, ends_at)),
        threading.Thread(target=guarded, args=(write, port, KEYED, KEYED_PER_SECOND, ends_at)),
        threading.Thread(target=guarded, args=(follow, port, ends_at)),
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        print(f"the load has failed: {failures}", file=sys.stderr)
        sys.exit(1)


def memory_mb(pid: int) -> float:
    """Of a process and its children."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return resident_mb(pid) + sum(resident_mb(int(child)) for child in children)


def probe(port: int, pid: int, is_over: Callable[[], bool]) -> tuple[list[float], list[tuple[float, float]]]:
    """Waits, ms, and memory by the time since the begin, (s, MB)."""
    connection = RawConnection(port)
    request = frame(ApiKey.FETCH, FETCH_VERSION, fetch_request(RESTING, 0, 0, 1 << 20))
    waits: list[float] = []
    memory: list[tuple[float, float]] = []
    began = time.monotonic()
    while not is_over():
        sent = time.perf_counter()
        connection.send(request)
        body = connection.receive()
        waits.append((time.perf_counter() - sent) * 1000)
        if len(waits) == 1:
            answer, _ = decode(FetchResponse, FETCH_VERSION, body, 5)
            assert answer.responses[0].partitions[0].records, "there is a record to be fetched"
        elapsed = time.monotonic() - began
        if elapsed >= SAMPLE_S * len(memory):
            memory.append((elapsed, memory_mb(pid)))
        time.sleep(PROBE_S)
    connection.close()
    return waits, memory


def measure(runs: int) -> list[Table]:
    """Once, whatever `runs` says: it takes ten minutes."""
    del runs
    with KohortServer(OURS) as server:
        assert server.process is not None and server.directory is not None
        connection = RawConnection(server.port)
        for topic, (partitions, configs) in TOPICS.items():
            create_writable_topic(connection, topic, partitions, configs)
        connection.ask(ApiKey.PRODUCE, 8, produce_request(RESTING, 0, build_batch([(None, VALUE, 0, ())])))
        loading = multiprocessing.get_context("spawn").Process(target=load, args=(server.port, SECONDS))
        loading.start()
        waits, memory = probe(server.port, server.process.pid, lambda: not loading.is_alive())
        assert loading.exitcode == 0, "the load went through"
        ends = ends_of(connection, EXPIRING, range(TOPICS[EXPIRING][0]))
        ends_keyed = ends_of(connection, KEYED, range(TOPICS[KEYED][0]))
        connection.close()
        left = sum(path.stat().st_size for path in Path(server.directory).rglob("*.log")) / 1e6
    written = (sum(ends.values()) + sum(ends_keyed.values())) * (len(VALUE) + 20) / 1e6
    cuts = quantiles(waits, n=1000)
    early = max(mb for at, mb in memory if WARM_S / 2 <= at < WARM_S)
    late = max(mb for at, mb in memory if at >= SECONDS - WARM_S / 2)
    rows = [
        row("a fetch beside it: p50", cuts[499], "ms", "report"),
        row("a fetch beside it: p99", cuts[989], "ms", "<= 20 ms"),
        row("a fetch beside it: p99.9", cuts[998], "ms", "report"),
        row("a fetch beside it: longest", max(waits), "ms", "report"),
        row("memory in the last minute", late, "MB", "report"),
        row("memory in the last minute over that in the second", late - early, "MB", "flat"),
        row("written", written, "MB", "report"),
        row("on disk at the end", left, "MB", "report"),
    ]
    return [Table("mixed", "Ten minutes of everything", rows)]


def row(what: str, value: float, unit: str, reach: str) -> Row:
    settings = ", ".join(f"{name}={value}" for name, value in OURS.items())
    how = f"1 of {SECONDS / 60:g} min"
    return compare(what, [value], [], unit=unit, reach=reach, peer_name=NO_PEER, how=how, settings=f"ours: {settings}")
