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
    """Kafka's variant of the 32-bit hash, unsigned.

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
    """What `kind(topic, key, value, timestamp_ms, size_bytes)` makes, hidden from the garbage collector.

    It refers to nothing that refers to it; before it does, `show_record` has to be called.
    """
    record = new_hidden(kind)
    record.topic = topic
    record.key = key
    record.value = value
    record.timestamp_ms = timestamp_ms
    record.size_bytes = size_bytes
    return record


def new_plain_record(
    kind: type, topic: str, key: object, value: object, timestamp_ms: int, overhead_bytes: int, limit_bytes: int
) -> Any:
    """A record of bytes; `None` if key or value are anything else, or it is too large.

    Args:
        overhead_bytes: what a record takes beside key and value.
        limit_bytes: the most that it may take in all.
    """
    size = overhead_bytes
    if key is not None:
        if type(key) is not bytes:
            return None
        size += len(key)
    if value is not None:
        if type(value) is not bytes:
            return None
        size += len(value)
    if size > limit_bytes:
        return None
    return new_record(kind, topic, key, value, timestamp_ms, size)


def show_record(record: object) -> None:
    """It may refer to anything from now on."""
    show(record)
