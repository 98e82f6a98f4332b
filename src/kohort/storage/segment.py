"""One segment file: batches in offset order, found by a sparse index, views without a copy.

Laws: `size` and `next_offset` are raised only after the bytes are in the file; the end of a mapping is always the start
of a batch. The file holds plain version 2 batches and nothing else, named by its first offset,
so that Apache Kafka's tools can read it.
Source: Apache Kafka's log format.
"""

from __future__ import annotations

from struct import Struct
from typing import Final, NamedTuple

from kohort.records.header import BatchHeader, parse_header
from kohort.storage.fs import Buffer, FileSystem, LogFile
from kohort.storage.segmentindex import SegmentIndex

SUFFIX: Final = ".log"
#: Ends the name of a segment that has left its log and waits to be removed.
DELETED_SUFFIX: Final = ".deleted"
#: Base offset and length, with which a reader hops from batch to batch.
_HOP: Final = Struct(">qi")
_LENGTH_OVERHEAD: Final = 12
_NO_OFFSET_LIMIT: Final = 1 << 63
_NO_TIMESTAMP: Final = 1 << 63
_NOTHING: Final = memoryview(b"")


def segment_name(base_offset: int) -> str:
    """The file name that Kafka gives a segment: 20 digits."""
    return f"{base_offset:020d}{SUFFIX}"


def segment_base(name: str) -> int | None:
    """The base offset in a segment's file name; `None` for other files."""
    digits = name.removesuffix(SUFFIX)
    return (
        int(digits) if name.endswith(SUFFIX) and len(digits) == 20 and digits.isascii() and digits.isdigit() else None
    )


class BatchPlace(NamedTuple):
    """Where a batch lies in its segment."""

    position: int
    header: BatchHeader


