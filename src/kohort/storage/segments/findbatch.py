"""The search for the next whole batch in bytes that may be damaged.

Laws: what is found has a header that fits and the right CRC; no length is believed before the bytes are there. It is
where the damaged batch says that it ends, or else the first of two that follow each other: a batch that is kept
as a value of a record is not taken for one of the log. No checksum covers offsets: that of a batch is believed if its
neighbours say the same, or nothing. The search takes time linear in the bytes, but for those that look like a header.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kohort.errors import CorruptRecordError
from kohort.records.header import HEADER_SIZE, LENGTH_OVERHEAD, MAGIC, BatchHeader
from kohort.storage.segments.batchreader import BatchReader

#: The limit of offsets where no file follows.
NO_LIMIT: Final = 1 << 63
#: A file's offsets count from its first one, in 31 bits.
_OFFSETS_OF_A_FILE: Final = 1 << 31
_LENGTH_POSITION: Final = 8
_LENGTH_SIZE: Final = 4
_MAGIC_POSITION: Final = 16
_SEARCH_BYTES: Final = 1 << 20
#: Most consecutive headers whose claims of the next batch are followed.
_MOST_CLAIMS: Final = 16


def find_batch(
    reader: BatchReader, start: int, *, beyond_offset: int, before_offset: int = NO_LIMIT, is_sparse: bool = False
) -> int | None:
    """Find the next whole valid batch with a credible offset, behind a damaged one at `start`.

    Args:
        beyond_offset: the batch has this offset, the first that the file may have, or a later one.
        before_offset: its offset is before this one, with which the next file begins.
        is_sparse: offsets between two batches may be missing without damage.
    """
    # Checked before the CRC, which costs a pass over the claimed length.
    limit = min(before_offset, beyond_offset + _OFFSETS_OF_A_FILE)
    claims = {} if is_sparse else _claims(reader, start, beyond_offset)
    doubted: _Found | None = None
    is_first = True
    for position, is_told in _positions(reader, start):
        header = valid_batch(reader, position, beyond_offset=beyond_offset, before_offset=limit)
        if header is None:
            continue
        found = _Found(position, header)
        if is_first and claims and position not in claims and (count := _count_if(reader, start, position)):
            # Only the length of the damaged batch is damaged: its numbers are to be believed.
            claims[position] = beyond_offset + count, beyond_offset + count
        is_first = False
        is_right: bool | None = True
        if header.base_offset not in claims.get(position, ()):
            is_right = _is_followed(reader, found, beyond_offset, before_offset, is_sparse=is_sparse)
            if is_right is None and (position in claims or not (is_told or _is_before_batch(reader, found))):
                is_right = False
        if is_right:
            return position if doubted is None or not _fits(doubted, found, is_sparse=is_sparse) else doubted.position
        if is_right is None and doubted is None:
            doubted = found
    return None if doubted is None else doubted.position


class _Found(NamedTuple):
    """A batch with a valid checksum, which does not cover its offset."""

    position: int
    header: BatchHeader

    @property
    def end(self) -> int:
        """The position behind the batch."""
        return self.position + self.header.size_bytes


def _claims(reader: BatchReader, start: int, offset: int) -> dict[int, tuple[int, int]]:
    """Return claimed positions -> offsets, by each of the two counts in consecutive headers from `start`."""
    claims: dict[int, tuple[int, int]] = {}
    position = start
    while len(claims) < _MOST_CLAIMS and reader.size - position >= HEADER_SIZE:
        try:
            header = reader.header_at(position)
        except CorruptRecordError:
            break
        position += header.size_bytes
        claims[position] = offset + header.last_offset_delta + 1, offset + header.record_count
        if claims[position][0] != claims[position][1]:
            # One of the two numbers is damaged, or compaction took records away.
            break
        offset += header.record_count
    return claims


def _count_if(reader: BatchReader, start: int, end: int) -> int:
    """Return the offsets of the damaged batch, if its checksum is right when it ends at `end`; else 0."""
    header = reader.header_at(start)._replace(batch_length=end - start - LENGTH_OVERHEAD)
    try:
        reader.check(start, header)
    except CorruptRecordError:
        return 0
    return header.last_offset_delta + 1


def _positions(reader: BatchReader, start: int) -> Iterator[tuple[int, bool]]:
    """Yield possible positions of batches, and whether the damaged batch's length claims them."""
    told = start
    if reader.size - start >= HEADER_SIZE:
        length = int.from_bytes(reader.read(start + _LENGTH_POSITION, _LENGTH_SIZE), "big", signed=True)
        # The damaged batch's own length is the best hint, and tried first.
        if length > 0:
            told = start + length + LENGTH_OVERHEAD
            yield told, True
    for chunk_start in range(start, reader.size, _SEARCH_BYTES):
        chunk = reader.read(chunk_start, _SEARCH_BYTES)
        at = chunk.find(MAGIC)
        while at >= 0:
            position = chunk_start + at - _MAGIC_POSITION
            if position > start and position != told:
                yield position, False
            at = chunk.find(MAGIC, at + 1)


def _is_followed(
    reader: BatchReader, found: _Found, beyond_offset: int, before_offset: int, *, is_sparse: bool
) -> bool | None:
    """Whether the bytes behind a batch confirm its offset (`True`), refute it or say nothing (`None`)."""
    next_offset = found.header.next_offset
    if found.end == reader.size:
        if before_offset == NO_LIMIT or next_offset < before_offset:
            return None
        return next_offset == before_offset
    following = valid_batch(reader, found.end, beyond_offset=beyond_offset)
    if following is None:
        return None
    # Offsets never fall: one of the two is wrong, and the later one has its neighbours.
    if following.base_offset < next_offset:
        return False
    return True if is_sparse or following.base_offset == next_offset else None


def _is_before_batch(reader: BatchReader, found: _Found) -> bool:
    """Whether the file ends or a valid batch follows, so that the batch is no part of other data."""
    next_offset = found.header.next_offset
    return found.end == reader.size or valid_batch(reader, found.end, beyond_offset=next_offset) is not None


def _fits(doubted: _Found, found: _Found, *, is_sparse: bool) -> bool:
    """Whether an unconfirmed batch may stand before one with a confirmed offset."""
    gap = found.header.base_offset - doubted.header.next_offset
    return gap >= 0 if is_sparse or doubted.end != found.position else gap == 0


def valid_batch(
    reader: BatchReader, position: int, *, beyond_offset: int = 0, before_offset: int = NO_LIMIT
) -> BatchHeader | None:
    """Return the header of a whole batch with a right CRC at `position`, `None` if there is none."""
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
