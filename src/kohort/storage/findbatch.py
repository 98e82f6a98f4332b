"""Where the next whole batch begins in bytes that may be damaged.

Laws: what is found has a header that fits and the right CRC; no length is believed before the bytes are there. It is
where the damaged batch says that it ends, or else the first of two that follow each other: a batch that somebody keeps
as a value of a record is not taken for one of the log. The search takes time linear in the bytes, but for those that
look like a header.
"""

from __future__ import annotations

from typing import Final

from kohort.errors import CorruptRecordError
from kohort.records.header import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader, check_batch, parse_header

#: Where no file follows.
NO_LIMIT: Final = 1 << 63
_LENGTH_POSITION: Final = 8
_MAGIC_POSITION: Final = 16
_SEARCH_BYTES: Final = 1 << 20


def find_batch(view: memoryview, start: int, *, beyond_offset: int, before_offset: int = NO_LIMIT) -> int | None:
    """Position of the next whole valid batch, behind a damaged one at `start`.

    Args:
        beyond_offset: it has this offset or a later one,
        before_offset: but one before this, where the next file begins.
    """

    def batch_at(position: int) -> BatchHeader | None:
        header = valid_batch(view, position)
        return header if header and beyond_offset <= header.base_offset < before_offset else None

    if len(view) - start >= HEADER_SIZE:
        length = int.from_bytes(view[start + _LENGTH_POSITION : start + LENGTH_OVERHEAD], "big", signed=True)
        if length > 0 and batch_at(start + length + LENGTH_OVERHEAD):
            return start + length + LENGTH_OVERHEAD
    for chunk_start in range(start, len(view), _SEARCH_BYTES):
        chunk = bytes(view[chunk_start : chunk_start + _SEARCH_BYTES])
        at = chunk.find(MAGIC)
        while at >= 0:
            position = chunk_start + at - _MAGIC_POSITION
            if position > start:
                header = batch_at(position)
                if header is not None and _is_followed(view, position + header.size_bytes, header.next_offset):
                    return position
            at = chunk.find(MAGIC, at + 1)
    return None


def _is_followed(view: memoryview, position: int, offset: int) -> bool:
    """Whether the file ends at `position`, or another good batch stands there."""
    if position == len(view):
        return True
    header = valid_batch(view, position)
    return header is not None and header.base_offset >= offset


def valid_batch(view: memoryview, position: int) -> BatchHeader | None:
    """The header of a whole batch at `position` whose CRC is right; `None` if there is none."""
    if len(view) - position < HEADER_SIZE:
        return None
    try:
        header = parse_header(view, position)
        check_batch(view, position, header)
    except CorruptRecordError:
        return None
    return header
