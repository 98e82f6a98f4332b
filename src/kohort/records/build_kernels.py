# cython: boundscheck=False, wraparound=False, initializedcheck=False, annotation_typing=False
# ruff: noqa: PLR0917, F403, F405 - kernels take their arguments by position, as a compiled call does; the star is explained
"""The loops that write records into batches: ordinary Python that can be compiled.

Laws: the caller has made room, 36 bytes a record beside what it carries; keys, values and tails are `bytes` or `None`
and nothing else. A record that is hidden from the garbage collector refers to text, bytes, numbers and the end that it
shares, none of which leads back to it.
Source: Apache Kafka's record format, magic 2 (KIP-98); architecture rule 16.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

# By a star, because the compiled form has functions of C in their place, and a name may not be both.
from kohort.records.build_parts import *


def murmur2(data: bytes) -> int:
    """Compute Kafka's variant of the 32-bit murmur hash, unsigned.

    >>> hex(murmur2(b"21"))
    '0xc5f2f8ec'
    """
    return murmur(data)


def write_records(
    records: Any,
    index: int,
    base_time: int,
    out: bytearray,
    position: int,
    encode_headers: Callable[[Any], bytes],
) -> tuple[int, int]:
    """Write records behind each other, and take keys and values off them.

    Args:
        records: each with key, value, timestamp_ms and headers.
        index: place of the first in its batch.
        base_time: what times count from, milliseconds.
        position: where the first begins.
        encode_headers: makes bytes of headers, their number in front.

    Returns:
        The byte behind the last one, and the latest time.
    """
    latest = base_time
    for record in records:
        time = record.timestamp_ms
        latest = max(latest, time)
        headers = record.headers
        tail = encode_headers(headers) if headers else b"\x00"
        position = put_record(out, position, time - base_time, index, record.key, record.value, tail)
        record.key = None
        record.value = None
        index += 1
    return position, latest


def new_record(
    kind: type, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int, size_bytes: int
) -> Any:
    """Make `kind(topic, key, value, timestamp_ms, size_bytes)`, hidden from the garbage collector.

    The record is part of no reference cycle; call `show_record` before it becomes part of one.
    """
    record = new_hidden(kind)
    record.topic = topic
    record.key = key
    record.value = value
    record.timestamp_ms = timestamp_ms
    record.size_bytes = size_bytes
    return record


def show_record(record: object) -> None:
    """Show a record to the garbage collector; it may refer to anything from now on."""
    show(record)


def spread_rows(
    keys: list[bytes | None] | None, partitions: list[int | None] | None, stop: int, count: int, turn: int
) -> list[list[int]]:
    """Spread rows over partitions: to their own, else by their key, else to `turn`.

    Args:
        keys: of the rows, `None` if no row has one.
        partitions: those that rows name themselves, `None` if none does.
        stop: number of rows.
        count: of partitions.

    Returns:
        For each partition its rows, ascending; empty if a row names a partition that is not there.

    Raises:
        IndexError: a list has fewer rows than `stop`, or `turn` is no partition.
    """
    # Compiled, nothing below looks at a length.
    is_short = (keys is not None and len(keys) < stop) or (partitions is not None and len(partitions) < stop)
    if is_short or (stop > 0 and (turn < 0 or turn >= count)):
        raise IndexError("a list is shorter than the number of rows, or the turn is no partition")
    spread: list[list[int]] = [[] for _ in range(count)]
    for row in range(stop):
        number = turn
        partition = None if partitions is None else partitions[row]
        if partition is not None:
            number = partition
            if number < 0 or number >= count:
                return []
        elif keys is not None:
            key = keys[row]
            if key is not None:
                number = (murmur2(key) & 0x7FFFFFFF) % count
        spread[number].append(row)
    return spread


def measure_rows(
    keys: list[bytes | None] | None,
    values: list[bytes | None],
    tails: list[bytes] | None,
    rows: list[int] | None,
    position: int,
    stop: int,
    overhead_bytes: int,
    limit_bytes: int,
) -> tuple[int, int]:
    """Return the end of the rows that fit, at least one, and their size; see `RECORD_OVERHEAD_BYTES`.

    Args:
        rows: the rows to measure; `None` means those from `position` to `stop` themselves.
        tails: encoded headers of each row.
        overhead_bytes: bytes of a row beside key, value and tail.
    """
    total = 0
    begin = position
    while position < stop:
        row = position if rows is None else rows[position]
        size = overhead_bytes
        value = values[row]
        if value is not None:
            size += len(value)
        if keys is not None:
            key = keys[row]
            if key is not None:
                size += len(key)
        if tails is not None:
            size += len(tails[row])
        if total + size > limit_bytes and position > begin:
            break
        total += size
        position += 1
    return position, total


def write_rows(
    keys: list[bytes | None] | None,
    values: list[bytes | None],
    times: list[int] | None,
    tails: list[bytes] | None,
    tail: bytes,
    rows: list[int] | None,
    position: int,
    stop: int,
    base_time: int,
    out: bytearray,
    at: int,
) -> tuple[int, int]:
    """Write rows as the first records of a batch; the byte behind the last one, and the latest time.

    Args:
        times: of each row, `None` means the base time for all.
        tail: of every row, where there are no `tails`.
    """
    latest = base_time
    time = base_time
    index = 0
    while position < stop:
        row = position if rows is None else rows[position]
        if times is not None:
            time = times[row]
            latest = max(latest, time)
        key = None if keys is None else keys[row]
        if tails is not None:
            tail = tails[row]
        at = put_record(out, at, time - base_time, index, key, values[row], tail)
        position += 1
        index += 1
    return at, latest


def first_unfit(payloads: list[Any], limit_bytes: int) -> int:
    """Return the place of the first payload that is not `None` or `bytes` of that length; -1: none."""
    for place in range(len(payloads)):
        payload = payloads[place]
        if payload is not None and (type(payload) is not bytes or len(payload) > limit_bytes):
            return place
    return -1
