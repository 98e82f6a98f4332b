"""What a start reads: indexes, producers and epochs from their files, and of the log only what came later."""

from __future__ import annotations

import json
import random
from collections.abc import Callable

import pytest

from kohort.records.checksum import crc32c
from kohort.storage.data_directory import PartitionEnd
from kohort.storage.files.descriptors import WorkNeededError
from kohort.storage.files.fs import FileSystem
from kohort.storage.log_state import STATE_NAME, capture, is_outdated, settle, write
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.recovery import open_partition
from kohort.storage.segments.indexes import (
    FACTS_SUFFIX,
    INDEX_SUFFIX,
    TIME_SUFFIX,
    index_path,
    load_facts,
    save_facts,
    sum_of,
)
from kohort.storage.segments.segment import segment_name
from kohort.storage.topicconfig import LONG_MAX, LogConfig
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import batch, find_latest, find_time, offsets, sequenced

DIRECTORY = "/orders-0"
CONFIG = LogConfig(flush_messages=LONG_MAX, segment_bytes=2500, index_interval_bytes=200)
SEED = 5


def recover(fs: FileSystem, *, expected: PartitionEnd | None = None) -> PartitionLog:
    log, _ = open_partition(fs, DIRECTORY, topic="orders", partition=0, config=CONFIG, expected=expected)
    return log


def fill(log: PartitionLog, count: int) -> list[tuple[int, int]]:
    """(offset, timestamp) of the batches that were appended, of one record each; times go up and down."""
    chance = random.Random(SEED)
    added = []
    for _ in range(count):
        timestamp = log.log_end_offset * 10 + chance.randrange(40)
        added.append((log.append(batch(timestamp=timestamp), now_ms=5).base_offset, timestamp))
    return added


def checkpoint(fs: FileSystem, log: PartitionLog) -> None:
    captured = capture(log)
    settle(captured, write(fs, captured))


def left(*, later: int = 0) -> tuple[MemoryFileSystem, list[tuple[int, int]], PartitionEnd]:
    """A log of several files whose state was written, before `later` more batches."""
    fs = MemoryFileSystem()
    fs.make_directory(DIRECTORY)
    log = recover(fs)
    added = fill(log, 100)
    log.append(sequenced(0, 2, producer_id=7), now_ms=5)
    added.append((100, 1000))
    checkpoint(fs, log)
    added += fill(log, later)
    end = PartitionEnd(log.log_end_offset, log.size_bytes)
    log.close()
    return fs, added, end


def check_answers(log: PartitionLog, added: list[tuple[int, int]]) -> None:
    """Every offset and every time is found as if nothing but the batches told."""
    for offset, _ in added:
        assert offsets(log.read(offset, 1))[0] == offset
    for timestamp in range(0, 1100, 29):
        expected = next(((time, offset) for offset, time in added if time >= timestamp), None)
        assert find_time(log, timestamp) == expected, timestamp
    latest = max(time for _, time in added)
    assert find_latest(log) == next((time, offset) for offset, time in added if time == latest)


def test_after_a_clean_stop_no_batch_is_looked_at() -> None:
    """Every byte of every batch could be another, and nobody would notice before somebody reads it."""
    fs, added, end = left()
    contents = {}
    for name in fs.list_directory(DIRECTORY):
        if name.endswith(".log"):
            file = fs.open(f"{DIRECTORY}/{name}")
            contents[name] = file.read(0, 1 << 20)
            file.write(0, bytes(file.size()))
    assert len(contents) > 2
    log = recover(fs, expected=end)
    assert (log.log_end_offset, log.size_bytes, log.bytes_checked) == (*end, 0)

    for name, content in contents.items():
        fs.open(f"{DIRECTORY}/{name}").write(0, content)
    check_answers(log, added)
    assert [segment.index is None for segment in log.segments] == [*[True] * (len(log.segments) - 1), False]
    assert not is_outdated(log)
    assert log.append(batch(timestamp=2000), now_ms=5).base_offset == 102
    check_answers(log, [*added, (102, 2000)])


