"""The first record of a batch that is as late as a time, without an object for each record before it.

Laws: what a batch unfolds to is bounded, and so is how long the kernels run before other threads have their turn.
Source: Apache Kafka's record format, magic 2 (KIP-98).
"""

from __future__ import annotations

from array import array
from typing import Final

from kohort.errors import CorruptRecordError
from kohort.records import kernels
from kohort.records.compression import decompress
from kohort.records.header import HEADER_SIZE, MIN_RECORD_SIZE, BatchHeader
from kohort.records.layout import (
    ATTRIBUTES,
    BASE_OFFSET,
    BASE_TIMESTAMP,
    BODY,
    BODY_END,
    LAST_OFFSET,
    MAX_TIMESTAMP,
    RECORD_COUNT,
    SPAN_WIDTH,
    TABLE_WIDTH,
)

#: What a batch may unfold to; of one that has more nobody learns more than its header says.
LIMIT_BYTES: Final = 64 << 20
#: Records that are looked at in one go, well below a millisecond.
_RECORDS_AT_ONCE: Final = 4096
_NO_RECORD: Final = -1


def first_record_since(
    batch: memoryview, header: BatchHeader, timestamp_ms: int, *, limit_bytes: int = LIMIT_BYTES
) -> tuple[int, int] | None:
    """(timestamp, offset) of the first record that is as late as `timestamp_ms` or later; `None` if none is.

    Args:
        batch: the whole batch, whose CRC was compared when it came.

    Raises:
        CorruptRecordError: the batch is damaged before that record, or unfolds to more than `limit_bytes`.
    """
    if header.is_control or not header.record_count:
        return None
    body = memoryview(
        decompress(header.compression, batch[HEADER_SIZE : header.size_bytes], limit_bytes=limit_bytes)
    ).cast("B")
    left = header.record_count
    if left * MIN_RECORD_SIZE > len(body):
        raise CorruptRecordError(f"the batch at offset {header.base_offset} has fewer records than it claims")
    rows = min(left, _RECORDS_AT_ONCE)
    table = memoryview(_row_of(header, len(body)))
    offsets, timestamps = memoryview(array("q", bytes(8 * rows))), memoryview(array("q", bytes(8 * rows)))
    spans = memoryview(array("i", bytes(4 * rows * SPAN_WIDTH)))
    position = 0
    while left:
        count = min(left, rows)
        offsets[:count] = array("q", (_NO_RECORD,)) * count
        table[BODY], table[RECORD_COUNT] = position, count
        kernels.scan_records(body, table, 0, 1, _NO_RECORD + 1, 0, offsets, timestamps, spans)
        for timestamp, offset in zip(timestamps[:count], offsets[:count], strict=True):
            if offset == _NO_RECORD:
                raise CorruptRecordError(f"a record of the batch at offset {header.base_offset} is damaged")
            if timestamp >= timestamp_ms:
                return timestamp, offset
        # More records follow, or bytes that are none: where these ended is what hopping over them tells.
        end = kernels.walk_records(body, position, len(body), count)
        position = end if end >= 0 else -1 - end
        left -= count
    return None


def _row_of(header: BatchHeader, size: int) -> array[int]:
    """The batch as the kernels know it; they are told of its records piece by piece."""
    table = array("q", bytes(8 * TABLE_WIDTH))
    table[BODY_END] = size
    table[BASE_OFFSET] = header.base_offset
    table[LAST_OFFSET] = header.last_offset
    table[ATTRIBUTES] = header.attributes
    table[BASE_TIMESTAMP] = header.base_timestamp
    table[MAX_TIMESTAMP] = header.max_timestamp
    return table
