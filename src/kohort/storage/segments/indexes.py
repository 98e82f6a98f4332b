"""The sparse indexes of segments, and their files in Apache Kafka's formats with facts to check them.

`<base>.index` and `<base>.timeindex` are Kafka's. `<base>.facts` is ours: how much of the segment they are about, their
checksums, and the checksum of the whole segment once it is known. It carries a checksum of its own.

Laws: an index whose checksum differs is never used; it is rebuilt from the segment. So nothing
here needs a sync. Of a large index a few entries are in memory at a time.
Source: Apache Kafka's OffsetIndex and TimeIndex.
"""

from __future__ import annotations

import json
import sys
from array import array
from bisect import bisect_left, bisect_right
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

from kohort.base.jsontext import parse_json
from kohort.errors import StorageError
from kohort.records.checksum import crc32c
from kohort.records.header import BatchHeader
from kohort.storage.files.fs import FileSystem, UnreadableError

#: Suffixes of a segment's index files: Kafka's two, and kohort's facts.
INDEX_SUFFIX: Final = ".index"
TIME_SUFFIX: Final = ".timeindex"
FACTS_SUFFIX: Final = ".facts"
SUFFIXES: Final = (INDEX_SUFFIX, TIME_SUFFIX, FACTS_SUFFIX)
#: The suffix of a segment's aborted transactions, as Kafka's.
TRANSACTION_SUFFIX: Final = ".txnindex"
#: The suffix of an empty file: everything before its offset was durable before later records were acknowledged.
SYNCED_SUFFIX: Final = ".synced"
_FACTS_LIMIT_BYTES: Final = 4096
#: Facts -> their names in the file, where these differ.
_NAMES: Final = {"offset_index": "index", "time_index": "timeindex"}
#: Entries that are read at a time.
_CHUNK: Final = 512
_OFFSET_ENTRY: Final = Struct(">II")
_TIME_ENTRY: Final = Struct(">qI")
#: Bytes of batches between two entries, unless the topic says otherwise (`index.interval.bytes`).
INDEX_INTERVAL_BYTES: Final = 4096
_NO_TIMESTAMP: Final = -1


class IndexDamagedError(StorageError):
    """An index file that is damaged, too short or missing."""


class SegmentFacts(NamedTuple):
    """The facts about the first `size` bytes of a segment, known without reading them."""

    #: Behind the last offset in them.
    end_offset: int
    size: int
    first_timestamp: int
    max_timestamp: int
    max_timestamp_position: int
    has_gaps: bool
    #: (bytes, CRC-32C) of the two files.
    offset_index: tuple[int, int] = (0, 0)
    time_index: tuple[int, int] = (0, 0)
    #: CRC-32C of these bytes; `None` until they were scrubbed.
    checksum: int | None = None


def index_path(directory: str, base_offset: int, suffix: str) -> str:
    """Return the path of one of a segment's other files."""
    return f"{directory}/{base_offset:020d}{suffix}"


def save_index(fs: FileSystem, directory: str, base_offset: int, image: IndexImage) -> None:
    """Write Kafka's two index files; the facts have to follow."""
    for suffix, content in ((INDEX_SUFFIX, image.offsets), (TIME_SUFFIX, image.times)):
        _write(fs, index_path(directory, base_offset, suffix), content)


def sum_of(content: bytes) -> tuple[int, int]:
    """Return size and checksum."""
    return len(content), crc32c(content)


def save_facts(fs: FileSystem, directory: str, base_offset: int, facts: SegmentFacts) -> None:
    """Write the facts of a segment."""
    text = json.dumps({_NAMES.get(name, name): fact for name, fact in facts._asdict().items()}).encode()
    _write(fs, index_path(directory, base_offset, FACTS_SUFFIX), b"%08x %s\n" % (crc32c(text), text))


