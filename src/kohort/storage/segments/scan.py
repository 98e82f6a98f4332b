"""The scan of one file: separates valid batches from damage, and changes nothing.

Laws: a batch counts if it is whole, its checksum and counts are right, and it stands where its offset belongs.
Source: Apache Kafka's log recovery, which would cut at the first bad batch whatever follows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, NamedTuple

from kohort.base.values import value
from kohort.errors import CorruptRecordError
from kohort.records.checksum import crc32c
from kohort.records.header import (
    CRC_START,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    MAGIC,
    BatchHeader,
    check_counts,
    damaged_batch,
    parse_header,
    torn_batch,
)
from kohort.storage.files.fs import FileSystem, LogFile
from kohort.storage.segments.segment import Segment

# The search for the next whole batch in bytes that may be damaged.
#
# Laws: what is found has a header that fits and the right CRC; no length is believed before the bytes are there. It is
# where the damaged batch says that it ends, or else the first of two that follow each other: a batch that is kept as a
# value of a record is not taken for one of the log. No checksum covers offsets: that of a batch is believed if its
# neighbours say the same, or nothing. The search takes time linear in the bytes, but for those that look like a header.

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
#: Bytes of a control batch that are read; a marker has about 80.
CONTROL_LIMIT_BYTES: Final = 1 << 16
#: Windows for reading every byte, and for reading headers alone.
WINDOW_BYTES: Final = 1 << 20
HEADERS_WINDOW_BYTES: Final = 4 << 10


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


@value
class Damage:
    """Bytes of a file that are no valid batches."""

    #: The position of the damage, and of the next batch or the end of the file.
    position: int
    end: int
    reason: str
    #: Whether it is all zeros or the begin of the next batch, as in a file that has lost its end.
    is_unwritten: bool = False

    @property
    def size_bytes(self) -> int:
        """The number of damaged bytes."""
        return self.end - self.position


@value(frozen=False)
class Piece:
    """Consecutive valid batches of a file, as a segment; positions in it count from `start`."""

    segment: Segment
    #: The file's first offset by its name.
    file_base: int
    start: int
    #: The damage behind them in the file.
    damage: Damage | None = None


@value
class Rules:
    """The rules for a file's batches."""

    with_crc: bool
    #: Offsets before it may lie in no batch: Apache Kafka's compaction took it away.
    sparse_before: int
    on_batch: Callable[[BatchHeader], None]
    #: Gets each control batch whole, in addition to `on_batch`; `None`: they are not needed.
    on_control: Callable[[BatchHeader, bytes], None] | None = None
    #: Called at damage, before the batch behind it.
    on_damage: Callable[[], None] = lambda: None


def scan_file(
    fs: FileSystem,
    directory: str,
    base: int,
    *,
    rules: Rules,
    before_offset: int = NO_LIMIT,
    known: Segment | None = None,
    limit_bytes: int | None = None,
) -> list[Piece]:
    """Return the pieces of a file, at least one; several if there is damage between valid batches.

    Args:
        before_offset: the offset with which the next file begins.
        known: the segment with those batches that need not be read again.
        limit_bytes: bytes behind it are still being written.
    """
    segment = known or Segment(fs, directory, base, is_entry_durable=False)
    piece = Piece(segment=segment, file_base=base, start=0)
    pieces = [piece]
    window_bytes = WINDOW_BYTES if rules.with_crc else HEADERS_WINDOW_BYTES
    reader = BatchReader(segment.file, window_bytes=window_bytes, limit_bytes=limit_bytes)
    size = reader.size
    position = segment.size
    while position < size:
        segment = piece.segment
        try:
            header = reader.header_at(position)
            reader.check(position, header, with_crc=rules.with_crc)
            # No checksum covers the offset: it has to fit its place.
            _check_offset(header, segment.next_offset, rules.sparse_before)
        except CorruptRecordError as why:
            expected = segment.next_offset
            found = find_batch(
                reader,
                position,
                beyond_offset=expected,
                before_offset=before_offset,
                is_sparse=expected < rules.sparse_before,
            )
            is_unwritten = found is None and (reader.is_blank(position) or _is_torn(reader, position, expected))
            end = size if found is None else found
            piece.damage = Damage(position=position, end=end, reason=str(why), is_unwritten=is_unwritten)
            rules.on_damage()
            if found is None:
                break
            base = reader.header_at(found).base_offset
            piece = Piece(
                segment=Segment(fs, directory, base, is_entry_durable=False), file_base=piece.file_base, start=found
            )
            pieces.append(piece)
            position = found
            continue
        segment.note(position - piece.start, header)
        rules.on_batch(header)
        if header.is_control and rules.on_control is not None:
            rules.on_control(header, reader.read(position, min(header.size_bytes, CONTROL_LIMIT_BYTES)))
        position += header.size_bytes
    return pieces


