"""Headers of record batches: what is read from them and what is refused."""

from __future__ import annotations

from struct import pack_into

import pytest

from kohort.errors import CorruptRecordError
from kohort.records.batch import build_batch
from kohort.records.header import HEADER_SIZE, check_batch, pack_header, parse_header, rebase, split_batches

RECORDS = [(b"key", b"value", 1_000 + i, []) for i in range(5)]


def test_header_reads_as_it_was_built() -> None:
    batch = build_batch(RECORDS, base_offset=70, producer_id=9, producer_epoch=2, base_sequence=33, compression="zstd")
    header = parse_header(batch)
    assert header.size_bytes == len(batch)
    assert (header.base_offset, header.last_offset, header.next_offset) == (70, 74, 75)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 2, 33)
    assert (header.base_timestamp, header.max_timestamp, header.record_count) == (1_000, 1_004, 5)
    assert header.compression == "zstd"
    assert not (header.is_control or header.is_transactional or header.has_log_append_time)
    assert pack_header(header) == batch[:HEADER_SIZE]


def test_attributes_have_kafkas_bits() -> None:
    header = parse_header(build_batch(RECORDS, is_transactional=True, is_control=True))
    assert header.attributes == 0x30
    assert header._replace(attributes=0x08).has_log_append_time


def test_partial_last_batch_is_left_out() -> None:
    batch = build_batch(RECORDS)
    for cut in range(len(batch)):
        assert [position for position, _ in split_batches(batch + batch[:cut])] == [0]
    assert [position for position, _ in split_batches(batch + batch)] == [0, len(batch)]


@pytest.mark.parametrize("magic", [0, 1])
def test_old_formats_are_refused_by_name(magic: int) -> None:
    """A message of 0.10 may be shorter than a header of today."""
    old = bytearray(26)
    pack_into(">qi", old, 0, 0, 14)
    old[16] = magic
    with pytest.raises(CorruptRecordError, match=f"message format version {magic}; only version 2"):
        split_batches(old)
    with pytest.raises(CorruptRecordError, match=f"version {magic}"):
        parse_header(old + bytes(61))


def test_unknown_format_is_refused() -> None:
    batch = bytearray(build_batch(RECORDS))
    batch[16] = 3
    with pytest.raises(CorruptRecordError, match="unknown message format version 3"):
        split_batches(batch)


@pytest.mark.parametrize("length", [-1, 0, 48, -(1 << 31)])
def test_impossible_length_is_refused(length: int) -> None:
    batch = bytearray(build_batch(RECORDS))
    pack_into(">i", batch, 8, length)
    with pytest.raises(CorruptRecordError, match="claims a length"):
        split_batches(batch)


def test_every_flipped_bit_behind_the_crc_is_found() -> None:
    batch = build_batch(RECORDS)
    for position in range(17, len(batch)):
        damaged = bytearray(batch)
        damaged[position] ^= 0x10
        with pytest.raises(CorruptRecordError):
            check_batch(damaged, 0, parse_header(damaged))


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"record_count": -1}, "claims -1 records"),
        ({"record_count": 6}, "claims 6 records in 5 offsets"),
        ({"record_count": 5000, "last_offset_delta": 5000}, "more than its bytes can hold"),
        ({"last_offset_delta": -1}, "claims the offsets"),
        ({"base_offset": -5}, "claims the offsets"),
        ({"base_offset": (1 << 63) - 2}, "claims the offsets"),
        ({"attributes": 5}, "unknown compression 5"),
    ],
)
def test_contradicting_counts_are_refused(changes: dict[str, int], says: str) -> None:
    batch = build_batch(RECORDS)
    header = parse_header(batch)._replace(**changes)
    with pytest.raises(CorruptRecordError, match=says):
        check_batch(batch, 0, header, with_crc=False)


def test_compacted_batch_has_fewer_records_than_offsets() -> None:
    batch = build_batch(RECORDS)
    check_batch(batch, 0, parse_header(batch)._replace(last_offset_delta=99), with_crc=False)


def test_batch_beyond_the_buffer_is_refused() -> None:
    batch = build_batch(RECORDS)
    with pytest.raises(CorruptRecordError, match=f"has {len(batch)} bytes, only {len(batch) - 1} are there"):
        check_batch(batch[:-1], 0, parse_header(batch))


def test_rebase_moves_a_batch_without_touching_its_crc() -> None:
    buffer = bytearray(b"in front" + build_batch(RECORDS))
    rebase(buffer, 8, 1 << 40, 7)
    header = parse_header(buffer, 8)
    assert (header.base_offset, header.partition_leader_epoch) == (1 << 40, 7)
    check_batch(buffer, 8, header)
