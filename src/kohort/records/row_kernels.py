# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
# ruff: noqa: PLR0917, F403, F405 - kernels take their arrays by position, as a compiled call does; the star is explained
"""The loop that makes an application's records from bytes: ordinary Python that can be compiled.

Laws: what is read here was checked by `kernels.scan_records`, so no position is looked at twice. A row holds text,
bytes, numbers and tuples of them only, never a cycle: compiled, it is kept from the garbage collector.
Source: architecture rule 16.
"""

from __future__ import annotations

from kohort.records.header import Buffer
from kohort.records.layout import (
    ATTRIBUTES,
    HEADER_KEY,
    HEADER_KEY_LENGTH,
    HEADER_VALUE,
    HEADER_VALUE_LENGTH,
    HEADER_WIDTH,
    KEY,
    KEY_LENGTH,
    LAST_MICROSECOND_MS,
    LEADER_EPOCH,
    ROW_STOP,
    SPAN_WIDTH,
    TABLE_WIDTH,
    VALUE,
    VALUE_LENGTH,
)

# By a star, because the compiled form has functions of C in their place, and a name may not be both.
from kohort.records.row_parts import *


def blank(size_bytes: int) -> bytearray:
    """Return memory without initial content, to be written by the caller."""
    return new_array(size_bytes)


def to_microseconds(times: memoryview, out: memoryview) -> int:
    """Write a thousand times each of `times`; return the first row out of range, or the end."""
    count = len(times)
    for row in range(count):
        if times[row] > LAST_MICROSECOND_MS or times[row] < -LAST_MICROSECOND_MS:
            return row
        out[row] = times[row] * 1000
    return count


def build_rows(
    kind: type,
    topic: str,
    partition: int,
    region: Buffer,
    table: memoryview,
    batch: int,
    offsets: memoryview,
    timestamps: memoryview,
    spans: memoryview,
    header_offsets: memoryview,
    header_spans: memoryview,
    row: int,
    stop: int,
    rows: list[object],
) -> None:
    """Append the rows [row, stop) of one region to `rows`, each a `kind` of nine fields.

    Args:
        kind: a subclass of tuple: topic, partition, offset, timestamp, timestamp type, key, value, headers, epoch.
        region: holds the bodies of the batches.
        table: the batch table, scanned.
        batch: the batch of the region that `row` lies in, or one in front of it.
        offsets, timestamps: int64[rows].
        spans: int32[rows * SPAN_WIDTH].
        header_offsets: int32[rows + 1], as `scan_headers` writes it; empty if no record of these has headers.
        header_spans: int32[headers * HEADER_WIDTH].
    """
    with_headers = len(header_offsets) > 0
    batch_stop = row
    time = 0
    time_kind: object = 0
    epoch: object = -1
    time_object: object = 0
    headers: object
    while row < stop:
        if row >= batch_stop:
            while table[batch * TABLE_WIDTH + ROW_STOP] <= row:
                batch += 1
            batch_stop = table[batch * TABLE_WIDTH + ROW_STOP]
            time_kind = 1 if table[batch * TABLE_WIDTH + ATTRIBUTES] & 8 else 0
            epoch = table[batch * TABLE_WIDTH + LEADER_EPOCH]
        # Records that were written together share their time more often than not.
        if timestamps[row] != time:
            time = timestamps[row]
            time_object = time
        span = row * SPAN_WIDTH
        headers = ()
        if with_headers and header_offsets[row] < header_offsets[row + 1]:
            headers = _headers(region, header_spans, header_offsets[row], header_offsets[row + 1])
        key = new_bytes(region, spans[span + KEY], spans[span + KEY_LENGTH])
        value = new_bytes(region, spans[span + VALUE], spans[span + VALUE_LENGTH])
        fields = new_row(kind, topic, partition, offsets[row], time_object, time_kind, key, value, headers, epoch)
        rows.append(fields)
        row += 1


def _headers(region: Buffer, spans: memoryview, first: int, stop: int) -> tuple[object, ...]:
    pairs = []
    for header in range(first, stop):
        at = header * HEADER_WIDTH
        name = new_text(region, spans[at + HEADER_KEY], spans[at + HEADER_KEY_LENGTH])
        pairs.append((name, new_bytes(region, spans[at + HEADER_VALUE], spans[at + HEADER_VALUE_LENGTH])))
    return tuple(pairs)
