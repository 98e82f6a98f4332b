"""One segment file: batches in offset order, found by a sparse index and read by position.

Laws: `size` and `next_offset` are raised only after the bytes are in the file. A file that has less than was written,
or other lengths of batches, is an error, never an answer. The file holds plain version 2 batches and nothing else,
named by its first offset, so that Apache Kafka's tools can read it. Whoever does not wait gets `NotResidentError`
before anything has changed.
Source: Apache Kafka's log format.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from struct import Struct
from typing import Final, Literal, NamedTuple

from kohort.errors import CorruptRecordError, StorageError
from kohort.records.header import HEADER_SIZE, BatchHeader, parse_header
from kohort.records.timesearch import LIMIT_BYTES, first_record_since
from kohort.storage.files.descriptors import WorkNeededError
from kohort.storage.files.fs import Buffer, FileSystem, LogFile
from kohort.storage.segments import indexes
from kohort.storage.segments.indexes import INDEX_INTERVAL_BYTES, FiledIndex, IndexDamagedError, SegmentIndex
from kohort.storage.segments.transaction_index import BlockStarts

#: The suffix of a segment file, as Kafka's.
SUFFIX: Final = ".log"
#: The suffix of a segment file that has left its log and waits to be removed.
DELETED_SUFFIX: Final = ".deleted"
#: Base offset, length and last offset delta, with which a reader hops from batch to batch.
_HOP: Final = Struct(">qi11xi")
_LENGTH_OVERHEAD: Final = 12
_Way = Literal["position_before_offset", "position_before", "position_before_timestamp"]
#: In place of a first timestamp: later than all others.
_NO_TIMESTAMP: Final = 1 << 63
#: Bytes that are read at a time to hop from batch to batch.
_WINDOW_BYTES: Final = INDEX_INTERVAL_BYTES + HEADER_SIZE
#: Most batches to step over before the index is asked for a position farther on.
_MOST_HOPS: Final = 16
#: Positions that are kept for readers that continue where they ended.
_MOST_PLACES: Final = 10


def next_offset_of(batches: Buffer) -> int:
    """Return the offset behind the last of some whole batches."""
    at, next_offset, size = 0, -1, len(batches)
    while size - at >= _HOP.size:
        base_offset, length, last_delta = _HOP.unpack_from(batches, at)
        next_offset = base_offset + last_delta + 1
        at += max(length, 0) + _LENGTH_OVERHEAD
    return next_offset


def segment_name(base_offset: int) -> str:
    """Return the file name that Kafka gives a segment: 20 digits."""
    return f"{base_offset:020d}{SUFFIX}"


def segment_base(name: str) -> int | None:
    """Parse the base offset of a segment's file name; `None` for other files."""
    digits = name.removesuffix(SUFFIX)
    return (
        int(digits) if name.endswith(SUFFIX) and len(digits) == 20 and digits.isascii() and digits.isdigit() else None
    )


class BatchPlace(NamedTuple):
    """The position of a batch in its segment, and its header."""

    position: int
    header: BatchHeader