class Segment:
    """A file of a partition's log; only the newest of them grows."""

    __slots__ = (
        "_file",
        "_fs",
        "_index",
        "_map",
        "_tail",
        "base_offset",
        "first_timestamp",
        "has_gaps",
        "is_entry_durable",
        "max_timestamp",
        "max_timestamp_position",
        "next_offset",
        "path",
        "size",
    )

    def __init__(self, fs: FileSystem, directory: str, base_offset: int, *, is_entry_durable: bool) -> None:
        self._fs = fs
        self._file: LogFile | None = None
        #: The start of the file without a copy; may be shorter than the file.
        self._map: memoryview = _NOTHING
        #: A copy of what lies behind `_map`, as far as somebody has read it.
        self._tail: memoryview = _NOTHING
        self._index = SegmentIndex()
        self.base_offset = base_offset
        #: The offset that the next batch gets.
        self.next_offset = base_offset
        #: Some offsets lie in no batch: Apache Kafka's compaction took it away whole.
        self.has_gaps = False
        #: Bytes of whole batches in the file.
        self.size = 0
        #: Largest timestamp of the first batch; so late that nothing is later while there is none, or it has no time.
        self.first_timestamp = _NO_TIMESTAMP
        #: Largest timestamp, -1 while empty, and the position of the first batch that has it.
        self.max_timestamp = -1
        self.max_timestamp_position = 0
        self.path = f"{directory}/{segment_name(base_offset)}"
        #: Whether the name of the file survives a crash.
        self.is_entry_durable = is_entry_durable

    @property
    def file(self) -> LogFile:
        """The open file; opened on first use, and created if nothing can be in it."""
        if self._file is None:
            self._file = self._fs.open(self.path, create=self.size == 0)
        return self._file

    def make_file(self) -> None:
        """Have the file in its directory, so that whoever looks finds it."""
        self._file = self._fs.open(self.path, create=True)

    def release(self) -> None:
        """Let go of descriptor and mappings until somebody needs them again; views in use stay valid."""
        self._file = None
        self._map = self._tail = _NOTHING

    def append(self, buffer: Buffer, places: list[BatchPlace]) -> None:
        """Write whole batches that already carry their offsets; positions in `places` count from the buffer's start."""
        start = self.size
        (self._file or self.file).write(start, buffer)
        for place in places:
            self.note(start + place.position, place.header)

    def note(self, position: int, header: BatchHeader) -> None:
        """Take a batch that is in the file, and is the next one, into index and totals."""
        self._index.note(position, header.base_offset, self.max_timestamp)
        if not position and header.max_timestamp >= 0:
            self.first_timestamp = header.max_timestamp
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_position = position
        if header.base_offset != self.next_offset:
            self.has_gaps = True
        self.next_offset = header.base_offset + header.last_offset_delta + 1
        self.size = position + header.batch_length + _LENGTH_OVERHEAD

    def position_of(self, offset: int) -> int:
        """Position of the batch that holds `offset` or is the first behind it; the segment's size if there is none."""
        if offset >= self.next_offset:
            return self.size
        found = self._walk(self._index.position_before_offset(offset), offset=offset, limit=self.size - 1)
        if self.has_gaps and self.header_at(found).last_offset < offset:
            return self.end_of_batch(found)
        return found

    def boundary_before(self, limit: int, start: int) -> int:
        """The last start of a batch (or the end of the segment) at or before byte `limit`, not before `start`.

        `start` is itself the start of a batch.
        """
        if limit >= self.size:
            return self.size
        return self._walk(max(start, self._index.position_before(limit)), offset=_NO_OFFSET_LIMIT, limit=limit)

    def end_of_batch(self, position: int) -> int:
        """Position behind the batch at `position`."""
        window, start = self._window(position)
        length: int = _HOP.unpack_from(window, position - start)[1]
        return position + length + _LENGTH_OVERHEAD

    def views(self, start: int, end: int) -> list[memoryview]:
        """The bytes from `start` to `end`, both boundaries of batches; two views where the mapping ends in between."""
        mapped = len(self._map)
        if end <= mapped:
            return [self._map[start:end]]
        if self.size - mapped > self.file.remap_bytes:
            return [self._remap()[start:end]]
        if end - mapped > len(self._tail):
            self._copy_tail()
        if start >= mapped:
            return [self._tail[start - mapped : end - mapped]]
        return [self._map[start:], self._tail[: end - mapped]]

    def sync(self, directory: str) -> None:
        """Make the batches durable, and the file's name in `directory`; safe in another thread."""
        file = self._file
        if file is None:
            # Nothing was written since the log was opened, or it is closed by now.
            return
        file.sync()
        if not self.is_entry_durable:
            self._fs.sync_directory(directory)
            self.is_entry_durable = True

    def header_at(self, position: int) -> BatchHeader:
        """The header of the batch at `position`."""
        window, start = self._window(position)
        return parse_header(window, position - start)

    def first_batch_since(self, timestamp_ms: int) -> BatchPlace | None:
        """The first batch with a timestamp of at least `timestamp_ms`; `None` if there is none."""
        if timestamp_ms > self.max_timestamp or self.size == 0:
            return None
        position = self._index.position_before_timestamp(timestamp_ms)
        while position < self.size:
            header = self.header_at(position)
            if header.max_timestamp >= timestamp_ms:
                return BatchPlace(position, header)
            position += header.size_bytes
        return None

    def _walk(self, position: int, *, offset: int, limit: int) -> int:
        """Hop from the batch at `position` to the last one that begins at or before both `offset` and byte `limit`."""
        while True:
            window, base = self._window(position)
            here, stop = position - base, min(limit - base, len(window) - 1)
            length = _HOP.unpack_from(window, here)[1]
            while (following := here + length + _LENGTH_OVERHEAD) <= stop:
                next_offset, length = _HOP.unpack_from(window, following)
                if next_offset > offset:
                    return base + here
                here = following
            # The end of the window, which is the end of a batch, or what was looked for.
            position = base + following
            if position > limit or self.header_at(position).base_offset > offset:
                return base + here

    def _window(self, position: int) -> tuple[memoryview, int]:
        """A view that holds the batch at `position`, and the position in the file at which the view begins."""
        mapped = len(self._map)
        if position < mapped:
            return self._map, 0
        if position - mapped >= len(self._tail):
            if self.size - mapped > self.file.remap_bytes:
                return self._remap(), 0
            self._copy_tail()
        return self._tail, mapped

    def _copy_tail(self) -> None:
        # A short tail is cheaper to copy than to map; the copy serves every reader until more is appended.
        mapped = len(self._map)
        self._tail = memoryview(self.file.read(mapped, self.size - mapped))

    def _remap(self) -> memoryview:
        self._tail = _NOTHING
        self._map = self.file.map(self.size)
        return self._map
