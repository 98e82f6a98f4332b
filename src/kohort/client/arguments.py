"""Checks of the arguments of client calls, in the caller's thread, so that the traceback shows the caller's line.

Laws: a checked argument can be sent to a broker; an unchecked one might fail in the background and end the client. The
types of other Python clients are accepted: anything with a topic and a partition, lists of partitions with offsets.
Source: Kafka's protocol: text is UTF-8, partitions are int32, offsets and timestamps int64.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, NamedTuple

from kohort.client.records import Committable, OffsetAndMetadata
from kohort.errors import ConfigError
from kohort.ids import TopicPartition

INT32_MAX: Final = 2**31 - 1
INT64_MAX: Final = 2**63 - 1
#: Most characters of a topic's name that a broker accepts.
_TOPIC_LENGTH: Final = 249
#: Longest text of the protocol, in bytes.
_TEXT_BYTES: Final = 2**15 - 1
#: librdkafka's special offsets: stored (committed) and invalid (unset); end and beginning.
_UNSAID: Final = (-1000, -1001)
_ENDS: Final = (-1, -2)
_ONE: Final = "TopicPartition('orders', 0)"
#: Thirty years; longer times exceed the units of clocks.
_LONGEST_S: Final = 1e9


def whole_number(value: object, name: str, expected: str, maximum: int, *, minimum: int = 0) -> int:
    """Check an integer from `minimum` to `maximum`; raise `ConfigError` for anything else."""
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise ConfigError(f"{name} cannot be {value!r}: {expected} is expected")
    number = value.__index__()
    if not minimum <= number <= maximum:
        raise ConfigError(f"{name} cannot be {number}: {expected} is expected")
    return int(number)


def to_topic(topic: object, call: str) -> str:
    """Check a topic's name; `call` shows how it is given."""
    if not isinstance(topic, str):
        raise TypeError(f"topic must be text, not {type(topic).__name__}: {call}")
    if not 0 < len(topic) <= _TOPIC_LENGTH:
        raise ConfigError(f"topic has {len(topic)} characters: 1 to {_TOPIC_LENGTH} are expected")
    encode(topic, "topic")
    return topic


def to_topics(topics: object) -> tuple[str, ...]:
    """Check several topics' names; one text stands for one of them."""
    if isinstance(topics, bytes) or not isinstance(topics, Iterable):
        raise TypeError(f"topics cannot be {topics!r}: names are expected, like ['orders']")
    return tuple(to_topic(topic, "['orders']") for topic in ([topics] if isinstance(topics, str) else topics))


def to_names(names: object, what: str) -> list[str]:
    """Check several names; a single text is refused, since it would be read as a list of its letters."""
    if isinstance(names, str | bytes) or not isinstance(names, Iterable):
        raise TypeError(f"{what} cannot be {names!r}: a list of names is expected, like [{names!r}]")
    found = list(names)
    for name in found:
        if not isinstance(name, str):
            raise TypeError(f"{what} cannot have {name!r}: a name is text")
    return found


def encode(text: str, what: str) -> bytes:
    """Encode text as UTF-8; raise `ConfigError` if that cannot be."""
    try:
        return text.encode()
    except UnicodeEncodeError as why:
        raise ConfigError(f"{what} is text that UTF-8 cannot carry ({why.reason}); send bytes instead") from None


def to_partition(value: object) -> TopicPartition:
    """Check one partition: a `TopicPartition`, a pair of topic and number, or another client's type."""
    match value:
        case (topic, number):
            pass
        case _ if hasattr(value, "topic") and hasattr(value, "partition"):
            topic, number = value.topic, value.partition
        case _:
            raise TypeError(f"{value!r} is no partition: {_ONE} is expected")
    checked = whole_number(number, "partition", "the number of a partition, 0 or above,", INT32_MAX)
    return TopicPartition(to_topic(topic, _ONE), checked)


def to_partitions(values: object) -> tuple[TopicPartition, ...]:
    """Check several partitions, and keep their order."""
    return tuple(to_partition(value) for value in _several(values))


def _several(values: object) -> Iterable[object]:
    if isinstance(values, (str, bytes)) or is_partition(values) or not isinstance(values, Iterable):
        raise TypeError(f"partitions cannot be {values!r}: a list of them is expected, like [{_ONE}]")
    return values


class Beginning(NamedTuple):
    """The position at which to begin reading: an offset, or a timestamp (-2: the beginning, -1: the end).

    Both are `None` if the application has not given a position.
    """

    offset: int | None = None
    timestamp: int | None = None


