"""What a log is after a crash: a torn tail is cut, nothing acknowledged is lost; damage: see `test_quarantine`."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kohort.storage.data_directory import PartitionEnd
from kohort.storage.files.fs import DiskFileSystem, FileSystem
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.recovery import TailCut, open_partition
from kohort.storage.topicconfig import LONG_MAX, LogConfig
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import batch, empty_log, offsets, open_log, sequenced, values

FILE = "/orders-0/00000000000000000000.log"


def recover(fs: FileSystem, *, expected: PartitionEnd | None = None) -> tuple[PartitionLog, TailCut | None]:
    config = LogConfig(flush_messages=LONG_MAX)
    return open_partition(fs, "/orders-0", topic="orders", partition=0, config=config, expected=expected)


def three_batches(*, segment_bytes: int = 1 << 20) -> tuple[MemoryFileSystem, list[int]]:
    """A file system with a log of three batches of two records, and where each of them ends."""
    fs = MemoryFileSystem()
    log = empty_log(fs, flush_messages=LONG_MAX, segment_bytes=segment_bytes)
    ends = []
    for at in range(3):
        log.append(batch(2, value=b"value %d" % at), now_ms=5)
        ends.append(log.size_bytes)
    log.close()
    return fs, ends


def test_a_log_is_reopened_as_it_was() -> None:
    fs, ends = three_batches()
    log, cut = recover(fs)

    assert cut is None
    assert (log.log_end_offset, log.high_watermark, log.size_bytes) == (6, 6, ends[-1])
    assert values(log)[::2] == [b"value 0", b"value 1", b"value 2"]
    log.append(batch(), now_ms=5)
    assert offsets(log.read(0, 10_000)) == list(range(7))


def test_a_tail_torn_at_any_byte_is_cut() -> None:
    """kill -9 inside a write: the file ends anywhere."""
    _, ends = three_batches()
    for size in range(ends[-1] + 1):
        fs, _ = three_batches()
        fs.open(FILE).truncate(size)
        log, cut = recover(fs)

        whole = sum(end <= size for end in ends)
        assert log.log_end_offset == whole * 2
        assert log.size_bytes == fs.open(FILE).size() == ([0, *ends][whole])
        if size in (0, *ends):
            assert cut is None
        else:
            assert cut is not None
            assert (cut.bytes_cut, cut.position, cut.next_offset) == (size - log.size_bytes, log.size_bytes, whole * 2)
        log.append(batch(value=b"next"), now_ms=5)
        assert values(log)[-1] == b"next"


def test_a_torn_tail_on_the_disk_is_cut(tmp_path: Path) -> None:
    directory = f"{tmp_path}/orders-0"
    fs = DiskFileSystem()
    log = empty_log(fs, directory)
    log.append(batch(2), now_ms=5)
    log.append(batch(2), now_ms=5)
    log.close()
    path = tmp_path / "orders-0" / "00000000000000000000.log"
    path.write_bytes(path.read_bytes()[:-3])

    log = open_log(fs, directory)
    assert log.log_end_offset == 2
    log.append(batch(2), now_ms=5)
    log.close()
    assert offsets(open_log(fs, directory).read(0, 1000)) == [0, 1, 2, 3]


@pytest.mark.parametrize("size", range(0, 150, 7))
def test_a_tail_of_zeros_is_cut(size: int) -> None:
    """A file system may have noted the new size without the bytes."""
    fs, ends = three_batches()
    file = fs.open(FILE)
    # The last byte of a batch is the number of the last record's headers, which is zero anyway.
    kept = min(ends[1] + size, ends[2] - 2)
    file.truncate(kept)
    file.write(kept, bytes(5000))

    log, cut = recover(fs)
    assert log.log_end_offset == 4
    assert cut is not None
    assert cut.bytes_cut == kept + 5000 - ends[1]


def test_a_cut_is_told() -> None:
    fs, ends = three_batches()
    file = fs.open(FILE)
    last = bytearray(file.read(ends[1], ends[2] - ends[1]))
    last[-1] ^= 1
    file.write(ends[1], last)

    _, cut = recover(fs)
    assert cut == TailCut(
        path=FILE,
        position=ends[1],
        bytes_cut=ends[2] - ends[1],
        next_offset=4,
        records_cut=2,
        reason="the batch at offset 4 is damaged: its CRC-32C does not match",
    )
    assert str(cut) == (
        f"{FILE}: cut {ends[2] - ends[1]} bytes (2 records) from offset 4 on: "
        "the batch at offset 4 is damaged: its CRC-32C does not match"
    )


def test_a_cut_lasts() -> None:
    """The bytes that were cut do not come back with the next crash."""
    fs, ends = three_batches()
    fs.sync_directory("/")
    fs.open(FILE).truncate(ends[2] - 1)
    recover(fs)
    fs.crash()
    log, cut = recover(fs)
    assert (log.log_end_offset, cut) == (4, None)


def test_a_batch_inside_a_torn_record_is_not_taken_for_one_of_the_log() -> None:
    """Somebody keeps fetched batches as values; theirs begin at offset 0."""
    fs, ends = three_batches()
    log, _ = recover(fs)
    log.append(batch(value=bytes(batch(3)) + bytes(100)), now_ms=5)
    fs.open(FILE).truncate(log.size_bytes - 50)

    log, cut = recover(fs)
    assert cut is not None
    assert (log.log_end_offset, cut.position) == (6, ends[2])


def test_an_empty_segment_behind_a_torn_one_goes() -> None:
    """A roll whose records never came to the disk."""
    fs, ends = three_batches()
    fs.open("/orders-0/00000000000000000006.log", create=True)
    fs.open(FILE).truncate(ends[1] + 10)

    log, cut = recover(fs)
    assert cut is not None
    assert (log.log_end_offset, cut.bytes_cut) == (4, 10)
    assert fs.list_directory("/orders-0") == ["00000000000000000000.log", "00000000000000000000.synced"]
    log.append(batch(), now_ms=5)
    assert log.log_end_offset == 5


def test_other_files_are_left_alone() -> None:
    fs, _ = three_batches()
    for name in ("partition.metadata", "00000000000000000000.index", "123.log", "leader-epoch-checkpoint"):
        fs.open(f"/orders-0/{name}", create=True)
    log, _ = recover(fs)
    assert log.log_end_offset == 6
    assert len(fs.list_directory("/orders-0")) == 6


def test_after_a_clean_stop_only_headers_are_read() -> None:
    """A byte of a value differs: the header scan does not see it, and a check does."""
    fs, ends = three_batches()
    file = fs.open(FILE)
    file.write(ends[2] - 2, bytes([file.read(ends[2] - 2, 1)[0] ^ 1]))

    log, cut = recover(fs, expected=PartitionEnd(6, ends[2]))
    assert (log.log_end_offset, cut) == (6, None)


def test_a_log_that_grew_after_a_clean_stop_is_checked() -> None:
    fs, ends = three_batches()
    fs.open(FILE).write(ends[2], b"noise")
    log, cut = recover(fs, expected=PartitionEnd(6, ends[2]))
    assert cut is not None
    assert (log.log_end_offset, cut.bytes_cut) == (6, 5)


def test_idempotence_survives_a_kill() -> None:
    """KIP-98: a producer that retries over a restart of the broker writes nothing twice."""
    fs = MemoryFileSystem()
    log = empty_log(fs, flush_messages=LONG_MAX)
    for at in range(7):
        log.append(sequenced(at * 2, 2), now_ms=5)
    log.append(sequenced(0, 1, producer_id=8, epoch=3), now_ms=5)

    log, _ = recover(fs)
    assert log.append(sequenced(12, 2), now_ms=6) == (12, 13, -1, True)
    assert log.append(sequenced(4, 2), now_ms=6).duplicate
    assert log.append(sequenced(14, 2), now_ms=6) == (15, 16, -1, False)
    assert log.append(sequenced(0, 1, producer_id=8, epoch=3), now_ms=6).base_offset == 14


def test_what_a_kill_left_is_durable_before_it_is_shown() -> None:
    """The page cache outlives the process but not the machine."""
    fs, _ = three_batches(segment_bytes=100)
    fs.sync_directory("/")
    log, _ = recover(fs)
    assert log.high_watermark == 6

    fs.crash()
    log, cut = recover(fs)
    assert (log.high_watermark, cut) == (6, None)


@pytest.mark.large
@settings(max_examples=150)
@given(
    script=st.lists(st.one_of(st.integers(1, 4), st.just("sync")), min_size=1, max_size=25),
    share=st.floats(0, 1),
    entries_kept=st.booleans(),
    zero_fill=st.booleans(),
    segment_bytes=st.sampled_from([200, 400, 1 << 20]),
)
def test_what_was_durable_survives_any_loss_of_power(
    script: list[int | str], share: float, entries_kept: bool, zero_fill: bool, segment_bytes: int
) -> None:
    """Whatever part of the unsynced bytes survives: durable records are there, and only records that were appended."""
    fs = MemoryFileSystem()
    fs.make_directory("/orders-0")
    fs.sync_directory("/")
    log = open_log(fs, segment_bytes=segment_bytes)
    for step in script:
        if isinstance(step, int):
            log.append(batch(step, value=b"%d" % log.log_end_offset), now_ms=5)
        else:
            log.mark_durable(log.sync())
    written, visible = values(log), log.high_watermark
    survivors: list[bool] = []

    def survives(path: str, durable: int, size: int) -> int:
        # Bytes reach the disk in their order: a later file keeps unsynced bytes only if the earlier ones are whole.
        kept = durable + int(share * (size - durable)) if all(survivors) else durable
        survivors.append(kept == size)
        return kept

    fs.crash(survives, changes_kept=lambda _path, unsynced: unsynced if entries_kept else 0, zero_fill=zero_fill)
    again, _ = recover(fs)

    assert again.log_end_offset >= visible
    assert values(again) == written[: again.log_end_offset]
    again.append(batch(value=b"next"), now_ms=5)
    assert values(again)[-1] == b"next"