class Segment:
    """A file of a partition's log; only the newest of them grows."""

    __slots__ = (
        "_borders",
        "_directory",
        "_file",
        "_fs",
        "_index",
        "_interval_bytes",
        "_places",
        "aborted_bytes",
        "aborted_starts",
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
        self._directory = directory
        self._file: LogFile | None = None
        #: In memory while the segment grows; in its files once they are written.
        self._index: SegmentIndex | FiledIndex = SegmentIndex(base_offset)
        self._interval_bytes = INDEX_INTERVAL_BYTES
        #: Offset -> position of the batch that holds it or is the first behind it, for where reading ended lately.
        self._places: dict[int, int] | None = None
        self.base_offset = base_offset
        #: The offset that the next batch gets.
        self.next_offset = base_offset
        #: Whether some offsets are in no batch, because Apache Kafka's compaction removed it.
        self.has_gaps = False
        #: Bytes of whole batches in the file.
        self.size = 0
        #: (offset, position) where damage begins and ends that was found since the log was opened: no header there is
        #: believed, and nobody hops across it.
        self._borders: list[tuple[int, int]] = []
        #: Largest timestamp of the first batch; so late that nothing is later while there is none, or it has no time.
        self.first_timestamp = _NO_TIMESTAMP
        #: Largest timestamp, -1 while empty, and the position of the first batch that has it.
        self.max_timestamp = -1
        self.max_timestamp_position = 0
        #: The size of its file of aborted transactions; 0: it has none.
        self.aborted_bytes = 0
        #: What is known of the blocks of that file; `None`: nothing yet.
        self.aborted_starts: BlockStarts | None = None
        self.path = f"{directory}/{segment_name(base_offset)}"
        #: Whether the name of the file survives a crash.
        self.is_entry_durable = is_entry_durable

    @property
    def file(self) -> LogFile:
        """The open file; it is opened on first use, and never created."""
        # A missing file is not made: the segment may have left its log while a thread checks it.
        if self._file is None:
            self._file = self._fs.open(self.path)
        return self._file

    def make_file(self) -> None:
        """Create the file in its directory, so that later opens find it."""
        self._file = self._fs.open(self.path, create=True)

    def release(self) -> None:
        """Close the file until its next use; views in use stay valid."""
        self._file = None
        if isinstance(self._index, FiledIndex):
            self._index.release()

    def append(self, buffer: Buffer, places: list[BatchPlace]) -> None:
        """Write whole batches that have their offsets; positions in `places` count from the buffer's start."""
        start = self.size
        if not isinstance(self._index, SegmentIndex):
            self._take_index_back()
        (self._file or self.file).write(start, buffer)
        for place in places:
            self.note(start + place.position, place.header)

    def note(self, position: int, header: BatchHeader) -> None:
        """Add the next batch of the file to index and totals."""
        assert isinstance(self._index, SegmentIndex), "nothing is appended to a segment that is closed"
        self._index.note(position, header)
        if not position and header.max_timestamp >= 0:
            # The age of a segment counts from its first batch, as in Kafka.
            self.first_timestamp = header.max_timestamp
        if header.max_timestamp > self.max_timestamp:
            self.max_timestamp = header.max_timestamp
            self.max_timestamp_position = position
        if header.base_offset != self.next_offset:
            self.has_gaps = True
        self.next_offset = header.base_offset + header.last_offset_delta + 1
        self.size = position + header.batch_length + _LENGTH_OVERHEAD

    def use_filed(self, facts: indexes.SegmentFacts) -> None:
        """Take over the facts about all batches of the file and its index files, without reading it."""
        self._take(facts)
        self._index = FiledIndex(self._fs, self._directory, self.base_offset, facts)

    def go_on(self, index: SegmentIndex, facts: indexes.SegmentFacts) -> None:
        """Continue behind the batches that `facts` and `index` cover."""
        self._take(facts)
        self._index = index

    def _take(self, facts: indexes.SegmentFacts) -> None:
        self.next_offset, self.size, self.has_gaps = facts.end_offset, facts.size, facts.has_gaps
        self.first_timestamp = facts.first_timestamp
        self.max_timestamp, self.max_timestamp_position = facts.max_timestamp, facts.max_timestamp_position

    @property
    def interval_bytes(self) -> int:
        """Bytes between two entries of the index while it grows."""
        return self._interval_bytes

    @interval_bytes.setter
    def interval_bytes(self, count: int) -> None:
        self._interval_bytes = count
        if isinstance(self._index, SegmentIndex):
            self._index.interval_bytes = count

    @property
    def index(self) -> SegmentIndex | None:
        """The index if it is in memory; `None` if it is only in its files."""
        return self._index if isinstance(self._index, SegmentIndex) else None

    @property
    def needs_filing(self) -> bool:
        """Whether the index has to be written when the segment is closed; not if it has damage."""
        return self.index is not None and not self._borders

    @property
    def facts(self) -> indexes.SegmentFacts:
        """The facts about the segment as it is now, without those of its index files."""
        return indexes.SegmentFacts(
            end_offset=self.next_offset,
            size=self.size,
            first_timestamp=self.first_timestamp,
            max_timestamp=self.max_timestamp,
            max_timestamp_position=self.max_timestamp_position,
            has_gaps=self.has_gaps,
        )

    @property
    def filed_facts(self) -> indexes.SegmentFacts:
        """The facts about the segment, with its index files if there are any."""
        facts, index = self.facts, self._index
        if isinstance(index, FiledIndex):
            facts = facts._replace(offset_index=index.sums[0], time_index=index.sums[1])
        return facts

    @property
    def is_mistrusted(self) -> bool:
        """Whether damage was found in the segment since the log was opened."""
        return bool(self._borders)

    @property
    def index_files(self) -> list[str]:
        """The paths of the segment's index files, which may exist even if the index is in memory."""
        aborted = (indexes.TRANSACTION_SUFFIX,) if self.aborted_bytes else ()
        return [
            indexes.index_path(self._directory, self.base_offset, suffix)
            for suffix in (*indexes.SUFFIXES, indexes.SYNCED_SUFFIX, *aborted)
        ]

    def use_files(self, facts: indexes.SegmentFacts) -> None:
        """Switch to the index files of a segment that grows no more, and release memory."""
        if facts.size == self.size and self.index is not None:
            self._index = FiledIndex(self._fs, self._directory, self.base_offset, facts)

    def _take_index_back(self) -> None:
        """Load the index into memory again, because the segment grows after all."""
        facts = self.filed_facts
        index = indexes.load_index(
            self._fs, self._directory, self.base_offset, facts, interval_bytes=self._interval_bytes
        )
        if index is None:
            self._rebuild_index()
        else:
            self._index = index

    def _look_up(self, way: _Way, value: int, wait: bool) -> int:
        try:
            found: int = getattr(self._index, way)(value, wait=wait)
        except IndexDamagedError as why:
            if not wait:
                # Rebuilding reads the whole segment: the loop does not wait for that.
                raise WorkNeededError(f"{why}; it is made anew", self._rebuild_index) from why
            self._rebuild_index()
            found = getattr(self._index, way)(value, wait=wait)
        return found

    def _rebuild_index(self) -> None:
        """Rebuild an index with damaged files from the whole segment."""
        index = SegmentIndex(self.base_offset)
        index.interval_bytes = self._interval_bytes
        position = 0
        while position < self.size:
            header = self.header_at(position)
            index.note(position, header)
            position += header.size_bytes
        self._index = index

    def position_of(self, offset: int, *, wait: bool = True) -> int:
        """Return the position of the batch with `offset`, or of the first one behind it; else the size."""
        if offset >= self.next_offset:
            return self.size
        if offset <= self.base_offset:
            return 0
        if self._places is not None and (known := self._places.get(offset)) is not None:
            return known
        before = self._look_up("position_before_offset", offset, wait)
        if self._borders:
            border, at = max((each for each in self._borders if each[0] <= offset), default=(-1, 0))
            if border == offset:
                return at
            before = max(before, at)
        found = self._walk(before, offset, wait=wait)
        if self.has_gaps and (header := self.header_at(found, wait=wait)).last_offset < offset:
            return found + header.size_bytes
        return found

    def note_damage(self, first_offset: int, next_offset: int, position: int, size_bytes: int) -> None:
        """Mark a damaged range, which is neither read nor used to find batches from now on."""
        self._borders += [(first_offset, position), (next_offset, position + size_bytes)]
        self._places = None

    def remember(self, offset: int, position: int) -> None:
        """Remember `position_of(offset)`, for which a reader is likely to ask soon."""
        if self._places is None:
            self._places = {}
        elif len(self._places) >= _MOST_PLACES and offset not in self._places:
            del self._places[next(iter(self._places))]
        self._places[offset] = position

    def read_batches(self, start: int, max_bytes: int, *, at_least_one: bool, wait: bool = True) -> memoryview:
        """Read the whole batches within `max_bytes` from `start` on; the segment has more bytes than that.

        With `at_least_one` the first batch is read even if it is larger.
        """
        if max_bytes >= HEADER_SIZE:
            found = self.view(start, start + max_bytes, wait=wait)
            size = self._size_of_whole(found, start, wait=wait)
            if size or not at_least_one:
                return found[:size]
        elif not at_least_one:
            return memoryview(b"")
        header = self.header_at(start, wait=wait)
        end = start + header.size_bytes
        if end > self.size:
            raise self._is_damaged(start, header.batch_length)
        self.remember(header.last_offset + 1, end)
        return self.view(start, end, wait=wait)

    def _size_of_whole(self, found: memoryview, start: int, *, wait: bool) -> int:
        """Return the size of the whole batches in bytes that were read at `start`, the begin of a batch."""
        unpack, size = _HOP.unpack_from, len(found)
        at, next_offset = 0, -1
        if unpack(found)[1] * _MOST_HOPS < size:
            at = max(self._look_up("position_before", start + size - _HOP.size, wait) - start, 0)
        while size - at >= _HOP.size:
            base_offset, length, last_delta = unpack(found, at)
            if length < HEADER_SIZE - _LENGTH_OVERHEAD:
                raise self._is_damaged(start + at, length)
            if length + _LENGTH_OVERHEAD > size - at:
                next_offset = base_offset if next_offset < 0 else next_offset
                break
            at += length + _LENGTH_OVERHEAD
            next_offset = base_offset + last_delta + 1
        if next_offset >= 0:
            self.remember(next_offset, start + at)
        return at

    def view(self, start: int, end: int, *, wait: bool = True) -> memoryview:
        """Return the bytes from `start` to `end`, both boundaries of batches."""
        found = self.file.view(start, end - start, wait=wait)
        if len(found) < end - start:
            raise self._is_cut(start + len(found))
        return found

    def sync(self, directory: str) -> None:
        """Make the batches durable, and the file's name in `directory`; safe in another thread."""
        file = self._file
        if file is None:
            # No record was written since the log was opened, or the log is closed by now.
            return
        file.sync()
        if not self.is_entry_durable:
            # A sync of a log begins with its oldest file. One sync of the directory makes both names durable.
            indexes.mark_synced(self._fs, directory, self.base_offset)
            self._fs.sync_directory(directory)
            self.is_entry_durable = True

    def header_at(self, position: int, *, wait: bool = True) -> BatchHeader:
        """Read the header of the batch at `position`."""
        raw = self.file.read(position, HEADER_SIZE, wait=wait)
        if len(raw) < HEADER_SIZE:
            raise self._is_cut(position + len(raw))
        try:
            return parse_header(raw, 0)
        except CorruptRecordError as why:
            raise StorageError(f"{self.path} is damaged at byte {position}: {why}") from why

    def first_batch_since(self, timestamp_ms: int, *, wait: bool = True) -> BatchPlace | None:
        """Find the first batch with a timestamp of at least `timestamp_ms`; `None` if there is none."""
        if timestamp_ms > self.max_timestamp or self.size == 0:
            return None
        position = self._look_up("position_before_timestamp", timestamp_ms, wait)
        while position < self.size:
            header = self.header_at(position, wait=wait)
            if header.max_timestamp >= timestamp_ms:
                return BatchPlace(position, header)
            position += header.size_bytes
        return None

    def _walk(self, position: int, offset: int, *, wait: bool) -> int:
        """Step from the batch at `position` to the last one that begins at or before `offset`."""
        read, unpack = self.file.read, _HOP.unpack_from
        window, base, found = b"", position, position
        while position < self.size:
            here = position - base
            if here + _HOP.size > len(window):
                window, base, here = read(position, _WINDOW_BYTES, wait=wait), position, 0
                if len(window) < _HOP.size:
                    raise self._is_cut(position + len(window))
            begins_at, length, last_delta = unpack(window, here)
            if begins_at > offset and position > found:
                break
            if length < HEADER_SIZE - _LENGTH_OVERHEAD:
                raise self._is_damaged(position, length)
            found, position = position, position + length + _LENGTH_OVERHEAD
            if begins_at + last_delta >= offset:
                break
        return found

    def _is_cut(self, at: int) -> StorageError:
        return StorageError(f"{self.path} ends at byte {at} of {self.size} that were written; was it cut from outside?")

    def _is_damaged(self, at: int, length: int) -> StorageError:
        return StorageError(f"{self.path} is damaged at byte {at}: a batch of {length} bytes")


# Reads of a log's segments: whole batches from an offset on, and the batch of a timestamp.
#
# Laws: what is read begins and ends at boundaries of batches and has no gap. Nothing here unfolds a batch: looking up a
# time ends at a batch, and what is in that one is for a thread that has the time. Whoever does not wait gets
# `NotResidentError` where the disk would have to be asked, and has got nothing.
# Source: Apache Kafka's fetch and ListOffsets by timestamp (KIP-79, KIP-734).

_BASE_OFFSET: Final = attrgetter("base_offset")


def read_batches(
    segments: Sequence[Segment], offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool, wait: bool
) -> list[memoryview]:
    """Read whole batches from the one with `offset`, up to `end_offset` and `max_bytes`.

    With `at_least_one` the first batch is read even if it is larger. `segments`: of one log, ascending.
    """
    views: list[memoryview] = []
    for segment, start, end in _visible(segments, offset, end_offset, wait=wait):
        if end - start > max_bytes:
            found = segment.read_batches(start, max_bytes, at_least_one=at_least_one and not views, wait=wait)
            if found:
                views.append(found)
            break
        views.append(segment.view(start, end, wait=wait))
        max_bytes -= end - start
        if not max_bytes:
            break
    return views


def measure(segments: Sequence[Segment], offset: int, end_offset: int, max_bytes: int, *, wait: bool) -> int:
    """Estimate the bytes of `read_batches`, up to `max_bytes` or a little less; read only begin and end."""
    size = 0
    for _, start, end in _visible(segments, offset, end_offset, wait=wait):
        size += end - start
        if size >= max_bytes:
            return max_bytes
    return size


def _visible(
    segments: Sequence[Segment], offset: int, end_offset: int, *, wait: bool
) -> Iterator[tuple[Segment, int, int]]:
    """Yield the range of batches in each segment, from the one with `offset` up to `end_offset`."""
    at = bisect_right(segments, offset, key=_BASE_OFFSET) - 1 if len(segments) > 1 else 0
    start = segments[at].position_of(offset, wait=wait)
    while at < len(segments):
        segment = segments[at]
        if end_offset < segment.next_offset:
            end = segment.position_of(end_offset, wait=wait)
            segment.remember(end_offset, end)
            if end > start:
                yield segment, start, end
            return
        end = segment.size
        if end > start:
            if at == len(segments) - 1:
                # A reader at the end of the log will ask for the batch that comes next there.
                segment.remember(segment.next_offset, end)
            yield segment, start, end
        at, start = at + 1, 0


class TimePlace(NamedTuple):
    """The batch with the first record of a time, and its file, which stays readable."""

    file: LogFile
    place: BatchPlace
    #: The timestamp that the record has to have at least.
    timestamp_ms: int

    def find_record(self, *, limit_bytes: int = LIMIT_BYTES, wait: bool = True) -> tuple[int, int] | None:
        """Find the (timestamp, offset) of the record in `limit_bytes` at most, read or decompressed.

        `None` if that is too little or the batch is unreadable; then only `header_says` is known.
        """
        position, header = self.place
        if header.has_log_append_time:
            return self.header_says
        if header.size_bytes > limit_bytes:
            return None
        batch = memoryview(self.file.read(position, header.size_bytes, wait=wait))
        if len(batch) < header.size_bytes:
            raise StorageError(f"a file ends at byte {position + len(batch)}, within a batch; was it cut from outside?")
        try:
            return first_record_since(batch, header, self.timestamp_ms, limit_bytes=limit_bytes)
        except CorruptRecordError:
            # The CRC was right at the append: the producer packed unreadable records, or too many of them.
            return None

    @property
    def header_says(self) -> tuple[int, int]:
        """The (timestamp, offset) at or before the record, by the header alone."""
        return self.place.header.max_timestamp, self.place.header.base_offset


def place_of_time(segments: Sequence[Segment], timestamp_ms: int, *, wait: bool = True) -> TimePlace | None:
    """Find the batch of the first record with at least `timestamp_ms`; `None` if there is none."""
    for segment in segments:
        place = segment.first_batch_since(timestamp_ms, wait=wait)
        if place is not None:
            return TimePlace(segment.file, place, timestamp_ms)
    return None


def place_of_latest(segments: Sequence[Segment], *, wait: bool = True) -> TimePlace | None:
    """Find the batch of the first record with the largest timestamp; `None` if no record has one."""
    latest = max(segments, key=lambda segment: segment.max_timestamp)
    if latest.max_timestamp < 0:
        return None
    position = latest.max_timestamp_position
    place = BatchPlace(position, latest.header_at(position, wait=wait))
    return TimePlace(latest.file, place, latest.max_timestamp)
