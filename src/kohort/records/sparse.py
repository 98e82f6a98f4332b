"""Batches after compaction, whose remaining records are copied as bytes, not decoded.

Laws: a batch that keeps some of its records keeps its header, except for the number of records, their latest timestamp
and the checksum: the same offsets, producer, sequences, codec and timestamp type. Records that become part of another
batch get new deltas of offset and timestamp, and keep every other byte.
Source: Apache Kafka's record format, magic 2 (KIP-98); its log cleaner; KIP-534 (the delete horizon).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from kohort.records.batch import read_varint, seal_batch
from kohort.records.build_parts import VARINTS
from kohort.records.compression import compress
from kohort.records.header import (
    CODEC_NAMES,
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LENGTH_OVERHEAD,
    BatchHeader,
    Buffer,
)


class LooseRecord(NamedTuple):
    """A record without its deltas of offset and timestamp, to be put into another batch."""

    offset: int
    #: Milliseconds since 1970; -1 if it has none.
    timestamp: int
    attributes: int
    #: The record's bytes from the length of the key on.
    tail: bytes


def loosen(record: memoryview, offset: int, timestamp: int) -> LooseRecord:
    """Build a loose record from its bytes, which were checked before."""
    _, position = read_varint(record, 0)
    attributes = record[position]
    _, position = read_varint(record, position + 1)
    _, position = read_varint(record, position)
    return LooseRecord(offset, timestamp, attributes, bytes(record[position:]))


def thin_batch(header: BatchHeader, records: Sequence[Buffer], *, max_timestamp: int) -> bytes:
    """Build the batch of this header with only these of its records.

    Args:
        records: the bytes of each, as they are in the batch.
        max_timestamp: their latest timestamp, or the batch's with LogAppendTime.
    """
    payload = b"".join(records)
    codec = header.attributes & COMPRESSION_MASK
    if codec and records:
        payload = bytes(compress(CODEC_NAMES[codec], payload))
    return seal_batch(
        header._replace(
            batch_length=HEADER_SIZE - LENGTH_OVERHEAD + len(payload),
            max_timestamp=max_timestamp,
            record_count=len(records),
        ),
        payload,
    )


def with_horizon(header: BatchHeader, horizon_ms: int) -> BatchHeader:
    """Return the header with a delete horizon; the timestamps of its records count from there."""
    return header._replace(base_timestamp=horizon_ms, attributes=header.attributes | DELETE_HORIZON_BIT)


def fasten(records: Sequence[LooseRecord], header: BatchHeader) -> list[bytes]:
    """Encode records for the batch of this header."""
    varints = VARINTS
    base_offset, base_timestamp = header.base_offset, header.base_timestamp
    fastened = []
    for offset, timestamp, attributes, tail in records:
        time, place = varints[timestamp - base_timestamp], varints[offset - base_offset]
        size = varints[1 + len(time) + len(place) + len(tail)]
        fastened.append(b"%b%c%b%b%b" % (size, attributes, time, place, tail))
    return fastened


def gather_batch(
    records: Sequence[LooseRecord],
    *,
    base_offset: int,
    last_offset: int,
    leader_epoch: int,
    codec: int,
    delete_horizon_ms: int | None,
) -> bytes:
    """Build a batch without producer id for the offsets [base_offset, last_offset].

    Its records may come from several batches.

    Args:
        records: ascending offsets within that range; may be none.
        codec: number of the codec in a batch's attributes.
        delete_horizon_ms: when tombstones among them may be removed; `None` if there are none.
    """
    header = BatchHeader(
        base_offset=base_offset,
        partition_leader_epoch=leader_epoch,
        attributes=codec if records else 0,
        last_offset_delta=last_offset - base_offset,
        base_timestamp=records[0].timestamp if records else -1,
    )
    if delete_horizon_ms is not None:
        header = with_horizon(header, delete_horizon_ms)
    latest = max((record.timestamp for record in records), default=-1)
    return thin_batch(header, fasten(records, header), max_timestamp=latest)
