"""Whole fetch responses as columns: the fast way from record bytes to Arrow, and to records slice by slice.

Laws: offsets ascend; nothing is read that was not checked; decompressed bytes and columns are bounded. What a
control batch or a compacted tail covers has no row but is counted by `next_offset`. A damaged batch is refused only
when it is the first that is wanted: the records in front of it are given out before, so that an error never hides
them.
Source: Apache Kafka's record format, magic 2 (KIP-98); architecture, room `records`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Final

from kohort.errors import CorruptRecordError
from kohort.records.batch import Record
from kohort.records.binary import BinaryColumn, HeaderColumn, Headers
from kohort.records.checksum import crc32c
from kohort.records.choice import KernelSet, active_kernels
from kohort.records.compression import DEFAULT_LIMIT_BYTES, decompress
from kohort.records.header import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    CRC_START,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    MIN_RECORD_SIZE,
    Buffer,
)
from kohort.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    BODY,
    BODY_END,
    CRC,
    END,
    HEADER_COUNT,
    HEADER_KEY,
    HEADER_VALUE,
    HEADER_WIDTH,
    KEY,
    LAST_OFFSET,
    LEADER_EPOCH,
    POSITION,
    RECORD_COUNT,
    ROW_STOP,
    SPAN_WIDTH,
    TABLE_WIDTH,
    VALUE,
)
from kohort.records.table import read_table, table_field, zeros

#: What one call unfolds before it stops at the end of a batch.
DEFAULT_TOTAL_BYTES: Final = 64 * 1024 * 1024
#: Positions are 32-bit numbers.
_REGION_LIMIT: Final = (1 << 31) - 1
#: What is taken together must fit 32-bit offsets.
_LARGEST_LIMIT: Final = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordColumns:
    """The records of a run of batches, one buffer per field; n rows in ascending order of offsets."""

    #: int64[n]
    offsets: memoryview
    #: int64[n]: milliseconds since 1970, -1 where the producer gave no time.
    timestamps: memoryview
    #: `None` if it was not asked for.
    keys: BinaryColumn | None
    #: `None` if it was not asked for.
    values: BinaryColumn | None
    #: `None` if no record has headers, or they were not asked for.
    headers: HeaderColumn | None
    #: The offset behind the last batch that was taken: where to read on.
    next_offset: int
    #: The byte behind the last batch that was taken; smaller than the buffer if a batch is cut or the limit reached.
    consumed_bytes: int
    #: (row behind the batch's last one, leader epoch, timestamp type) of each batch with rows, ascending.
    batches: tuple[tuple[int, int, int], ...]

    def __len__(self) -> int:
        return len(self.offsets)

    def row_at(self, offset: int) -> int:
        """The first row at `offset` or behind it; the row count if there is none."""
        return bisect_left(self.offsets, offset)

    def records(self, start: int = 0, stop: int | None = None) -> list[Record]:
        """The rows [start, stop) as records; fields that were not asked for are `None`."""
        stop = len(self) if stop is None else min(stop, len(self))
        count = max(stop - start, 0)
        keys: Iterable[bytes | None] = self.keys.to_list(start, stop) if self.keys else repeat(None, count)
        values: Iterable[bytes | None] = self.values.to_list(start, stop) if self.values else repeat(None, count)
        headers: Iterable[Headers] = self.headers.to_list(start, stop) if self.headers else repeat((), count)
        offsets, timestamps = self.offsets[start:stop].tolist(), self.timestamps[start:stop].tolist()
        build = partial(tuple.__new__, Record)
        return list(map(build, zip(offsets, timestamps, keys, values, headers, strict=True)))

    def timestamp_types(self, start: int = 0, stop: int | None = None) -> list[int]:
        """0 (producer's time) or 1 (broker's time) of the rows [start, stop)."""
        return list(self._per_batch(2, start, stop))

    def leader_epochs(self, start: int = 0, stop: int | None = None) -> list[int]:
        """The partition leader's epoch at which each of the rows [start, stop) was written; -1 if unknown."""
        return list(self._per_batch(1, start, stop))

    def _per_batch(self, field: int, start: int, stop: int | None) -> Iterator[int]:
        last = len(self) if stop is None else min(stop, len(self))
        row = start
        begin = bisect_left(self.batches, start + 1, key=lambda batch: batch[0])
        for batch in self.batches[begin:]:
            if row >= last:
                return
            until = min(batch[0], last)
            yield from repeat(batch[field], until - row)
            row = until


