"""What `Producer.send` is given, checked in the caller's thread, where the traceback shows the line that is wrong.

Laws: what passes here can be put into a batch and a request; a value that could not would fail far from its cause, and
take the records of others with it.
Source: Kafka's record format and protocol: text is UTF-8, a timestamp an int64 that is not negative.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kohort.client.produce.inbox import Headers
from kohort.errors import ConfigError

#: What may be sent as key or value.
Payload = bytes | bytearray | memoryview | str | None

_INT32_MAX: Final = 2**31 - 1
_INT64_MAX: Final = 2**63 - 1
#: Longest name of a topic that a broker takes.
_TOPIC_LENGTH: Final = 249
_HEADERS_EXPECTED: Final = "pairs of a name and bytes are expected, like [('trace', b'1')]"


def check_topic(topic: object) -> None:
    """Refuse what is no name at all; whether it may be one for a topic is the broker's to say."""
    if not isinstance(topic, str):
        raise TypeError(f"topic must be text, not {type(topic).__name__}: send('orders', ...)")
    if not 0 < len(topic) <= _TOPIC_LENGTH:
        raise ConfigError(f"topic has {len(topic)} characters: 1 to {_TOPIC_LENGTH} are expected")
    _encode(topic, "topic")


def check_partition(partition: object) -> int:
    """A partition's number."""
    return _whole_number(partition, "partition", "the number of a partition, 0 or above,", _INT32_MAX)


def check_timestamp(timestamp_ms: object) -> int:
    """Milliseconds since 1970."""
    return _whole_number(timestamp_ms, "timestamp_ms", "a whole number of milliseconds since 1970", _INT64_MAX)


def _whole_number(value: object, name: str, expected: str, maximum: int) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigError(f"{name} cannot be {value!r}: {expected} is expected")
    number = value.__index__()
    if not 0 <= number <= maximum:
        raise ConfigError(f"{name} cannot be {number}: {expected} is expected")
    return int(number)


def to_bytes(payload: object, what: str) -> bytes | None:
    """Key, value or the value of a header as it travels; text as UTF-8."""
    if payload is None or isinstance(payload, bytes):
        return payload
    if isinstance(payload, str):
        return _encode(payload, what)
    if isinstance(payload, (bytearray, memoryview)):
        return bytes(payload)
    raise TypeError(f"{what} is a {type(payload).__name__}: bytes, text or None is expected; serialise it first")


def to_headers(headers: object) -> Headers:
    """Headers as they travel."""
    if isinstance(headers, (str, bytes, dict)) or not isinstance(headers, Iterable):
        raise TypeError(f"headers cannot be {headers!r}: {_HEADERS_EXPECTED}")
    pairs = []
    for pair in headers:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2 or not isinstance(pair[0], str):
            raise TypeError(f"headers cannot hold {pair!r}: {_HEADERS_EXPECTED}")
        name, content = pair
        _encode(name, "the name of a header")
        pairs.append((name, to_bytes(content, f"header {name}")))
    return tuple(pairs)


def _encode(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as why:
        raise ConfigError(f"{what} is text that UTF-8 cannot carry ({why.reason}); send bytes instead") from None
