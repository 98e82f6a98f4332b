# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
# ruff: noqa: PLR0917 - kernels take their arguments by position, as a compiled call does
"""The loop that puts records into the batches of their partitions: ordinary Python that can be compiled.

Laws: it does what `Accumulator.add` does, for as long as nothing has to be begun, closed or refused.
Source: architecture rule 16; Kafka's RecordAccumulator.
"""

from __future__ import annotations

from typing import Any

from kohort.records.build_kernels import murmur2


def place(
    records: list[Any],
    start: int,
    topic: str,
    filling: list[Any],
    count: int,
    turn: int,
    turn_bytes: int,
    batch_bytes: int,
    limit_bytes: int,
) -> tuple[int, int]:
    """Put records of one topic, from `start` on, into batches.

    Args:
        records: those of other topics are left, and so is all that is behind one.
        filling: partition -> the batch that takes records, or `None`; at least `count`.
        count: of partitions.
        turn: partition of records without a key, and without a partition of their own; -1 if it is not their rule.
        turn_bytes: how many bytes that one gets until the next has its turn.
        batch_bytes: a batch that reaches this may leave.
        limit_bytes: no batch grows above this.

    Returns:
        The first record that was not placed, and how many bytes are left of the turn. The one in front of it may have
        filled its batch to `batch_bytes`.
    """
    stop = len(records)
    while start < stop:
        record = records[start]
        if record.topic != topic:
            break
        size = record.size_bytes
        partition = record.partition
        key = record.key
        if partition is not None:
            number = partition
        elif turn < 0 or (key is None and turn_bytes <= 0):
            break
        else:
            number = turn if key is None else (murmur2(key) & 0x7FFFFFFF) % count
        if number >= count:
            break
        batch = filling[number]
        if batch is None:
            break
        before = batch.size_bytes
        if before + size > limit_bytes:
            break
        if partition is None and key is None:
            turn_bytes -= size
        placed = batch.records
        record.end = batch.end
        record.index = len(placed)
        placed.append(record)
        batch.size_bytes = before + size
        start += 1
        if before < batch_bytes <= before + size:
            break
    return start, turn_bytes