@pytest.mark.parametrize("later", [0, 1, 30])
def test_after_a_kill_what_came_later_is_checked_and_no_more(later: int) -> None:
    fs, added, end = left(later=later)
    log = recover(fs)
    before = sum(len(view) for view in log.read(102, 1 << 20)) if later else 0
    assert (log.bytes_checked, log.log_end_offset, log.size_bytes) == (before, *end)
    check_answers(log, added)
    assert log.append(sequenced(0, 2, producer_id=7), now_ms=5) == (100, 101, -1, True)
    assert log.epochs.starts == ((0, 0),)


def test_producers_and_epochs_after_a_checkpoint_are_found_in_the_log() -> None:
    fs, _, _ = left()
    log = recover(fs)
    log.leader_epoch = 3
    log.append(sequenced(2, 1, producer_id=7), now_ms=5)
    log.close()
    log = recover(fs)
    assert log.epochs.starts == ((0, 0), (3, 102))
    assert log.append(sequenced(2, 1, producer_id=7), now_ms=5).duplicate
    assert log.append(sequenced(0, 2, producer_id=7), now_ms=5).duplicate


def damage_file(fs: MemoryFileSystem, path: str, position: int) -> None:
    file = fs.open(path)
    file.write(position, bytes([file.read(position, 1)[0] ^ 1 << position % 8]))


def truncate_file(fs: MemoryFileSystem, path: str, position: int) -> None:
    fs.open(path).truncate(position)


