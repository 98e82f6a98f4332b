"""Scanned records as tuples of the kind that an application gets, straight from the record bytes.

Laws: a row owns what it holds; only the rows that are asked for are made.
Source: architecture rule 16.
"""

from __future__ import annotations

from bisect import bisect_right
from typing import Final, TypeVar

from kohort.ids import TopicPartition
from kohort.records.layout import ROW_STOP, TABLE_WIDTH
from kohort.records.scan import ScannedRecords

T = TypeVar("T", bound=tuple[object, ...])

_NOTHING: Final = memoryview(bytearray()).cast("i")


def build_rows(kind: type[T], partition: TopicPartition, scanned: ScannedRecords, start: int, stop: int) -> list[T]:
    """Return the rows [start, stop) as tuples of that kind.

    Args:
        kind: a tuple of topic, partition, offset, timestamp, timestamp type (0: the producer's, 1: the broker's), key,
            value, headers, leader epoch.
        partition: whose records were scanned.
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
