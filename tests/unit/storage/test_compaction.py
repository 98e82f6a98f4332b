"""Compaction: the newest record of every key stays, where it was; whatever a crash leaves is a whole log."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.errors import Refused, StorageError
from kohort.records.batch import Record, RecordInput, build_batch, iterate_records
from kohort.records.header import BatchHeader, seal, split_batches
from kohort.storage.compaction import (
    READ_BYTES,
    Compacted,
    CompactionStopped,
    compact,
    finish_replacement,
    plan_compaction,
)
from kohort.storage.files.fs import FileSystem
from kohort.storage.log_state import capture, settle
from kohort.storage.log_state import write as save
from kohort.storage.partitions.leader_epoch_runs import EpochRuns
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.partitions.quarantine import UNFINISHED_SUFFIX
from kohort.storage.recovery import mark_sparse
from kohort.testing.disks import Crashed, MemoryFileSystem
from support.builders.storage_logs import MODEL_CASES, empty_log, open_log

DAY_MS = 86_400_000
NOW_MS = 5_000
CONFIG = {"is_compacted": True, "segment_bytes": 400}
DIRECTORY = "/orders-0"
PLENTY = 1 << 30

Entry = tuple[bytes, bytes | None]


def write(log: PartitionLog, *batches: Sequence[Entry], timestamp: int = 1_000, sync: bool = True, **kind: Any) -> None:
    """`kind`: of the batches, as `build_batch` takes it."""
    for entries in batches:
        rows = [(key, value, timestamp, ()) for key, value in entries]
        log.append(build_batch(rows, **kind), now_ms=1, validate=False)
    if sync:
        log.mark_durable(log.sync())


def clean(
    fs: FileSystem, log: PartitionLog, first_dirty: int = 0, *, now_ms: int = NOW_MS, buffer_bytes: int = PLENTY
) -> Compacted | None:
    """As the broker does it."""
    if len(log.producers):
        captured = capture(log)
        settle(captured, save(fs, captured))
    found = plan_compaction(log, first_dirty, now_ms=now_ms, dedupe_buffer_bytes=buffer_bytes)
    if found is None:
        return None
    made = compact(fs, found[0], now_ms=now_ms)
    for part in made.segments:
        finish_replacement(fs, log.directory, log.replace(part.segment(fs, log.directory), part.cleaned_path))
    return made


def records(log: PartitionLog, offset: int | None = None) -> list[Record]:
    start = log.log_start_offset if offset is None else offset
    return [record for view in log.read(start, 1 << 30) for record in iterate_records(view)]


def fold(found: Sequence[Record]) -> dict[bytes | None, tuple[int, bytes]]:
    """Key -> offset and value of what is there in the end."""
    state: dict[bytes | None, tuple[int, bytes]] = {}
    for record in found:
        state.pop(record.key, None)
        if record.value is not None:
            state[record.key] = record.offset, record.value
    return state


KEYS = st.integers(0, 6).map(lambda number: b"key-%d" % number)
ENTRIES = st.lists(st.tuples(KEYS, st.none() | st.binary(max_size=20)), min_size=1, max_size=4)
HISTORIES = st.lists(ENTRIES, min_size=1, max_size=40)


NUMBERED = {"producer_id": 7, "producer_epoch": 3, "base_sequence": 11}
#: Batches that become part of others, that stay their own, and that are compressed.
KINDS = st.lists(st.sampled_from([{}, NUMBERED, {"compression": "zstd"}, {**NUMBERED, "compression": "gzip"}]))


@pytest.mark.large
@settings(max_examples=MODEL_CASES)
@given(
    history=HISTORIES,
    kinds=KINDS,
    cuts=st.lists(st.integers(0, 40), max_size=3),
    budget=st.sampled_from([0, 500, PLENTY]),
)
def test_random_history_folds_to_the_same_whenever_it_was_compacted(
    history: list[list[Entry]], kinds: list[dict[str, Any]], cuts: list[int], budget: int
) -> None:
    """Several times, at any moment, with any memory; a time later than the horizon lets tombstones go."""
    fs = MemoryFileSystem()
    log, plain = empty_log(fs, **CONFIG), empty_log(fs, "/plain")
    dirty, now_ms = 0, 5_000
    for at, entries in enumerate(history):
        kind = kinds[at % len(kinds)] if kinds else {}
        write(log, entries, **kind)
        write(plain, entries, **kind)
        if at in cuts:
            made = clean(fs, log, dirty, now_ms=now_ms, buffer_bytes=budget)
            dirty = dirty if made is None else made.end_offset
            now_ms += DAY_MS
    assert fold(records(log)) == fold(records(plain))
    assert {record.offset: record for record in records(plain)}.items() >= {r.offset: r for r in records(log)}.items()
    reopened = open_log(fs, **CONFIG)
    assert records(reopened) == records(log)
    assert reopened.log_end_offset == plain.log_end_offset
    for offset in range(log.log_end_offset):
        expected = [record for record in records(log) if record.offset >= offset]
        assert [record for record in records(log, offset) if record.offset >= offset] == expected


def overwritten(fs: FileSystem) -> PartitionLog:
    """Five keys, written 20 times, in several closed segments."""
    log = empty_log(fs, **CONFIG)
    fs.sync_directory("/")
    for turn in range(20):
        write(log, [(b"key-%d" % number, b"value %d" % turn) for number in range(5)])
    write(log, [(b"key-0", None)])
    return log


def test_closed_segments_become_one_and_nothing_else_changes() -> None:
    fs = MemoryFileSystem()
    log = overwritten(fs)
    before = fold(records(log))
    active = log.segments[-1]
    assert len(log.segments) > 5

    made = clean(fs, log)

    assert made is not None and made.records_before > 50 and made.records_after == 5
    assert len(log.segments) <= 3 and log.segments[-1] is active
    assert log.segments[-2].next_offset == active.base_offset
    assert fold(records(log)) == before
    assert [name for name in fs.list_directory(DIRECTORY) if name.endswith(".log")] == [
        segment.path.rpartition("/")[2] for segment in log.segments
    ]


def test_batches_that_stand_for_what_is_gone_are_of_its_epoch() -> None:
    """They would be taken for damaged: by a check, by the scrubber, and by the next start."""
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG)
    for epoch, key in ((2, b"gone"), (2, b"stays"), (5, b"gone"), (5, b"gone")):
        log.leader_epoch = epoch
        for number in range(10):
            write(log, [(key, b"%d" % number)], producer_id=7, producer_epoch=3, base_sequence=number)
    assert clean(fs, log) is not None
    runs = EpochRuns(log.epochs.starts, log.log_end_offset)
    for header, _ in stored(log):
        runs.note(header.base_offset, header.next_offset, header.partition_leader_epoch)
    assert len(records(log)) < 20 and runs.wrong() == []


def test_views_that_a_reader_holds_stay() -> None:
    fs = MemoryFileSystem()
    log = overwritten(fs)
    held = log.read(0, 1 << 20)
    before = [record for view in held for record in iterate_records(view)]
    clean(fs, log)
    assert [record for view in held for record in iterate_records(view)] == before


def test_batches_still_cover_every_offset() -> None:
    """A reader that asks for an offset whose record is gone gets the batch that covers it."""
    fs = MemoryFileSystem()
    log = overwritten(fs)
    clean(fs, log)
    expected = 0
    for view in log.read(0, 1 << 20):
        for _, header in split_batches(view):
            assert header.base_offset == expected
            expected = header.next_offset
    assert expected == log.log_end_offset


@pytest.mark.parametrize("kept", [0, 1, 2, 100])
def test_crash_at_any_step_leaves_every_record_that_counts(kept: int) -> None:
    """Between any two changes of files and directories, also of the removals and of a second compaction.

    `kept`: so many changes of the directory became durable by themselves, in their order.
    """
    steps = 0
    while True:
        fs = MemoryFileSystem()
        log = overwritten(fs)
        before = fold(records(log))
        fs.steps_left = steps
        try:
            made = clean(fs, log)
            assert made is not None
            write(log, [(b"key-1", b"value 20")] * 30)
            clean(fs, log, made.end_offset, now_ms=3 * DAY_MS)
        except Crashed:
            is_over = False
        else:
            is_over = True
        fs.crash(changes_kept=lambda _, unsynced: min(kept, unsynced))
        reopened = open_log(fs, **CONFIG)
        after = fold(records(reopened))
        assert {key: after.get(key) for key in before if key != b"key-1"} == {
            key: value for key, value in before.items() if key != b"key-1"
        }, steps
        assert after[b"key-1"][1] in (b"value 19", b"value 20")
        assert not [name for name in fs.list_directory(DIRECTORY) if name.endswith(UNFINISHED_SUFFIX)]
        assert len([name for name in fs.list_directory(DIRECTORY) if name.endswith(".log")]) == len(reopened.segments)
        assert clean(fs, reopened, now_ms=9 * DAY_MS) is not None
        assert {key: fold(records(reopened)).get(key) for key in after} == after
        if is_over:
            break
        steps += 1
    assert steps > 15


def test_full_disk_changes_nothing() -> None:
    fs = MemoryFileSystem()
    log = overwritten(fs)
    before = records(log)
    fs.space_left = 10
    with pytest.raises(StorageError, match="fit"):
        clean(fs, log)
    assert records(log) == before
    fs.space_left = None
    assert records(open_log(fs, **CONFIG)) == before


def test_stop_is_heard() -> None:
    fs = MemoryFileSystem()
    found = plan_compaction(overwritten(fs), 0, now_ms=NOW_MS, dedupe_buffer_bytes=PLENTY)
    assert found is not None
    with pytest.raises(CompactionStopped):
        compact(fs, found[0], now_ms=1, is_stopped=lambda: True)


def test_nothing_is_planned_without_something_dirty_or_durable() -> None:
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG)
    write(log, [(b"k", b"v")])
    assert plan_compaction(log, 0, now_ms=NOW_MS, dedupe_buffer_bytes=PLENTY) is None, (
        "the newest segment is left alone"
    )
    for _ in range(10):
        write(log, [(b"k", bytes(100))], sync=False)
    found = plan_compaction(log, 0, now_ms=NOW_MS, dedupe_buffer_bytes=PLENTY)
    assert found is None or found[0].end_offset <= log.durable_offset
    log.mark_durable(log.sync())
    made = clean(fs, log)
    assert made is not None
    assert plan_compaction(log, made.end_offset, now_ms=NOW_MS, dedupe_buffer_bytes=PLENTY) is None


def test_dirty_ratio_is_the_share_of_bytes_behind_the_last_compaction() -> None:
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG)
    for number in range(20):
        write(log, [(b"key-%d" % number, bytes(100))])
    made = clean(fs, log)
    assert made is not None and made.records_after == made.records_before
    for number in range(20, 25):
        write(log, [(b"key-%d" % number, bytes(100))])
    found = plan_compaction(log, made.end_offset, now_ms=NOW_MS, dedupe_buffer_bytes=PLENTY)
    assert found is not None and 0.1 < found[1] < 0.4


def test_tombstone_stays_for_its_time_after_it_was_compacted_first() -> None:
    """KIP-534: a reader that began before sees it, however old it was by then."""
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG)
    write(log, [(b"gone", b"v")], [(b"gone", None)], [(b"stays", bytes(300))], [(b"next", bytes(300))])

    def tombstones() -> list[Record]:
        return [record for record in records(log) if record.value is None]

    for now_ms, count in ((10 * DAY_MS, 1), (11 * DAY_MS - 1, 1), (11 * DAY_MS, 0)):
        clean(fs, log, now_ms=now_ms)
        assert len(tombstones()) == count, now_ms
        assert all(record.timestamp == 1_000 for record in tombstones())
    assert set(fold(records(log))) == {b"stays", b"next"}


def transactional(key: bytes, value: bytes | None, *, is_control: bool = False) -> bytes:
    return build_batch(
        [(key, value, 1_000, ())],
        producer_id=7,
        producer_epoch=0,
        base_sequence=-1 if is_control else 0,
        is_transactional=True,
        is_control=is_control,
    )


def test_aborted_records_supersede_nothing_and_go() -> None:
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG)
    write(log, [(b"k", b"plain")])
    batches = [transactional(b"k", b"aborted"), transactional(b"\0\0\0\0", b"\0\0\0\0\0\0", is_control=True)]
    for batch in batches:
        log.append(batch, now_ms=1, validate=False)
    write(log, [(b"other", bytes(300))], [(b"other", bytes(301))])

    clean(fs, log)

    assert {record.value for record in records(log)} == {b"plain", bytes(300), bytes(301)}


def test_tombstone_of_a_key_that_a_transaction_wrote_does_not_go_before_it() -> None:
    """Else the transaction's older value would come back."""
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG)
    log.append(transactional(b"k", b"v"), now_ms=1, validate=False)
    log.append(transactional(b"\0\0\0\1", b"\0\0\0\0\0\0", is_control=True), now_ms=1, validate=False)
    write(log, [(b"k", None)], [(b"other", bytes(300))], [(b"next", bytes(300))])
    for day in (1, 2, 30):
        clean(fs, log, now_ms=day * DAY_MS)
    assert b"k" not in fold(records(log))


