"""The scan of whole fetch responses: it checks their records, and finds the position of each part.

Laws: offsets ascend; nothing is read that was not checked; decompressed bytes are bounded. Offsets of a control batch
or a compacted tail have no row but are counted by `next_offset`. A damaged batch raises an error only if it is the
first wanted one: the records before it are returned first, so that an error never hides them.
Source: Apache Kafka's record format, magic 2 (KIP-98); architecture, room `records`.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from typing import Final, TypeVar

from kohort.base.values import value
from kohort.errors import CorruptRecordError
from kohort.ids import TopicPartition
from kohort.records.arrays import Allocate, blank, zeros
from kohort.records.checksum import crc32c
from kohort.records.choice import KernelSet, active_kernels
from kohort.records.compression import DEFAULT_LIMIT_BYTES, decompress
from kohort.records.header import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_SIZE,
    MIN_RECORD_SIZE,
    Buffer,
    check_counts,
    parse_header,
    split_batches,
)
from kohort.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    BODY,
    BODY_END,
    CRC,
    END,
    HEADER_COUNT,
    HEADER_WIDTH,
    LAST_OFFSET,
    POSITION,
    RECORD_COUNT,
    ROW_STOP,
    SPAN_WIDTH,
    TABLE_WIDTH,
)

#: Bytes that one call decompresses before it stops at the end of a batch.
DEFAULT_TOTAL_BYTES: Final = 64 * 1024 * 1024
#: Positions are 32-bit numbers.
_REGION_LIMIT: Final = (1 << 31) - 1
#: Records that are scanned together must fit 32-bit positions.
_LARGEST_LIMIT: Final = 1 << 30
#: Decompressed batches up to this size are joined; larger ones are scanned by a call each.
_JOINED_BYTES: Final = 64 * 1024
T = TypeVar("T", bound=tuple[object, ...])

_NOTHING: Final = memoryview(bytearray()).cast("i")


@value(frozen=False)
class Region:
    """Bytes that hold the bodies of the batches [first, stop) of the table."""

    parts: list[Buffer]
    size: int
    first: int
    stop: int
    is_compressed: bool
    #: The region's rows in the result: [first_row, stop_row).
    first_row: int = 0
    stop_row: int = 0

    def join(self) -> Buffer:
        """Return all bytes of the region as one buffer."""
        if len(self.parts) > 1:
            self.parts = [b"".join(self.parts)]
        return self.parts[0]


@value(frozen=False)
class HeaderSpans:
    """The positions of the headers of n records."""

    #: int32[n + 1]: record i has the headers [row_offsets[i], row_offsets[i + 1]).
    row_offsets: memoryview
    #: int32[headers * HEADER_WIDTH]
    spans: memoryview


@value(frozen=False)
class ScannedRecords:
    """The records of a run of batches, n rows by ascending offset, which refer to the scanned bytes."""

    kernels: KernelSet
    table: memoryview
    regions: list[Region]
    #: int64[n]
    offsets: memoryview
    #: int64[n]: milliseconds since 1970, -1 where the producer gave no time.
    timestamps: memoryview
    #: int32[n * SPAN_WIDTH]
    spans: memoryview
    #: The offset at which to read on: that after the last scanned batch.
    next_offset: int
    #: The end of the last scanned batch; less than the buffer's size if a batch is cut or the limit was reached.
    consumed_bytes: int
    _headers: HeaderSpans | None = None
    _has_looked_for_headers: bool = False

    def __len__(self) -> int:
        return len(self.offsets)

    @property
    def headers(self) -> HeaderSpans | None:
        """The positions of the headers, found on first use; `None` if no record has headers."""
        if not self._has_looked_for_headers:
            self._has_looked_for_headers = True
            self._headers = self._scan_headers()
        return self._headers

    def _scan_headers(self) -> HeaderSpans | None:
        rows = len(self)
        count = self.kernels.sum_lengths(self.spans, SPAN_WIDTH, HEADER_COUNT, rows)
        if count == 0:
            return None
        found = HeaderSpans(row_offsets=zeros("i", rows + 1), spans=blank("i", count * HEADER_WIDTH))
        for region in self.regions:
            last = self.kernels.scan_headers(
                region.join(), self.spans, region.first_row, region.stop_row, found.row_offsets, found.spans
            )
            # The scan of the records has checked the same bytes.
            assert last >= 0, "headers changed while they were read"
        return found


class _DamagedBatch(Exception):
    """A batch of the table is damaged; those before it can be read."""

    def __init__(self, batch: int, reason: CorruptRecordError) -> None:
        super().__init__(batch, reason)
        self.batch = batch
        self.reason = reason


@value(frozen=False, eq=False)
class _Scanner:
    """The arguments of one call of `scan_batches`."""

    kernels: KernelSet
    start_offset: int
    max_batch_bytes: int
    max_total_bytes: int
    check_crcs: bool
    allocate: Allocate

    def scan(self, view: memoryview, table: memoryview, count: int) -> ScannedRecords:
        """Scan the records of the table's first `count` batches; `_DamagedBatch` for the first bad one."""
        regions, taken = self.collect(view, table, count)
        capacity = sum(
            table[batch * TABLE_WIDTH + RECORD_COUNT]
            for region in regions
            for batch in range(region.first, region.stop)
        )
        offsets, timestamps = self.allocate("q", capacity), self.allocate("q", capacity)
        spans = self.allocate("i", capacity * SPAN_WIDTH)
        row = 0
        for region in regions:
            region.first_row = row
            row = self.kernels.scan_records(
                region.join(), table, region.first, region.stop, self.start_offset, row, offsets, timestamps, spans
            )
            if row < 0:
                raise _bad_record(table, region, -1 - row)
            region.stop_row = row
        last = (taken - 1) * TABLE_WIDTH
        return ScannedRecords(
            kernels=self.kernels,
            table=table,
            regions=regions,
            offsets=offsets[:row],
            timestamps=timestamps[:row],
            spans=spans[: row * SPAN_WIDTH],
            next_offset=max(self.start_offset, table[last + LAST_OFFSET] + 1) if taken else self.start_offset,
            consumed_bytes=table[last + END] if taken else 0,
        )

    def collect(self, view: memoryview, table: memoryview, count: int) -> tuple[list[Region], int]:
        """Return the regions of the wanted batches, and the number of batches that were processed."""
        regions: list[Region] = []
        total = 0
        columns = (
            table_field(table, field, 0, count) for field in (POSITION, END, LAST_OFFSET, ATTRIBUTES, CRC, RECORD_COUNT)
        )
        for batch, (begin, end, last_offset, attributes, crc, records) in enumerate(zip(*columns, strict=True)):
            if last_offset < self.start_offset:
                continue
            codec = attributes & COMPRESSION_MASK
            if regions and total + (0 if codec else end - begin) > self.max_total_bytes:
                return regions, batch
            if self.check_crcs and crc32c(view[begin + CRC_START : end]) != crc:
                raise _DamagedBatch(batch, _bad_batch(table, batch, "is damaged: its CRC-32C does not match"))
            if attributes & CONTROL_BIT or records == 0:
                continue
            if codec == 0:
                total += end - begin
                _extend(regions, batch, view, 0, is_compressed=False)
                continue
            body = self.unfold(view[begin + HEADER_SIZE : end], table, batch, codec)
            if regions and total + len(body) > self.max_total_bytes:
                return regions, batch
            total += len(body)
            at = batch * TABLE_WIDTH
            table[at + BODY] = _extend(regions, batch, body, len(body), is_compressed=True)
            table[at + BODY_END] = table[at + BODY] + len(body)
        return regions, count

    def unfold(self, payload: memoryview, table: memoryview, batch: int, codec: int) -> Buffer:
        """Decompress the records of one batch; refuse too few bytes for its number of records."""
        try:
            body = decompress(codec, payload, limit_bytes=self.max_batch_bytes, allocate=self.allocate)
        except CorruptRecordError as error:
            raise _DamagedBatch(batch, _bad_batch(table, batch, f"cannot be read: {error}")) from error
        if table[batch * TABLE_WIDTH + RECORD_COUNT] * MIN_RECORD_SIZE > len(body):
            raise _DamagedBatch(batch, _bad_batch(table, batch, "has fewer records than it claims"))
        return body


