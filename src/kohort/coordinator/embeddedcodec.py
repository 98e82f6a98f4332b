"""What classic members say and are told in the blobs of the consumer protocol, as facts.

Laws: a blob that cannot be read is `None`, never an exception; what is read is bounded before it is kept. Beside the
codecs of records this is the only place of the coordinator that knows the wire.
Source: Kafka's embedded consumer protocol, versions 0 to 3 (KIP-429: owned partitions, KIP-792: their generation,
KIP-881: racks).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kohort.errors import ProtocolError
from kohort.wire import embedded

#: Owned partitions of a subscription that says nothing of its generation, and of a member that owns nothing.
NO_GENERATION: Final = -1

#: Topic name -> partitions.
NamedPartitions = Mapping[str, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedSubscription:
    """What a member wants (`topics` ascending, each once) and what it has, as far as its version can say it."""

    topics: tuple[str, ...]
    owned: NamedPartitions
    generation: int
    rack_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EmbeddedAssignment:
    """What a leader gave to a member; `has_user_data` where its assignor keeps something of its own there."""

    partitions: NamedPartitions
    has_user_data: bool


def read_subscription(blob: bytes) -> EmbeddedSubscription | None:
    """The subscription of a member, `None` if these bytes are none."""
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
    """The assignment of a member, `None` if these bytes are none; no bytes at all give nothing."""
    try:
        found = embedded.decode_assignment(blob)
    except ProtocolError:
        return None
    return EmbeddedAssignment(partitions=found.partitions, has_user_data=bool(found.user_data))


def write_assignment(partitions: Mapping[str, Sequence[int]], *, subscription: bytes) -> bytes:
    """What a member may use, in the version that its `subscription` is written in."""
    version = int.from_bytes(subscription[:2], "big", signed=True)
    return embedded.encode_assignment(partitions, version=max(0, min(version, embedded.NEWEST_VERSION)))


def with_owned(subscription: bytes, partitions: NamedPartitions, *, generation: int) -> bytes:
    """The same subscription of a member that has these partitions since that generation, as far as its version says it.

    Bytes that are none stay as they are.
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
