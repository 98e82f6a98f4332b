"""Where the batches of one segment lie: a sparse index by offset, position and time, in memory.

Laws: an entry is the start of a batch; entries are a given number of bytes apart and come in the order of the file.
Every answer is a batch at or before the one that is looked for, so that hopping on from it finds that one.
Source: Apache Kafka's index interval of 4 KB (`index.interval.bytes`).
"""

from __future__ import annotations

from array import array
from bisect import bisect_left, bisect_right
from typing import Final

#: Bytes of batches between two entries.
INDEX_INTERVAL_BYTES: Final = 4096


class SegmentIndex:
    """The sparse index of one segment; only that of the newest one grows."""

    __slots__ = ("_max_timestamps", "_noted_until", "_offsets", "_positions")

    def __init__(self) -> None:
        #: Offset and position of a batch, and the largest timestamp of all batches before it; ascending.
        self._offsets = array("q")
        self._positions = array("q")
        self._max_timestamps = array("q")
        #: The next batch at or behind this position gets an entry.
        self._noted_until = 0

    def note(self, position: int, offset: int, max_timestamp_before: int) -> None:
        """Take a batch that is the next one, if it is far enough behind the last entry."""
        if position >= self._noted_until:
            self._offsets.append(offset)
            self._positions.append(position)
            self._max_timestamps.append(max_timestamp_before)
            self._noted_until = position + INDEX_INTERVAL_BYTES

    def position_before_offset(self, offset: int) -> int:
        """Position of a batch that begins at or before `offset`; 0 if none is known."""
        entry = bisect_right(self._offsets, offset) - 1
        return self._positions[entry] if entry >= 0 else 0

    def position_before(self, limit: int) -> int:
        """Position of a batch that begins at or before byte `limit`."""
        entry = bisect_right(self._positions, limit) - 1
        return self._positions[entry] if entry >= 0 else 0

    def position_before_timestamp(self, timestamp_ms: int) -> int:
        """Position of a batch before which every timestamp is smaller than `timestamp_ms`."""
        entry = bisect_left(self._max_timestamps, timestamp_ms) - 1
        return self._positions[entry] if entry >= 0 else 0