@pytest.mark.large
@pytest.mark.parametrize("harm", [damage_file, truncate_file])
@pytest.mark.parametrize("base", ["first", "newest"])
@pytest.mark.parametrize("suffix", [INDEX_SUFFIX, TIME_SUFFIX, FACTS_SUFFIX, STATE_NAME])
def test_a_file_that_is_damaged_anywhere_changes_no_answer(
    suffix: str, base: str, harm: Callable[[MemoryFileSystem, str, int], None]
) -> None:
    fs, added, end = left()
    newest = recover(fs).segments[-1].base_offset
    path = index_path(DIRECTORY, 0 if base == "first" else newest, suffix)
    if suffix == STATE_NAME:
        path = f"{DIRECTORY}/{STATE_NAME}"
    content = fs.open(path).read(0, 1 << 20)
    assert content
    for position in range(0, len(content), max(len(content) // 10, 1)):
        harm(fs, path, position)
        for expected in (end, None):
            log = recover(fs, expected=expected)
            assert (log.log_end_offset, log.size_bytes, log.holes) == (*end, ())
            check_answers(log, added)
            assert log.append(sequenced(0, 2, producer_id=7), now_ms=5).duplicate
            log.close()
        fs.open(path).truncate(0)
        fs.open(path).write(0, content)


@pytest.mark.parametrize("suffix", [INDEX_SUFFIX, TIME_SUFFIX, FACTS_SUFFIX, STATE_NAME])
def test_a_file_that_is_gone_changes_no_answer(suffix: str) -> None:
    fs, added, end = left()
    for name in fs.list_directory(DIRECTORY):
        if name.endswith(suffix):
            fs.remove(f"{DIRECTORY}/{name}")
    check_answers(recover(fs, expected=end), added)


def test_numbers_that_no_state_has_are_no_state() -> None:
    """Their checksum fits: whoever wrote them, the log says what is so."""
    fs, added, _ = left()
    path = f"{DIRECTORY}/{STATE_NAME}"
    text = fs.open(path).read(0, 1 << 20).partition(b" ")[2].rstrip(b"\n")
    document = json.loads(text)
    document["producers"][0][2][-1][3] = 10**30
    text = json.dumps(document).encode()
    fs.remove(path)
    fs.open(path, create=True).write(0, b"%08x %s\n" % (crc32c(text), text))
    assert recover(fs).log_end_offset == added[-1][0] + 2


@pytest.mark.parametrize("facts", ['"index": [40]', '"size": null', '"timeindex": [12, "x"]', '"end_offset": 1.5'])
def test_facts_that_are_none_are_no_facts(facts: str) -> None:
    """Their checksum fits."""
    fs, added, _ = left()
    path = index_path(DIRECTORY, 0, FACTS_SUFFIX)
    document = json.loads(fs.open(path).read(0, 4096).partition(b" ")[2])
    text = json.dumps(document | json.loads(f"{{{facts}}}")).encode()
    fs.remove(path)
    fs.open(path, create=True).write(0, b"%08x %s\n" % (crc32c(text), text))
    assert load_facts(fs, DIRECTORY, 0) is None
    assert recover(fs).log_end_offset == added[-1][0] + 2


def test_an_index_of_half_an_entry_is_no_index() -> None:
    """Its checksum fits."""
    fs, added, _ = left()
    (base, *_) = (int(name[:20]) for name in reversed(fs.list_directory(DIRECTORY)) if name.endswith(TIME_SUFFIX))
    facts = load_facts(fs, DIRECTORY, base)
    assert facts is not None
    path = index_path(DIRECTORY, base, TIME_SUFFIX)
    fs.open(path).truncate(3)
    save_facts(fs, DIRECTORY, base, facts._replace(time_index=sum_of(fs.open(path).read(0, 3))))
    log = recover(fs)
    assert log.log_end_offset == added[-1][0] + 2
    assert find_time(log, added[-2][1]) is not None


def test_an_index_that_is_damaged_while_the_broker_runs_is_made_anew() -> None:
    fs, added, end = left()
    log = recover(fs, expected=end)
    for suffix in (INDEX_SUFFIX, TIME_SUFFIX):
        damage_file(fs, index_path(DIRECTORY, 0, suffix), 9)
    check_answers(log, added)
    assert is_outdated(log), "it is written again"


def test_who_does_not_wait_leaves_a_damaged_index_to_a_thread() -> None:
    fs, added, end = left()
    log = recover(fs, expected=end)
    damage_file(fs, index_path(DIRECTORY, 0, INDEX_SUFFIX), 9)
    offset = log.segments[0].next_offset - 1
    with pytest.raises(WorkNeededError, match="it is made anew") as needed:
        log.read(offset, 1, wait=False)
    assert log.segments[0].index is None
    needed.value.work()
    assert log.read(offset, 1, wait=False)
    check_answers(log, added)


def test_what_was_durable_and_is_gone_is_a_hole_though_nobody_stopped_cleanly() -> None:
    fs, added, _ = left()
    newest = recover(fs).segments[-1].base_offset
    fs.open(f"{DIRECTORY}/{segment_name(newest)}").truncate(10)
    log = recover(fs)
    assert [(hole.first_offset, hole.next_offset) for hole in log.holes] == [(newest, 102)]
    assert log.log_end_offset == 102
    check_answers(log, [each for each in added if each[0] < newest])


def test_indexes_go_with_their_segments() -> None:
    fs, _, end = left()
    log = recover(fs, expected=end)
    gone = log.drop_segments(2)
    assert [path.partition(".")[2] for path in gone] == ["log.deleted", "index", "timeindex", "facts", "synced"] * 2
    log.close()
    recover(fs)
    assert not any(name.startswith(f"{0:020d}") for name in fs.list_directory(DIRECTORY)), "removed by the next start"


def test_power_that_is_lost_before_anything_of_the_state_reached_the_disk_costs_no_record() -> None:
    for kept in range(12):
        fs = MemoryFileSystem()
        fs.make_directory(DIRECTORY)
        fs.sync_directory("/")
        log = recover(fs)
        added = fill(log, 60)
        checkpoint(fs, log)
        fs.crash(changes_kept=lambda _, unsynced, kept=kept: min(unsynced, kept))  # type: ignore[misc]
        log = recover(fs)
        assert log.log_end_offset == 60
        check_answers(log, added)
