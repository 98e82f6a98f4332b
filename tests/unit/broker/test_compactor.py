"""Compaction while a broker serves: commits go on, and a restart finds the newest of each."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import kohort
from kohort.base.clock import SystemClock
from kohort.broker.embedded import Broker
from kohort.broker.log_cleaner import LogCleaner
from kohort.ids import OFFSETS_TOPIC, TopicId
from kohort.records.batch import build_batch, iterate_records
from kohort.storage.data_directory import CLEANED_NAME, load_offsets
from kohort.storage.files.fs import DiskFileSystem
from kohort.storage.log_state import capture, settle
from kohort.storage.log_state import write as save
from kohort.storage.partitions.quarantine import UNFINISHED_SUFFIX
from kohort.storage.store import Store
from kohort.testing.disks import MemoryFileSystem
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from kohort.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient
from support.peers.restarts import wait_until

pytestmark = pytest.mark.process

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


async def compacted(store: Store, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Run a compactor until it has nothing left to do."""
    partition = store.topics[OFFSETS_TOPIC].partitions[0]

    def goes_on(_: LogCleaner) -> bool:
        meanwhile()
        return len(partition.segments) > 2

    await run_compactor(store, goes_on)


async def run_compactor(store: Store, goes_on: Callable[[LogCleaner], bool]) -> None:
    async with running_compactor(store) as compactor:
        await turn_while(lambda: goes_on(compactor))


@contextlib.asynccontextmanager
async def running_compactor(store: Store) -> AsyncIterator[LogCleaner]:
    """A compactor that is at work for a few seconds at most."""
    compactor = LogCleaner(asyncio.get_running_loop(), store, SystemClock(), backoff_ms=1, dedupe_buffer_bytes=1 << 20)
    compactor.start()
    async with asyncio.timeout(5):
        yield compactor
    await compactor.stop()


async def turn_while(goes_on: Callable[[], bool]) -> None:
    """Let the loop turn for as long as that holds: nobody tells of its end."""
    while goes_on():  # noqa: ASYNC110
        await asyncio.sleep(0)


