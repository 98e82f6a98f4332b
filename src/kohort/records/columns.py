"""Records as columns: the fast path from record bytes to Arrow, and to records slice by slice.

Laws: only records that were scanned, and so checked, are gathered; columns own their memory.
Source: architecture, room `records`; the Arrow columnar format.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from itertools import pairwise, repeat
from typing import TypeAlias

from kohort.base.values import value
from kohort.records import layout
from kohort.records.arrays import Allocate, blank, zeros
from kohort.records.batch import Record
from kohort.records.choice import KernelSet
from kohort.records.header import LOG_APPEND_TIME_BIT, Buffer
from kohort.records.layout import SPAN_WIDTH
from kohort.records.scan import ScannedRecords, table_field

#: The result of a scan, and the rows [start, stop) of it.
Slice: TypeAlias = tuple[ScannedRecords, int, int]
#: A region, and the rows [first, stop) of joined spans that lie in it.
_Piece: TypeAlias = tuple[Buffer, int, int]
Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


@value
class RecordColumns:
    """The records of runs of batches, a buffer per field; n rows, in each run by ascending offsets."""

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
    #: The offset at which to read on: that after the last scanned batch, or after the last row if that is before it.
    next_offset: int
    #: The end of the last scanned batch; less than the buffer's size if a batch is cut or the limit was reached.
    consumed_bytes: int
    #: (row after the batch's last one, leader epoch, timestamp type) of each batch with rows, ascending.
    batches: tuple[tuple[int, int, int], ...]

    def __len__(self) -> int:
        return len(self.offsets)

    def records(self, start: int = 0, stop: int | None = None) -> list[Record]:
        """Return the rows [start, stop) as records; fields that were not asked for are `None`."""
        stop = len(self) if stop is None else min(stop, len(self))
        count = max(stop - start, 0)
        keys: Iterable[bytes | None] = self.keys.to_list(start, stop) if self.keys else repeat(None, count)
        values: Iterable[bytes | None] = self.values.to_list(start, stop) if self.values else repeat(None, count)
        headers: Iterable[Headers] = self.headers.to_list(start, stop) if self.headers else repeat((), count)
        offsets, timestamps = self.offsets[start:stop].tolist(), self.timestamps[start:stop].tolist()
        build = partial(tuple.__new__, Record)
        return list(map(build, zip(offsets, timestamps, keys, values, headers, strict=True)))

    def timestamp_types(self) -> list[int]:
        """Return 0 (producer's time) or 1 (broker's time) for each row."""
        types: list[int] = []
        for stop, _, kind in self.batches:
            types += repeat(kind, stop - len(types))
        return types


def gather_columns(
    slices: Sequence[Slice],
    *,
    with_keys: bool = True,
    with_values: bool = True,
    with_headers: bool = True,
    allocate: Allocate = blank,
) -> RecordColumns:
    """Gather rows of one scan or of several into columns that own their memory.

    Args:
        slices: at least one, at most 2 GiB in total, in the order of the resulting rows.
        with_keys, with_values, with_headers: whether to gather that column.
        allocate: makes the arrays that bytes are copied to; they are written as a whole.
    """
    gatherer = _Gatherer(slices[0][0].kernels, allocate)
    spans = _joined("i", [scanned.spans[start * SPAN_WIDTH : stop * SPAN_WIDTH] for scanned, start, stop in slices])
    rows = len(spans) // SPAN_WIDTH
    pieces = _pieces(slices)
    last, _, last_stop = slices[-1]
    return RecordColumns(
        offsets=_joined("q", [scanned.offsets[start:stop] for scanned, start, stop in slices]),
        timestamps=_joined("q", [scanned.timestamps[start:stop] for scanned, start, stop in slices]),
        keys=gatherer.gather(pieces, spans, width=SPAN_WIDTH, field=layout.KEY) if with_keys else None,
        values=gatherer.gather(pieces, spans, width=SPAN_WIDTH, field=layout.VALUE) if with_values else None,
        headers=gatherer.headers(slices, rows) if with_headers else None,
        next_offset=last.next_offset if last_stop == len(last) else last.offsets[last_stop - 1] + 1,
        consumed_bytes=last.consumed_bytes,
        batches=tuple(_batch_rows(slices)),
    )


def _joined(kind: str, parts: Sequence[memoryview]) -> memoryview:
    """Join arrays of one kind; return a single one as it is."""
    if len(parts) == 1:
        return parts[0]
    out = blank(kind, sum(map(len, parts)))
    at = 0
    for part in parts:
        out[at : at + len(part)] = part
        at += len(part)
    return out


def _pieces(slices: Sequence[Slice]) -> list[_Piece]:
    pieces: list[_Piece] = []
    base = 0
    for scanned, start, stop in slices:
        for region in scanned.regions:
            first, last = max(region.first_row, start), min(region.stop_row, stop)
            if first < last:
                pieces.append((region.join(), base + first - start, base + last - start))
        base += stop - start
    return pieces


@value(kw_only=False)
class _Gatherer:
    """The copier of records' fields into contiguous columns."""

    kernels: KernelSet
    allocate: Allocate

    def gather(self, pieces: Sequence[_Piece], spans: memoryview, *, width: int, field: int) -> BinaryColumn:
        """Gather one field of all rows into a contiguous column."""
        kernels = self.kernels
        rows = len(spans) // width
        offsets = self.allocate("i", rows + 1)
        offsets[0] = 0
        data = self.allocate("B", kernels.sum_lengths(spans, width, field + 1, rows))
        for region, first, stop in pieces:
            kernels.gather(region, spans, width, field, first, stop, data, offsets)
        nulls = kernels.count_nulls(spans, width, field + 1, rows)
        validity = None
        if nulls:
            validity = zeros("B", (rows + 7) // 8)
            kernels.fill_validity(spans, width, field + 1, rows, validity)
        return BinaryColumn(offsets=offsets, data=data, validity=validity, null_count=nulls)

    def headers(self, slices: Sequence[Slice], rows: int) -> HeaderColumn | None:
        """Return the headers of every row; `None` if none has any."""
        row_offsets = blank("i", rows + 1)
        row_offsets[0] = 0
        spans: list[memoryview] = []
        pieces: list[_Piece] = []
        row = count = 0
        for scanned, start, stop in slices:
            found = scanned.headers
            # Row -> its first header, counted from the first of the slice.
            bounds = [0] * (stop - start + 1) if found is None else found.row_offsets[start : stop + 1].tolist()
            shift = count - bounds[0]
            row_offsets[row : row + len(bounds)] = memoryview(array("i", [bound + shift for bound in bounds]))
            if found is not None:
                spans.append(found.spans[bounds[0] * layout.HEADER_WIDTH : bounds[-1] * layout.HEADER_WIDTH])
                for region in scanned.regions:
                    first, last = max(region.first_row, start), min(region.stop_row, stop)
                    if first < last:
                        pieces.append((region.join(), bounds[first - start] + shift, bounds[last - start] + shift))
            row, count = row + stop - start, bounds[-1] + shift
        if count == 0:
            return None
        joined = _joined("i", spans)
        return HeaderColumn(
            row_offsets=row_offsets,
            keys=self.gather(pieces, joined, width=layout.HEADER_WIDTH, field=layout.HEADER_KEY),
            values=self.gather(pieces, joined, width=layout.HEADER_WIDTH, field=layout.HEADER_VALUE),
        )


def _batch_rows(slices: Sequence[Slice]) -> Iterator[tuple[int, int, int]]:
    base = 0
    for scanned, start, stop in slices:
        for region in scanned.regions:
            if region.stop_row <= start or region.first_row >= stop:
                continue
            stops = table_field(scanned.table, layout.ROW_STOP, region.first, region.stop)
            epochs = table_field(scanned.table, layout.LEADER_EPOCH, region.first, region.stop)
            attributes = table_field(scanned.table, layout.ATTRIBUTES, region.first, region.stop)
            for batch_stop, epoch, bits in zip(stops, epochs, attributes, strict=True):
                if batch_stop > start:
                    yield base + min(batch_stop, stop) - start, epoch, 1 if bits & LOG_APPEND_TIME_BIT else 0
                if batch_stop >= stop:
                    break
        base += stop - start


@value
class BinaryColumn:
    """n contiguous byte strings, in the layout of Arrow's binary type.

    Laws: a column owns its memory; bytes objects are made only for the rows that are asked for.
    Source: the Arrow columnar format, variable-size binary layout.
    """

    #: int32[n + 1]: string i is data[offsets[i] : offsets[i + 1]].
    offsets: memoryview
    #: uint8
    data: memoryview
    #: One bit per row, lowest first, set where there is a string; `None` if no row is null.
    validity: memoryview | None
    null_count: int

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def to_list(self, start: int = 0, stop: int | None = None) -> list[bytes | None]:
        """Return the rows [start, stop) as bytes, `None` where null."""
        offsets = self.offsets[start : len(self) + 1 if stop is None else stop + 1].tolist()
        if len(offsets) < 2:
            return []
        base = offsets[0]
        data = bytes(self.data[base : offsets[-1]])
        values: list[bytes | None] = [data[begin - base : end - base] for begin, end in pairwise(offsets)]
        if self.validity is not None:
            bitmap = self.validity
            for row in range(len(values)):
                if not bitmap[start + row >> 3] >> (start + row & 7) & 1:
                    values[row] = None
        return values


@value
class HeaderColumn:
    """The headers of n records."""

    #: int32[n + 1]: record i has the headers [row_offsets[i], row_offsets[i + 1]).
    row_offsets: memoryview
    #: Never null; UTF-8 as far as the producer kept to it.
    keys: BinaryColumn
    values: BinaryColumn

    def to_list(self, start: int = 0, stop: int | None = None) -> list[Headers]:
        """Return the headers of the rows [start, stop); malformed names are repaired as Java does."""
        last = len(self.row_offsets) - 1 if stop is None else stop
        bounds = self.row_offsets[start : last + 1].tolist()
        if len(bounds) < 2:
            return []
        first = bounds[0]
        names = self.keys.to_list(first, bounds[-1])
        texts = [(name or b"").decode("utf-8", "replace") for name in names]
        headers = tuple(zip(texts, self.values.to_list(first, bounds[-1]), strict=True))
        return [headers[begin - first : end - first] for begin, end in pairwise(bounds)]
