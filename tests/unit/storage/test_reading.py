"""Readers that go on where they ended: what they get, and what the disk is asked for it."""

from __future__ import annotations

import pytest

from kohort.storage.log_state import capture, settle, write
from kohort.storage.partitions.partition import PartitionLog
from kohort.testing.disks import FaultyFileSystem, MemoryFileSystem
from support.builders.storage_logs import batch, empty_log, offsets

#: Values of batches: some so long that an index has an entry for each, some so short that it has one for many.
VALUES = (5000, 30, 30, 30, 300, 20_000, 30, 2000)


def filled(disk: FaultyFileSystem, *, count: int, segment_bytes: int = 1 << 30) -> PartitionLog:
    """A log of `count` batches of two records each."""
    log = empty_log(disk, segment_bytes=segment_bytes)
    for number in range(count):
        log.append(batch(2, value=bytes(VALUES[number % len(VALUES)])), now_ms=5)
    return log


def put_away(disk: FaultyFileSystem, log: PartitionLog) -> None:
    """Have the indexes of closed segments in their files."""
    captured = capture(log)
    settle(captured, write(disk, captured))


@pytest.mark.parametrize("are_closed", [False, True])
@pytest.mark.parametrize("limit", [100, 2000, 30_000, 300_000])
def test_who_reads_on_gets_every_record_once(limit: int, are_closed: bool) -> None:
    """Whether the index is in memory or in files, and the segments are long or short."""
    disk = FaultyFileSystem()
    log = filled(disk, count=200, segment_bytes=60_000 if are_closed else 1 << 30)
    if are_closed:
        put_away(disk, log)
        assert len(log.segments) > 3
    found: list[int] = []
    while len(found) < log.log_end_offset:
        views = log.read(len(found), limit)
        assert sum(map(len, views)) <= limit or len(offsets(views)) == 2
        found += offsets(views)
    assert found == list(range(log.log_end_offset))


def test_who_reads_on_asks_the_disk_once() -> None:
    """Neither where to begin nor where to end is looked for in the file."""
    disk = FaultyFileSystem()
    log = filled(disk, count=200)
    asked: list[str] = []
    disk.on_operation = lambda operation: asked.append(operation.name)
    offset, reads = 0, 0
    while offset < log.log_end_offset:
        offset = offsets(log.read(offset, 50_000))[-1] + 1
        reads += 1
    assert asked == ["read"] * reads
    assert reads > 10

    disk.on_operation = lambda _: None
    log.append(batch(2), now_ms=5)
    disk.on_operation = lambda operation: asked.append(operation.name)
    assert offsets(log.read(offset, 50_000)) == [offset, offset + 1]
    assert asked == ["read"] * (reads + 1), "also at the end that was"


def test_readers_at_many_places_get_what_they_ask_for() -> None:
    """Places that nobody has kept are looked up."""
    log = filled(FaultyFileSystem(MemoryFileSystem()), count=200)
    places = dict.fromkeys(range(0, 400, 16), 0)
    for _ in range(4):
        for first, done in places.items():
            found = [each for each in offsets(log.read(first + done, 6000)) if each >= first + done]
            assert found[0] == first + done
            places[first] = min(found[-1] + 1, 398) - first


def test_a_reader_in_the_middle_of_a_batch_gets_the_batch() -> None:
    log = filled(FaultyFileSystem(), count=20)
    assert offsets(log.read(0, 10_400)) == [0, 1, 2, 3, 4, 5]
    assert offsets(log.read(5, 400, up_to=9)) == [4, 5, 6, 7]
    assert offsets(log.read(8, 400)) == [8, 9]


def test_what_there_is_is_measured_without_reading_it() -> None:
    disk = FaultyFileSystem()
    log = filled(disk, count=20)
    asked: list[str] = []
    disk.on_operation = lambda operation: asked.append(operation.name)
    whole = log.segments[0].size
    assert log.measure(0, 1 << 30, up_to=40) == whole
    assert log.measure(0, 1000, up_to=40) == 1000
    assert log.measure(40, 1000, up_to=40) == 0
    assert asked == []
    assert log.measure(2, 1 << 30, up_to=40) == whole - len(batch(2, value=bytes(VALUES[0])))
