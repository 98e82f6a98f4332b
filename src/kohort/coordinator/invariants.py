"""The laws that hold after every step, as functions that raise `InvariantViolation`.

They look at everything: the simulation and the tests call them after each step, the broker does not.
Source: the invariants of Vanlightly's TLA+ model of KIP-848 (LegalTargetAssignment, NoDoubleClientAssignment,
ValidMemberEpoch, ValidStableGroupState, ValidPartitionEpoch, MemberEpochIsMonotonic); the architecture's checkers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from kohort.coordinator.consumer.describe import state_of
from kohort.coordinator.model import ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.records import MemberState
from kohort.coordinator.topics import TopicImage
from kohort.errors import InvariantViolation
from kohort.ids import TopicId, format_topic_id


def check_groups(groups: GroupsState) -> None:
    """Every law about one moment."""
    both = groups.consumer.keys() & groups.classic.keys()
    if both:
        raise InvariantViolation(f"group {min(both)} is classic and KIP-848 at once")
    for group in groups.consumer.values():
        check_group(group, groups.image)
    for group_id, topics in groups.offsets.items():
        if not topics or not all(topics.values()):
            raise InvariantViolation(f"group {group_id} has an empty mapping of offsets")


def check_group(group: ConsumerGroup, image: TopicImage) -> None:
    """Every law about one KIP-848 group."""
    _check_epochs(group)
    _check_derived(group)
    _check_holders(group)
    _check_target(group, image)
    for member in group.members.values():
        _check_member(group, member)


def check_step(before: Mapping[str, tuple[int, Mapping[str, int]]], groups: GroupsState) -> None:
    """Epochs only rise; `before` is `epochs_of` before the step.

    A member that is gone and came back in one step starts anew; no decision does both.
    """
    for group_id, (epoch, members) in before.items():
        group = groups.consumer.get(group_id)
        if group is None:
            continue
        if group.epoch < epoch:
            raise InvariantViolation(f"group {group_id}: the epoch fell from {epoch} to {group.epoch}")
        for member_id, member_epoch in members.items():
            member = group.members.get(member_id)
            if member is not None and member.member_epoch < member_epoch:
                raise InvariantViolation(
                    f"group {group_id}: the epoch of {member_id} fell from {member_epoch} to {member.member_epoch}"
                )


def epochs_of(groups: GroupsState) -> dict[str, tuple[int, dict[str, int]]]:
    """group id -> (group epoch, member id -> member epoch), for `check_step`."""
    return {
        group_id: (group.epoch, {member.member_id: member.member_epoch for member in group.members.values()})
        for group_id, group in groups.consumer.items()
    }


def _fail(group: ConsumerGroup, law: str) -> InvariantViolation:
    story = [
        f"epoch {group.epoch}, target epoch {group.target_epoch}",
        *(
            f"{member.member_id}: epoch {member.member_epoch}, {member.state.name}, assigned {_text(member.assigned)}, "
            f"pending {_text(member.pending_revocation)}, target {_text(group.targets.get(member.member_id, {}))}"
            for member in group.members.values()
        ),
    ]
    return InvariantViolation(f"group {group.group_id}: {law}", story)


def _text(partitions: Mapping[TopicId, object]) -> str:
    shown = (f"{format_topic_id(topic_id)[:4]} {sorted(_ints(found))}" for topic_id, found in partitions.items())
    return "{" + ", ".join(shown) + "}"


def _ints(found: object) -> list[int]:
    return list(found) if isinstance(found, (dict, tuple)) else []


def _check_epochs(group: ConsumerGroup) -> None:
    if group.target_epoch > group.epoch:
        raise _fail(group, "the target is newer than the group")
    if group.epoch < 1:
        raise _fail(group, "a group's epoch starts at 1 (KAFKA-20268)")
    if not group.members and group.target_epoch != group.epoch:
        raise _fail(group, "an empty group has a target that is not computed (KAFKA-20442)")
    if not group.members and group.target_timestamp_ms:
        raise _fail(group, "an empty group remembers when its target was computed")


def _check_derived(group: ConsumerGroup) -> None:
    subscriptions = Counter(member.subscribed_topic_names for member in group.members.values())
    if dict(subscriptions) != group.subscriptions:
        raise _fail(group, f"counted subscriptions are {group.subscriptions}, and should be {dict(subscriptions)}")
    subscribers = Counter(name for member in group.members.values() for name in member.subscribed_topic_names)
    if dict(subscribers) != group.topic_subscribers:
        raise _fail(group, f"counted subscribers are {group.topic_subscribers}, and should be {dict(subscribers)}")


def _check_holders(group: ConsumerGroup) -> None:
    """No two members hold one partition, and `holders` says who does."""
    holders: dict[TopicId, dict[int, str]] = {}
    for member in group.members.values():
        for grants in (member.assigned, member.pending_revocation):
            for topic_id, partitions in grants.items():
                if not partitions:
                    raise _fail(group, f"{member.member_id} holds a topic without partitions")
                for partition in partitions:
                    other = holders.setdefault(topic_id, {}).setdefault(partition, member.member_id)
                    if other != member.member_id:
                        raise _fail(group, f"{other} and {member.member_id} both hold partition {partition}")
    if holders != group.holders:
        raise _fail(group, f"noted holders are {group.holders}, and should be {holders}")


def _check_target(group: ConsumerGroup, image: TopicImage) -> None:
    """A target gives each partition to one member at most, and if it is current every subscribed one to somebody."""
    targeted: dict[tuple[TopicId, int], str] = {}
    for member_id, target in group.targets.items():
        if member_id not in group.members:
            raise _fail(group, f"there is a target for {member_id}, which is no member")
        for topic_id, partitions in target.items():
            if list(partitions) != sorted(set(partitions)):
                raise _fail(group, f"the target of {member_id} is not in order")
            for partition in partitions:
                other = targeted.setdefault((topic_id, partition), member_id)
                if other != member_id:
                    raise _fail(group, f"the target gives partition {partition} to {other} and to {member_id}")
    if group.target_epoch != group.epoch or not image.version:
        return
    wanted = {
        (facts.topic_id, partition)
        for name in group.topic_subscribers
        if (facts := image.by_name.get(name)) is not None
        for partition in range(facts.partition_count)
    }
    if wanted != targeted.keys():
        raise _fail(group, f"the target lacks {wanted - targeted.keys()} and has {targeted.keys() - wanted} beyond")
    for (topic_id, partition), member_id in targeted.items():
        facts = image.by_id[topic_id]
        if facts.name not in group.members[member_id].subscribed_topic_names:
            raise _fail(group, f"the target gives {facts.name}-{partition} to {member_id}, which did not subscribe")


def _check_member(group: ConsumerGroup, member: ConsumerMember) -> None:
    if member.member_epoch > group.target_epoch:
        raise _fail(group, f"{member.member_id} is ahead of the target")
    if member.pending_revocation and member.state not in (MemberState.UNREVOKED_PARTITIONS, MemberState.UNKNOWN):
        raise _fail(group, f"{member.member_id} is {member.state.name} and has partitions to give up")
    if member.state == MemberState.UNREVOKED_PARTITIONS and not member.pending_revocation:
        raise _fail(group, f"{member.member_id} is UNREVOKED_PARTITIONS and has nothing to give up")
    for topic_id, partitions in member.assigned.items():
        if partitions.keys() & member.pending_revocation.get(topic_id, {}).keys():
            raise _fail(group, f"{member.member_id} may use what it has to give up")
        if any(epoch > member.member_epoch or epoch < 1 for epoch in partitions.values()):
            raise _fail(group, f"{member.member_id} was granted a partition at an epoch that it never had")
    if member.member_epoch == group.target_epoch == group.epoch:
        _check_reached(group, member)


def _check_reached(group: ConsumerGroup, member: ConsumerMember) -> None:
    """At the target epoch a member holds nothing beyond its target, and all of it if it is STABLE."""
    target = group.targets.get(member.member_id, {})
    for topic_id, partitions in member.assigned.items():
        if not partitions.keys() <= set(target.get(topic_id, ())):
            raise _fail(group, f"{member.member_id} is at the target epoch and may use what is not in its target")
    if member.state == MemberState.STABLE:
        for topic_id, wanted in target.items():
            if member.assigned.get(topic_id, {}).keys() != set(wanted):
                raise _fail(group, f"{member.member_id} is STABLE and does not have all of its target")
    if state_of(group) == "Stable" and member.pending_revocation:
        raise _fail(group, f"the group is Stable and {member.member_id} has partitions to give up")