@dataclass(slots=True, kw_only=True)
class _Region:
    """Bytes that hold the bodies of the batches [first, stop) of the table."""

    parts: list[Buffer]
    size: int
    first: int
    stop: int
    is_compressed: bool
    #: The rows that came out of it.
    first_row: int = 0
    stop_row: int = 0

    def join(self) -> Buffer:
        """All of its bytes as one buffer."""
        if len(self.parts) > 1:
            self.parts = [b"".join(self.parts)]
        return self.parts[0]


class _DamagedBatch(Exception):
    """One batch of the table cannot be read; those in front of it can."""

    def __init__(self, batch: int, reason: CorruptRecordError) -> None:
        super().__init__(batch, reason)
        self.batch = batch
        self.reason = reason


@dataclass(frozen=True, slots=True, kw_only=True)
class _Decoder:
    """What one call of `decode_columns` was asked for."""

    kernels: KernelSet
    start_offset: int
    max_batch_bytes: int
    max_total_bytes: int
    check_crcs: bool
    with_keys: bool
    with_values: bool
    with_headers: bool

    def decode(self, view: memoryview, table: memoryview, count: int) -> RecordColumns:
        """The columns of the first `count` batches of the table; `_DamagedBatch` names the first bad one."""
        regions, taken = self.collect(view, table, count)
        capacity = sum(
            table[batch * TABLE_WIDTH + RECORD_COUNT]
            for region in regions
            for batch in range(region.first, region.stop)
        )
        offsets, timestamps = zeros("q", capacity), zeros("q", capacity)
        spans = zeros("i", capacity * SPAN_WIDTH)
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
        return RecordColumns(
            offsets=offsets[:row],
            timestamps=timestamps[:row],
            keys=self.gather_rows(regions, spans, KEY, row) if self.with_keys else None,
            values=self.gather_rows(regions, spans, VALUE, row) if self.with_values else None,
            headers=self.gather_headers(regions, spans, row) if self.with_headers else None,
            next_offset=max(self.start_offset, table[last + LAST_OFFSET] + 1) if taken else self.start_offset,
            consumed_bytes=table[last + END] if taken else 0,
            batches=_batch_rows(table, regions),
        )

    def collect(self, view: memoryview, table: memoryview, count: int) -> tuple[list[_Region], int]:
        """The regions that hold the wanted batches, and how many batches are dealt with."""
        regions: list[_Region] = []
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
        """The decompressed records of one batch, enough bytes for as many as it claims."""
        try:
            body = decompress(codec, payload, limit_bytes=self.max_batch_bytes)
        except CorruptRecordError as error:
            raise _DamagedBatch(batch, _bad_batch(table, batch, f"cannot be read: {error}")) from error
        if table[batch * TABLE_WIDTH + RECORD_COUNT] * MIN_RECORD_SIZE > len(body):
            raise _DamagedBatch(batch, _bad_batch(table, batch, "has fewer records than it claims"))
        return body

    def gather_rows(self, regions: list[_Region], spans: memoryview, field: int, rows: int) -> BinaryColumn:
        """One field of every record, behind each other."""
        pieces = [(region.join(), region.first_row, region.stop_row) for region in regions]
        return self.gather(pieces, spans, SPAN_WIDTH, field, rows)

    def gather_headers(self, regions: list[_Region], spans: memoryview, rows: int) -> HeaderColumn | None:
        """The headers of every record; `None` if none has any."""
        count = self.kernels.sum_lengths(spans, SPAN_WIDTH, HEADER_COUNT, rows)
        if count == 0:
            return None
        row_offsets = zeros("i", rows + 1)
        header_spans = zeros("i", count * HEADER_WIDTH)
        pieces = []
        for region in regions:
            data, first, stop = region.join(), region.first_row, region.stop_row
            header = self.kernels.scan_headers(data, spans, first, stop, row_offsets, header_spans)
            # The scan of the records has walked over the same bytes.
            assert header >= 0, "headers changed while they were read"
            pieces.append((data, row_offsets[first], header))
        return HeaderColumn(
            row_offsets=row_offsets,
            keys=self.gather(pieces, header_spans, HEADER_WIDTH, HEADER_KEY, count),
            values=self.gather(pieces, header_spans, HEADER_WIDTH, HEADER_VALUE, count),
        )

    def gather(
        self, pieces: list[tuple[Buffer, int, int]], spans: memoryview, width: int, field: int, rows: int
    ) -> BinaryColumn:
        """One field of all rows, out of the (region, first row, stop row) that hold them."""
        kernels = self.kernels
        offsets = zeros("i", rows + 1)
        data = zeros("B", kernels.sum_lengths(spans, width, field + 1, rows))
        for region, first, stop in pieces:
            kernels.gather(region, spans, width, field, first, stop, data, offsets)
        nulls = kernels.count_nulls(spans, width, field + 1, rows)
        validity = None
        if nulls:
            validity = zeros("B", (rows + 7) // 8)
            kernels.fill_validity(spans, width, field + 1, rows, validity)
        return BinaryColumn(offsets=offsets, data=data, validity=validity, null_count=nulls)


def decode_columns(
    buffer: Buffer,
    *,
    start_offset: int = 0,
    max_batch_bytes: int = DEFAULT_LIMIT_BYTES,
    max_total_bytes: int = DEFAULT_TOTAL_BYTES,
    check_crcs: bool = True,
    with_keys: bool = True,
    with_values: bool = True,
    with_headers: bool = True,
    kernels: KernelSet | None = None,
) -> RecordColumns:
    """The records of every whole batch at `start_offset` or behind it.

    Args:
        buffer: batches one after the other; a partial last one is left for the next fetch.
        start_offset: records in front of it are cut off; a fetch answers with whole batches.
        max_batch_bytes: the most that one batch may decompress to.
        max_total_bytes: decoding stops in front of the batch that would exceed this; the first is always taken.
        check_crcs: whether each batch's CRC-32C is compared.
        with_keys, with_values, with_headers: leave a column out where nobody asks for it.
        kernels: the implementation to run; `None` takes the one that `KOHORT_KERNELS` or the installation chose.

    Returns:
        Columns that own their memory; the buffer may be reused. Read on at `next_offset`.

    Raises:
        CorruptRecordError: the first batch that is wanted is damaged, of an old format, or unfolds to more than
            `max_batch_bytes`; a later one is left for the call that begins with it.
    """
    kernels = kernels or active_kernels()
    decoder = _Decoder(
        kernels=kernels,
        start_offset=start_offset,
        max_batch_bytes=min(max_batch_bytes, _LARGEST_LIMIT),
        max_total_bytes=min(max_total_bytes, _LARGEST_LIMIT),
        check_crcs=check_crcs,
        with_keys=with_keys,
        with_values=with_values,
        with_headers=with_headers,
    )
    view = memoryview(buffer).cast("B")[:_REGION_LIMIT]
    table, count, fault = read_table(view, kernels)
    while True:
        if fault is not None and not _is_any_wanted(table, count, start_offset):
            raise fault
        try:
            return decoder.decode(view, table, count)
        except _DamagedBatch as damaged:
            count, fault = damaged.batch, damaged.reason


def _is_any_wanted(table: memoryview, count: int, start_offset: int) -> bool:
    # Offsets ascend, so the last batch decides.
    return count > 0 and table[(count - 1) * TABLE_WIDTH + LAST_OFFSET] >= start_offset


def _extend(regions: list[_Region], batch: int, data: Buffer, size: int, *, is_compressed: bool) -> int:
    """Put a batch into the region of the one in front of it, or a new one; returns where its bytes begin there."""
    last = regions[-1] if regions else None
    if last is None or last.stop != batch or last.is_compressed != is_compressed:
        regions.append(_Region(parts=[data], size=size, first=batch, stop=batch + 1, is_compressed=is_compressed))
        return 0
    begin = last.size
    last.stop = batch + 1
    if is_compressed:
        last.parts.append(data)
        last.size += size
    return begin


def _bad_batch(table: memoryview, batch: int, what: str) -> CorruptRecordError:
    return CorruptRecordError(f"the batch at offset {table[batch * TABLE_WIDTH + BASE_OFFSET]} {what}")


def _bad_record(table: memoryview, region: _Region, position: int) -> _DamagedBatch:
    """The batch whose record at this byte of the region is impossible."""
    batch = bisect_left(range(region.stop), position, region.first, key=lambda b: table[b * TABLE_WIDTH + BODY_END])
    batch = min(batch, region.stop - 1)
    return _DamagedBatch(batch, _bad_batch(table, batch, f"has an impossible record at byte {position}"))


def _batch_rows(table: memoryview, regions: list[_Region]) -> tuple[tuple[int, int, int], ...]:
    rows: list[tuple[int, int, int]] = []
    for region in regions:
        stops = table_field(table, ROW_STOP, region.first, region.stop)
        epochs = table_field(table, LEADER_EPOCH, region.first, region.stop)
        attributes = table_field(table, ATTRIBUTES, region.first, region.stop)
        types = [1 if bits & LOG_APPEND_TIME_BIT else 0 for bits in attributes]
        rows += zip(stops, epochs, types, strict=True)
    return tuple(rows)
