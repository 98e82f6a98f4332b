"""Fetched data of partitions that the application has yet to get.

Laws: data is decoded when it is asked for, at most one step (1 MiB, or one batch) at once. The position never skips or
repeats a record.
Source: the consumer threading refactor (CTR): completed fetches; architecture, room `client`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import deque
from collections.abc import Callable, Container, Iterable, Sequence
from struct import Struct
from typing import Final, NamedTuple

from kohort.client.consumer.application_events import Chunk, Fence
from kohort.client.records import ConsumerRecord
from kohort.errors import CorruptRecordError
from kohort.ids import TopicPartition
from kohort.records.arrays import Allocate
from kohort.records.batch import iterate_records
from kohort.records.header import HEADER, HEADER_SIZE, MAGIC, BatchHeader, split_batches
from kohort.records.layout import HEADERS, KEY, SPAN_WIDTH
from kohort.records.scan import ScannedRecords, build_rows, scan_batches

#: Bytes of records that are decompressed and scanned at once; at least one batch.
_STEP_BYTES: Final = 1024 * 1024


class Taken(NamedTuple):
    """Records of one partition to be handed out as columns: the rows [start, stop) of scanned batches."""

    partition: TopicPartition
    scanned: ScannedRecords
    start: int
    stop: int
    #: Bytes of the records, without the headers of their batches.
    size_bytes: int


class CompletedFetch:
    """One chunk of a partition's data; `position` is the offset of the next record to hand out."""

    __slots__ = (
        "_parts",
        "_row",
        "_scanned",
        "_stop",
        "_stop_row",
        "fence",
        "is_begun",
        "leader_epoch",
        "next_offset",
        "partition",
        "position",
        "size_bytes",
    )

    def __init__(self, chunk: Chunk, parts: Iterable[memoryview], stop: int | None = None) -> None:
        self.partition: Final[TopicPartition] = chunk.partition
        self.fence: Final[Fence] = chunk.fence
        #: Offset after its last batch.
        self.next_offset: Final[int] = chunk.next_offset
        #: Leader epoch of its last batch: no record of it was appended under a later one.
        self.leader_epoch: Final[int] = chunk.leader_epoch
        #: Bytes that are freed when it is used up.
        self.size_bytes: Final[int] = chunk.size_bytes
        self.position = chunk.offset
        #: Whether the application's position has come to it.
        self.is_begun = False
        #: Parts that are not handed out yet; `_scanned` is of the first one.
        self._parts = deque(part for part in parts if len(part))
        self._scanned: ScannedRecords | None = None
        #: First row of `_scanned` that is not handed out yet, and the row at which handing out ends.
        self._row = self._stop_row = 0
        #: Offset before which reading ends; `None`: it never ends.
        self._stop: Final = stop

    @property
    def is_used_up(self) -> bool:
        """Whether all its records are handed out."""
        return self._scanned is None and not self._parts

    def load(self, *, check_crcs: bool, allocate: Allocate) -> CorruptRecordError | None:
        """Scan batches until a record is ready or all are used up; return the error of a damaged batch."""
        while self._scanned is None and self._parts:
            try:
                scanned = scan_batches(
                    self._parts[0],
                    start_offset=self.position,
                    max_total_bytes=_STEP_BYTES,
                    check_crcs=check_crcs,
                    allocate=allocate,
                )
            except CorruptRecordError as error:
                return self._locate(error)
            self._scanned, self._row, self._stop_row = scanned, 0, len(scanned)
            if self._stop is not None and self._stop_row and scanned.offsets[-1] >= self._stop:
                self._stop_row = bisect_left(scanned.offsets, self._stop)
            if not self._stop_row:
                self._end_scan(scanned)
        return None

    def peek_rows(self, count: int) -> list[ConsumerRecord]:
        """Return up to `count` records without counting them as handed out: `advance` does. Call `load` first."""
        scanned = self._scanned
        assert scanned is not None
        stop = min(self._row + count, self._stop_row)
        return build_rows(ConsumerRecord, self.partition, scanned, self._row, stop)

    def take_slice(self, max_records: int, max_bytes: int, *, at_least_one: bool) -> Taken | None:
        """Hand out records within both limits; return `None` if the first one is too large."""
        scanned, row = self._scanned, self._row
        assert scanned is not None
        stop, size_bytes = _cut(scanned, row, min(row + max_records, self._stop_row), max_bytes)
        if stop == row:
            if not at_least_one:
                return None
            # One record is handed out in any case, or reading would never go on.
            stop, size_bytes = _cut(scanned, row, row + 1, _UNLIMITED)
        self.advance(stop - row)
        return Taken(self.partition, scanned, row, stop, size_bytes)

    def advance(self, count: int) -> None:
        """Count the next `count` records as handed out."""
        scanned = self._scanned
        assert scanned is not None
        self._row += count
        if self._row == self._stop_row:
            self._end_scan(scanned)
        elif count:
            self.position = scanned.offsets[self._row - 1] + 1

    def _locate(self, error: CorruptRecordError) -> CorruptRecordError:
        """Return the error with partition and offset."""
        behind = self._behind(error.byte)
        located = CorruptRecordError(
            f"{self.partition} cannot be read at offset {self.position}: {error}; seek to offset {behind} to go on",
            partition=self.partition,
            offset=self.position,
            next_offset=behind,
        )
        located.__cause__ = error
        return located

    def _behind(self, byte: int | None) -> int:
        """Return the offset after the damaged batch at `byte` if its header is plausible, otherwise the next one."""
        data = self._parts[0]
        if byte is not None and len(data) - byte >= HEADER_SIZE:
            damaged = _header_at(data, byte)
            end = byte + damaged.size_bytes
            if damaged.batch_length > 0 and len(data) - end >= HEADER_SIZE:
                following = _header_at(data, end)
                if following.magic == MAGIC and self.position < following.base_offset <= self.next_offset:
                    return following.base_offset
            # The header of a damaged batch counts only if its fields agree and do not lead out of the chunk.
            is_plausible = damaged.last_offset_delta == damaged.record_count - 1
            if is_plausible and self.position < damaged.next_offset <= self.next_offset:
                return damaged.next_offset
        return self.position + 1

    def _end_scan(self, scanned: ScannedRecords) -> None:
        self._scanned = None
        if self._stop_row < len(scanned):
            # The rest lies behind the end of reading.
            self._parts.clear()
            self.position = max(self.position, self.next_offset)
            return
        rest = self._parts.popleft()[scanned.consumed_bytes :]
        if len(rest) and scanned.consumed_bytes:
            self._parts.appendleft(rest)
        # Control batches and compacted offsets have no record, so the position moves behind them here.
        self.position = max(self.position, scanned.next_offset if self._parts else self.next_offset)


