"""Helpers to write columns, in plain Python: the compiled form has its own in `span_kernels.pxd`.

Apart: the compiled form of `span_kernels` has functions of C in place of these.
Laws: both write the same bytes.
Source: Apache Kafka's record format, magic 2 (KIP-98).
"""

from __future__ import annotations

from typing import Any

from kohort.records.build_parts import VARINTS, murmur, put_record

__all__ = ("cut_bytes", "hash_of", "put_bytes", "put_count", "put_field_of", "put_row")


def cut_bytes(data: memoryview, start: int, length: int) -> bytes:
    """Copy a slice of bytes."""
    return bytes(data[start : start + length])


def hash_of(column: Any, row: int) -> int:
    """Return Kafka's hash of a row's field."""
    return murmur(column.cut(row))


def put_row(  # noqa: PLR0917
    out: bytearray, at: int, time: int, index: int, keys: Any, values: Any, tails: Any, tail: bytes, row: int
) -> int:
    """Write a row as a record; `tail` is that of every row if there are no `tails`."""
    key = None if keys is None else keys.cut(row)
    return put_record(out, at, time, index, key, values.cut(row), tail if tails is None else tails.cut(row))


def put_count(out: bytearray, at: int, count: int) -> int:
    """Write a number; return the position after it."""
    return put_bytes(out, at, VARINTS[count])


def put_field_of(out: bytearray, at: int, column: Any, row: int) -> int:
    """Write a row's field, preceded by its length."""
    field = column.cut(row)
    return put_bytes(out, at, b"\x01" if field is None else VARINTS[len(field)] + field)


def put_bytes(out: bytearray, at: int, piece: bytes) -> int:
    """Write bytes; return the position after them."""
    end = at + len(piece)
    out[at:end] = piece
    return end