def test_compressed_batches_of_another_broker_are_compacted() -> None:
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG)
    for turn in range(10):
        rows = [(b"key-%d" % number, bytes(200) + b"%d" % turn, 1_000, ()) for number in range(20)]
        log.append(build_batch(rows, compression="zstd"), now_ms=1, validate=False)
    write(log, [(b"last", bytes(400))], [(b"end", bytes(400))])
    before = fold(records(log))
    clean(fs, log)
    assert fold(records(log)) == before
    assert len(records(log)) == 22


def test_little_memory_compacts_in_several_goes() -> None:
    """At least one segment each time, so that it comes to an end."""
    fs = MemoryFileSystem()
    log = overwritten(fs)
    before, dirty, goes = fold(records(log)), 0, 0
    while (made := clean(fs, log, dirty, buffer_bytes=0)) is not None:
        assert made.end_offset > dirty
        dirty = made.end_offset
        goes += 1
        assert fold(records(log)) == before
    assert goes > 3
    assert plan_compaction(log, dirty, now_ms=NOW_MS, dedupe_buffer_bytes=0) is None


def test_gaps_of_apache_kafka_are_read_around() -> None:
    """Its cleaner takes whole batches away; a file says so. In a log of ours a gap is damage."""
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG)
    parts = [bytearray(build_batch([(b"k%d" % number, b"v", 1, ())])) for number in range(4)]
    for batch in parts:
        log.append(batch, now_ms=1, validate=False)
    (view,) = log.read(0, 1 << 20)
    batches = [bytes(view[at : at + header.size_bytes]) for at, header in split_batches(view)]
    log.close()
    file = fs.open(f"{DIRECTORY}/{0:020d}.log")
    file.truncate(0)
    file.write(0, batches[0] + batches[2] + batches[3])
    mark_sparse(fs, DIRECTORY, 4)
    log = open_log(fs, **CONFIG)
    assert not log.holes
    assert [record.offset for record in records(log)] == [0, 2, 3]
    assert [record.offset for record in records(log, 1)] == [2, 3]
    assert log.log_end_offset == 4


