"""What `Producer.send` is given, checked in the caller's thread, where the traceback shows the line that is wrong.

Laws: what passes here can be put into a batch and a request; a value that could not would fail far from its cause, and
take the records of others with it.
Source: Kafka's record format and protocol: text is UTF-8, a timestamp an int64 that is not negative.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kohort.client.arguments import INT32_MAX, INT64_MAX, encode, to_topic, whole_number
from kohort.client.producer.record_future import Headers

#: What may be sent as key or value.
Payload = bytes | bytearray | memoryview | str | None

_HEADERS_EXPECTED: Final = "pairs of a name and bytes are expected, like [('trace', b'1')]"


def check_topic(topic: object) -> None:
    """Refuse what is no name at all; whether it may be one for a topic is the broker's to say."""
    to_topic(topic, "send('orders', ...)")


def check_partition(partition: object) -> int:
    """A partition's number."""
    return whole_number(partition, "partition", "the number of a partition, 0 or above,", INT32_MAX)


def check_timestamp(timestamp_ms: object) -> int:
    """Milliseconds since 1970."""
    return whole_number(timestamp_ms, "timestamp_ms", "a whole number of milliseconds since 1970", INT64_MAX)


def to_bytes(payload: object, what: str) -> bytes | None:
    """Key, value or the value of a header as it travels; text as UTF-8."""
    if payload is None or payload.__class__ is bytes:
        return payload
    if isinstance(payload, str):
        return encode(payload, what)
    if isinstance(payload, (bytes, bytearray, memoryview)):
        return bytes(payload)
    raise TypeError(f"{what} is a {type(payload).__name__}: bytes, text or None is expected; serialise it first")


def to_column(payloads: object, what: str) -> list[Any]:
    """Keys or values of many records."""
    if isinstance(payloads, (str, bytes, bytearray, memoryview, Mapping)) or not isinstance(payloads, Iterable):
        raise TypeError(f"{what} cannot be a {type(payloads).__name__}: a list is expected, like [b'a', b'b']")
    return list(payloads)


def to_times(timestamps: object) -> list[int] | int | None:
    """Times of many records, or one for all."""
    if timestamps is None or hasattr(timestamps, "__index__"):
        return None if timestamps is None else check_timestamp(timestamps)
    return [check_timestamp(each) for each in to_column(timestamps, "timestamps")]


def to_headers(headers: object) -> Headers:
    """Headers as they travel, of pairs or of a mapping."""
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
