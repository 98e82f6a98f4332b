"""Where the next whole batch begins in bytes that may be damaged.

Laws: what is found has a header that fits and the right CRC; no length is believed before the bytes are there. The
search takes time linear in the bytes, but for those that look like a header.
"""

from __future__ import annotations

from typing import Final

from kohort.errors import CorruptRecordError
from kohort.records.header import HEADER_SIZE, MAGIC, BatchHeader, check_batch, parse_header

_MAGIC_POSITION: Final = 16
_SEARCH_BYTES: Final = 1 << 20


def find_batch(view: memoryview, start: int, *, beyond_offset: int) -> int | None:
    """Position of a whole valid batch with an offset of at least `beyond_offset`, behind byte `start`."""
    for chunk_start in range(start, len(view), _SEARCH_BYTES):
        chunk = bytes(view[chunk_start : chunk_start + _SEARCH_BYTES])
        at = chunk.find(MAGIC)
        while at >= 0:
            position = chunk_start + at - _MAGIC_POSITION
            if position > start or (position == start == 0):
                header = valid_batch(view, position)
                if header and header.base_offset >= beyond_offset:
                    return position
            at = chunk.find(MAGIC, at + 1)
    return None


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
