"""Whole batches of a producer's records, each written once into the memory that it is sent from.

Laws: a batch built here is the one that `batch.build_batch` builds of the same records.
Source: Apache Kafka's record format, magic 2 (KIP-98).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, Protocol

from kohort.errors import LocalProtocolError
from kohort.records.build_kernels import write_records
from kohort.records.compression import codec_number, compress
from kohort.records.header import HEADER_SIZE, LENGTH_OVERHEAD, TRANSACTIONAL_BIT, BatchHeader, pack_header, seal
from kohort.records.row_kernels import blank

_INT32_MAX: Final = (1 << 31) - 1
#: The most bytes that a record takes in addition to its key, value and headers; each header takes 10 more.
RECORD_ROOM_BYTES: Final = 36


class Unwritten(Protocol):
    """A record to be written; writing it removes its key and value."""

    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    #: Encoded, their number in front; empty: none.
    headers: bytes


#: Writes records from a position on, given their base timestamp; returns their end, and the latest timestamp.
Writer = Callable[[bytearray, int, int], tuple[int, int]]


def writer_of(records: Sequence[Unwritten], index: int = 0) -> Writer:
    """Return a writer of these records; `index` is the first record's index in its batch."""
    return lambda out, position, base_time: write_records(records, index, base_time, out, position, bytes)


def build(
    writers: list[Writer],
    *,
    count: int,
    base_timestamp: int,
    room_bytes: int,
    compression: str,
    level: int | None,
    producer_id: int,
    producer_epoch: int,
    base_sequence: int,
    is_transactional: bool = False,
) -> bytearray:
    """Build one batch of the records of these writers.

    Args:
        writers: the writers, in the order of their records.
        count: number of records, at least one.
        base_timestamp: the timestamp of the first record, milliseconds.
        room_bytes: the most bytes that the records take, see `RECORD_ROOM_BYTES`.

    Raises:
        LocalProtocolError: more bytes than a batch can hold.
    """
    if room_bytes > _INT32_MAX - HEADER_SIZE:
        raise LocalProtocolError(f"a batch of {room_bytes} bytes is more than the protocol can carry")
    batch = blank(HEADER_SIZE + room_bytes)
    end, latest = HEADER_SIZE, base_timestamp
    for write in writers:
        end, time = write(batch, end, base_timestamp)
        latest = max(latest, time)
    assert end <= len(batch), "records take more than was counted"
    del batch[end:]
    if compression != "none":
        with memoryview(batch) as view, view[HEADER_SIZE:] as body:
            payload = compress(compression, body, level=level)
        batch[HEADER_SIZE:] = payload
    header = BatchHeader(
        batch_length=len(batch) - LENGTH_OVERHEAD,
        attributes=codec_number(compression) | (TRANSACTIONAL_BIT if is_transactional else 0),
        last_offset_delta=count - 1,
        base_timestamp=base_timestamp,
        max_timestamp=latest,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )
    batch[:HEADER_SIZE] = pack_header(header)
    seal(batch)
    return batch
