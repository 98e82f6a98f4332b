"""Old segments go, by the times of their records and by the size of the log; what is left is read as before."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.storage.log_state import capture, settle, write
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.segments.indexes import FACTS_SUFFIX
from kohort.storage.segments.segment import DELETED_SUFFIX
from kohort.storage.topicconfig import LONG_MAX
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import MODEL_CASES, batch, empty_log, offsets, open_log

DAY_MS = 86_400_000
DIRECTORY = "/orders-0"


def filled(fs: MemoryFileSystem, timestamps: list[int], **config: int | bool) -> PartitionLog:
    """A segment for each batch of one record, all of one size."""
    log = empty_log(fs, segment_bytes=len(batch()), segment_ms=LONG_MAX, **config)
    for timestamp in timestamps:
        log.append(batch(timestamp=timestamp), now_ms=DAY_MS, validate=False)
        log.mark_durable(log.sync())
    return log


def expire(log: PartitionLog, now_ms: int) -> list[str]:
    """The segments that are let go; what goes with each is named, too."""
    return [path for path in log.drop_expired(now_ms) if path.endswith(DELETED_SUFFIX)]


def held(log: PartitionLog) -> list[int]:
    return offsets(log.read(log.log_start_offset, 1 << 20))


def test_segments_go_whose_newest_record_is_too_old() -> None:
    fs = MemoryFileSystem()
    log = filled(fs, [1000, 5000, 2000, 6000], retention_ms=1000)
    assert expire(log, 2000) == [], "exactly as old as it may be"
    (gone,) = expire(log, 2001)
    assert gone.endswith(f"{0:020d}.log{DELETED_SUFFIX}")
    assert expire(log, 5000) == [], "what is behind a younger one stays"
    assert (log.log_start_offset, held(log)) == (1, [1, 2, 3])
    assert len(expire(log, 6000 + 1)) == 2
    assert held(log) == [3]


def test_everything_goes_and_offsets_go_on() -> None:
    fs = MemoryFileSystem()
    log = filled(fs, [1000, 1001], retention_ms=1000)
    assert len(expire(log, DAY_MS)) == 2
    assert (log.log_start_offset, log.log_end_offset, held(log)) == (2, 2, [])
    assert expire(log, 2 * DAY_MS) == [], "an empty segment is nothing"
    log.append(batch(timestamp=DAY_MS), now_ms=DAY_MS)
    assert held(log) == [2]
    again = open_log(fs)
    assert (again.log_start_offset, held(again)) == (2, [2])


def test_nothing_is_left_of_files_that_a_checkpoint_wrote_beside_the_newest() -> None:
    """A segment that goes as the newest has its index in memory, and in files, too."""
    fs = MemoryFileSystem()
    log = filled(fs, [1000], retention_ms=1000)
    settle(captured := capture(log), write(fs, captured))
    assert any(name.endswith(FACTS_SUFFIX) for name in fs.list_directory(DIRECTORY))
    for path in log.drop_expired(DAY_MS):
        fs.remove(path)
    assert [name for name in fs.list_directory(DIRECTORY) if name.startswith(f"{0:020d}.")] == []


def test_oldest_go_while_enough_is_left() -> None:
    size = len(batch())
    log = filled(MemoryFileSystem(), [1000] * 5, retention_ms=-1, retention_bytes=3 * size - 1)
    assert len(expire(log, DAY_MS)) == 2
    assert held(log) == [2, 3, 4], "no less than what shall be kept"
    assert expire(log, DAY_MS) == []


def test_records_that_may_not_be_seen_yet_stay() -> None:
    log = empty_log(MemoryFileSystem(), retention_ms=0)
    log.append(batch(), now_ms=1)
    assert expire(log, DAY_MS) == []
    log.mark_durable(log.sync())
    assert len(expire(log, DAY_MS)) == 1


def test_records_without_times_go_by_size_alone() -> None:
    log = filled(MemoryFileSystem(), [-1], retention_ms=0, retention_bytes=1)
    assert expire(log, DAY_MS) == []
    log.configure(filled(MemoryFileSystem(), [], retention_bytes=0).config)
    assert len(expire(log, DAY_MS)) == 1


def test_segment_that_compaction_emptied_goes_with_the_next() -> None:
    """It has no time any more, and nothing behind it would ever go."""
    log = filled(MemoryFileSystem(), [-1, 1000, -1, DAY_MS], is_compacted=True, retention_ms=1000)
    assert expire(log, 2000) == []
    assert len(expire(log, 2001)) == 2
    assert held(log) == [2, 3]


def test_topic_that_is_not_deleted_keeps_everything() -> None:
    log = filled(MemoryFileSystem(), [1000, 2000], is_deleted=False, retention_ms=0, retention_bytes=0)
    assert expire(log, DAY_MS) == []


def test_files_that_a_stop_left_behind_are_removed() -> None:
    fs = MemoryFileSystem()
    log = filled(fs, [1000, DAY_MS], retention_ms=1000)
    (gone,) = expire(log, DAY_MS)
    assert fs.exists(gone)
    again = open_log(fs)
    assert not fs.exists(gone)
    assert held(again) == [1]


def test_reader_keeps_what_it_has() -> None:
    log = filled(MemoryFileSystem(), [1000, 2000, DAY_MS], retention_ms=1000)
    views = log.read(0, 1 << 20)
    expire(log, DAY_MS)
    assert offsets(views) == [0, 1, 2]


def test_new_segment_begins_when_records_are_too_far_apart() -> None:
    log = empty_log(MemoryFileSystem(), segment_ms=1000)
    for timestamp in (5000, 6000, 6001, 4000, 7001, -1, 9000):
        log.append(batch(timestamp=timestamp), now_ms=1)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 6]


def test_jitter_lets_partitions_begin_at_different_times() -> None:
    fs = MemoryFileSystem()
    begun = set()
    for number in range(8):
        log = empty_log(fs, f"/orders-{number}", segment_ms=1000, segment_jitter_ms=1000)
        for timestamp in range(5000, 6002):
            log.append(batch(timestamp=timestamp), now_ms=1)
            if len(log.segments) > 1:
                begun.add(timestamp)
                break
        assert len(log.segments) == 2, "no later than without it"
    assert len(begun) > 4


@settings(max_examples=MODEL_CASES, deadline=None)
@given(
    timestamps=st.lists(st.integers(0, 20), max_size=12),
    retention_ms=st.integers(-1, 12),
    kept=st.integers(-1, 8),
    now_ms=st.integers(0, 40),
    reopens=st.booleans(),
)
def test_what_is_left_is_what_a_list_would_have_left(
    timestamps: list[int], retention_ms: int, kept: int, now_ms: int, reopens: bool
) -> None:
    fs, size = MemoryFileSystem(), len(batch())
    config = {"retention_ms": retention_ms, "retention_bytes": kept * size if kept >= 0 else -1}
    log = filled(fs, timestamps, **config)
    if reopens:
        log = open_log(fs, segment_bytes=size, segment_ms=LONG_MAX, **config)
    left = list(enumerate(timestamps))
    while left and (0 <= retention_ms < now_ms - left[0][1] or 0 <= kept < len(left)):
        left.pop(0)
    expire(log, now_ms)
    assert held(log) == [offset for offset, _ in left]
    assert log.log_end_offset == len(timestamps)
    assert held(open_log(fs, **config)) == held(log)
