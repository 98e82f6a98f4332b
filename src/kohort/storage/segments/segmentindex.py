"""The sparse indexes of one segment, by offset, position and time, with Apache Kafka's entries.

Laws: entries are a given number of bytes apart and come in the order of the file. Every answer is the position of a
batch at or before the one that is looked for, so that hopping on from it finds that one; 0 if no entry helps.
Source: Apache Kafka's OffsetIndex (the last offset of a batch, the position of its start) and TimeIndex (the largest
timestamp so far, the last offset of the first batch that has it).
"""

from __future__ import annotations

import sys
from array import array
from bisect import bisect_left, bisect_right
from typing import Final, NamedTuple

from kohort.records.header import BatchHeader

#: Bytes of batches between two entries, unless the topic says otherwise (`index.interval.bytes`).
INDEX_INTERVAL_BYTES: Final = 4096
OFFSET_ENTRY_BYTES: Final = 8
TIME_ENTRY_BYTES: Final = 12
_NO_TIMESTAMP: Final = -1


class IndexImage(NamedTuple):
    """A copy of an index in the bytes of Kafka's files; made by `SegmentIndex.image`."""

    offsets: bytes
    times: bytes


class SegmentIndex:
    """The index of a segment in memory; only that of the newest segment grows."""

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
