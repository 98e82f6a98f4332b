"""Types of names and numbers that identify groups, members, topics, partitions and requests."""

from __future__ import annotations

import os
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable
from typing import Final, NamedTuple, NewType

GroupId = NewType("GroupId", str)
MemberId = NewType("MemberId", str)
#: 16 raw bytes; `ZERO_TOPIC_ID` means "none".
TopicId = NewType("TopicId", bytes)
#: Identifies one input (request, deadline, change of topics) and all effects that it caused.
CauseId = NewType("CauseId", int)
#: Identifies one request, to which the response is sent, as the cause of its effects; opaque to code without I/O.
RequestToken = NewType("RequestToken", CauseId)

ZERO_TOPIC_ID: Final = TopicId(bytes(16))
#: Kafka's names of internal topics.
OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTIONS_TOPIC: Final = "__transaction_state"
JOURNAL_TOPIC: Final = "__group_journal"
#: Topics that are a broker's own.
INTERNAL_TOPICS: Final = frozenset({OFFSETS_TOPIC, TRANSACTIONS_TOPIC, JOURNAL_TOPIC})


class TopicPartition(NamedTuple):
    """A partition, by its topic's name and its number.

    >>> str(TopicPartition("orders", 3))
    'orders-3'
    """

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def format_topic_id(topic_id: bytes) -> str:
    """Format a topic id in base64 as Kafka prints it: 22 characters, URL-safe, no padding."""
    return urlsafe_b64encode(topic_id).rstrip(b"=").decode("ascii")


def parse_topic_id(text: str) -> TopicId:
    """Parse text of `format_topic_id`; `ValueError` if it is not 16 bytes in base64."""
    raw = urlsafe_b64decode(text + "=" * (-len(text) % 4))
    if len(raw) != 16:
        raise ValueError(f"{text!r} is not a topic id: 22 base64 characters are expected")
    return TopicId(raw)


def random_uuid() -> bytes:
    """Make a random UUID of version 4, as `uuid.uuid4` does."""
    # The module `uuid` takes three milliseconds of each start to look how the platform makes others.
    drawn = bytearray(os.urandom(16))
    drawn[6] = drawn[6] & 0x0F | 0x40
    drawn[8] = drawn[8] & 0x3F | 0x80
    return bytes(drawn)


def format_uuid(uuid: bytes) -> str:
    """Format a UUID in hexadecimal digits with dashes."""
    digits = uuid.hex()
    return "-".join((digits[:8], digits[8:12], digits[12:16], digits[16:20], digits[20:]))


def java_string_hash(text: str) -> int:
    """Compute Java's `String.hashCode` as a signed 32-bit number, over UTF-16 code units."""
    value = 0
    if text.isascii():
        units: Iterable[int] = text.encode("ascii")
    else:
        encoded = text.encode("utf-16-be", "surrogatepass")
        units = (high << 8 | low for high, low in zip(encoded[::2], encoded[1::2], strict=True))
    for unit in units:
        value = (31 * value + unit) & 0xFFFFFFFF
    return value - (1 << 32) if value >= 1 << 31 else value


def coordinator_partition(group: str, partition_count: int) -> int:
    """Return the partition of `__consumer_offsets` that holds `group`.

    Source: Kafka takes the absolute value of the hash, and 0 for the one value that has none.
    """
    hashed = java_string_hash(group)
    return (0 if hashed == -(1 << 31) else abs(hashed)) % partition_count


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Group partitions by topic, all in order."""
    found: dict[str, list[int]] = {}
    for topic, partition in sorted(partitions):
        found.setdefault(topic, []).append(partition)
    return found
