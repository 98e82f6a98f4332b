"""Reads of a log's segments: whole batches from an offset on, and the batch of a timestamp.

Laws: what is read begins and ends at boundaries of batches and has no gap. Nothing here unfolds
a batch: looking up a time ends at a batch, and what is in that one is for a thread that has the time. Whoever does not
wait gets `NotResidentError` where the disk would have to be asked, and has got nothing.
Source: Apache Kafka's fetch and ListOffsets by timestamp (KIP-79, KIP-734).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from kohort.errors import CorruptRecordError, StorageError
from kohort.records.timesearch import LIMIT_BYTES, first_record_since
from kohort.storage.files.fs import LogFile
from kohort.storage.segments.segment import BatchPlace, Segment

_BASE_OFFSET: Final = attrgetter("base_offset")


def read_batches(
    segments: Sequence[Segment], offset: int, end_offset: int, max_bytes: int, *, at_least_one: bool, wait: bool
) -> list[memoryview]:
    """Read whole batches from the one with `offset`, up to `end_offset` and `max_bytes`.

    Args:
        segments: of one log, ascending; `offset` is in one of them.
        max_bytes: the most of all views; with `at_least_one` the first batch is in them even if it is larger.
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
        """Find the (timestamp, offset) of the record.

        Args:
            limit_bytes: most bytes to read, and to decompress the batch to.

        Returns:
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
