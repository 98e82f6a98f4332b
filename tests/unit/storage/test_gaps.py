"""The end of a closed file is missing and the next file is there: damage if it was synced once, else a power cut."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.segments.indexes import SYNCED_SUFFIX
from kohort.storage.topicconfig import LONG_MAX
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import batch, empty_log, open_log, sequenced, values

DIRECTORY = "/orders-0"
SIZE = len(batch(value=b"0"))
PER_FILE = 2


def filled(*, synced: int, flush_messages: int = 1) -> tuple[MemoryFileSystem, PartitionLog]:
    """Seven batches of one record in files of two, of which so many were synced before the machine stopped."""
    fs = MemoryFileSystem()
    log = empty_log(fs, segment_bytes=PER_FILE * SIZE, flush_messages=flush_messages)
    for number in range(7):
        log.append(sequenced(number, value=b"%d" % number) if number > 4 else batch(value=b"%d" % number), now_ms=1)
        if number + 1 == synced:
            log.mark_durable(log.sync())
    return fs, log


def lose(fs: MemoryFileSystem, base: int, change: Callable[[MemoryFileSystem, str], None]) -> PartitionLog:
    """Of the file with that offset; what was not synced otherwise is there."""
    fs.crash(lambda _, __, written: written, changes_kept=lambda _, unsynced: unsynced)
    change(fs, f"{DIRECTORY}/{base:020d}.log")
    return open_log(fs, segment_bytes=PER_FILE * SIZE)


def tear(fs: MemoryFileSystem, path: str) -> None:
    fs.open(path).truncate(SIZE + 20)


def empty(fs: MemoryFileSystem, path: str) -> None:
    fs.open(path).truncate(0)


def blank(fs: MemoryFileSystem, path: str) -> None:
    fs.open(path).write(SIZE, bytes(SIZE))


def flip(fs: MemoryFileSystem, path: str) -> None:
    file = fs.open(path)
    file.write(2 * SIZE - 1, bytes([file.read(2 * SIZE - 1, 1)[0] ^ 1]))


@pytest.mark.parametrize("change", [tear, empty, blank, flip])
@pytest.mark.parametrize("synced", [1, 2, 3])
def test_what_nobody_was_promised_is_cut_and_what_was_synced_is_a_hole(
    synced: int, change: Callable[[MemoryFileSystem, str], None]
) -> None:
    fs, _ = filled(synced=synced)
    log = lose(fs, 2, change)
    assert log.holes == ()
    left = 2 if change is empty else 3
    assert values(log) == [b"%d" % number for number in range(left)]
    assert log.log_end_offset == left
    log.append(batch(value=b"new"), now_ms=1)
    assert values(open_log(fs, segment_bytes=PER_FILE * SIZE))[-1] == b"new"

    fs, _ = filled(synced=7)
    log = lose(fs, 2, change)
    assert [(hole.first_offset, hole.next_offset) for hole in log.holes] == [(left, 4)]
    assert log.log_end_offset == 7


def test_producers_whose_batches_were_cut_go_on_where_they_are() -> None:
    fs, _ = filled(synced=1)
    log = lose(fs, 2, tear)
    assert len(log.producers) == 0
    assert log.append(sequenced(0), now_ms=1).base_offset == 3


def test_log_without_marks_is_never_cut_in_the_middle() -> None:
    """Of Apache Kafka, or of a version that made none."""
    fs, _ = filled(synced=1)
    fs.crash(lambda _, __, written: written, changes_kept=lambda _, unsynced: unsynced)
    for name in fs.list_directory(DIRECTORY):
        if name.endswith(SYNCED_SUFFIX):
            fs.remove(f"{DIRECTORY}/{name}")
    tear(fs, f"{DIRECTORY}/{2:020d}.log")
    log = open_log(fs, segment_bytes=PER_FILE * SIZE)
    assert [(hole.first_offset, hole.next_offset) for hole in log.holes] == [(3, 4)]


@pytest.mark.parametrize(("change", "is_hole"), [(tear, False), (empty, False), (blank, False), (flip, True)])
def test_of_records_that_need_no_sync_only_what_was_not_written_is_cut(
    change: Callable[[MemoryFileSystem, str], None], is_hole: bool
) -> None:
    """After a kill all of them are there: one that is damaged takes nothing with it that follows."""
    fs, _ = filled(synced=0, flush_messages=LONG_MAX)
    fs.crash(lambda _, __, written: written, changes_kept=lambda _, unsynced: unsynced)
    change(fs, f"{DIRECTORY}/{2:020d}.log")
    log = open_log(fs, segment_bytes=PER_FILE * SIZE, flush_messages=LONG_MAX)
    assert bool(log.holes) is is_hole
    assert (log.log_end_offset == 7) is is_hole


def test_marks_go_with_their_files() -> None:
    fs, log = filled(synced=7)
    log.drop_oldest()
    for path in log.drop_segments(1):
        fs.remove(path)
    marks = [name for name in fs.list_directory(DIRECTORY) if name.endswith(SYNCED_SUFFIX)]
    assert marks == [f"{segment.base_offset:020d}{SYNCED_SUFFIX}" for segment in log.segments]
