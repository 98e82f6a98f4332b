"""Batches are read through windows of any size as from one buffer, and a file that is cut meanwhile ends early."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.errors import CorruptRecordError
from kohort.records.header import HEADER_SIZE, check_batch, parse_header
from kohort.storage.files.fs import LogFile
from kohort.storage.segments.scan import BatchReader, find_batch
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import batch

SIZES = st.lists(st.integers(0, 300), min_size=1, max_size=5)


def file_of(data: bytes) -> LogFile:
    file = MemoryFileSystem().open("/a.log", create=True)
    file.write(0, data)
    return file


def said(look: object, *args: object, **options: object) -> str:
    """What a call says of bytes that are no batch."""
    assert callable(look)
    try:
        return repr(look(*args, **options))
    except CorruptRecordError as why:
        return str(why)


@given(sizes=SIZES, flips=st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 255)), max_size=3), data=st.data())
def test_what_is_said_of_a_place_is_what_is_said_of_it_in_one_buffer(
    sizes: list[int], flips: list[tuple[int, int]], data: st.DataObject
) -> None:
    content = bytearray(b"".join(batch(value=bytes(size)) for size in sizes))
    for at, bits in flips:
        content[at % len(content)] ^= bits
    window = data.draw(st.integers(HEADER_SIZE, 500), label="window")
    reader = BatchReader(file_of(content), window_bytes=window)

    for position in data.draw(st.lists(st.integers(0, len(content)), max_size=8), label="positions"):
        assert said(reader.header_at, position) == said(parse_header, content, position)
        try:
            header = parse_header(content, position)
        except CorruptRecordError:
            continue
        for with_crc in (True, False):
            found = said(reader.check, position, header, with_crc=with_crc)
            assert found == said(check_batch, content, position, header, with_crc=with_crc)


def test_errors_count_bytes_from_the_file_s_beginning() -> None:
    reader = BatchReader(file_of(bytes(batch()) + bytes(200)), window_bytes=HEADER_SIZE)
    with pytest.raises(CorruptRecordError, match="the batch at byte 100 has message format version 0"):
        reader.header_at(100)


@pytest.mark.parametrize("window", [HEADER_SIZE, 100, 1 << 20])
def test_next_batch_is_found_through_any_window(window: int) -> None:
    first, damaged, third = batch(3), batch(2, value=b"x" * 500), batch()
    third[:8] = (5).to_bytes(8, "big")
    damaged[100] ^= 1
    damaged[8:12] = (77).to_bytes(4, "big")
    reader = BatchReader(file_of(first + damaged + third), window_bytes=window)

    assert find_batch(reader, len(first), beyond_offset=3) == len(first + damaged)
    assert find_batch(reader, len(first), beyond_offset=6) is None
    assert find_batch(reader, len(first), beyond_offset=3, before_offset=5) is None


def test_offset_that_no_file_could_have_is_not_believed() -> None:
    """The checksum does not cover it, and to compute that of whatever a byte looks like takes long."""
    second = batch()
    second[:8] = (1 << 40).to_bytes(8, "big")
    reader = BatchReader(file_of(bytes(70) + second))
    assert find_batch(reader, 0, beyond_offset=0) is None
    assert find_batch(reader, 0, beyond_offset=(1 << 40) - 1) == 70


def test_file_that_is_cut_meanwhile_ends_there() -> None:
    content = batch(value=b"x" * 1000)
    file = file_of(content)
    reader = BatchReader(file, window_bytes=100)
    header = reader.header_at(0)
    file.truncate(500)

    with pytest.raises(CorruptRecordError, match="its CRC-32C does not match"):
        reader.check(0, header)
    with pytest.raises(CorruptRecordError, match="0 are left at 900"):
        reader.header_at(900)


def test_batch_that_claims_more_than_there_is_costs_nothing() -> None:
    content = batch()
    content[8:12] = (1 << 30).to_bytes(4, "big")
    reader = BatchReader(file_of(content))
    with pytest.raises(CorruptRecordError, match=f"has {(1 << 30) + 12} bytes, only {len(content)} are there"):
        reader.check(0, reader.header_at(0))
