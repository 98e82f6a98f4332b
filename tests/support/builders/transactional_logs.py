"""Logs with transactions in every state, and readers of their committed records."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final

from kohort.errors import ErrorCode, Refused
from kohort.records.batch import build_batch, build_marker, is_commit_marker, iterate_records
from kohort.records.header import split_batches
from kohort.storage.log_state import capture, settle, write
from kohort.storage.partitions.partition import Appended, PartitionLog
from kohort.storage.segments.segment import next_offset_of
from kohort.storage.store import Store
from kohort.testing.disks import MemoryFileSystem
from support.builders.storage_logs import PAGE_CACHE, TOPIC_ID, batch

#: Offset -> value of the records that count, in the log of `transactional_directory`.
COMMITTED = {
    0: b"plain",
    1: b"A0",
    2: b"A0",
    10: b"B0",
    12: b"A2",
    15: b"late",
    16: b"A3",
    18: b"last",
}
#: Values of records that never count: aborted, or of a transaction that is open.
ABORTED = {b"a1", b"b1", b"open"}


def transactional(producer_id: int, base_sequence: int, value: bytes, *, count: int = 1, epoch: int = 0) -> bytearray:
    """A batch of a transaction."""
    rows = [(None, value, 1000, ())] * count
    return bytearray(
        build_batch(
            rows, producer_id=producer_id, producer_epoch=epoch, base_sequence=base_sequence, is_transactional=True
        )
    )


def send(log: PartitionLog, producer_id: int, base_sequence: int, value: bytes, *, count: int = 1) -> Appended:
    """Append a batch of a transaction, which may begin with it."""
    sent = transactional(producer_id, base_sequence, value, count=count)
    return log.append(sent, now_ms=1000, begins_transaction=True)


def end(log: PartitionLog, producer_id: int, *, is_commit: bool, coordinator_epoch: int = 3) -> Appended:
    """Append a marker."""
    marker = build_marker(
        producer_id=producer_id,
        producer_epoch=0,
        is_commit=is_commit,
        timestamp_ms=1000,
        coordinator_epoch=coordinator_epoch,
    )
    return log.append(bytearray(marker), now_ms=1000, validate=False)


#: The history of two producers of transactions and a plain one, step by step.
STEPS: Final[tuple[Callable[[PartitionLog], object], ...]] = (
    lambda log: log.append(batch(value=b"plain"), now_ms=1000),
    lambda log: send(log, 7, 0, b"A0", count=2),
    lambda log: end(log, 7, is_commit=True),
    lambda log: send(log, 7, 2, b"a1"),
    lambda log: send(log, 8, 0, b"b1", count=2),
    lambda log: end(log, 8, is_commit=False),
    lambda log: end(log, 7, is_commit=False),
    # A marker that ends nothing: the one before it was sent again.
    lambda log: end(log, 8, is_commit=False),
    lambda log: send(log, 8, 2, b"B0"),
    lambda log: end(log, 8, is_commit=True),
    lambda log: send(log, 7, 3, b"A2"),
    lambda log: send(log, 8, 3, b"b1"),
    lambda log: end(log, 8, is_commit=False),
    lambda log: log.append(batch(value=b"late"), now_ms=1000),
    lambda log: send(log, 7, 4, b"A3"),
    lambda log: end(log, 7, is_commit=True),
    lambda log: log.append(batch(value=b"last"), now_ms=1000),
    lambda log: send(log, 8, 4, b"open"),
)


def transactional_directory(*, is_clean: bool, segment_bytes: int = 400) -> MemoryFileSystem:
    """A broker's directory with such a log; a clean stop has written its state."""
    fs = MemoryFileSystem()
    store = Store.open("/data", fs=fs)
    configs = {**PAGE_CACHE, "segment.bytes": str(segment_bytes)}
    (log,) = store.create_topic("orders", 1, topic_id=TOPIC_ID, configs=configs).partitions
    for step in STEPS:
        step(log)
    log.mark_durable(log.sync())
    if is_clean:
        captured = capture(log)
        settle(captured, write(fs, captured))
    store.close(clean=is_clean)
    return fs


def committed(log: PartitionLog, *, max_bytes: int = 150) -> Iterator[tuple[int, bytes | None]]:
    """Yield the records that a client of `read_committed` gets in fetches of `max_bytes`, behind each hole as well."""
    offset = log.log_start_offset
    while offset < (stable := log.last_stable_offset):
        try:
            views = log.read(offset, max_bytes, up_to=stable)
        except Refused as refused:
            assert refused.code is ErrorCode.CORRUPT_MESSAGE
            offset = next(hole.next_offset for hole in log.holes if hole.next_offset > offset)
            continue
        told = log.aborted_transactions(offset, next_offset_of(views[-1]))[0] if log.has_aborted else []
        aborted = sorted(told, key=lambda entry: entry.first_offset)
        skipped: set[int] = set()
        began = offset
        for view in views:
            for position, header in split_batches(view):
                whole = view[position : position + header.size_bytes]
                while aborted and aborted[0].first_offset <= header.last_offset:
                    skipped.add(aborted.pop(0).producer_id)
                records = list(iterate_records(whole, include_control=True))
                if header.is_control:
                    if is_commit_marker(records[0].key) is False:
                        skipped.discard(header.producer_id)
                elif not (header.is_transactional and header.producer_id in skipped):
                    yield from ((each.offset, each.value) for each in records if each.offset >= offset)
                offset = max(offset, header.next_offset)
        assert offset > began, f"a reader stands still at offset {began}"
