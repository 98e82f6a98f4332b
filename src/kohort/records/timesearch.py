"""The first record of a batch that is as late as a time, without an object for each record before it.

Laws: what a batch unfolds to is bounded, and so is how long the kernels run before other threads have their turn.
Source: Apache Kafka's record format, magic 2 (KIP-98).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final, NamedTuple

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

#: Bytes that a batch may unfold to; of a larger one only the header is used.
LIMIT_BYTES: Final = 64 << 20


def first_record_since(
    batch: memoryview, header: BatchHeader, timestamp_ms: int, *, limit_bytes: int = LIMIT_BYTES
) -> tuple[int, int] | None:
    """Find (timestamp, offset) of the first record at `timestamp_ms` or later; `None`: there is none.

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
    for part in record_slices(body, header):
        for timestamp, offset in zip(part.timestamps, part.offsets, strict=True):
            if timestamp >= timestamp_ms:
                return timestamp, offset
    return None


# The records of one uncompressed batch in slices, so that a long batch does not block others.
#
# Laws: memory does not grow with the batch, and a kernel runs for well below a millisecond. Offsets, times and spans of
# a slice are overwritten by the next.
# Source: Apache Kafka's record format, magic 2 (KIP-98).

#: Records of a slice.
_RECORDS_AT_ONCE: Final = 4096
_NO_RECORD: Final = -1


class RecordSlice(NamedTuple):
    """Some records behind each other."""

    #: int64[n]
    offsets: memoryview
    #: int64[n]: milliseconds since 1970, -1 where the producer gave no time.
    timestamps: memoryview
    #: int32[n * SPAN_WIDTH]
    spans: memoryview
    #: Where they end in the body, unless one behind them is damaged.
    end: int


def record_slices(body: memoryview, header: BatchHeader) -> Iterator[RecordSlice]:
    """Yield all records of a batch with this uncompressed body.

    Raises:
        CorruptRecordError: a record is damaged, or there are fewer than the header claims; those of the slices before
            have been given out.
    """
    left = header.record_count
    if left < 0:
        raise CorruptRecordError(f"the batch at offset {header.base_offset} claims {left} records")
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
        # More records follow, or bytes that are none: where these ended is what hopping over them tells.
        end = kernels.walk_records(body, position, len(body), count)
        position = end if end >= 0 else -1 - end
        sound = count if offsets[count - 1] != _NO_RECORD else offsets[:count].tolist().index(_NO_RECORD)
        if sound:
            yield RecordSlice(offsets[:sound], timestamps[:sound], spans[: sound * SPAN_WIDTH], position)
        if sound < count:
            raise CorruptRecordError(f"a record of the batch at offset {header.base_offset} is damaged")
        left -= count


def _row_of(header: BatchHeader, size: int) -> array[int]:
    """Build the table row of a batch; the kernels take its records piece by piece."""
    table = array("q", bytes(8 * TABLE_WIDTH))
    table[BODY_END] = size
    table[BASE_OFFSET] = header.base_offset
    table[LAST_OFFSET] = header.last_offset
    table[ATTRIBUTES] = header.attributes
    table[BASE_TIMESTAMP] = header.base_timestamp
    table[MAX_TIMESTAMP] = header.max_timestamp
    return table
