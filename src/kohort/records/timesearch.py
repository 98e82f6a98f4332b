"""The search for the first record of a batch at or after a timestamp, without an object per record.

Laws: the decompressed size is bounded. Records are read in slices, each of which a kernel scans in well below a
millisecond, so that a long batch blocks no other thread and memory does not grow with it.
Source: Apache Kafka's record format, magic 2 (KIP-98).
"""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from typing import Final

from kohort.errors import CorruptRecordError
from kohort.records import kernels, layout
from kohort.records.compression import decompress
from kohort.records.header import HEADER_SIZE, MIN_RECORD_SIZE, BatchHeader

#: Bytes that a batch may decompress to; of a larger one only the header is used.
LIMIT_BYTES: Final = 64 << 20
#: Records of a slice.
_RECORDS_AT_ONCE: Final = 4096
_NO_RECORD: Final = -1


def first_record_since(
    batch: memoryview, header: BatchHeader, timestamp_ms: int, *, limit_bytes: int = LIMIT_BYTES
) -> tuple[int, int] | None:
    """Find (timestamp, offset) of the first record at `timestamp_ms` or later; `None` if there is none.

    Args:
        batch: the whole batch, whose CRC was verified when it arrived.

    Raises:
        CorruptRecordError: the batch is damaged before that record, or decompresses to more than `limit_bytes`.
    """
    if header.is_control or not header.record_count:
        return None
    body = memoryview(
        decompress(header.compression, batch[HEADER_SIZE : header.size_bytes], limit_bytes=limit_bytes)
    ).cast("B")
    for timestamps, offsets in _record_slices(body, header):
        for timestamp, offset in zip(timestamps, offsets, strict=True):
            if timestamp >= timestamp_ms:
                return timestamp, offset
    return None


def _record_slices(body: memoryview, header: BatchHeader) -> Iterator[tuple[memoryview, memoryview]]:
    """Yield timestamps and offsets of all records of a batch with this uncompressed body.

    Raises:
        CorruptRecordError: a record is damaged, or there are fewer than the header claims; earlier slices have been
            yielded.
    """
    left = header.record_count
    if left < 0:
        raise CorruptRecordError(f"the batch at offset {header.base_offset} claims {left} records")
    if left * MIN_RECORD_SIZE > len(body):
        raise CorruptRecordError(f"the batch at offset {header.base_offset} has fewer records than it claims")
    rows = min(left, _RECORDS_AT_ONCE)
    # A row of the batch table, which gives the kernels the batch's records piece by piece.
    row = array("q", bytes(8 * layout.TABLE_WIDTH))
    row[layout.BODY_END] = len(body)
    row[layout.BASE_OFFSET], row[layout.LAST_OFFSET] = header.base_offset, header.last_offset
    row[layout.BASE_TIMESTAMP], row[layout.MAX_TIMESTAMP] = header.base_timestamp, header.max_timestamp
    row[layout.ATTRIBUTES] = header.attributes
    table = memoryview(row)
    offsets, timestamps = memoryview(array("q", bytes(8 * rows))), memoryview(array("q", bytes(8 * rows)))
    spans = memoryview(array("i", bytes(4 * rows * layout.SPAN_WIDTH)))
    position = 0
    while left:
        count = min(left, rows)
        offsets[:count] = array("q", (_NO_RECORD,)) * count
        table[layout.BODY], table[layout.RECORD_COUNT] = position, count
        kernels.scan_records(body, table, 0, 1, _NO_RECORD + 1, 0, offsets, timestamps, spans)
        # More records follow, or other bytes: a walk by the records' lengths finds the end of these.
        end = kernels.walk_records(body, position, len(body), count)
        position = end if end >= 0 else -1 - end
        sound = count if offsets[count - 1] != _NO_RECORD else offsets[:count].tolist().index(_NO_RECORD)
        if sound:
            yield timestamps[:sound], offsets[:sound]
        if sound < count:
            raise CorruptRecordError(f"a record of the batch at offset {header.base_offset} is damaged")
        left -= count
