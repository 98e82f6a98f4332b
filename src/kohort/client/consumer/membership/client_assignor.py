"""The assignment that the leader of a classic group computes, with the same assignors as kohort's coordinator.

Laws: each partition of a subscribed topic is assigned to at most one member, which subscribes to it. The result depends
on the arguments alone. Cooperative: a partition that a present member owns is assigned to another only after that
member has joined without it. Until then it has no owner.
Source: Kafka's `range`, `roundrobin` and `cooperative-sticky` assignors; KIP-345 (order of members), KIP-429, KIP-792.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from kohort.assign.assignors import built_in
from kohort.assign.interface import Assignable, AssignableMember
from kohort.assign.kernels import NOBODY
from kohort.assign.ownership import PartitionSpace, spread_owners
from kohort.assign.subscribers import subscribers_by_topic
from kohort.ids import TopicId
from kohort.wire.embedded import Subscription

#: Kafka's cooperative assignor, and the assignor of kohort that computes it.
_COOPERATIVE: Final = ("cooperative-sticky", "sticky")
_GENERATION_BYTES: Final = 4

#: member id -> topic -> ascending partitions.
Assignment = dict[str, dict[str, list[int]]]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMember:
    """A member of the group, as the leader gets it from JoinGroup."""

    member_id: str
    #: Static name; `None` for a dynamic member.
    instance_id: str | None = None
    subscription: Subscription


def assign(name: str, members: Sequence[GroupMember], counts: Mapping[str, int]) -> Assignment:
    """Compute the assignment of a group with an assignor.

    Args:
        name: range, roundrobin or cooperative-sticky.
        members: all members of the group, each once.
        counts: topic -> number of its partitions; topics that do not exist are left out.

    >>> both = [GroupMember(member_id=id, subscription=Subscription(topics=("t",), owned_partitions={})) for id in "ab"]
    >>> assign("range", both, {"t": 3})
    {'a': {'t': [0, 1]}, 'b': {'t': [2]}}
    """
    is_cooperative = name == _COOPERATIVE[0]
    assignor = built_in(_COOPERATIVE[1] if is_cooperative else name)
    assert assignor is not None, f"no assignor {name}"
    ordered = sorted(members, key=lambda member: member.member_id)
    by_topic = subscribers_by_topic([member.subscription.topics for member in ordered])
    topics = sorted(topic for topic in by_topic if counts.get(topic))
    # Clients of before KIP-516 know topics by name only: here a number stands for the id.
    ids = {topic: TopicId(number.to_bytes(16, "big")) for number, topic in enumerate(topics)}
    space = PartitionSpace((ids[topic], counts[topic]) for topic in topics)
    claims = _claims(ordered, ids, space) if is_cooperative else {}
    group = Assignable(
        space=space,
        topic_names=tuple(topics),
        members=tuple(AssignableMember(member_id=each.member_id, instance_id=each.instance_id) for each in ordered),
        subscribers=tuple(by_topic[topic] for topic in topics),
        owner=_owners(claims, ordered, space),
    )
    owner = assignor.assign(group)
    for flat, holders in claims.items():
        # A member that has to give the partition up does so first: the next rebalance hands it on.
        if any(holder != owner[flat] for holder in holders):
            owner[flat] = NOBODY
    spread = spread_owners(space, owner, range(len(ordered)))
    return {
        each.member_id: {topics[space.topics[topic]]: list(numbers) for topic, numbers in spread[number].items()}
        for number, each in enumerate(ordered)
    }


def _claims(members: Sequence[GroupMember], ids: Mapping[str, TopicId], space: PartitionSpace) -> dict[int, list[int]]:
    """Map each partition to the numbers of the members that claim it and still subscribe to its topic."""
    claims: dict[int, list[int]] = {}
    for number, member in enumerate(members):
        wanted = set(member.subscription.topics)
        for topic, partitions in member.subscription.owned_partitions.items():
            for partition in partitions if topic in wanted and topic in ids else ():
                flat = space.flat(ids[topic], partition)
                if flat >= 0 and number not in claims.setdefault(flat, []):
                    claims[flat].append(number)
    return claims


def _owners(claims: Mapping[int, Sequence[int]], members: Sequence[GroupMember], space: PartitionSpace) -> array[int]:
    """Assign each claimed partition to the claim of the newest generation; two equal claims leave it without owner."""
    owner = array("i", [NOBODY]) * len(space)
    generations = [_generation(member.subscription) for member in members]
    for flat, holders in claims.items():
        newest = max(generations[holder] for holder in holders)
        found = [holder for holder in holders if generations[holder] == newest]
        owner[flat] = found[0] if len(found) == 1 else NOBODY
    return owner


def _generation(subscription: Subscription) -> int:
    # Before KIP-792 Kafka's cooperative assignor wrote it into its user data.
    data = subscription.user_data
    if subscription.generation_id < 0 and data is not None and len(data) == _GENERATION_BYTES:
        return int.from_bytes(data, "big", signed=True)
    return subscription.generation_id
