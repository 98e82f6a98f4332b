"""Subscriptions of classic members, and the embedded consumer protocol's bytes (ConsumerProtocolSubscription).

Laws: `None` means "unknown": unreadable bytes, or bytes of another protocol type, never count as "no topics".
Source: Apache Kafka's `ClassicGroup.isSubscribedToTopic`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from kohort.base.values import value
from kohort.coordinator.classic.state import ClassicGroup
from kohort.coordinator.topics import TopicImage
from kohort.errors import ProtocolError
from kohort.wire import embedded

#: Protocol type of consumers, whose metadata names their topics; Kafka Connect and others have their own.
CONSUMER_PROTOCOL_TYPE: Final = "consumer"


def topics_of(group: ClassicGroup) -> set[str] | None:
    """Return every topic that any member subscribes to, in any of its protocols; `None` if unknown."""
    if group.members and group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    topics: set[str] = set()
    for member in group.members.values():
        for _, metadata in member.protocols:
            found = read_subscription(metadata)
            if found is None:
                return None
            topics.update(found.topics)
    return topics


def leads_unaware(group: ClassicGroup, member_id: str, image: TopicImage | None) -> bool:
    """Return whether a returned leader may miss a change of topics that happened in its absence.

    The leader compares topics only from now on, so the coordinator checks that the assignments cover all existing
    partitions. If the leader's assignor leaves out partitions on purpose, the group therefore rebalances whenever the
    leader returns or repeats its SyncGroup.
    """
    if group.leader != member_id or image is None or not image.version:
        return False
    topics = topics_of(group)
    given = [read_assignment(each.assignment) for each in group.members.values()]
    if topics is None:
        return False
    owned: set[tuple[str, int]] = set()
    for found in given:
        if found is None:
            return False
        owned.update((topic, number) for topic, numbers in found.partitions.items() for number in numbers)
    there = {
        (name, number)
        for name in topics
        if (known_topic := image.by_name.get(name)) is not None
        for number in range(known_topic.partition_count)
    }
    return owned != there


# Subscriptions and assignments of classic members, read from the blobs of the consumer protocol.
#
# Laws: an unreadable blob is `None`, never an exception; its content is bounded before it is kept. Beside the codecs of
# records this is the only place of the coordinator that knows the wire.
# Source: Kafka's embedded consumer protocol, versions 0 to 3 (KIP-429: owned partitions, KIP-792: their generation,
# KIP-881: racks).

#: Generation of a subscription that names none, and of a member without partitions.
NO_GENERATION: Final = -1

#: Topic name -> partitions.
NamedPartitions = Mapping[str, tuple[int, ...]]


@value
class EmbeddedSubscription:
    """A member's topics (ascending, each once), and owned partitions if the subscription's version has them."""

    topics: tuple[str, ...]
    owned: NamedPartitions
    generation: int
    rack_id: str | None


@value
class EmbeddedAssignment:
    """A member's assignment by the leader; `has_user_data`: the assignor's UserData is not empty."""

    partitions: NamedPartitions
    has_user_data: bool


def read_subscription(blob: bytes) -> EmbeddedSubscription | None:
    """Decode the subscription of a member; `None` if the bytes cannot be decoded as one."""
    try:
        found = embedded.decode_subscription(blob)
    except ProtocolError:
        return None
    return EmbeddedSubscription(
        topics=tuple(sorted(set(found.topics))),
        owned=found.owned_partitions,
        generation=found.generation_id,
        rack_id=found.rack_id or None,
    )


def read_assignment(blob: bytes) -> EmbeddedAssignment | None:
    """Decode the assignment of a member; `None` if unreadable. Empty bytes assign no partition."""
    try:
        found = embedded.decode_assignment(blob)
    except ProtocolError:
        return None
    return EmbeddedAssignment(partitions=found.partitions, has_user_data=bool(found.user_data))


def write_assignment(partitions: Mapping[str, Sequence[int]], *, subscription: bytes) -> bytes:
    """Encode an assignment in the version of the member's `subscription`."""
    version = int.from_bytes(subscription[:2], "big", signed=True)
    return embedded.encode_assignment(partitions, version=max(0, min(version, embedded.NEWEST_VERSION)))


def with_owned(subscription: bytes, partitions: NamedPartitions, *, generation: int) -> bytes:
    """Replace owned partitions and generation in a subscription, if its version has these fields.

    Bytes that cannot be decoded as a subscription are returned unchanged.
    """
    version = int.from_bytes(subscription[:2], "big", signed=True)
    try:
        found = embedded.decode_subscription(subscription)
    except ProtocolError:
        return subscription
    owned = {topic: numbers for topic, numbers in partitions.items() if numbers}
    if version < 1 or (dict(found.owned_partitions) == owned and found.generation_id == generation):
        return subscription
    return embedded.encode_subscription(
        found.topics,
        user_data=found.user_data,
        owned_partitions=owned,
        generation_id=generation,
        rack_id=found.rack_id,
        version=min(version, embedded.NEWEST_VERSION),
    )