def load_facts(fs: FileSystem, directory: str, base_offset: int) -> SegmentFacts | None:
    """Read the facts of a segment; `None` if they are missing or damaged."""
    path = index_path(directory, base_offset, FACTS_SUFFIX)
    try:
        if not fs.exists(path):
            return None
        checksum, _, text = fs.open(path).read(0, _FACTS_LIMIT_BYTES).partition(b" ")
        text = text.removesuffix(b"\n")
        if int(checksum, 16) != crc32c(text):
            return None
        rows = {**parse_json(text)}
        rows |= {fact: _pair(rows.pop(name)) for fact, name in _NAMES.items()}
        facts = SegmentFacts(**rows)
    except (StorageError, ValueError, TypeError, KeyError):
        return None
    numbers = (facts.end_offset, facts.size, facts.first_timestamp, facts.max_timestamp, facts.max_timestamp_position)
    return (
        facts if all(isinstance(number, int) for number in (*numbers, *facts.offset_index, *facts.time_index)) else None
    )


def _pair(found: list[int]) -> tuple[int, int]:
    """Check that `found` is a pair; raise `ValueError` if not."""
    size, checksum = found
    return size, checksum


def load_index(
    fs: FileSystem, directory: str, base_offset: int, facts: SegmentFacts, *, interval_bytes: int
) -> SegmentIndex | None:
    """Load a whole index into memory, to extend it; `None` if it is damaged or unreadable."""
    found = []
    for suffix, (size, checksum), width in (
        (INDEX_SUFFIX, facts.offset_index, _OFFSET_ENTRY.size),
        (TIME_SUFFIX, facts.time_index, _TIME_ENTRY.size),
    ):
        path = index_path(directory, base_offset, suffix)
        try:
            content = fs.open(path).read(0, size) if fs.exists(path) else b""
        except UnreadableError:
            return None
        if len(content) != size or size % width or crc32c(content) != checksum:
            return None
        found.append(content)
    return SegmentIndex.of_image(base_offset, IndexImage(*found), interval_bytes=interval_bytes)


def has_index(fs: FileSystem, directory: str, base_offset: int, facts: SegmentFacts) -> bool:
    """Whether both index files exist with the size that was written."""
    for suffix, (size, _) in ((INDEX_SUFFIX, facts.offset_index), (TIME_SUFFIX, facts.time_index)):
        path = index_path(directory, base_offset, suffix)
        if not fs.exists(path) or fs.open(path).size() != size:
            return False
    return True


def mark_synced(fs: FileSystem, directory: str, base_offset: int) -> None:
    """Mark all records before a segment as durable; the mark is durable once the directory is synced."""
    fs.open(index_path(directory, base_offset, SYNCED_SUFFIX), create=True)


def remove_index(fs: FileSystem, directory: str, base_offset: int) -> None:
    """Remove the index files of a segment that is gone or replaced."""
    # The facts go first: without them the other files are never used.
    for suffix in reversed(SUFFIXES):
        fs.remove(index_path(directory, base_offset, suffix))


def _write(fs: FileSystem, path: str, content: bytes) -> None:
    file = fs.open(path, create=True)
    if file.size() > len(content):
        file.truncate(0)
    if content:
        file.write(0, content)


class FiledIndex:
    """The index of a segment that grows no more, looked up in its files."""

    __slots__ = ("_base", "_offsets", "_times", "is_checked")

    def __init__(self, fs: FileSystem, directory: str, base_offset: int, facts: SegmentFacts) -> None:
        self._base = base_offset
        self._offsets = _Entries(
            fs, index_path(directory, base_offset, INDEX_SUFFIX), facts.offset_index, layout=_OFFSET_ENTRY
        )
        self._times = _Entries(
            fs, index_path(directory, base_offset, TIME_SUFFIX), facts.time_index, layout=_TIME_ENTRY
        )
        #: Whether the checksums were verified since the broker started.
        self.is_checked = False

    @property
    def sums(self) -> tuple[tuple[int, int], tuple[int, int]]:
        """The size and checksum of each file."""
        return self._offsets.expected, self._times.expected

    def release(self) -> None:
        """Release all memory."""
        self._offsets.release()
        self._times.release()

    def position_before_offset(self, offset: int, *, wait: bool = True) -> int:
        """Look up as `SegmentIndex` does; may raise `IndexDamagedError`, and `NotResidentError` unless `wait`."""
        self._look(wait=wait)
        entry = self._offsets.last_up_to(offset - self._base, 0)
        return entry[1] if entry is not None else 0

    def position_before(self, limit: int, *, wait: bool = True) -> int:
        """Look up as `SegmentIndex` does; see `position_before_offset`."""
        self._look(wait=wait)
        entry = self._offsets.last_up_to(limit, 1)
        return entry[1] if entry is not None else 0

    def position_before_timestamp(self, timestamp_ms: int, *, wait: bool = True) -> int:
        """Look up as `SegmentIndex` does; see `position_before_offset`."""
        self._look(wait=wait)
        entry = bisect_left(self._times, timestamp_ms, key=lambda entry: entry[0]) - 1
        return self.position_before_offset(self._base + self._times[entry][1], wait=wait) if entry >= 0 else 0

    def _look(self, *, wait: bool) -> None:
        self._offsets.wait = self._times.wait = wait
        if not self.is_checked:
            self._offsets.check()
            self._times.check()
            self.is_checked = True