def scan_batches(
    buffer: Buffer,
    *,
    start_offset: int = 0,
    max_batch_bytes: int = DEFAULT_LIMIT_BYTES,
    max_total_bytes: int = DEFAULT_TOTAL_BYTES,
    check_crcs: bool = True,
    kernels: KernelSet | None = None,
    allocate: Allocate = blank,
) -> ScannedRecords:
    """Find the records of every whole batch at or after `start_offset`.

    Args:
        buffer: batches one after the other; a partial last one is left for the next fetch. It must stay as it is for as
            long as the result is used.
        start_offset: records before it are left out; a fetch response has whole batches.
        max_batch_bytes: the most bytes that one batch may decompress to.
        max_total_bytes: the scan stops before the batch that would exceed this; the first is always scanned.
        kernels: the implementation to run; `None` means the one that `KOHORT_KERNELS` or the installation chose.
        allocate: makes the arrays that are filled, and those that batches are decompressed to.

    Raises:
        CorruptRecordError: the first wanted batch is damaged, of an old format, or decompresses to more than
            `max_batch_bytes`; a later one raises in the call that starts with it.
    """
    kernels = kernels or active_kernels()
    scanner = _Scanner(
        kernels=kernels,
        start_offset=start_offset,
        max_batch_bytes=min(max_batch_bytes, _LARGEST_LIMIT),
        max_total_bytes=min(max_total_bytes, _LARGEST_LIMIT),
        check_crcs=check_crcs,
        allocate=allocate,
    )
    view = memoryview(buffer).cast("B")[:_REGION_LIMIT]
    table, count, fault = read_table(view, kernels)
    while True:
        # Offsets ascend: if the last sound batch is before `start_offset`, the bad one is the first wanted batch.
        if fault is not None and not (count and table[(count - 1) * TABLE_WIDTH + LAST_OFFSET] >= start_offset):
            raise fault
        try:
            return scanner.scan(view, table, count)
        except _DamagedBatch as damaged:
            count, fault = damaged.batch, damaged.reason


