# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
# ruff: noqa: PLR0917 - kernels take their arguments by position, as a compiled call does
"""The loop that puts records into batches: ordinary Python that can be compiled.

Laws: it does the work of `Accumulator.add`, until a batch has to be begun or closed, or a record refused.
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
        records: the first record of another topic ends the run.
        start: the first record to place.
        topic: of the run.
        filling: partition -> the batch that takes records, or `None`; at least `count`.
        count: of partitions.
        turn: partition of records without a key and a partition of their own; -1 if another rule chooses.
        turn_bytes: bytes that this partition gets until the next has its turn.
        batch_bytes: a batch that reaches this may be sent.
        limit_bytes: no batch grows above this.

    Returns:
        The first record left over, and the bytes left of the turn. The record before it may have filled its batch.
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