def test_batches_that_cannot_be_read_stay_as_they_are_and_hold_up_nothing() -> None:
    """One that is damaged where it lies, and one whose producer compressed nonsense: its checksum was always right."""
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG)
    nonsense = bytearray(build_batch([(b"k", b"v" * 50, 1_000, ())], compression="zstd"))
    nonsense[61:71] = bytes(10)
    seal(nonsense)
    for turn in range(6):
        write(log, [(b"k", b"value %d" % turn)])
        log.append(bytearray(nonsense), now_ms=1, validate=False)
    write(log, [(b"end", bytes(300))], [(b"end", bytes(300))])
    hurt = log.segments[0]
    file = fs.open(hurt.path)
    file.write(70, bytes([file.read(70, 1)[0] ^ 1]))

    made = clean(fs, log)

    assert made is not None
    views = log.read(0, 1 << 30)
    kept = {
        header.base_offset: view[at : at + header.size_bytes] for view in views for at, header in split_batches(view)
    }
    assert kept[0][70] == file.read(70, 1)[0], "what is damaged was not made worse"
    assert all(bytes(kept[offset])[61:] == bytes(nonsense)[61:] for offset in (1, 3, 5, 7, 9, 11))
    readable = [at for at in kept if at not in {0, 1, 3, 5, 7, 9, 11}]
    assert [r.value for at in readable for r in iterate_records(kept[at])] == [
        b"value 5",
        *[bytes(300)] * 2,
    ]