def to_beginning(value: object) -> Beginning:
    """Read the position at which to begin from another client's partition with an offset, or from a record."""
    offset = getattr(value, "offset", None)
    if offset is None or offset in _UNSAID:
        return Beginning()
    return Beginning(timestamp=int(offset)) if offset in _ENDS else Beginning(offset=to_offset(offset))


def to_beginnings(values: object) -> dict[TopicPartition, Beginning]:
    """Check several partitions, each with the position at which to begin."""
    return {to_partition(value): to_beginning(value) for value in _several(values)}


def to_offset(value: object) -> int:
    """Check an offset; a record stands for its own."""
    return whole_number(getattr(value, "offset", value), "offset", "a whole number, 0 or above,", INT64_MAX)


def to_committable(value: object) -> Committable:
    """Check an offset to commit, with metadata if it has some."""
    offset = to_offset(value)
    metadata, epoch = getattr(value, "metadata", None), getattr(value, "leader_epoch", None)
    if metadata is None and epoch is None:
        return offset
    if not isinstance(metadata or "", str):
        raise TypeError(f"metadata must be text, not {type(metadata).__name__}: OffsetAndMetadata(5, 'half of it')")
    if len(encode(metadata or "", "metadata")) > _TEXT_BYTES:
        raise ConfigError(f"metadata has more than {_TEXT_BYTES} bytes; 4096 at most are expected by most brokers")
    known = -1 if epoch is None else whole_number(epoch, "leader_epoch", "an epoch, or -1,", INT32_MAX, minimum=-1)
    return OffsetAndMetadata(offset, metadata or "", known)


def to_offsets(values: object) -> dict[TopicPartition, Committable]:
    """Check the offsets of a commit, and return them by partition.

    They are a mapping; or one record or several, each of which stands for its offset + 1; or a list of another client's
    partitions with offsets.
    """
    if isinstance(values, Mapping):
        return {to_partition(partition): to_committable(offset) for partition, offset in values.items()}
    if _is_record(values):
        values = [values]
    if isinstance(values, (str, bytes, tuple)) or not isinstance(values, Iterable):
        raise TypeError(f"offsets cannot be {values!r}: a mapping is expected, like {{{_ONE}: 5}}")
    chosen: dict[TopicPartition, Committable] = {}
    for value in values:
        if not hasattr(value, "offset"):
            raise TypeError(f"an offset cannot be {value!r}: a mapping is expected, like {{{_ONE}: 5}}")
        chosen[to_partition(value)] = _behind(value) if _is_record(value) else to_committable(value)
    return chosen


def _is_record(value: object) -> bool:
    return all(hasattr(value, name) for name in ("topic", "partition", "offset", "value"))


def _behind(record: object) -> OffsetAndMetadata:
    return OffsetAndMetadata(to_offset(record) + 1, "", getattr(record, "leader_epoch", -1))


def is_partition(value: object) -> bool:
    """Return whether a value is one partition, not several."""
    return hasattr(value, "topic") and hasattr(value, "partition")


def to_timestamps(values: object) -> dict[TopicPartition, int]:
    """Check timestamps by partition, ms since 1970; -1 and -2 stand for the end and the beginning."""
    if not isinstance(values, Mapping):
        raise TypeError(f"timestamps cannot be {values!r}: a mapping is expected, like {{{_ONE}: 1700000000000}}")
    return {to_partition(each): to_time(value, minimum=-2) for each, value in values.items()}


def to_time(value: object, *, minimum: int) -> int:
    """Check a timestamp, milliseconds since 1970."""
    return whole_number(value, "timestamp", "a whole number of milliseconds since 1970", INT64_MAX, minimum=minimum)


def to_seconds(value: object, name: str = "timeout") -> float:
    """Check a timeout, seconds."""
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 <= value < math.inf:
        raise ConfigError(f"{name} cannot be {value!r}: seconds, 0 or more, are expected")
    return float(min(value, _LONGEST_S))


def to_callback(value: object, name: str) -> Callable[..., Any] | None:
    """Check a function to call; `None` is accepted as no function."""
    if value is not None and not callable(value):
        raise TypeError(f"{name} cannot be {value!r}: a function is expected")
    return value


def to_several(values: object, what: str, example: str) -> list[object]:
    """Check an argument that takes any number of values; a single one, a text and a mapping are refused."""
    if isinstance(values, (str, bytes, Mapping)) or not isinstance(values, Iterable):
        raise TypeError(f"{what} cannot be {values!r}: a list is expected, like {example}")
    return list(values)
