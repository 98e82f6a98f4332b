"""One partition's log: what is appended is read, found by time, and visible when it is durable."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from kohort.errors import ErrorCode, Refused, StorageError
from kohort.records.batch import iterate_records
from kohort.records.header import parse_header
from kohort.storage.files.fs import DiskFileSystem, FileSystem, SyncFailedError
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.topicconfig import LONG_MAX, LogConfig
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import batch, empty_log, find_latest, find_time, offsets, open_log, sequenced, values


@pytest.fixture(params=["disk", "few descriptors", "memory", "volatile"])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> PartitionLog:
    fs: FileSystem
    match request.param:
        case "disk":
            fs = DiskFileSystem()
        case "few descriptors":
            fs = DiskFileSystem(most_open=1)
        case "memory":
            fs = MemoryFileSystem()
        case _:
            fs = MemoryFileSystem(volatile=True)
    directory = f"{tmp_path}/orders-0" if isinstance(fs, DiskFileSystem) else "/orders-0"
    return empty_log(fs, directory, segment_bytes=1000, flush_messages=LONG_MAX)


def test_a_new_log_is_empty(log: PartitionLog) -> None:
    assert (log.log_start_offset, log.log_end_offset, log.high_watermark, log.size_bytes) == (0, 0, 0, 0)
    assert log.read(0, 1000) == []
    assert find_latest(log) is None
    assert find_time(log, 0) is None
    assert find_time(log, 0) is None


def test_appended_batches_get_consecutive_offsets(log: PartitionLog) -> None:
    first = log.append(batch(3), now_ms=5)
    second = log.append(batch(2), now_ms=6)

    assert first == (0, 2, -1, False)
    assert second == (3, 4, -1, False)
    assert log.log_end_offset == log.high_watermark == 5
    assert offsets(log.read(0, 10_000)) == [0, 1, 2, 3, 4]


def test_several_batches_are_appended_together(log: PartitionLog) -> None:
    """As the broker writes its own; a client sends one at a time."""
    appended = log.append(batch(2) + batch(1) + batch(3), now_ms=5, validate=False)

    assert (appended.base_offset, appended.last_offset) == (0, 5)
    assert offsets(log.read(3, 10_000)) == [3, 4, 5]


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_any_buffer_is_taken_and_may_change_afterwards(log: PartitionLog, kind: type) -> None:
    """The broker reuses its receive buffers."""
    source = batch(1, value=b"kept")
    buffer = kind(source)
    log.append(buffer, now_ms=5)
    source[:] = bytes(len(source))

    assert values(log) == [b"kept"]


def test_a_read_returns_whole_batches_within_its_bytes(log: PartitionLog) -> None:
    size = len(batch())
    for _ in range(5):
        log.append(batch(), now_ms=5)

    assert offsets(log.read(0, 3 * size)) == [0, 1, 2]
    assert offsets(log.read(1, 3 * size - 1)) == [1, 2]
    assert offsets(log.read(4, 3 * size)) == [4]
    assert log.read(5, 3 * size) == []


def test_the_first_batch_is_returned_even_if_it_is_larger(log: PartitionLog) -> None:
    log.append(batch(3), now_ms=5)
    log.append(batch(3), now_ms=5)

    assert offsets(log.read(1, 10)) == [0, 1, 2]
    assert log.read(1, 10, at_least_one=False) == []


def test_a_read_ends_where_it_is_told(log: PartitionLog) -> None:
    for _ in range(4):
        log.append(batch(2), now_ms=5)

    assert offsets(log.read(0, 10_000, up_to=4)) == [0, 1, 2, 3]
    assert offsets(log.read(0, 10_000, up_to=5)) == [0, 1, 2, 3]
    assert log.read(4, 10_000, up_to=4) == []
    assert log.read(6, 10_000, up_to=4) == []


@pytest.mark.parametrize("offset", [-1, 6, 1 << 62])
def test_an_offset_outside_the_log_is_refused(log: PartitionLog, offset: int) -> None:
    log.append(batch(5), now_ms=5)
    with pytest.raises(Refused, match=r"is not within 0 to 5") as refusal:
        log.read(offset, 1000)
    assert refusal.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


def test_segments_roll_and_are_read_as_one(log: PartitionLog) -> None:
    for _ in range(40):
        log.append(batch(), now_ms=5)

    assert len(log.segments) > 2
    assert all(segment.size <= 1000 for segment in log.segments)
    assert log.segments[1].path.endswith(f"/{log.segments[1].base_offset:020d}.log")
    assert offsets(log.read(0, 1 << 20)) == list(range(40))
    assert log.size_bytes == 40 * len(batch())


def test_a_read_sees_what_was_appended_since_the_last_one(log: PartitionLog) -> None:
    """The end of a file is read by a copy, which is kept until more is appended."""
    for count in range(1, 6):
        log.append(batch(), now_ms=5)
        assert offsets(log.read(0, 10_000)) == list(range(count))


def test_a_read_never_skips_a_batch_that_does_not_fit(log: PartitionLog) -> None:
    """A smaller one behind it, in the next segment, would have fitted."""
    log.append(batch(), now_ms=5)
    log.append(batch(value=bytes(800)), now_ms=5)
    log.append(batch(), now_ms=5)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert offsets(log.read(0, 3 * len(batch()))) == [0]


def test_a_batch_larger_than_a_segment_has_one_of_its_own(log: PartitionLog) -> None:
    log.append(batch(), now_ms=5)
    log.append(batch(value=bytes(3000)), now_ms=5)
    log.append(batch(), now_ms=5)

    assert [segment.base_offset for segment in log.segments] == [0, 1, 2]
    assert offsets(log.read(0, 1 << 20)) == [0, 1, 2]


def test_views_stay_valid(log: PartitionLog) -> None:
    log.append(batch(value=b"early"), now_ms=5)
    views = log.read(0, 1000)
    before = [bytes(view) for view in views]
    for _ in range(100):
        log.append(batch(value=b"late"), now_ms=5)
        log.read(log.log_end_offset - 1, 1000)
    log.close()

    assert [bytes(view) for view in views] == before
    assert all(view.readonly for view in views)


def test_records_are_found_by_time(log: PartitionLog) -> None:
    """KIP-79: the first offset whose timestamp is at least the asked one, also when times are out of order."""
    for timestamp in (1000, 3000, 2000, 5000, 4000):
        log.append(batch(3, timestamp=timestamp, value=bytes(200)), now_ms=5)

    assert find_time(log, 0) == (1000, 0)
    assert find_time(log, 1001) == (1001, 1)
    assert find_time(log, 1003) == (3000, 3)
    assert find_time(log, 3003) == (5000, 9)
    assert find_time(log, 5002) == (5002, 11)
    assert find_time(log, 5003) is None
    assert find_latest(log) == (5002, 11)


def test_records_are_found_by_time_among_many_segments(log: PartitionLog) -> None:
    for at in range(300):
        log.append(batch(timestamp=1000 + 10 * at), now_ms=5)

    for at in (0, 1, 57, 58, 150, 299):
        assert find_time(log, 1000 + 10 * at) == (1000 + 10 * at, at)
        assert find_time(log, 991 + 10 * at) == (1000 + 10 * at, at)


def test_records_are_found_by_time_through_the_index() -> None:
    """Times go up and down over many index entries of one segment."""
    log = empty_log(MemoryFileSystem(volatile=True))
    times = [(7919 * at) % 1000 for at in range(400)]
    for timestamp in times:
        log.append(batch(timestamp=timestamp, value=bytes(300)), now_ms=5)

    for asked in (*range(0, 1000, 7), max(times)):
        first = next((at for at, timestamp in enumerate(times) if timestamp >= asked), None)
        expected = None if first is None else (times[first], first)
        assert find_time(log, asked) == expected
    assert find_latest(log) == (max(times), times.index(max(times)))


def test_compressed_records_are_found_by_time(log: PartitionLog) -> None:
    log.append(batch(100, timestamp=1000, compression="gzip"), now_ms=5)
    assert find_time(log, 1042) == (1042, 42)


def test_records_without_a_time_are_not_found(log: PartitionLog) -> None:
    log.append(batch(timestamp=-1), now_ms=5)
    assert find_time(log, 0) is None
    assert find_latest(log) is None


def test_the_broker_can_date_records(log: PartitionLog) -> None:
    """message.timestamp.type=LogAppendTime: one time for the batch, and a CRC that matches it."""
    log.configure(LogConfig(is_log_append_time=True))
    log.append(batch(2, timestamp=9_999_999), now_ms=5000)
    appended = log.append(batch(1), now_ms=5000)

    assert appended.log_append_time_ms == 5000
    view = b"".join(log.read(0, 1000))
    assert parse_header(view).has_log_append_time
    assert [record.timestamp for record in iterate_records(view)] == [5000, 5000, 5000]
    assert find_time(log, 4000) == (5000, 0)
    assert find_latest(log) == (5000, 0)


def test_a_client_appends_one_batch_at_a_time(log: PartitionLog) -> None:
    """As to Apache Kafka: of two, the second of which is a repeat, the first would not be stored."""
    with pytest.raises(Refused) as refusal:
        log.append(batch() + batch(2), now_ms=5)

    assert refusal.value.code == ErrorCode.INVALID_RECORD
    assert (log.log_end_offset, log.size_bytes) == (0, 0)


def test_a_retried_batch_is_answered_with_its_old_offset(log: PartitionLog) -> None:
    for at in range(3):
        log.append(sequenced(at * 2, 2), now_ms=5)

    again = log.append(sequenced(2, 2), now_ms=6)

    assert again == (2, 3, -1, True)
    assert log.log_end_offset == 6


def test_a_gap_in_sequences_is_refused(log: PartitionLog) -> None:
    log.append(sequenced(0), now_ms=5)
    with pytest.raises(Refused, match=r"sent sequence 2, 1 is next") as refusal:
        log.append(sequenced(2), now_ms=5)
    assert refusal.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert log.log_end_offset == 1


def test_the_brokers_own_batches_are_not_limited() -> None:
    """A decision of the coordinator is one batch, however large."""
    log = empty_log(MemoryFileSystem(volatile=True), max_message_bytes=100)
    log.append(batch(value=bytes(200)), now_ms=5, validate=False)
    assert log.log_end_offset == 1


def synced_log(*, flush_messages: int = 1, segment_bytes: int = 1 << 20) -> tuple[MemoryFileSystem, PartitionLog]:
    fs = MemoryFileSystem()
    fs.make_directory("/orders-0")
    fs.sync_directory("/")
    return fs, open_log(fs, flush_messages=flush_messages, segment_bytes=segment_bytes)


def test_consumers_see_only_what_is_durable() -> None:
    """flush.messages=1, the default."""
    _, log = synced_log()
    log.append(batch(2), now_ms=5)
    assert (log.log_end_offset, log.high_watermark, log.needs_sync) == (2, 0, True)

    durable = log.sync()
    assert (durable, log.high_watermark) == (2, 0)

    log.append(batch(), now_ms=5)
    log.mark_durable(durable)
    assert (log.log_end_offset, log.high_watermark, log.needs_sync) == (3, 2, True)

    log.mark_durable(log.sync())
    assert (log.high_watermark, log.needs_sync) == (3, False)
    log.mark_durable(1)
    assert log.high_watermark == 3


def test_a_topic_that_trusts_the_page_cache_is_visible_at_once() -> None:
    _, log = synced_log(flush_messages=LONG_MAX)
    log.append(batch(1000), now_ms=5)
    assert (log.high_watermark, log.durable_offset, log.needs_sync) == (1000, 0, False)


def test_a_topic_can_be_synced_every_few_records() -> None:
    _, log = synced_log(flush_messages=3)
    log.append(batch(2), now_ms=5)
    assert (log.high_watermark, log.needs_sync) == (2, False)
    log.append(batch(1), now_ms=5)
    assert (log.high_watermark, log.needs_sync) == (3, True)
    log.mark_durable(log.sync())
    assert not log.needs_sync


def test_memory_has_nothing_to_sync() -> None:
    log = empty_log(MemoryFileSystem(volatile=True))
    log.append(batch(2), now_ms=5)
    assert (log.high_watermark, log.durable_offset, log.needs_sync) == (2, 2, False)


def test_a_sync_covers_segments_that_were_rolled_meanwhile() -> None:
    fs, log = synced_log(segment_bytes=200)
    for _ in range(10):
        log.append(batch(), now_ms=5)
    assert len(log.segments) == 5
    log.mark_durable(log.sync())
    fs.crash()

    assert open_log(fs).log_end_offset == 10


def test_what_was_marked_durable_is_not_synced_again() -> None:
    """Only the newest segment can have new bytes."""
    fs, log = synced_log(segment_bytes=200)
    for _ in range(10):
        log.append(batch(), now_ms=5)
    log.mark_durable(log.sync())
    log.append(batch(), now_ms=5)

    fs.steps_left = 4  # the newest file, the entries of a new one and of its mark: not five files
    log.mark_durable(log.sync())
    assert log.durable_offset == 11


def test_configs_change_while_the_log_is_open() -> None:
    _, log = synced_log()
    log.append(batch(), now_ms=5)
    assert log.high_watermark == 0

    log.configure(LogConfig(flush_messages=LONG_MAX))
    assert log.high_watermark == 1

    log.configure(LogConfig(flush_messages=1))
    log.append(batch(), now_ms=5)
    assert (log.high_watermark, log.needs_sync) == (1, True)


def test_a_failed_sync_ends_the_log() -> None:
    """After a failed fdatasync the page cache says nothing about the disk; the broker stops."""
    fs, log = synced_log()
    log.append(batch(), now_ms=5)
    fs.sync_error = "Input/output error"
    with pytest.raises(SyncFailedError, match=r"Input/output error"):
        log.sync()

    assert log.is_failed
    with pytest.raises(SyncFailedError, match=r"an earlier sync of orders-0 failed"):
        log.append(batch(), now_ms=5)
    assert log.high_watermark == 0


def test_a_full_disk_refuses_the_append_and_the_log_goes_on() -> None:
    fs, log = synced_log(flush_messages=LONG_MAX)
    log.append(batch(), now_ms=5)
    fs.space_left = 10
    with pytest.raises(StorageError, match=r"free some space"):
        log.append(batch(), now_ms=5)
    assert log.log_end_offset == 1

    fs.space_left = None
    log.append(batch(), now_ms=5)
    assert offsets(log.read(0, 1000)) == [0, 1]


def test_a_full_disk_while_rolling_leaves_a_log_that_goes_on() -> None:
    fs, log = synced_log(flush_messages=LONG_MAX, segment_bytes=100)
    log.append(batch(), now_ms=5)
    fs.space_left = 10
    for _ in range(2):
        with pytest.raises(StorageError, match=r"free some space"):
            log.append(batch(), now_ms=5)
    fs.space_left = None
    log.append(batch(), now_ms=5)

    assert [segment.base_offset for segment in log.segments] == [0, 1]
    assert offsets(log.read(0, 1000)) == [0, 1]


def test_a_closed_log_refuses_appends_and_lets_a_late_sync_pass() -> None:
    """A topic may be deleted while a thread syncs it."""
    fs, log = synced_log()
    log.append(batch(), now_ms=5)
    log.close()
    fs.remove("/orders-0")

    assert log.sync() == 1
    with pytest.raises(StorageError, match=r"orders-0 is closed"):
        log.append(batch(), now_ms=5)


def test_a_thread_syncs_while_the_owner_appends(tmp_path: Path) -> None:
    """Whatever sync returns is covered by files that it saw; offsets never go back."""
    log = empty_log(DiskFileSystem(), f"{tmp_path}/orders-0", segment_bytes=20_000)
    durable: list[int] = []
    stop = threading.Event()

    def sync() -> None:
        while not stop.is_set():
            durable.append(log.sync())

    thread = threading.Thread(target=sync)
    thread.start()
    for _ in range(2000):
        log.append(batch(), now_ms=5)
        if durable:
            log.mark_durable(durable[-1])
            assert log.high_watermark <= log.log_end_offset
    stop.set()
    thread.join()

    assert durable == sorted(durable)
    log.mark_durable(log.sync())
    assert log.high_watermark == 2000
    assert offsets(log.read(0, 1 << 30)) == list(range(2000))
