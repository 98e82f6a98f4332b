"""The scan of one file: separates valid batches from damage, and changes nothing.

Laws: a batch counts if it is whole, its checksum and counts are right, and it stands where its offset belongs.
Source: Apache Kafka's log recovery, which would cut at the first bad batch whatever follows.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from kohort.errors import CorruptRecordError
from kohort.records.header import HEADER_SIZE, BatchHeader
from kohort.storage.files.fs import FileSystem
from kohort.storage.segments.batchreader import HEADERS_WINDOW_BYTES, WINDOW_BYTES, BatchReader
from kohort.storage.segments.findbatch import NO_LIMIT, find_batch
from kohort.storage.segments.segment import Segment


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(slots=True, kw_only=True)
class Piece:
    """Consecutive valid batches of a file, as a segment; positions in it count from `start`."""

    segment: Segment
    #: The file's first offset by its name.
    file_base: int
    start: int
    #: The damage behind them in the file.
    damage: Damage | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The rules for a file's batches."""

    with_crc: bool
    #: Offsets before it may lie in no batch: Apache Kafka's compaction took it away.
    sparse_before: int
    on_batch: Callable[[BatchHeader], None]


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
        limit_bytes: bytes behind it are still being written; `None` if none are.
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
            end = size if found is None else found
            is_unwritten = found is None and (
                reader.is_blank(position) or _is_torn(reader, position, segment.next_offset)
            )
            piece.damage = Damage(position=position, end=end, reason=str(why), is_unwritten=is_unwritten)
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