def test_batch_whose_offset_is_damaged_is_never_carried_over() -> None:
    """No checksum covers it: a compacted log must not go on from a wrong one."""
    fs = MemoryFileSystem()
    log = overwritten(fs)
    second = next(at for at, header in split_batches(log.read(0, 400)[0]) if header.base_offset == 5)
    fs.open(log.segments[0].path).write(second + 7, b"\x01")
    before = [segment.path for segment in log.segments]
    with pytest.raises(StorageError, match="offset 1 stands where 5 belongs at "):
        clean(fs, log)
    assert [segment.path for segment in log.segments] == before


@pytest.mark.parametrize("codec", ["none", "gzip", "zstd"])
def test_what_was_compressed_stays_so(codec: str) -> None:
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG)
    for turn in range(4):
        rows = [(b"key-%d" % number, bytes(200) + b"%d" % turn, 1_000, ()) for number in range(20)]
        log.append(build_batch(rows, compression=codec), now_ms=1, validate=False)
    write(log, [(b"last", bytes(400))], [(b"end", bytes(400))])
    clean(fs, log)
    batches = [header for view in log.read(0, 1 << 30) for _, header in split_batches(view)]
    assert codec in {header.compression for header in batches if header.record_count == 20}


def test_young_records_are_left_alone_and_old_ones_are_urgent() -> None:
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG, min_compaction_lag_ms=1_000, max_compaction_lag_ms=5_000)
    for timestamp in (10_000, 11_000, 12_000, 13_000):
        write(log, [(b"k", bytes(350))], timestamp=timestamp)

    def planned(now_ms: int, first_dirty: int = 0) -> tuple[int, bool] | None:
        found = plan_compaction(log, first_dirty, now_ms=now_ms, dedupe_buffer_bytes=PLENTY)
        return None if found is None else (found[0].end_offset, found[1] > 1)

    assert planned(10_999) is None
    assert planned(11_000) == (1, False)
    assert planned(12_500) == (2, False)
    assert planned(15_000) == (3, False), "the newest segment is not closed"
    assert planned(15_001) == (3, True), "the first record waited for longer than it may"
    assert planned(15_001, first_dirty=1) == (3, False)
    assert planned(16_001, first_dirty=1) == (3, True)


