"""What has been fetched of a partition, on its way to the application.

Laws: nothing is decoded before it is wanted, and no more than a step of it at once; the position never skips a record
and never repeats one.
Source: the consumer threading refactor (CTR): completed fetches; architecture, room `client`.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple

from kohort.client.consumer.core.exchange import Chunk, Fence
from kohort.client.records import ConsumerRecord
from kohort.ids import TopicPartition
from kohort.records.arrays import Allocate
from kohort.records.layout import HEADERS, KEY, SPAN_WIDTH
from kohort.records.rows import build_rows
from kohort.records.scan import ScannedRecords, scan_batches

#: Bytes of records that are unfolded and scanned at once, or one batch: what is compressed stays so until it is wanted.
_STEP_BYTES: Final = 1024 * 1024


class Taken(NamedTuple):
    """Records of one partition that are handed out as columns: the rows [start, stop) of what was scanned."""

    partition: TopicPartition
    scanned: ScannedRecords
    start: int
    stop: int
    #: Of the records, without what their batches add.
    size_bytes: int


class Piece:
    """One chunk: `position` is the offset that is handed out next."""

    __slots__ = (
        "_parts",
        "_row",
        "_scanned",
        "fence",
        "is_begun",
        "leader_epoch",
        "next_offset",
        "partition",
        "position",
        "size_bytes",
    )

    def __init__(self, chunk: Chunk, parts: Iterable[memoryview]) -> None:
        self.partition: Final[TopicPartition] = chunk.partition
        self.fence: Final[Fence] = chunk.fence
        #: Offset behind its last batch.
        self.next_offset: Final[int] = chunk.next_offset
        #: Of its last batch: no record of it was appended under a later one.
        self.leader_epoch: Final[int] = chunk.leader_epoch
        #: What is given back when it is used up.
        self.size_bytes: Final[int] = chunk.size_bytes
        self.position = chunk.offset
        #: The application's position has come to it.
        self.is_begun = False
        #: What is not handed out yet; `_scanned` is of the first one.
        self._parts = deque(part for part in parts if len(part))
        self._scanned: ScannedRecords | None = None
        #: First row of `_scanned` that is not handed out.
        self._row = 0

    @property
    def is_used_up(self) -> bool:
        """Whether nothing is left to be handed out."""
        return self._scanned is None and not self._parts

    def load(self, *, check_crcs: bool, allocate: Allocate) -> bool:
        """Have rows ready; `False` if none is left.

        Raises:
            CorruptRecordError: the batch at the position is damaged.
        """
        while self._scanned is None:
            if not self._parts:
                return False
            scanned = scan_batches(
                self._parts[0],
                start_offset=self.position,
                max_total_bytes=_STEP_BYTES,
                check_crcs=check_crcs,
                allocate=allocate,
            )
            self._scanned, self._row = scanned, 0
            if len(scanned) == 0:
                self._end_scan(scanned)
        return True

    def take_rows(self, count: int) -> list[ConsumerRecord]:
        """Up to so many records, which count as handed out; `load` has said that there are some."""
        rows = self.peek_rows(count)
        self.advance(len(rows))
        return rows

    def peek_rows(self, count: int) -> list[ConsumerRecord]:
        """The same, but none counts as handed out before `advance`."""
        scanned = self._scanned
        assert scanned is not None
        stop = min(self._row + count, len(scanned))
        return build_rows(ConsumerRecord, self.partition, scanned, self._row, stop)

    def take_slice(self, max_records: int, max_bytes: int, *, at_least_one: bool) -> Taken | None:
        """Records of which that many, and that many bytes, are to go out; `None` if the first is too large already."""
        scanned, row = self._scanned, self._row
        assert scanned is not None
        stop, size_bytes = _cut(scanned, row, min(row + max_records, len(scanned)), max_bytes)
        if stop == row:
            if not at_least_one:
                return None
            stop, size_bytes = _cut(scanned, row, row + 1, _UNLIMITED)
        self.advance(stop - row)
        return Taken(self.partition, scanned, row, stop, size_bytes)

    def advance(self, count: int) -> None:
        """So many more rows are handed out."""
        scanned = self._scanned
        assert scanned is not None
        self._row += count
        if self._row == len(scanned):
            self._end_scan(scanned)
        elif count:
            self.position = scanned.offsets[self._row - 1] + 1

    def _end_scan(self, scanned: ScannedRecords) -> None:
        self._scanned = None
        rest = self._parts.popleft()[scanned.consumed_bytes :]
        if len(rest) and scanned.consumed_bytes:
            self._parts.appendleft(rest)
        # Behind control batches and compacted offsets too, which no record shows.
        self.position = max(self.position, scanned.next_offset if self._parts else self.next_offset)


_UNLIMITED: Final = 1 << 62


def _cut(scanned: ScannedRecords, start: int, stop: int, max_bytes: int) -> tuple[int, int]:
    """The last row behind `start` up to which the records fit, and their bytes."""
    spans, size_bytes = scanned.spans, 0
    for region in scanned.regions:
        first, last = max(region.first_row, start), min(region.stop_row, stop)
        if first >= last:
            continue
        # Records lie behind each other: where the headers of one begin, its value has ended.
        base = spans[first * SPAN_WIDTH + KEY]
        fitting = bisect_right(
            range(last),
            base + max_bytes - size_bytes,
            first,
            key=lambda row: spans[row * SPAN_WIDTH + HEADERS],
        )
        if fitting > first:
            size_bytes += spans[(fitting - 1) * SPAN_WIDTH + HEADERS] - base
        if fitting < last:
            return fitting, size_bytes
    return stop, size_bytes