class _Entries:
    """The entries of one file; the last chunk that was read stays in memory."""

    __slots__ = ("_chunk", "_first", "_fs", "_layout", "_path", "expected", "wait")

    def __init__(self, fs: FileSystem, path: str, expected: tuple[int, int], *, layout: Struct) -> None:
        self._fs = fs
        self._path = path
        self._layout = layout
        #: Size and checksum.
        self.expected: Final = expected
        self._first = 0
        self._chunk: list[tuple[int, ...]] = []
        self.wait = True

    def __len__(self) -> int:
        return self.expected[0] // self._layout.size

    def __getitem__(self, at: int) -> tuple[int, ...]:
        if not 0 <= at - self._first < len(self._chunk):
            first = at - at % _CHUNK
            width = self._layout.size
            raw = self._fs.open(self._path).read(first * width, min(_CHUNK, len(self) - first) * width, wait=self.wait)
            if len(raw) % width or len(raw) <= (at - first) * width:
                raise IndexDamagedError(f"{self._path} is shorter than it was")
            self._chunk, self._first = list(self._layout.iter_unpack(raw)), first
        return self._chunk[at - self._first]

    def last_up_to(self, value: int, column: int) -> tuple[int, ...] | None:
        """Return the last entry with at most `value` in an ascending column."""
        # A reader that goes on finds its next entry in the chunk that was read last.
        chunk, in_column = self._chunk, itemgetter(column)
        if chunk and chunk[0][column] <= value < chunk[-1][column]:
            return chunk[bisect_right(chunk, value, key=in_column) - 1]
        at = bisect_right(self, value, key=in_column) - 1
        return self[at] if at >= 0 else None

    def check(self) -> None:
        """Raise `IndexDamagedError` if the file is not as it was written."""
        try:
            found = sum_of(self._fs.open(self._path).read(0, self.expected[0], wait=self.wait))
        except StorageError as why:
            if self._fs.exists(self._path):
                raise
            raise IndexDamagedError(f"{self._path} is gone") from why
        if found != self.expected:
            raise IndexDamagedError(f"{self._path} is damaged")

    def release(self) -> None:
        """Release all memory."""
        self._chunk = []


class IndexImage(NamedTuple):
    """A copy of an index in the bytes of Kafka's files; made by `SegmentIndex.image`."""

    offsets: bytes
    times: bytes