def test_idle_segment_is_closed_when_its_records_have_to_be_compacted() -> None:
    fs = MemoryFileSystem()
    log = empty_log(fs, is_compacted=True, max_compaction_lag_ms=5_000)
    write(log, [(b"k", b"old")], [(b"k", b"new")], timestamp=1_000)
    log.roll_overdue(6_000)
    assert len(log.segments) == 1
    log.roll_overdue(6_001)
    log.roll_overdue(9_999)
    assert len(log.segments) == 2
    assert clean(fs, log, now_ms=9_999) is not None
    assert [record.value for record in records(log)] == [b"new"]
    write(log, [(b"k", b"a")], timestamp=20_000)
    write(log, [(b"k", b"b")], timestamp=25_001)
    assert len(log.segments) == 3, "a log that is written to closes it without being asked"
    plain = empty_log(fs, "/plain", max_compaction_lag_ms=1)
    write(plain, [(b"k", b"v")], timestamp=1)
    plain.roll_overdue(1_000)
    assert len(plain.segments) == 1


def test_compaction_whose_segments_went_meanwhile_changes_nothing() -> None:
    """Retention of `compact,delete` and deletion of records need not wait for it."""
    fs = MemoryFileSystem()
    log = overwritten(fs)
    found = plan_compaction(log, 0, now_ms=NOW_MS, dedupe_buffer_bytes=PLENTY)
    assert found is not None
    made = compact(fs, found[0], now_ms=NOW_MS)
    log.drop_oldest()
    before = records(log)
    with pytest.raises(StorageError, match="went while they were compacted"):
        log.replace(made.segments[0].segment(fs, DIRECTORY), made.segments[0].cleaned_path)
    assert records(log) == before
    assert records(open_log(fs, **CONFIG)) == before


