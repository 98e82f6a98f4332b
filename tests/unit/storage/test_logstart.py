"""Where a log begins after records were deleted by request, whatever happens in between."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import ErrorCode, Refused
from kohort.storage.data_directory import LOG_START_NAME
from kohort.storage.recovery import delete_before, keep_log_start
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import batch, empty_log, offsets, open_log

DIRECTORY = "/orders-0"


@pytest.mark.large
@given(
    steps=st.lists(st.tuples(st.integers(1, 4), st.integers(0, 12), st.booleans()), max_size=8),
    per_segment=st.integers(1, 4),
)
def test_log_begins_where_a_list_would(steps: list[tuple[int, int, bool]], per_segment: int) -> None:
    """Appends, deletions and kills in any order: exactly what is below the largest start is gone."""
    fs = MemoryFileSystem()
    config = {"segment_bytes": per_segment * len(batch())}
    log = empty_log(fs, **config)
    start = 0
    for appends, offset, is_killed in steps:
        for _ in range(appends):
            log.append(batch(), now_ms=1)
        log.mark_durable(log.sync())
        if offset <= log.log_end_offset:
            delete_before(log, offset)
            keep_log_start(fs, DIRECTORY, log.log_start_offset)
            start = max(start, offset)
        if is_killed:
            log = open_log(fs, **config)
        assert log.log_start_offset == start
        held = [each for each in offsets(log.read(start, 1 << 20)) if each >= start]
        assert held == list(range(start, log.log_end_offset))
        assert all(segment.next_offset > start or not segment.size for segment in log.segments)


def test_deletion_whose_start_was_not_kept_is_undone_by_a_kill_at_most_to_a_file() -> None:
    fs = MemoryFileSystem()
    log = empty_log(fs, segment_bytes=2 * len(batch()))
    for _ in range(5):
        log.append(batch(), now_ms=1)
    log.mark_durable(log.sync())
    delete_before(log, 3)
    assert (log.log_start_offset, open_log(fs).log_start_offset) == (3, 2)


@pytest.mark.parametrize("text", ["", "2\n2\n", "2 00000000\n", "x 8cdc1683\n", " \n", "\xff\n", "²\n"])
def test_damaged_file_counts_as_none(text: str) -> None:
    fs = MemoryFileSystem()
    log = empty_log(fs)
    log.append(batch(3), now_ms=1)
    fs.open(f"{DIRECTORY}/{LOG_START_NAME}", create=True).write(0, text.encode("latin-1"))
    assert open_log(fs).log_start_offset == 0


def test_start_beyond_what_a_crash_left_is_the_end() -> None:
    fs = MemoryFileSystem()
    log = empty_log(fs)
    log.append(batch(3), now_ms=1)
    keep_log_start(fs, DIRECTORY, 7)
    again = open_log(fs)
    assert (again.log_start_offset, again.log_end_offset) == (3, 3)


def test_nothing_that_consumers_may_not_see_yet_is_deleted() -> None:
    log = empty_log(MemoryFileSystem())
    log.append(batch(3), now_ms=1)
    with pytest.raises(Refused) as refused:
        delete_before(log, 1)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.log_start_offset == 0