class SegmentIndex:
    """The index of a segment in memory; only that of the newest segment grows.

    Laws: entries are a given number of bytes apart and come in the order of the file. Every answer is the position of a
    batch at or before the one that is looked for, so that hopping on from it finds that one; 0 if no entry helps.
    Source: Apache Kafka's OffsetIndex (the last offset of a batch, the position of its start) and TimeIndex (the
    largest timestamp so far, the last offset of the first batch that has it).
    """

    __slots__ = ("_base", "_bytes", "_latest", "_offsets", "_positions", "_time_offsets", "_times", "interval_bytes")

    def __init__(self, base_offset: int) -> None:
        self._base = base_offset
        self.interval_bytes = INDEX_INTERVAL_BYTES
        #: Of each entry: the last offset of a batch, counted from the segment's first, and where the batch begins.
        self._offsets = array("I")
        self._positions = array("I")
        #: Of each entry by time: the largest timestamp up to there, and the last offset of the batch that has it.
        self._times = array("q")
        self._time_offsets = array("I")
        #: Bytes since the last entry.
        self._bytes = 0
        #: (largest timestamp, last offset of the first batch that has it).
        self._latest = (_NO_TIMESTAMP, base_offset)

    def copy(self) -> SegmentIndex:
        """Return a copy, quickly, for a thread that writes it beside the owner."""
        other = SegmentIndex(self._base)
        other._offsets, other._positions = self._offsets[:], self._positions[:]
        other._times, other._time_offsets = self._times[:], self._time_offsets[:]
        other._bytes, other._latest, other.interval_bytes = self._bytes, self._latest, self.interval_bytes
        return other

    def note(self, position: int, header: BatchHeader) -> None:
        """Note the next batch; it gets an entry if it is far enough behind the last one with an entry."""
        if header.max_timestamp > self._latest[0]:
            self._latest = (header.max_timestamp, header.base_offset + header.last_offset_delta)
        # A sparse index, as Kafka's: readers step over the batches between two entries.
        if self._bytes > self.interval_bytes:
            self._offsets.append(header.base_offset + header.last_offset_delta - self._base)
            self._positions.append(position)
            self._note_time()
            self._bytes = 0
        self._bytes += header.batch_length

    def _note_time(self) -> None:
        timestamp, offset = self._latest
        if timestamp > (self._times[-1] if self._times else _NO_TIMESTAMP):
            self._times.append(timestamp)
            self._time_offsets.append(offset - self._base)

    def position_before_offset(self, offset: int, *, wait: bool = True) -> int:
        """Return the position of a batch that ends at or before `offset`."""
        del wait
        entry = bisect_right(self._offsets, max(offset - self._base, 0)) - 1
        return self._positions[entry] if entry >= 0 else 0

    def position_before(self, limit: int, *, wait: bool = True) -> int:
        """Return the position of a batch that begins at or before byte `limit`."""
        del wait
        entry = bisect_right(self._positions, limit) - 1
        return self._positions[entry] if entry >= 0 else 0

    def position_before_timestamp(self, timestamp_ms: int, *, wait: bool = True) -> int:
        """Return the position of a batch before which every timestamp is smaller than `timestamp_ms`."""
        entry = bisect_left(self._times, timestamp_ms) - 1
        return self.position_before_offset(self._base + self._time_offsets[entry], wait=wait) if entry >= 0 else 0

    def image(self) -> IndexImage:
        """Return the bytes of its two files; that by time ends with the largest timestamp."""
        self._note_time()
        return IndexImage(
            _woven((self._offsets, 4), (self._positions, 4)), _woven((self._times, 8), (self._time_offsets, 4))
        )

    @classmethod
    def of_image(cls, base_offset: int, image: IndexImage, *, interval_bytes: int) -> SegmentIndex:
        """Build an index from its image, the inverse of `image`; the next batch gets an entry."""
        index = cls(base_offset)
        index.interval_bytes = interval_bytes
        _unweave(image.offsets, (index._offsets, 4), (index._positions, 4))
        _unweave(image.times, (index._times, 8), (index._time_offsets, 4))
        if index._times:
            index._latest = (index._times[-1], base_offset + index._time_offsets[-1])
        index._bytes = interval_bytes + 1
        return index


def _woven(*columns: tuple[array[int], int]) -> bytes:
    """Pack columns of numbers as rows, big-endian."""
    width = sum(size for _, size in columns)
    rows = bytearray(width * len(columns[0][0]))
    at = 0
    for column, size in columns:
        swapped = column[:]
        if sys.byteorder == "little":
            swapped.byteswap()
        raw = swapped.tobytes()
        for byte in range(size):
            rows[at + byte :: width] = raw[byte::size]
        at += size
    return bytes(rows)


def _unweave(rows: bytes, *columns: tuple[array[int], int]) -> None:
    if not rows:
        return
    width = sum(size for _, size in columns)
    at = 0
    for column, size in columns:
        raw = bytearray(len(rows) // width * size)
        for byte in range(size):
            raw[byte::size] = rows[at + byte :: width]
        column.frombytes(bytes(raw))
        if sys.byteorder == "little":
            column.byteswap()
        at += size