def stored(log: PartitionLog) -> list[tuple[BatchHeader, bytes]]:
    """Every batch, with its bytes."""
    views = log.read(log.log_start_offset, 1 << 30)
    return [(header, bytes(view[at : at + header.size_bytes])) for view in views for at, header in split_batches(view)]


def test_batch_of_a_numbering_producer_keeps_what_its_header_says() -> None:
    """What is left of it is the same batch: a producer that sends it again is recognised by it."""
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG)
    write(log, [(b"old", b"1"), (b"stays", b"2"), (b"old", b"3"), (b"gone", None)], **NUMBERED)
    write(log, [(b"old", b"4")], [(b"end", bytes(300))], [(b"end", bytes(301))])
    (before, _), *_ = stored(log)

    clean(fs, log)

    (after, batch), *_ = stored(log)
    assert (after.producer_id, after.producer_epoch, after.base_sequence) == (7, 3, 11)
    assert (after.base_offset, after.last_offset_delta) == (before.base_offset, before.last_offset_delta)
    assert after.record_count == 2 and after.base_timestamp == NOW_MS + DAY_MS, "its tombstone may go then"
    left = list(iterate_records(batch))
    assert [(record.offset, record.key, record.timestamp) for record in left] == [
        (1, b"stays", 1_000),
        (3, b"gone", 1_000),
    ]
    clean(fs, log, now_ms=NOW_MS + DAY_MS)
    (after, batch), *_ = stored(log)
    assert [record.key for record in iterate_records(batch)] == [b"stays"] and after.base_sequence == 11


@pytest.mark.parametrize("value", [b"v", None], ids=["value", "tombstone"])
def test_records_that_the_broker_dated_stay_so(value: bytes | None) -> None:
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG, is_log_append_time=True)
    rows: list[RecordInput] = [(b"old", b"1", 3, ()), (b"k", value, 4, ())]
    log.append(build_batch(rows), now_ms=2_222, validate=False)
    log.append(build_batch([(b"old", b"2", 5, ())]), now_ms=3_333, validate=False)
    for number in range(2):
        log.append(build_batch([(b"end", bytes(300 + number), 6, ())]), now_ms=4_444, validate=False)
    log.mark_durable(log.sync())

    clean(fs, log)

    batches = [(header.has_log_append_time, header.max_timestamp) for header, _ in stored(log)]
    assert batches == [(True, 2_222), (True, 3_333), (True, 4_444), (True, 4_444)]
    assert [record.timestamp for record in records(log)] == [2_222, 3_333, 4_444, 4_444]
    assert next(record.key for record in records(log)) == b"k"


def test_records_that_move_to_another_batch_keep_their_bytes() -> None:
    """A header whose name is no text; empty, missing and long ones beside it."""
    fs = MemoryFileSystem()
    log = empty_log(fs, is_compacted=True, segment_bytes=5_000)
    headers = [("name", b"1"), ("empty", b""), ("none", None), ("h" * 200, b"2" * 200)]
    for number in range(3):
        rows: list[RecordInput] = [(b"old", b"1", 1_000, headers), (b"key-%d" % number, b"v", 1_000 + number, headers)]
        batch = bytearray(build_batch(rows))
        seal(batch := batch.replace(b"name", b"n\xff\xffe"))
        log.append(batch, now_ms=1, validate=False)
    write(log, [(b"old", bytes(2_000))], [(b"end", bytes(5_000))])
    before = records(log)

    clean(fs, log)

    first, content = stored(log)[0]
    assert (first.record_count, first.last_offset_delta) == (4, 6)
    assert content.count(b"n\xff\xffe") == 3
    assert records(log) == [before[1], before[3], *before[5:]]


