# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
# ruff: noqa: PLR0917, F403, F405 - kernels take their arguments by position, as a compiled call does; the star is explained
"""The loops that write records from Arrow's columns: ordinary Python that can be compiled.

Laws: no object is made of a row; the caller has made room, as for `build_kernels.py`. What is written is what
`write_rows` writes of the same rows.
Source: the Arrow columnar format (large binary); Apache Kafka's record format, magic 2 (KIP-98); architecture rule 16.
"""

from __future__ import annotations

# By a star, because the compiled form has functions of C in their place, and a name may not be both.
from kohort.records.span_parts import *


class SpanColumn:
    """A column of binary: where the bytes of each row lie, and which rows have none.

    Args:
        data: bytes of all rows.
        offsets: int64, where each row begins in `data`, and behind the last where that ends.
        validity: a bit a row, 0 where it is missing; empty if none is.
        first: the row of these that is row 0 here.
    """

    def __init__(self, data: memoryview, offsets: memoryview, validity: memoryview, first: int) -> None:
        self.data = data
        self.offsets = offsets
        self.validity = validity
        self.first = first
        self.has_gaps = len(validity) > 0

    def length(self, row: int) -> int:
        """Return the bytes of a row, -1 if it is missing."""
        place = self.first + row
        if self.has_gaps and not self.validity[place >> 3] >> (place & 7) & 1:
            return -1
        return self.offsets[place + 1] - self.offsets[place]

    def cut(self, row: int) -> bytes | None:
        """Return a row as an object of its own."""
        length = self.length(row)
        return None if length < 0 else cut_bytes(self.data, self.offsets[self.first + row], length)

    def part(self, start: int) -> SpanColumn:
        """Return the column from that row on."""
        return SpanColumn(self.data, self.offsets, self.validity, self.first + start)


def spread_spans(
    keys: SpanColumn | None,
    partitions: memoryview | None,
    count: int,
    turn: int,
    homes: memoryview,
    bounds: memoryview,
    order: memoryview,
) -> bool:
    """Spread rows over partitions: to their own, else by their key, else to `turn`.

    Args:
        keys: of the rows, `None` if no row has one.
        partitions: int64[rows], those that rows name themselves, below 0 where one does not; `None` if none does.
        count: of partitions.
        homes: int32[rows], to work in.
        bounds: int64[count + 2], zeros; gets where the rows of each partition begin in `order`.
        order: int64[rows]; gets the rows, those of one partition behind each other and ascending.

    Returns:
        Whether every row names a partition that is there.
    """
    for row in range(len(order)):
        number = turn
        if partitions is not None and partitions[row] >= 0:
            number = partitions[row]
            if number >= count:
                return False
        elif keys is not None and keys.length(row) >= 0:
            number = (hash_of(keys, row) & 0x7FFFFFFF) % count
        homes[row] = number
        bounds[number + 2] += 1
    for place in range(2, count + 2):
        bounds[place] += bounds[place - 1]
    for row in range(len(order)):
        number = homes[row] + 1
        order[bounds[number]] = row
        bounds[number] += 1
    return True


def measure_spans(
    keys: SpanColumn | None,
    values: SpanColumn,
    tails: SpanColumn | None,
    rows: memoryview | None,
    position: int,
    stop: int,
    overhead_bytes: int,
    limit_bytes: int,
) -> tuple[int, int]:
    """Return the end of the rows that fit, at least one, and their size; see `measure_rows`."""
    total = 0
    begin = position
    while position < stop:
        row = position if rows is None else rows[position]
        size = overhead_bytes + max(0, values.length(row))
        if keys is not None:
            size += max(0, keys.length(row))
        if tails is not None:
            size += tails.length(row)
        if total + size > limit_bytes and position > begin:
            break
        total += size
        position += 1
    return position, total


def write_spans(
    keys: SpanColumn | None,
    values: SpanColumn,
    times: memoryview | None,
    tails: SpanColumn | None,
    tail: bytes,
    rows: memoryview | None,
    position: int,
    stop: int,
    base_time: int,
    out: bytearray,
    at: int,
) -> tuple[int, int]:
    """Write rows as the first records of a batch; return the end and the latest time.

    Args:
        times: int64[rows], milliseconds; `None` means the base time for all.
        tail: of every row, where there are no `tails`.
        rows: int64, which; `None` means those from `position` to `stop` themselves.
    """
    latest = base_time
    time = base_time
    index = 0
    while position < stop:
        row = position if rows is None else rows[position]
        if times is not None:
            time = times[row]
            latest = max(latest, time)
        at = put_row(out, at, time - base_time, index, keys, values, tails, tail, row)
        position += 1
        index += 1
    return at, latest


def first_longer(column: SpanColumn, count: int, limit_bytes: int) -> int:
    """Return the first of so many rows that is longer; -1 if none is."""
    for row in range(count):
        if column.length(row) > limit_bytes:
            return row
    return -1


def write_tails(
    counts: memoryview,
    names: SpanColumn,
    contents: SpanColumn,
    more: bytes,
    more_count: int,
    out: bytearray,
    ends: memoryview,
) -> int:
    """Write the headers of rows as records have them, their number in front; the byte behind the last.

    Args:
        counts: int64[rows], headers of each row.
        names: of all headers.
        contents: likewise.
        more: encoded headers that every row has behind its own.
        out: 10 bytes a row and a header beside what they carry.
        ends: int64[rows + 1]; gets where each row begins, and where the last ends.
    """
    at = 0
    header = 0
    for row in range(len(counts)):
        ends[row] = at
        at = put_count(out, at, counts[row] + more_count)
        for _ in range(counts[row]):
            at = put_field_of(out, at, names, header)
            at = put_field_of(out, at, contents, header)
            header += 1
        at = put_bytes(out, at, more)
    ends[len(counts)] = at
    return at