def test_no_file_takes_the_place_of_one_whose_facts_are_being_written(tmp_path: Path) -> None:
    """They would be taken for what is known of the new file: of fewer offsets, if it is as long."""
    store = store_with_log(Store.open(str(tmp_path)), 300)
    (partition,) = store.topics[OFFSETS_TOPIC].partitions
    before = list(partition.segments)
    captured = capture(partition)
    partition.filing.begin()

    async def main() -> None:
        async with running_compactor(store):
            await turn_while(lambda: not partition.filing.is_awaited)
            assert partition.segments == before
            settle(captured, await asyncio.to_thread(save, store.fs, captured))
            assert partition.segments == before
            partition.filing.end()
            await turn_while(lambda: len(partition.segments) > 2)

    asyncio.run(main())
    expected = values(store)
    store.close(clean=False)
    (reopened,) = (found := Store.open(str(tmp_path))).topics[OFFSETS_TOPIC].partitions
    assert (reopened.holes, values(found)) == ((), expected)
    found.close()


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
    assert load_offsets(DiskFileSystem(), str(tmp_path), CLEANED_NAME)[OFFSETS_TOPIC, 0] > 200
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
        compactor = LogCleaner(
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


def test_process_that_compacted_ends_when_nothing_is_left_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kohort.broker.log_cleaner.IDLE_SECONDS", 0.0)
    store = store_with_log(Store.open(str(tmp_path)), 300)
    seen: list[int | None] = [None]

    def is_at_work(running: LogCleaner) -> bool:
        if running.process_id != seen[-1]:
            seen.append(running.process_id)
        return len(seen) < 3

    asyncio.run(run_compactor(store, is_at_work))
    assert seen[1] is not None and seen[2] is None
    assert len(store.topics[OFFSETS_TOPIC].partitions[0].segments) <= 2
    store.close()


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


def store_of_two(fs: MemoryFileSystem) -> Store:
    """Two topics of users, the first of which cannot be compacted."""
    store = Store.open("/data", fs=fs)
    for number, name in enumerate(("hurt", "well")):
        topic = store.create_topic(name, 1, topic_id=TopicId(bytes([number] * 16)), configs=CONFIGS)
        for value in range(100):
            batch = build_batch([(b"k", b"%d" % value, 1, ())])
            topic.partitions[0].append(batch, now_ms=1, validate=False)
    # The offset of its second batch, which no checksum covers.
    (hurt,) = store.topics["hurt"].partitions
    fs.open(hurt.segments[0].path).write(hurt.read(0, 1)[0].nbytes, b"\xff")
    return store


def test_log_that_cannot_be_compacted_holds_up_no_other_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    """KAFKA-19895."""
    store = store_of_two(MemoryFileSystem())
    (hurt,), (well,) = store.topics["hurt"].partitions, store.topics["well"].partitions

    with caplog.at_level(logging.WARNING, logger="kohort.broker"):
        asyncio.run(run_compactor(store, lambda running: len(well.segments) > 2 or running.failed_attempts(hurt) < 4))
    told = [record.getMessage() for record in caplog.records]
    assert len(told) == 1 and told[0].startswith("event=compaction_failed partition=hurt-0 error=")
    assert len(hurt.segments) > 2


@pytest.mark.parametrize("what", ["expires", "is switched to delete"])
def test_log_that_retention_or_its_topic_takes_from_compaction_is_no_failure(
    what: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Apache Kafka ends a cleaning, too, when its topic is no longer to be compacted."""
    store = store_with_log(Store.open(str(tmp_path)), 300)
    (partition,) = store.topics[OFFSETS_TOPIC].partitions
    partition.filing.begin()

    def has_unfinished() -> bool:
        return any(name.endswith(UNFINISHED_SUFFIX) for name in store.fs.list_directory(partition.directory))

    async def main() -> None:
        async with running_compactor(store) as compactor:
            await turn_while(lambda: not partition.filing.is_awaited)
            if what == "expires":
                for path in partition.drop_segments(1):
                    store.fs.remove(path)
            else:
                partition.configure(replace(partition.config, is_compacted=False))
            before = list(partition.segments)
            partition.filing.end()
            await turn_while(lambda: what == "expires" and len(partition.segments) > 2)
            await turn_while(has_unfinished)
            assert what == "expires" or partition.segments == before
            assert compactor.failed_attempts(partition) == 0

    with caplog.at_level(logging.WARNING, logger="kohort.broker"):
        asyncio.run(main())
    assert not caplog.messages
    store.close()


def test_topic_that_comes_with_the_name_of_a_deleted_one_is_compacted_from_its_start() -> None:
    fs = MemoryFileSystem()
    store = store_with_log(Store.open("/data", fs=fs), 300)

    def has_forgotten() -> bool:
        if OFFSETS_TOPIC in store.topics and load_offsets(fs, "/data", CLEANED_NAME).get((OFFSETS_TOPIC, 0), 0) > 200:
            store.delete_topic(OFFSETS_TOPIC)
        return OFFSETS_TOPIC not in store.topics and not load_offsets(fs, "/data", CLEANED_NAME)

    asyncio.run(run_compactor(store, lambda _: not has_forgotten()))
    store_with_log(store, 150)
    asyncio.run(compacted(store))
    assert load_offsets(fs, "/data", CLEANED_NAME)[OFFSETS_TOPIC, 0] < 150
    assert len(values(store)) == 3


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


def test_topic_of_a_user_is_compacted(directory: Path) -> None:
    """A record that waits for longer than it may is compacted though nothing is written any more."""
    with (
        Broker(data_dir=directory, config={"log.cleaner.backoff.ms": 1}) as broker,
        kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
        kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer,
    ):
        configs = {"cleanup.policy": "compact", "max.compaction.lag.ms": 50, "segment.bytes": 1000}
        admin.create_topic("prices", configs=configs)
        for number in range(60):
            producer.send("prices", b"%d" % number, key=b"key-%d" % (number % 3)).result(10)

        def held() -> list[bytes | None]:
            reading = {"bootstrap_servers": broker.bootstrap_servers, "auto_offset_reset": "earliest"}
            with kohort.Consumer(**reading) as reader:
                reader.assign([("prices", 0)])
                return [next(reader).value for _ in range(3)]

        wait_until(lambda: held() == [b"57", b"58", b"59"], "only the newest of each key are left")


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