def test_times_that_no_other_can_be_counted_from_stay_in_their_batch() -> None:
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG)
    extremes = (-(1 << 63), (1 << 63) - 1)
    for timestamp in extremes:
        write(log, [(b"old", b"1"), (b"key %d" % timestamp, None)], timestamp=timestamp)
    write(log, [(b"old", bytes(300))], [(b"end", bytes(300))])
    clean(fs, log)
    assert [record.timestamp for record in records(log)][:2] == list(extremes)


def test_batch_that_is_longer_than_a_window_is_compacted() -> None:
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG)
    write(log, [(b"old", bytes(READ_BYTES)), (b"long", bytes(READ_BYTES + 1))], [(b"old", b"")])
    write(log, [(b"end", bytes(300))], [(b"end", bytes(301))])
    clean(fs, log)
    assert [record.key for record in records(log)][:2] == [b"long", b"old"]
    file = fs.open(log.segments[0].path)
    file.truncate(file.size() - 1)
    write(log, [(b"next", bytes(300))], [(b"next", bytes(300))])
    with pytest.raises(StorageError, match="ends in the middle of a batch"):
        clean(fs, log)


def test_nothing_is_compacted_before_a_start_would_know_its_producers_otherwise() -> None:
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG)
    write(log, *[[(b"a", b"%d" % number)] for number in range(12)], **NUMBERED)
    assert len(log.segments) > 2
    assert plan_compaction(log, 0, now_ms=NOW_MS, dedupe_buffer_bytes=PLENTY) is None
    assert clean(fs, log) is not None


@pytest.mark.parametrize(
    "lost", [(), (".index",), (".facts",), (".state",), (".index", ".timeindex", ".facts", ".state", ".snapshot")]
)
@pytest.mark.parametrize("power", [False, True], ids=["killed", "power cut"])
def test_producer_whose_records_are_gone_goes_on_with_its_sequence(lost: tuple[str, ...], power: bool) -> None:
    """An empty batch of each stays for that, as in Apache Kafka; two files have them as well."""
    fs = MemoryFileSystem()
    log = empty_log(fs, **CONFIG)
    write(log, [(b"a", b"1"), (b"b", b"1")], **NUMBERED)
    write(log, *[[(b"a", b"%d" % number), (b"b", b"2")] for number in range(12)])
    assert clean(fs, log) is not None
    headers = [header for view in log.read(0, PLENTY) for _, header in split_batches(view)]
    assert [header.record_count for header in headers if header.producer_id >= 0] == [0]
    if power:
        # A file system that syncs what it renames and creates: their content is found out by its checksum otherwise.
        fs.crash(lambda _, __, written: written, changes_kept=lambda _, unsynced: unsynced)
    for name in fs.list_directory(DIRECTORY):
        if name.endswith(lost) and lost:
            fs.remove(f"{DIRECTORY}/{name}")
    reopened = open_log(fs, **CONFIG)
    state = reopened.producers.get(7)
    assert state is not None
    assert (state.epoch, state.batches[-1].base_sequence, state.batches[-1].last_sequence) == (3, 11, 12)
    rows = [(b"a", b"3", 1_000, ())]
    again = build_batch([*rows, *rows], **NUMBERED)
    assert reopened.append(again, now_ms=1).duplicate
    after = build_batch(rows, producer_id=7, producer_epoch=3, base_sequence=13)
    assert not reopened.append(after, now_ms=1).duplicate
    with pytest.raises(Refused):
        reopened.append(build_batch(rows, producer_id=7, producer_epoch=3, base_sequence=99), now_ms=1)
