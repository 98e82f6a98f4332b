"""Compaction while a broker serves: commits go on, and a restart finds the newest of each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from kohort.broker.compactor import Compactor
from kohort.broker.embedded import Broker
from kohort.clock import SystemClock
from kohort.ids import OFFSETS_TOPIC, TopicId
from kohort.records.batch import build_batch, iterate_records
from kohort.storage.cleaned import CLEANED_NAME, load_cleaned, save_cleaned
from kohort.storage.fs import DiskFileSystem
from kohort.storage.memoryfs import MemoryFileSystem
from kohort.storage.store import Store
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kohort.wire.registry import ApiKey
from support.broker_wire import RawClient
from support.restarts import wait_until

PAGE_CACHE = 2**63 - 1
CONFIGS = {"cleanup.policy": "compact", "segment.bytes": "2000", "flush.messages": str(PAGE_CACHE)}


def store_with_log(store: Store, rows: int) -> Store:
    topic = store.create_topic(OFFSETS_TOPIC, 1, topic_id=TopicId(bytes(range(16))), configs=CONFIGS)
    write(store, range(rows))
    assert len(topic.partitions[0].segments) > 5
    return store


def write(store: Store, numbers: range) -> None:
    for number in numbers:
        row = (b"key-%d" % (number % 3), b"%d" % number, 1, ())
        store.topics[OFFSETS_TOPIC].partitions[0].append(build_batch([row]), now_ms=1, validate=False)


def values(store: Store) -> dict[bytes | None, bytes | None]:
    views = store.topics[OFFSETS_TOPIC].partitions[0].read(0, 1 << 30)
    return {record.key: record.value for view in views for record in iterate_records(view)}


async def compacted(store: Store, meanwhile: Callable[[], None] = lambda: None, *, backoff_ms: int = 1) -> None:
    """Run a compactor until it has nothing left to do."""
    compactor = Compactor(
        asyncio.get_running_loop(), store, SystemClock(), backoff_ms=backoff_ms, dedupe_buffer_bytes=1 << 20
    )
    compactor.start()
    partition = store.topics[OFFSETS_TOPIC].partitions[0]
    async with asyncio.timeout(5):
        while len(partition.segments) > 2:
            meanwhile()
            await asyncio.sleep(0)
    await compactor.stop()


def test_log_shrinks_while_it_grows(tmp_path: Path) -> None:
    """Appends of the loop and the thread's work do not get into each other's way."""
    store = store_with_log(Store.open(str(tmp_path)), 300)
    numbers = iter(range(300, 320))

    def meanwhile() -> None:
        number = next(numbers, None)
        if number is not None:
            write(store, range(number, number + 1))

    asyncio.run(compacted(store, meanwhile))
    expected = values(store)
    end_offset = store.topics[OFFSETS_TOPIC].partitions[0].log_end_offset
    assert max(int(value or 0) for value in expected.values()) == end_offset - 1
    store.close()
    reopened = Store.open(str(tmp_path))
    assert values(reopened) == expected
    assert reopened.recovery.is_clean and not reopened.recovery.cuts
    assert load_cleaned(DiskFileSystem(), str(tmp_path))[OFFSETS_TOPIC, 0] > 200
    reopened.close()


def test_what_is_compacted_is_remembered_over_a_restart(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = store_with_log(Store.open(str(tmp_path)), 300)
    with caplog.at_level(logging.INFO, logger="kohort.broker"):
        asyncio.run(compacted(store))
    assert "event=compacted partition=__consumer_offsets-0 until=" in caplog.text
    store.close()
    reopened = Store.open(str(tmp_path))
    caplog.clear()

    async def look_a_while() -> None:
        compactor = Compactor(
            asyncio.get_running_loop(), reopened, SystemClock(), backoff_ms=0, dedupe_buffer_bytes=1 << 20
        )
        compactor.start()
        for _ in range(20):
            await asyncio.sleep(0)
        await compactor.stop()

    with caplog.at_level(logging.INFO, logger="kohort.broker"):
        asyncio.run(look_a_while())
    assert "event=" not in caplog.text
    reopened.close()


def test_failure_is_told_and_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    fs = MemoryFileSystem()
    store = store_with_log(Store.open("/data", fs=fs), 300)
    before = values(store)
    fs.space_left = 10

    def free_space_after_a_failure() -> None:
        if "event=compaction_failed" in caplog.text:
            fs.space_left = None

    with caplog.at_level(logging.WARNING, logger="kohort.broker"):
        asyncio.run(compacted(store, free_space_after_a_failure))
    assert "free some space" in caplog.text
    assert values(store) == before


@pytest.mark.parametrize("text", ["", "1\n0\n", "0\n2\na 0 1\n", "0\n1\na 0\n", "0\n1\na b c\n", "\xff\n"])
def test_damaged_checkpoint_counts_as_none(text: str) -> None:
    fs = MemoryFileSystem()
    fs.make_directory("/data")
    fs.open(f"/data/{CLEANED_NAME}", create=True).write(0, text.encode("latin-1"))
    assert load_cleaned(fs, "/data") == {}


def test_checkpoint_comes_back() -> None:
    fs = MemoryFileSystem()
    fs.make_directory("/data")
    cleaned = {("__consumer_offsets", 0): 5, ("__consumer_offsets", 3): 2**40}
    save_cleaned(fs, "/data", cleaned)
    assert load_cleaned(fs, "/data") == cleaned


@pytest.fixture
def directory(tmp_path: Path) -> Iterator[Path]:
    yield tmp_path / "data"


def size_of_logs(folder: Path) -> int:
    total = 0
    for file in folder.glob("*.log"):
        # One that is removed at this moment counts no more.
        with contextlib.suppress(FileNotFoundError):
            total += file.stat().st_size
    return total


def commit_request(offset: int) -> OffsetCommitRequest:
    partitions = [
        OffsetCommitRequestPartition(partition_index=number, committed_offset=offset, committed_metadata="m" * 200)
        for number in range(50)
    ]
    return OffsetCommitRequest(group_id="g", topics=[OffsetCommitRequestTopic(name="t", partitions=partitions)])


def test_broker_compacts_what_its_groups_commit(directory: Path) -> None:
    """400 commits of 50 partitions are 4 MB of log; 50 records are left of what is closed, and every answer counts."""
    config = {
        "offsets.topic.segment.bytes": 65536,
        "offsets.topic.num.partitions": 1,
        "log.cleaner.backoff.ms": 1,
        "log.flush.interval.messages": PAGE_CACHE,
        "num.partitions": 50,
    }
    with Broker(data_dir=directory, config=config) as broker, RawClient(broker.port) as client:
        client.create_topic("t", 50)
        for offset in range(400):
            answer = client.ask(ApiKey.OFFSET_COMMIT, 8, commit_request(offset))
            assert {partition.error_code for partition in answer.topics[0].partitions} == {0}
        folder = directory / f"{OFFSETS_TOPIC}-0"
        wait_until(lambda: size_of_logs(folder) < 300_000, "the log is short")
    with Broker(data_dir=directory, config=config) as broker, RawClient(broker.port) as client:
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=list(range(50)))]
        fetched = client.ask(ApiKey.OFFSET_FETCH, 7, OffsetFetchRequest(group_id="g", topics=topics))
        assert {partition.committed_offset for partition in fetched.topics[0].partitions} == {399}
