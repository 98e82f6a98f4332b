"""Where the next whole batch begins in bytes that may be damaged.

Laws: what is found has a header that fits and the right CRC; no length is believed before the bytes are there. It is
where the damaged batch says that it ends, or else the first of two that follow each other: a batch that somebody keeps
as a value of a record is not taken for one of the log. The search takes time linear in the bytes, but for those that
look like a header.
"""

from __future__ import annotations

from typing import Final

from kohort.errors import CorruptRecordError
from kohort.records.header import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader
from kohort.storage.segments.batchreader import BatchReader

#: Where no file follows.
NO_LIMIT: Final = 1 << 63
#: A file's offsets count from its first one, in 31 bits.
_OFFSETS_OF_A_FILE: Final = 1 << 31
_LENGTH_POSITION: Final = 8
_LENGTH_SIZE: Final = 4
_MAGIC_POSITION: Final = 16
_SEARCH_BYTES: Final = 1 << 20


def find_batch(reader: BatchReader, start: int, *, beyond_offset: int, before_offset: int = NO_LIMIT) -> int | None:
    """Position of the next whole valid batch, behind a damaged one at `start`.

    Args:
        beyond_offset: it has this offset, which the file may have, or a later one,
        before_offset: but one before this, where the next file begins.
    """
    # Checked before the CRC, which costs a pass over whatever length is claimed.
    before_offset = min(before_offset, beyond_offset + _OFFSETS_OF_A_FILE)

    def batch_at(position: int) -> BatchHeader | None:
        return valid_batch(reader, position, beyond_offset=beyond_offset, before_offset=before_offset)

    if reader.size - start >= HEADER_SIZE:
        length = int.from_bytes(reader.read(start + _LENGTH_POSITION, _LENGTH_SIZE), "big", signed=True)
        if length > 0 and batch_at(start + length + LENGTH_OVERHEAD):
            return start + length + LENGTH_OVERHEAD
    for chunk_start in range(start, reader.size, _SEARCH_BYTES):
        chunk = reader.read(chunk_start, _SEARCH_BYTES)
        at = chunk.find(MAGIC)
        while at >= 0:
            position = chunk_start + at - _MAGIC_POSITION
            if position > start:
                header = batch_at(position)
                if header is not None and _is_followed(reader, position + header.size_bytes, header.next_offset):
                    return position
            at = chunk.find(MAGIC, at + 1)
    return None


def _is_followed(reader: BatchReader, position: int, offset: int) -> bool:
    """Whether the file ends at `position`, or another good batch stands there."""
    return position == reader.size or valid_batch(reader, position, beyond_offset=offset) is not None


def valid_batch(
    reader: BatchReader, position: int, *, beyond_offset: int = 0, before_offset: int = NO_LIMIT
) -> BatchHeader | None:
    """The header of a whole batch at `position` whose CRC is right; `None` if there is none with such an offset."""
    if reader.size - position < HEADER_SIZE:
        return None
    try:
        header = reader.header_at(position)
        if not beyond_offset <= header.base_offset < before_offset:
            return None
        reader.check(position, header)
    except CorruptRecordError:
        return None
    return header
