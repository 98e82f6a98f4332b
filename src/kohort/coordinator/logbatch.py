"""Record batches of the group log: one batch for the records of one decision.

Laws: `read_log_batch(build_log_batch(records))` gives the durable ones of `records`. Records of a transaction are a
batch of its producer; a marker is a batch of its own.
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
    """Build the batch of the durable records, `None` if there are none."""
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
    """Read the records of one batch, without those of unknown types."""
    header = parse_header(batch)
    if header.is_control:
        marker = read_marker(header, batch)
        return [] if marker is None else [marker]
    decoded = (recordcodec.decode(stored.key or b"", stored.value) for stored in iterate_records(batch))
    return [read_in_batch(header, record) for record in decoded if record is not None]


def read_in_batch(header: BatchHeader, record: Record) -> Record:
    """Return a record as its batch makes it: a commit in a transactional batch waits for the marker."""
    if not header.is_transactional or not isinstance(record, OffsetCommitted):
        return record
    return TransactionalOffsetCommitted(
        group_id=record.group_id, producer_id=header.producer_id, producer_epoch=header.producer_epoch, commit=record
    )


def read_marker(header: BatchHeader, batch: bytes | memoryview) -> TransactionCompleted | None:
    """Read a control batch; `None` if it is no end of a transaction."""
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
