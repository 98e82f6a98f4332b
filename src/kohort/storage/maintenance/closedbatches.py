"""The batches of closed segments, a window at a time: headers, keys, and places of records.

Laws: files are read and not mapped, since they can be cut from outside. What was never checked is not given out as
records: a batch that is damaged, or unfolds to more than is sensible, comes alone and without any.
Source: Apache Kafka's record format, magic 2 (KIP-98).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from itertools import accumulate
from typing import Final, NamedTuple

from kohort.errors import CorruptRecordError, StorageError
from kohort.records.columns import gather_columns
from kohort.records.compression import DEFAULT_LIMIT_BYTES
from kohort.records.header import CONTROL_BIT, HEADER_SIZE, TRANSACTIONAL_BIT, BatchHeader, parse_header
from kohort.records.layout import (
    BODY,
    HEADER_COUNT,
    HEADER_VALUE,
    HEADER_WIDTH,
    HEADERS,
    RECORD_COUNT,
    ROW_STOP,
    SPAN_WIDTH,
    TABLE_WIDTH,
    VALUE_LENGTH,
)
from kohort.records.scan import ScannedRecords, scan_batches
from kohort.storage.files.fs import LogFile

#: Bytes of the log that are decompressed at a time.
READ_BYTES: Final = 1 << 20
#: Attributes of batches that are kept as they are.
AS_IT_IS: Final = TRANSACTIONAL_BIT | CONTROL_BIT


class CompactionStopped(Exception):
    """The end of a compaction because the broker stops; the next start removes its unfinished files."""


class Run(NamedTuple):
    """Consecutive batches; one that has to stay as it is comes alone."""

    view: memoryview
    headers: list[BatchHeader]


def runs(file: LogFile, size: int, is_stopped: Callable[[], bool]) -> Iterator[Run]:
    """Yield all batches in the first `size` bytes; `is_stopped` is asked once a window."""
    position = next_offset = 0
    while position < size:
        if is_stopped():
            raise CompactionStopped
        view = _window(file, position, size)
        start = at = 0
        headers: list[BatchHeader] = []
        while (header := _whole_batch(view, at)) is not None:
            if header.base_offset < next_offset:
                # The offset is not under the batch's checksum.
                raise StorageError(f"offset {header.base_offset} stands where {next_offset} belongs at {position + at}")
            next_offset = header.next_offset
            # Batches of transactions and markers are kept whole, so each runs alone.
            if headers and (header.attributes | headers[0].attributes) & AS_IT_IS:
                yield Run(view[start:at], headers)
                start, headers = at, []
            headers.append(header)
            at += header.size_bytes
        assert headers, "a window has a batch"
        yield Run(view[start:at], headers)
        position += at


def _window(file: LogFile, position: int, size: int) -> memoryview:
    """Read the next window: as many batches as fit, or a longer one alone."""
    raw = file.read(position, min(READ_BYTES, size - position))
    needed = parse_header(raw).size_bytes
    if len(raw) < needed <= size - position:
        raw = file.read(position, needed)
    if len(raw) < needed:
        raise StorageError("a closed segment ends in the middle of a batch; it is not compacted")
    return memoryview(raw)


def _whole_batch(view: memoryview, at: int) -> BatchHeader | None:
    """Return the header of the batch at a position, if the batch is there as a whole."""
    if len(view) - at < HEADER_SIZE:
        return None
    header = parse_header(view, at)
    return header if header.size_bytes <= len(view) - at else None


class BatchRows(NamedTuple):
    """One batch, and the rows [first, stop) that are its records."""

    header: BatchHeader
    view: memoryview
    first: int
    stop: int
    #: Holds the records; the bytes of the first begin at `start`.
    body: memoryview
    start: int


class Sheet:
    """The records of a run, or of a part of it, as rows."""

    def __init__(self, run: Run, scanned: ScannedRecords) -> None:
        self._run = run
        self._scanned = scanned
        rows = len(scanned)
        columns = gather_columns([(scanned, 0, rows)], with_values=False, with_headers=False)
        assert columns.keys is not None, "they were asked for"
        self.key_bytes = len(columns.keys.data)
        self.keys: list[bytes | None] = columns.keys.to_list()
        self.offsets: list[int] = scanned.offsets.tolist()
        self.timestamps: list[int] = scanned.timestamps.tolist()
        #: Whether rows are tombstones; none is where this is empty.
        self.lengths: list[int] = []
        if scanned.kernels.count_nulls(scanned.spans, SPAN_WIDTH, VALUE_LENGTH, rows):
            self.lengths = scanned.spans[VALUE_LENGTH::SPAN_WIDTH].tolist()

    def ends(self) -> list[int]:
        """Return the end of each record in the body of its batch."""
        scanned = self._scanned
        ends: list[int] = scanned.spans[HEADERS::SPAN_WIDTH].tolist()
        headers = scanned.headers
        if headers is None:
            return ends
        # Where its last header's value ends, if it has one.
        values: list[int] = headers.spans[HEADER_VALUE::HEADER_WIDTH].tolist()
        lengths: list[int] = headers.spans[HEADER_VALUE + 1 :: HEADER_WIDTH].tolist()
        counts = scanned.spans[HEADER_COUNT::SPAN_WIDTH].tolist()
        for row, (count, stop) in enumerate(zip(counts, accumulate(counts), strict=True)):
            if count:
                ends[row] = values[stop - 1] + max(lengths[stop - 1], 0)
        return ends

    def batches(self, kept: list[int]) -> Iterator[tuple[BatchRows, list[int]]]:
        """Yield the batches with some of these ascending rows, in order, each with its rows."""
        table, regions = self._scanned.table, iter(self._scanned.regions)
        region = next(regions, None)
        position = row = at = 0
        for batch, header in enumerate(self._run.headers):
            if at == len(kept):
                return
            here = batch * TABLE_WIDTH
            first, row = row, table[here + ROW_STOP] if table[here + RECORD_COUNT] else row
            start, position = position, position + header.size_bytes
            if kept[at] >= row:
                continue
            while region is not None and region.stop <= batch:
                region = next(regions, None)
            assert region is not None, "records lie in a region"
            body, view = memoryview(region.join()), self._run.view[start:position]
            until = bisect_left(kept, row, at)
            yield BatchRows(header, view, first, row, body, table[here + BODY]), kept[at:until]
            at = until


def sheets(run: Run) -> Iterator[Sheet | Run]:
    """Yield the records of a run; an unreadable batch comes as a run of its own."""
    start = at = 0
    while at < len(run.headers):
        try:
            scanned = scan_batches(run.view[start:], max_batch_bytes=DEFAULT_LIMIT_BYTES)
        except CorruptRecordError:
            size = run.headers[at].size_bytes
            yield Run(run.view[start : start + size], run.headers[at : at + 1])
            start, at = start + size, at + 1
            continue
        first, end = at, start
        while end < start + scanned.consumed_bytes:
            end += run.headers[at].size_bytes
            at += 1
        yield Sheet(Run(run.view[start:end], run.headers[first:at]), scanned)
        start = end
