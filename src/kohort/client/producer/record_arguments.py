"""The arguments of `Producer.send`, checked in the caller's thread, where the traceback is useful.

Laws: a checked value fits into a batch and a request. Any other one would fail far from its cause, and with it the
records of other calls.
Source: Kafka's record format and protocol: text is UTF-8, a timestamp an int64 that is not negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kohort.client.arguments import INT32_MAX, INT64_MAX, encode, to_topic, whole_number
from kohort.client.producer.record_future import Headers

#: Types of keys and values without a serializer.
Payload = bytes | bytearray | memoryview | str | None

_HEADERS_EXPECTED: Final = "pairs of a name and bytes are expected, like [('trace', b'1')]"


def check_topic(topic: object) -> None:
    """Check that a topic's name is text; the broker decides whether it may be a topic's."""
    to_topic(topic, "send('orders', ...)")


def check_partition(partition: object) -> int:
    """Check a partition's number."""
    return whole_number(partition, "partition", "the number of a partition, 0 or above,", INT32_MAX)


def check_timestamp(timestamp_ms: object) -> int:
    """Check a timestamp, milliseconds since 1970."""
    return whole_number(timestamp_ms, "timestamp_ms", "a whole number of milliseconds since 1970", INT64_MAX)


def to_bytes(payload: object, what: str) -> bytes | None:
    """Encode a key, a value or the value of a header; text as UTF-8."""
    if payload is None or payload.__class__ is bytes:
        return payload
    if isinstance(payload, str):
        return encode(payload, what)
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload)
    raise TypeError(f"{what} is a {type(payload).__name__}: bytes, text or None is expected; serialise it first")


def to_column(payloads: object, what: str) -> list[Any]:
    """Check keys or values of many records, a list."""
    if isinstance(payloads, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(payloads, Iterable):
        raise TypeError(f"{what} cannot be a {type(payloads).__name__}: a list is expected, like [b'a', b'b']")
    return list(payloads)


def to_times(timestamps: object) -> list[int] | int | None:
    """Check the timestamps of many records, or one for all."""
    if timestamps is None or hasattr(timestamps, "__index__"):
        return None if timestamps is None else check_timestamp(timestamps)
    return [check_timestamp(each) for each in to_column(timestamps, "timestamps")]


def to_headers(headers: object) -> Headers:
    """Check headers, pairs or a mapping, and encode their values."""
    if isinstance(headers, Mapping):
        headers = headers.items()
    if isinstance(headers, (str, bytes)) or not isinstance(headers, Iterable):
        raise TypeError(f"headers cannot be {headers!r}: {_HEADERS_EXPECTED}")
    pairs = []
    for pair in headers:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise TypeError(f"headers cannot hold {pair!r}: {_HEADERS_EXPECTED}")
        name, content = pair
        encode(name, "the name of a header")
        pairs.append((name, to_bytes(content, f"header {name}")))
    return tuple(pairs)
