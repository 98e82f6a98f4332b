"""The first record of a batch that is as late as a time, without an object for each record before it.

Laws: what a batch unfolds to is bounded, and so is how long the kernels run before other threads have their turn.
Source: Apache Kafka's record format, magic 2 (KIP-98).
"""

from __future__ import annotations

from typing import Final

from kohort.records.compression import decompress
from kohort.records.header import HEADER_SIZE, BatchHeader
from kohort.records.recordslices import record_slices

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