def _extend(regions: list[Region], batch: int, data: Buffer, size: int, *, is_compressed: bool) -> int:
    """Add a batch to the last region, or to a new one; return its first byte there."""
    last = regions[-1] if regions else None
    if (
        last is None
        or last.stop != batch
        or last.is_compressed != is_compressed
        or (is_compressed and last.size + size > _JOINED_BYTES)
    ):
        regions.append(Region(parts=[data], size=size, first=batch, stop=batch + 1, is_compressed=is_compressed))
        return 0
    begin = last.size
    last.stop = batch + 1
    if is_compressed:
        last.parts.append(data)
        last.size += size
    return begin


def _bad_batch(table: memoryview, batch: int, what: str) -> CorruptRecordError:
    at = batch * TABLE_WIDTH
    return CorruptRecordError(f"the batch at offset {table[at + BASE_OFFSET]} {what}", byte=table[at + POSITION])


def _bad_record(table: memoryview, region: Region, position: int) -> _DamagedBatch:
    """Return the damaged batch that contains an impossible record at this byte of the region."""
    batch = bisect_left(range(region.stop), position, region.first, key=lambda b: table[b * TABLE_WIDTH + BODY_END])
    batch = min(batch, region.stop - 1)
    return _DamagedBatch(batch, _bad_batch(table, batch, f"has an impossible record at byte {position}"))


def read_table(view: memoryview, kernels: KernelSet) -> tuple[memoryview, int, CorruptRecordError | None]:
    """Return the batch table, its number of batches, and the error of the batch after them.

    Laws: the table has only batches whose headers do not contradict each other; the error of the batch after them is
    returned, and raised by a reader that reaches it.
    """
    count = kernels.count_batches(view)
    table = zeros("q", count * TABLE_WIDTH)
    end = kernels.index_batches(view, table, count)
    if end < 0:
        position = -1 - end
        header = parse_header(view, position)
        fault = CorruptRecordError(
            f"the batch at offset {header.base_offset} lies in front of the end of the one before it"
        )
        try:
            check_counts(header)
        except CorruptRecordError as error:
            fault = error
        fault.byte = position
        return table, kernels.count_batches(view[:position]), fault
    try:
        split_batches(view[end:])
    except CorruptRecordError as error:
        error.byte = end
        return table, count, error
    return table, count, None


def table_field(table: memoryview, field: int, first: int, stop: int) -> list[int]:
    """Return one column of the table, for the batches [first, stop)."""
    return table[first * TABLE_WIDTH + field : stop * TABLE_WIDTH : TABLE_WIDTH].tolist()


def build_rows(kind: type[T], partition: TopicPartition, scanned: ScannedRecords, start: int, stop: int) -> list[T]:
    """Return the rows [start, stop) as tuples of that kind.

    Laws: a row owns what it holds; only the rows that are asked for are made.

    Args:
        kind: a tuple of topic, partition, offset, timestamp, timestamp type (0: the producer's, 1: the broker's), key,
            value, headers, leader epoch.
        partition: the partition of the scanned records.
    """
    rows: list[T] = []
    found = scanned.headers
    row_offsets, header_spans = (_NOTHING, _NOTHING) if found is None else (found.row_offsets, found.spans)
    table = scanned.table
    for region in scanned.regions:
        first, last = max(region.first_row, start), min(region.stop_row, stop)
        if first >= last:
            continue
        batch = bisect_right(
            range(region.stop), first, region.first, key=lambda batch: table[batch * TABLE_WIDTH + ROW_STOP]
        )
        scanned.kernels.build_rows(
            kind,
            partition.topic,
            partition.partition,
            region.join(),
            table,
            batch,
            scanned.offsets,
            scanned.timestamps,
            scanned.spans,
            row_offsets,
            header_spans,
            first,
            last,
            rows,
        )
    return rows