class CompletedFetches:
    """The data of all partitions, in the order of arrival; that of paused partitions is kept apart."""

    __slots__ = ("_next", "_paused")

    def __init__(self) -> None:
        self._next: deque[CompletedFetch] = deque()
        self._paused: deque[CompletedFetch] = deque()

    @property
    def first(self) -> CompletedFetch | None:
        """The fetch with the next records; `None` if there is none."""
        return self._next[0] if self._next else None

    @property
    def size_bytes(self) -> int:
        """Bytes of all fetches; may be called from any thread."""
        return sum(fetch.size_bytes for fetch in (*self._next, *self._paused))

    def of(self, partition: TopicPartition) -> CompletedFetch | None:
        """Return the first fetch of a partition; `None`: it has none."""
        return next((fetch for fetch in (*self._next, *self._paused) if fetch.partition == partition), None)

    def add(self, fetch: CompletedFetch, *, is_paused: bool) -> None:
        """Append a fetch behind all others."""
        (self._paused if is_paused else self._next).append(fetch)

    def divide(self, paused: Container[TopicPartition]) -> None:
        """Keep the fetches of these partitions apart, and only these."""
        fetches = (*self._next, *self._paused)
        self._next = deque(fetch for fetch in fetches if fetch.partition not in paused)
        self._paused = deque(fetch for fetch in fetches if fetch.partition in paused)

    def remove_first(self) -> None:
        """Remove the first fetch, which is used up."""
        self._next.popleft()

    def set_back(self, partition: TopicPartition) -> None:
        """Move a partition's fetches behind all others, so that its damaged batch does not block them."""
        self._next = deque(sorted(self._next, key=lambda fetch: fetch.partition == partition))

    def drop(self, is_wanted: Callable[[CompletedFetch], bool]) -> list[CompletedFetch]:
        """Remove and return the fetches for which `is_wanted` is false."""
        dropped = [fetch for fetch in (*self._next, *self._paused) if not is_wanted(fetch)]
        self._next = deque(filter(is_wanted, self._next))
        self._paused = deque(filter(is_wanted, self._paused))
        return dropped


_UNLIMITED: Final = 1 << 62


def _header_at(data: memoryview, byte: int) -> BatchHeader:
    """Unpack the batch header at `byte`, plausible or not."""
    return BatchHeader._make(HEADER.unpack_from(data, byte))


def _cut(scanned: ScannedRecords, start: int, stop: int, max_bytes: int) -> tuple[int, int]:
    """Return how far the records from `start` on fit into `max_bytes`: the end of the rows, and their bytes."""
    spans, size_bytes = scanned.spans, 0
    for region in scanned.regions:
        first, last = max(region.first_row, start), min(region.stop_row, stop)
        if first >= last:
            continue
        # Records lie behind each other, so the value of a record ends where its headers begin.
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


#: Key of a control record: its version and type; type 0 ends a transaction by aborting it.
_CONTROL_KEY: Final = Struct(">hh")
_ABORT: Final = 0


def committed_parts(records: memoryview, aborted: Sequence[tuple[int, int]]) -> list[memoryview]:
    """Return the stretches of `records` without the batches of aborted transactions, in order and without a copy.

    Args:
        records: whole batches.
        aborted: (producer id, first offset) of each aborted transaction, in any order.

    Source: Kafka's `isolation.level` read_committed: the Fetch answer lists aborted transactions by producer and first
    offset, and a control batch ends each.
    """
    if not aborted:
        return [records]
    waiting = sorted(aborted, key=lambda each: each[1], reverse=True)
    active: set[int] = set()
    parts: list[memoryview] = []
    start = 0
    for position, header in split_batches(records):
        # A batch is left out if its transaction began at or before it and was aborted behind it.
        while waiting and waiting[-1][1] <= header.last_offset:
            active.add(waiting.pop()[0])
        end = position + header.size_bytes
        if header.is_control:
            if _is_abort(records[position:end]):
                active.discard(header.producer_id)
        elif header.is_transactional and header.producer_id in active:
            if position > start:
                parts.append(records[start:position])
            start = end
    if start < len(records):
        parts.append(records[start:])
    return parts


def _is_abort(batch: memoryview) -> bool:
    for record in iterate_records(batch, include_control=True):
        if record.key is not None and len(record.key) >= _CONTROL_KEY.size:
            return bool(_CONTROL_KEY.unpack_from(record.key)[1] == _ABORT)
    return False
