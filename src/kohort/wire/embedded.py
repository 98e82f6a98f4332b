"""The bytes of classic groups' members in JoinGroup and SyncGroup: subscriptions and assignments.

Laws: bytes of a newer version are read as the newest known version and the rest is ignored, since later versions only
append; bytes that cannot be read raise `RemoteProtocolError`, and longer ones than allowed are not read.
Source: Kafka's consumer protocol, versions 0 to 3 (KIP-429, KIP-792, KIP-881).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeVar

from kohort.base.values import value
from kohort.errors import LocalProtocolError, RemoteProtocolError
from kohort.wire import codec
from kohort.wire.messages import consumer_protocol
from kohort.wire.primitives import Buffer
from kohort.wire.schema import Message

#: The newest version of the consumer protocol that is written.
NEWEST_VERSION: Final = 3
_VERSION_BYTES: Final = 2
#: Longer ones are refused: a subscription of 100,000 topics fits, but a hostile one cannot fill the memory.
BLOB_BYTES_AT_MOST: Final = 16 * 1024 * 1024

T = TypeVar("T", bound=Message)


@value
class Subscription:
    """A member's subscription: its topics, and the partitions that it owns."""

    topics: tuple[str, ...] = ()
    user_data: bytes | None = None
    #: Topic → partitions that the member owns; empty before version 1.
    owned_partitions: Mapping[str, tuple[int, ...]]
    #: The generation in which they were assigned; -1 for none and before version 2.
    generation_id: int = -1
    rack_id: str | None = None


@value
class Assignment:
    """A member's assignment: topic → partitions."""

    partitions: Mapping[str, tuple[int, ...]]
    user_data: bytes | None = None


def encode_subscription(
    topics: Iterable[str],
    *,
    user_data: bytes | None = None,
    owned_partitions: Mapping[str, Sequence[int]] | None = None,
    generation_id: int = -1,
    rack_id: str | None = None,
    version: int = NEWEST_VERSION,
) -> bytes:
    """Encode a member's metadata for JoinGroup; leave out fields that `version` does not have."""
    message = consumer_protocol.ConsumerProtocolSubscription(
        topics=list(topics),
        user_data=user_data,
        owned_partitions=_listed(owned_partitions or {}),
        generation_id=generation_id,
        rack_id=rack_id,
    )
    return _encode(message, version)


def decode_subscription(blob: Buffer) -> Subscription:
    """Decode a member's metadata from JoinGroup."""
    message = _decode(consumer_protocol.ConsumerProtocolSubscription, blob)
    return Subscription(
        topics=tuple(message.topics),
        user_data=message.user_data,
        owned_partitions=_by_topic(message.owned_partitions),
        generation_id=message.generation_id,
        rack_id=message.rack_id,
    )


def encode_assignment(
    partitions: Mapping[str, Sequence[int]], *, user_data: bytes | None = None, version: int = NEWEST_VERSION
) -> bytes:
    """Encode the leader's assignment for one member in SyncGroup."""
    return _encode(
        consumer_protocol.ConsumerProtocolAssignment(assigned_partitions=_listed(partitions), user_data=user_data),
        version,
    )


def decode_assignment(blob: Buffer) -> Assignment:
    """Decode the leader's assignment for a member; an empty blob is an empty assignment."""
    if not len(blob):
        return Assignment(partitions={})
    message = _decode(consumer_protocol.ConsumerProtocolAssignment, blob)
    return Assignment(partitions=_by_topic(message.assigned_partitions), user_data=message.user_data)


def _encode(message: Message, version: int) -> bytes:
    if not 0 <= version <= NEWEST_VERSION:
        raise LocalProtocolError(f"the consumer protocol has the versions 0-{NEWEST_VERSION}, not {version}")
    out = bytearray(version.to_bytes(_VERSION_BYTES, "big"))
    codec.encode_into(message, version, out)
    return bytes(out)


def _decode(cls: type[T], blob: Buffer) -> T:
    if len(blob) < _VERSION_BYTES:
        raise RemoteProtocolError(f"{cls.__name__}: {len(blob)} bytes are too few for a version")
    if len(blob) > BLOB_BYTES_AT_MOST:
        raise RemoteProtocolError(f"{cls.__name__} of {len(blob)} bytes; at most {BLOB_BYTES_AT_MOST} are read")
    version = int.from_bytes(blob[:_VERSION_BYTES], "big", signed=True)
    if version < 0:
        raise RemoteProtocolError(f"{cls.__name__} has the impossible version {version}")
    # Later versions only append fields, so a newer blob reads as the newest known version.
    return codec.decode(cls, min(version, NEWEST_VERSION), blob, _VERSION_BYTES)[0]


def _listed(partitions: Mapping[str, Sequence[int]]) -> list[consumer_protocol.TopicPartition]:
    return [
        consumer_protocol.TopicPartition(topic=topic, partitions=list(numbers)) for topic, numbers in partitions.items()
    ]


def _by_topic(listed: Iterable[consumer_protocol.TopicPartition]) -> dict[str, tuple[int, ...]]:
    """Return the partitions by topic, joining those of a topic that is listed twice."""
    found: dict[str, list[int]] = {}
    for each in listed:
        found.setdefault(each.topic, []).extend(each.partitions)
    return {topic: tuple(numbers) for topic, numbers in found.items()}
