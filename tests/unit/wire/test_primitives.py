"""Varints, lengths, tagged sections and arrays of numbers, by the bytes of KIP-482 and the protocol guide."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kohort.wire import primitives
from kohort.wire.primitives import Malformed, Unencodable


@pytest.mark.parametrize(
    ("value", "raw"),
    [(0, b"\x00"), (127, b"\x7f"), (128, b"\x80\x01"), (300, b"\xac\x02"), (0xFFFFFFFF, b"\xff\xff\xff\xff\x0f")],
)
def test_unsigned_varints_are_little_endian_groups_of_seven_bits(value: int, raw: bytes) -> None:
    assert primitives.encode_uvarint(value) == raw
    assert primitives.read_uvarint(b"x" + raw + b"y", 1) == (value, 1 + len(raw))


@given(st.integers(0, 0xFFFFFFFF))
def test_every_unsigned_varint_comes_back(value: int) -> None:
    raw = primitives.encode_uvarint(value)
    assert primitives.read_uvarint(raw, 0) == (value, len(raw))


@pytest.mark.parametrize("raw", [b"\xff\xff\xff\xff\x10", b"\x80\x80\x80\x80\x80\x00"])
def test_a_varint_of_more_than_32_bits_is_malformed(raw: bytes) -> None:
    with pytest.raises(Malformed):
        primitives.read_uvarint(raw, 0)


@pytest.mark.parametrize("value", [-1, 1 << 32])
def test_a_number_outside_32_bits_is_no_varint(value: int) -> None:
    with pytest.raises(Unencodable):
        primitives.encode_uvarint(value)


def test_strings_end_at_32767_bytes_in_the_compact_form_too() -> None:
    raw = primitives.encode_long_string_length(32768)
    assert primitives.read_long_string_length(raw, 0) == (32768, len(raw) - 1)
    with pytest.raises(Unencodable, match="32768"):
        primitives.encode_long_string_length(32769)
    with pytest.raises(Malformed, match="32768"):
        primitives.read_long_string_length(primitives.encode_uvarint(32769), 0)


def test_lengths_end_where_int32_ends() -> None:
    assert primitives.read_long_length(primitives.encode_long_length(0x7FFFFFFF), 0)[0] == 0x7FFFFFFF
    with pytest.raises(Unencodable):
        primitives.encode_long_length(0x80000000)
    with pytest.raises(Malformed):
        primitives.read_long_length(primitives.encode_uvarint(0x80000000), 0)


@given(st.dictionaries(st.integers(0, 0xFFFFFFFF), st.binary(max_size=200), max_size=5))
def test_tagged_sections_come_back_in_ascending_order(tags: dict[int, bytes]) -> None:
    raw = primitives.encode_tagged_section(tags)
    read, end = primitives.read_tagged_section(raw, 0)
    assert (read or {}) == tags
    assert list(read or {}) == sorted(tags)
    assert end == len(raw)


@pytest.mark.parametrize("count", [0, 1, 33, 1000])
@pytest.mark.parametrize(("code", "value"), [("?", True), ("b", -5), ("h", -300), ("i", -(1 << 30)), ("q", 1 << 60)])
def test_numbers_are_big_endian(count: int, code: str, value: int) -> None:
    values = [value] * count
    raw = primitives.encode_numbers(values, code)
    assert raw == struct.pack(f">{count}{code}", *values)
    assert primitives.read_numbers(b"x" + raw, 1, count, code) == values


def test_records_are_one_buffer_or_several() -> None:
    pieces: list[bytes | memoryview] = [b"ab", memoryview(b"cde")]
    assert primitives.records_size(b"ab") == 2
    assert primitives.records_size(pieces) == 5
    assert list(primitives.records_buffers(b"ab")) == [b"ab"]
    assert primitives.records_buffers(pieces) is pieces