def ends_before(fs: FileSystem, directory: str, base: int, end_offset: int, sparse_before: int) -> bool:
    """Whether a file is whole and ends before an offset, so that a compacted one may replace it."""
    rules = Rules(with_crc=True, sparse_before=sparse_before, on_batch=lambda _: None)
    (first, *others) = scan_file(fs, directory, base, rules=rules)
    return not others and not first.damage and first.segment.next_offset <= end_offset


def _is_torn(reader: BatchReader, position: int, expected: int) -> bool:
    if reader.size - position < HEADER_SIZE:
        return True
    try:
        header = reader.header_at(position)
    except CorruptRecordError:
        return False
    return header.base_offset == expected and position + header.size_bytes > reader.size


def _check_offset(header: BatchHeader, expected: int, sparse_before: int) -> None:
    offset = header.base_offset
    if offset != expected and not expected < offset < sparse_before:
        raise CorruptRecordError(f"offset {offset} stands where {expected} belongs")


class BatchReader:
    """A reader of batches by position: reading forward costs one pass, each jump a window.

    Laws: memory is one window, whatever length a batch claims. A file that is cut meanwhile ends where it ends now:
    what is missing is no batch. A page that the disk cannot give is an error of the file, never the end of the process.
    Source: Apache Kafka's log recovery; mmap(2) on files that others cut.
    """

    __slots__ = ("_base", "_file", "_window", "_window_bytes", "size")

    def __init__(self, file: LogFile, *, window_bytes: int = WINDOW_BYTES, limit_bytes: int | None = None) -> None:
        self._file = file
        self._window_bytes = window_bytes
        #: Bytes of the file from `_base` on.
        self._window = memoryview(b"")
        self._base = 0
        #: The size of the file when the reader was created, up to the limit.
        self.size: Final = file.size() if limit_bytes is None else min(file.size(), limit_bytes)

    def read(self, position: int, size: int) -> bytes:
        """Read up to `size` bytes; fewer at the end."""
        return self._file.read(position, min(size, self.size - position))

    def is_blank(self, position: int) -> bool:
        """Whether all bytes from there on are zeros."""
        while position < self.size:
            piece = self.read(position, WINDOW_BYTES)
            if any(piece):
                return False
            position += len(piece) or self.size
        return True

    def header_at(self, position: int) -> BatchHeader:
        """Parse the header at `position`; raise as `parse_header` does, or `StorageError`."""
        here = position - self._base
        if here < 0 or here + HEADER_SIZE > len(self._window):
            self._move_to(position)
            here = 0
        return parse_header(self._window, here, origin=self._base)

    def check(self, position: int, header: BatchHeader, *, with_crc: bool = True) -> None:
        """Check a batch of the file as `check_batch` does; may raise `StorageError`, too."""
        check_counts(header)
        end = position + header.batch_length + LENGTH_OVERHEAD
        # The claimed length is checked before the bytes are read.
        if end > self.size:
            raise torn_batch(header, self.size - position)
        if with_crc and self._crc(position + CRC_START, end) != header.crc:
            raise damaged_batch(header)

    def _crc(self, start: int, end: int) -> int:
        base, size = self._base, len(self._window)
        if base <= start and end <= base + size:
            return crc32c(self._window[start - base : end - base])
        checksum = 0
        while start < end:
            if not self._base <= start < self._base + len(self._window):
                self._move_to(start)
                if not self._window:
                    # It was cut meanwhile.
                    break
            piece = self._window[start - self._base : end - self._base]
            checksum = crc32c(piece, checksum)
            start += len(piece)
        return checksum

    def _move_to(self, position: int) -> None:
        self._window = memoryview(self.read(position, self._window_bytes))
        self._base = position
