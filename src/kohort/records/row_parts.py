"""Helpers to make rows, in plain Python: the compiled form has its own in `row_kernels.pxd`.

Apart: the compiled form of `row_kernels` has functions of C in place of these.
Laws: both make the same objects.
"""

from __future__ import annotations

from kohort.records.header import Buffer

__all__ = ("new_array", "new_bytes", "new_row", "new_text")


def new_row(kind: type, *fields: object) -> object:
    """Make a tuple of that kind."""
    return tuple.__new__(kind, fields)


def new_bytes(region: Buffer, start: int, length: int) -> bytes | None:
    """Return the bytes at a position; a length of -1 is `None`."""
    return None if length < 0 else bytes(region[start : start + length])


def new_text(region: Buffer, start: int, length: int) -> str:
    """Return the text at a position; bytes that are not UTF-8 are replaced, as Java does."""
    return str(region[start : start + length], "utf-8", "replace")


def new_array(size_bytes: int) -> bytearray:
    """Return an array of so many bytes."""
    return bytearray(size_bytes)
