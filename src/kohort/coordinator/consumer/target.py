"""The target assignment of a KIP-848 group: when it is due and what it is.

Laws: a target covers every partition of every topic that a member subscribes to, each exactly once. Only members whose
target differs get a record.
Source: KIP-848 (target assignment); KIP-1263 (assignment interval). Unlike Apache Kafka, a target that the interval
holds back is computed by a timer, not by whoever heartbeats next.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping
from hashlib import blake2b
from typing import Final

from kohort.assign.kernels import NOBODY
from kohort.assign.ownership import PartitionSpace, changed_members, gather_owners, spread_owners
from kohort.assign.uniform import assign_heterogeneous, assign_homogeneous
from kohort.coordinator.consumer.subscription import names_in, topics_of
from kohort.coordinator.decision import Arm, Disarm, Effect, TimerKey
from kohort.coordinator.model import NO_TARGET, ConsumerGroup
from kohort.coordinator.records import MemberTargetSet, Record, TargetAssignmentEpochSet
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.topics import TopicFacts, TopicImage
from kohort.ids import TopicId

#: member id -> the topics that it subscribes to, in the state that a decision leads to.
Subscriptions = Mapping[str, tuple[str, ...]]

_EMPTY: Final[tuple[str, ...]] = ()


def subscriptions_of(
    group: ConsumerGroup, *, member_id: str = "", names: tuple[str, ...] = _EMPTY, without: Collection[str] = ()
) -> dict[str, tuple[str, ...]]:
    """What members subscribe to once `member_id` subscribes to `names` and the members in `without` are gone."""
    found = {member.member_id: topics_of(group, member) for member in group.members.values()}
    for gone in without:
        found.pop(gone, None)
    if member_id:
        found[member_id] = names
    return found


def hash_topics(image: TopicImage, names: Collection[str]) -> int:
    """What of `image` concerns a group that subscribes to `names`, as one signed 64-bit number.

    Kafka compares such a hash, too, but never across brokers: the function is ours.
    """
    digest = blake2b(digest_size=8)
    for name in sorted(names):
        facts = image.by_name.get(name)
        if facts is not None:
            digest.update(facts.topic_id)
            digest.update(f"{facts.partition_count} {name}\n".encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


def assignment_key(group_id: str) -> TimerKey:
    """The deadline at which a group's target is computed."""
    return TimerKey("assignment", group_id)


def target_due_ms(group: ConsumerGroup, settings: GroupSettings) -> int:
    """The earliest time at which the target may be computed again."""
    interval_ms = settings.group_consumer_assignment_interval_ms
    return group.target_timestamp_ms + interval_ms if group.target_timestamp_ms and interval_ms else 0


def decide_target(
    group: ConsumerGroup,
    image: TopicImage,
    settings: GroupSettings,
    *,
    epoch: int,
    subscriptions: Subscriptions,
    now_ms: int,
) -> tuple[list[Record], list[Effect]]:
    """Compute the target for `epoch` if it is due, or arm the timer that will."""
    due_ms = target_due_ms(group, settings)
    if subscriptions and due_ms > now_ms:
        return [], [Arm(assignment_key(group.group_id), due_ms)]
    records = build_target(group, image, epoch=epoch, subscriptions=subscriptions, now_ms=now_ms)
    return records, [Disarm(assignment_key(group.group_id))]


def build_target(
    group: ConsumerGroup, image: TopicImage, *, epoch: int, subscriptions: Subscriptions, now_ms: int
) -> list[Record]:
    """The records that make the group's target the one of `epoch`.

    Args:
        group: with the target of before, which is kept as far as evenness allows.
        image: the topics as they are now.
        epoch: the group epoch that the target is for.
        subscriptions: all members of that epoch; empty resets the time of the computation to 0.
        now_ms: coordinator time.
    """
    group_id = group.group_id
    if not subscriptions:
        return [TargetAssignmentEpochSet(group_id=group_id, assignment_epoch=epoch, assignment_timestamp_ms=0)]
    # By id, not by arrival: the order of arrival is no part of the durable state.
    members = sorted(subscriptions)
    topics = _subscribed_topics(image, subscriptions)
    space = PartitionSpace((facts.topic_id, facts.partition_count) for facts in topics)
    targets = [group.targets.get(member_id, NO_TARGET) for member_id in members]
    before = gather_owners(space, targets)
    after = _assign(space, before, topics, [subscriptions[member_id] for member_id in members])
    changed = set(changed_members(before, after, len(members)))
    changed.update(i for i, target in enumerate(targets) if any(space.topic(topic_id) is None for topic_id in target))
    spread = spread_owners(space, after, sorted(changed))
    records: list[Record] = [
        MemberTargetSet(group_id=group_id, member_id=members[i], partitions=partitions)
        for i, partitions in spread.items()
    ]
    records.append(TargetAssignmentEpochSet(group_id=group_id, assignment_epoch=epoch, assignment_timestamp_ms=now_ms))
    return records


def target_in(records: Collection[Record], group: ConsumerGroup, member_id: str) -> Mapping[TopicId, tuple[int, ...]]:
    """The member's target once `records` are applied."""
    for record in records:
        if isinstance(record, MemberTargetSet) and record.member_id == member_id:
            return record.partitions
    return group.targets.get(member_id, NO_TARGET)


def _subscribed_topics(image: TopicImage, subscriptions: Subscriptions) -> list[TopicFacts]:
    names = names_in(set(subscriptions.values()))
    return [image.by_name[name] for name in sorted(names) if name in image.by_name]


def _assign(
    space: PartitionSpace, before: array[int], topics: list[TopicFacts], subscriptions: list[tuple[str, ...]]
) -> array[int]:
    """The owners after the uniform assignor; `subscriptions` in the order of the members' numbers."""
    after = before[:]
    if len(set(subscriptions)) == 1:
        assign_homogeneous(after, len(subscriptions))
        return after
    by_name: dict[str, list[int]] = {facts.name: [] for facts in topics}
    for member, names in enumerate(subscriptions):
        for name in names:
            if name in by_name:
                by_name[name].append(member)
    assign_heterogeneous(space, after, [by_name[facts.name] for facts in topics])
    assert NOBODY not in after, "a subscribed topic has a subscriber"
    return after
