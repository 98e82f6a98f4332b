"""The records of one decision as one batch of the log, and back.

Laws: `read_log_batch(build_log_batch(records))` are the records that are written. What belongs to a transaction is a
batch of its producer's; a marker is a batch of its own.
Source: Apache Kafka's coordinator: a decision is never split; KIP-98 (transactional batches and markers).
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.coordinator import recordcodec
from kohort.coordinator.records import (
    OffsetCommitted,
    Record,
    TransactionalOffsetCommitted,
    TransactionCompleted,
    VolatileRecord,
)
from kohort.records.batch import build_batch, iterate_records
from kohort.records.control import build_marker, is_commit_marker
from kohort.records.header import BatchHeader, parse_header


def build_log_batch(records: Iterable[Record], *, now_ms: int) -> bytes | None:
    """The batch of what is to be written, `None` if nothing is."""
    durable = [record for record in records if not isinstance(record, VolatileRecord)]
    if not durable:
        return None
    first = durable[0]
    if type(first) is TransactionCompleted:
        assert len(durable) == 1, "a marker is a batch of its own"
        return build_marker(
            producer_id=first.producer_id,
            producer_epoch=first.producer_epoch,
            is_commit=first.is_commit,
            timestamp_ms=now_ms,
        )
    if type(first) is TransactionalOffsetCommitted:
        return _build_transactional(durable, first, now_ms=now_ms)
    encode = recordcodec.encode
    return build_batch([(*encode(record), now_ms, ()) for record in durable])


def read_log_batch(batch: bytes | memoryview) -> list[Record]:
    """The records of one batch; those of types that are not known here are left out."""
    header = parse_header(batch)
    if header.is_control:
        marker = read_marker(header, batch)
        return [] if marker is None else [marker]
    decoded = (recordcodec.decode(stored.key or b"", stored.value) for stored in iterate_records(batch))
    return [read_in_batch(header, record) for record in decoded if record is not None]


def read_in_batch(header: BatchHeader, record: Record) -> Record:
    """A record as the batch makes it: a commit in a transactional one waits for the marker."""
    if not header.is_transactional or not isinstance(record, OffsetCommitted):
        return record
    return TransactionalOffsetCommitted(
        group_id=record.group_id, producer_id=header.producer_id, producer_epoch=header.producer_epoch, commit=record
    )


def read_marker(header: BatchHeader, batch: bytes | memoryview) -> TransactionCompleted | None:
    """What a control batch says; `None` if it is of another kind than a transaction's end."""
    control = next(iterate_records(batch, include_control=True), None)
    is_commit = None if control is None else is_commit_marker(control.key)
    if is_commit is None:
        return None
    return TransactionCompleted(
        group_id="", producer_id=header.producer_id, producer_epoch=header.producer_epoch, is_commit=is_commit
    )


def _build_transactional(records: list[Record], first: TransactionalOffsetCommitted, *, now_ms: int) -> bytes:
    rows = []
    for record in records:
        assert isinstance(record, TransactionalOffsetCommitted), "a batch is all of one transaction"
        assert (record.producer_id, record.producer_epoch) == (first.producer_id, first.producer_epoch)
        rows.append((*recordcodec.encode(record.commit), now_ms, ()))
    return build_batch(rows, producer_id=first.producer_id, producer_epoch=first.producer_epoch, is_transactional=True)
