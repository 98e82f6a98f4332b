"""Damage in the middle of a log: kept in a file of its own, told to readers, and everything around it is served."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kohort.errors import ErrorCode, Refused
from kohort.records.batch import iterate_records
from kohort.storage.data_directory import PartitionEnd
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.partitions.quarantine import Hole, settle
from kohort.storage.recovery import TailCut, mark_sparse, open_partition
from kohort.storage.segments.indexes import SYNCED_SUFFIX
from kohort.storage.segments.segment import segment_name
from kohort.storage.topicconfig import LONG_MAX, LogConfig
from kohort.testing.disks import Crashed, MemoryFileSystem
from support.builders.storage_logs import batch, empty_log, open_log

DIRECTORY = "/orders-0"
FILE = f"{DIRECTORY}/{segment_name(0)}"
BATCHES = 6


def recover(fs: MemoryFileSystem, *, expected: PartitionEnd | None = None) -> tuple[PartitionLog, TailCut | None]:
    config = LogConfig(flush_messages=LONG_MAX)
    return open_partition(fs, DIRECTORY, topic="orders", partition=0, config=config, expected=expected)


def written(*, segment_bytes: int = 1 << 20) -> tuple[MemoryFileSystem, list[int]]:
    """A log of six batches of two records, and where each of them ends in the one file that it has by default."""
    fs = MemoryFileSystem()
    log = empty_log(fs, DIRECTORY, flush_messages=LONG_MAX, segment_bytes=segment_bytes)
    ends = []
    for at in range(BATCHES):
        log.append(batch(2, value=b"value %d" % at), now_ms=5)
        ends.append(log.size_bytes)
    log.mark_durable(log.sync())
    fs.sync_directory("/")
    log.close()
    return fs, ends


def flip(fs: MemoryFileSystem, path: str, position: int, bits: int = 1) -> None:
    file = fs.open(path)
    file.write(position, bytes([file.read(position, 1)[0] ^ bits]))


def served(log: PartitionLog) -> list[tuple[int, bytes | None]]:
    """(offset, value) of all that a reader gets that seeks behind each hole it is told of."""
    found, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        try:
            views = log.read(offset, 100)
        except Refused as refused:
            assert refused.code is ErrorCode.CORRUPT_MESSAGE
            offset = next(hole.next_offset for hole in log.holes if hole.next_offset > offset)
            continue
        records = [record for view in views for record in iterate_records(view)]
        found += [(record.offset, record.value) for record in records if record.offset >= offset]
        offset = records[-1].offset + 1
    return found


def all_but(*batches: int) -> list[tuple[int, bytes]]:
    return [(at * 2 + n, b"value %d" % at) for at in range(BATCHES) if at not in batches for n in (0, 1)]


@pytest.mark.parametrize("position", [0, 3, 7, 8, 11, 16, 17, 22, 40, 58, 70, -1])
@pytest.mark.parametrize("at", range(BATCHES - 1))
def test_what_stands_around_damage_is_served(at: int, position: int) -> None:
    fs, ends = written()
    start = ends[at - 1] if at else 0
    flip(fs, FILE, ends[at] - 1 if position < 0 else start + position, 0x55)

    log, cut = recover(fs)
    assert cut is None
    (hole,) = log.holes
    assert (hole.first_offset, hole.next_offset) == (at * 2, at * 2 + 2)
    assert (hole.file, hole.position, hole.size_bytes) == (segment_name(0), start, ends[at] - start)
    assert served(log) == all_but(at)
    assert log.append(batch(), now_ms=5).base_offset == 12


def test_reader_that_comes_to_a_hole_is_told_where_to_go_on() -> None:
    fs, ends = written()
    flip(fs, FILE, ends[2] + 70)
    log, _ = recover(fs)

    views = log.read(0, 1 << 20)
    assert [record.offset for view in views for record in iterate_records(view)] == [*range(6)], "it ends before"
    for offset in (6, 7):
        with pytest.raises(Refused, match=r"offsets 6 to 7 are missing: .* CRC-32C .*seek to offset 8") as refused:
            log.read(offset, 1 << 20)
        assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert len(log.read(8, 1 << 20)) == 1


def test_no_damaged_byte_is_lost_and_segments_hold_batches_only() -> None:
    fs, ends = written()
    whole = fs.open(FILE).read(0, 1 << 20)
    flip(fs, FILE, ends[1] + 30)
    recover(fs)

    names = [segment_name(0), f"{4:020d}.quarantine", segment_name(6)]
    assert [name for name in fs.list_directory(DIRECTORY) if not name.endswith(SYNCED_SUFFIX)] == names
    before, kept, behind = (fs.open(f"{DIRECTORY}/{name}").read(0, 1 << 20) for name in names)
    damaged = bytearray(kept.partition(b"\n")[2])
    damaged[30] ^= 1
    assert before + damaged + behind == whole


def test_hole_is_remembered_and_may_be_settled() -> None:
    fs, ends = written()
    flip(fs, FILE, ends[0] + 62)
    (hole,) = recover(fs)[0].holes
    log, _ = recover(fs)
    assert log.holes == (hole,), "with its reason"

    settle(fs, DIRECTORY, hole)
    log, _ = recover(fs)
    assert log.holes[0].is_settled
    views = log.read(0, 1 << 20)
    assert [record.offset for view in views for record in iterate_records(view)] == [0, 1, *range(4, 12)]
    assert next(iterate_records(log.read(2, 1)[0])).offset == 4


def test_several_holes_are_each_their_own() -> None:
    fs, ends = written()
    for at in (0, 2, 3):
        flip(fs, FILE, ends[at] - 1)
    log, _ = recover(fs)
    assert [(hole.first_offset, hole.next_offset) for hole in log.holes] == [(0, 2), (4, 8)]
    assert log.log_start_offset == 0, "whoever begins at the start is told, too"
    assert served(log) == all_but(0, 2, 3)


@pytest.mark.parametrize("gone", [1, 2])
def test_file_that_is_gone_is_a_hole(gone: int) -> None:
    fs, _ = written(segment_bytes=100)
    fs.remove(f"{DIRECTORY}/{segment_name(gone * 2)}")
    log, _ = recover(fs)
    assert str(log.holes[0]).startswith(
        f"offsets {gone * 2} to {gone * 2 + 1} are missing: their file is gone, or was cut"
    )
    assert served(log) == all_but(gone)


def test_damage_at_the_end_of_an_older_file_is_a_hole() -> None:
    fs, ends = written(segment_bytes=200)
    second = f"{DIRECTORY}/{segment_name(4)}"
    fs.open(second).truncate(ends[0] + 10)
    log, cut = recover(fs)
    assert cut is None
    assert [(hole.first_offset, hole.next_offset, hole.size_bytes) for hole in log.holes] == [(6, 8, 10)]
    assert served(log) == all_but(3)


CUTS: list[tuple[str, Callable[[MemoryFileSystem, list[int]], None], int]] = [
    ("in a batch", lambda fs, ends: fs.open(FILE).truncate(ends[3] + 5), 4),
    ("between batches", lambda fs, ends: fs.open(FILE).truncate(ends[3]), 4),
    ("to nothing", lambda fs, _: fs.open(FILE).truncate(0), 0),
    ("away", lambda fs, _: fs.remove(FILE), 0),
    ("a bit of the last batch", lambda fs, ends: flip(fs, FILE, ends[4] + 65), 5),
]


@pytest.mark.parametrize(("_name", "hurt", "left"), CUTS, ids=[row[0] for row in CUTS])
def test_what_a_clean_stop_had_and_is_gone_is_a_hole(
    _name: str, hurt: Callable[[MemoryFileSystem, list[int]], None], left: int
) -> None:
    """Everything was durable then: this is no torn tail, and its offsets are not given away again."""
    fs, ends = written()
    hurt(fs, ends)
    # The size tells, but for a flipped bit, which only a check of every byte can find.
    expected = PartitionEnd(12, ends[-1] + (1 if left == 5 else 0))
    for _ in range(2):
        log, cut = recover(fs, expected=expected)
        assert cut is None
        assert [(hole.first_offset, hole.next_offset) for hole in log.holes] == [(left * 2, 12)]
        assert served(log) == all_but(*range(left, BATCHES))
        log.close()
        expected = PartitionEnd(12, log.size_bytes)
    assert log.log_start_offset == 0
    assert recover(fs)[0].append(batch(), now_ms=5).base_offset == 12


def test_stop_at_any_step_of_mending_takes_nothing_more() -> None:
    steps = 0
    is_done = False
    while not is_done:
        fs, ends = written()
        flip(fs, FILE, ends[0] + 70)
        flip(fs, FILE, ends[3] + 20)
        fs.steps_left = steps
        try:
            recover(fs)
            is_done = True
        except Crashed:
            fs.crash()
        fs.steps_left = None
        log, _ = recover(fs)
        assert served(log) == all_but(1, 4)
        steps += 1
    assert steps > 15


def test_file_that_explains_a_hole_and_is_damaged_is_written_again() -> None:
    fs, ends = written()
    flip(fs, FILE, ends[0] + 70)
    (hole,) = recover(fs)[0].holes
    flip(fs, f"{DIRECTORY}/{hole.name}", 30)
    log, _ = recover(fs)
    assert [(each.first_offset, each.next_offset, each.reason) for each in log.holes] == [
        (2, 4, "their file is gone, or was cut")
    ]


def test_hole_goes_with_what_was_before_it() -> None:
    fs, ends = written()
    flip(fs, FILE, ends[0] + 70)
    log, _ = recover(fs)
    log.drop_oldest()
    log.close()
    log, _ = recover(fs)
    assert log.holes == ()
    assert fs.list_directory(DIRECTORY) == [segment_name(4), f"{4:020d}{SYNCED_SUFFIX}"]


def test_gap_that_kafka_left_hides_no_damage() -> None:
    fs, ends = written()
    mark_sparse(fs, DIRECTORY, 12)
    flip(fs, FILE, ends[1] + 70)
    assert [(hole.first_offset, hole.next_offset) for hole in open_log(fs, DIRECTORY).holes] == [(4, 6)]


def test_hole_is_not_compacted_away() -> None:
    fs, _ = written(segment_bytes=100)
    flip(fs, f"{DIRECTORY}/{segment_name(4)}", 70)
    log, _ = recover(fs)
    assert [segment.base_offset for segment in log.closed_segments] == [0, 2, 4]
    assert log.closed_segments[-1].size == 0


def test_batch_in_a_damaged_record_is_not_taken_for_one_of_the_log() -> None:
    """Somebody keeps fetched batches as values, and the length of the one around is damaged, too."""
    fs = MemoryFileSystem()
    log = empty_log(fs, DIRECTORY, flush_messages=LONG_MAX)
    inner = batch(3)
    inner[7] = 1
    for value in (b"a", b"x" * 40 + bytes(inner) + b"x" * 40, b"b"):
        log.append(batch(value=value), now_ms=5)
    log.close()
    flip(fs, FILE, log.segments[0].position_of(1) + 9)

    log, _ = recover(fs)
    assert served(log) == [(0, b"a"), (2, b"b")]


def test_hole_says_what_it_is() -> None:
    hole = Hole(first_offset=4, next_offset=6, file="x.log", position=70, size_bytes=9, reason="it is damaged")
    assert str(hole) == (
        "offsets 4 to 5 are missing: it is damaged; 9 damaged bytes of x.log, from byte 70 on, "
        "are kept in 00000000000000000004.quarantine"
    )
