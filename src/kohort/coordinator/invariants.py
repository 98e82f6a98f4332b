"""Invariants that hold after every step, as functions that raise `InvariantViolation`.

The functions examine the whole state: the simulation and the tests call them after each step, the broker does not. The
text of a violation begins with the law's name. Laws about members (ClientSideMemberEpochIsMonotonic, the client's half
of NoDoubleClientAssignment, EventuallyConverges) are in `kohort.simulation`.

| law | function |
| --- | --- |
| TypeOK | `check_type`: derived values follow from the others, epochs of a group are in order |
| LegalTargetAssignment | `check_legal_target_assignment` |
| NoDoubleClientAssignment | `check_no_double_assignment`: the coordinator's half |
| ValidPartitionEpoch | `check_valid_partition_epoch` |
| ValidMemberEpoch | `check_valid_member_epoch` |
| ValidStableGroupState | `check_valid_stable_group_state` |
| GcSideMemberEpochIsMonotonic | `check_step` |
| OwnedUntilItBegins | `check_kept`: kohort's own; a partition whose move waits stays with its owner |
| NoEpochForNothing | `check_untouched`: kohort's own; a member gets a new epoch only with news |
| SharedValuesStay | `check_shared`: kohort's own; shared equal values never change in place |

Source: the names and meanings are those of Vanlightly's TLA+ model of KIP-848; the architecture's checkers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from kohort.base.timers import TimerTable
from kohort.coordinator import commands, interning, model
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.consumer.assignment.balance import build_balance
from kohort.coordinator.consumer.reconciliation.effective_target import (
    MovesBegun,
    MovesHeldBack,
    effective_target_after,
    effective_target_of,
    is_settled,
    places_of,
)
from kohort.coordinator.consumer.subscription_metadata import topics_of
from kohort.coordinator.decision import Decision, TimerKey
from kohort.coordinator.model import NO_PATTERNS, NO_TARGET, NOBODY, ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.records.types import ConsumerMemberSubscribed, CurrentAssignmentSet, MemberState
from kohort.coordinator.static_membership.clock import StaticClock
from kohort.coordinator.topics import TopicImage
from kohort.errors import InvariantViolation
from kohort.ids import TopicId, format_topic_id


def check_groups(groups: GroupsState) -> None:
    """Check every law about one moment."""
    both = groups.consumer.keys() & groups.classic.keys()
    if both:
        raise InvariantViolation(f"TypeOK: group {min(both)} is classic and KIP-848 at once")
    for group in groups.consumer.values():
        check_group(group, groups.image, groups.clocks.get(group.group_id))
    for group_id in (*groups.offsets, *groups.pending_offsets):
        check_offsets(groups, group_id)
    check_shared(groups)


def check_shared(groups: GroupsState) -> None:
    """Check that no shared value was changed for one of its groups."""
    interning.check_sharing(groups.sharing)
    if model.NO_GRANTS or NO_TARGET or NOBODY or model.NO_NAMES or NO_PATTERNS:
        raise InvariantViolation("SharedValuesStay: what is empty for all groups was changed in place")


def check_group_id(groups: GroupsState, group_id: str) -> None:
    """Check every law about one moment of one KIP-848 group, and that no classic group has its id."""
    group = groups.consumer.get(group_id)
    if group is not None:
        if group_id in groups.classic:
            raise InvariantViolation(f"TypeOK: group {group_id} is classic and KIP-848 at once")
        check_group(group, groups.image, groups.clocks.get(group_id))
    check_offsets(groups, group_id)


def check_assignment_is_due(groups: GroupsState, timers: TimerTable[TimerKey], group_ids: Iterable[str]) -> None:
    """Check EventuallyConverges, the coordinator's half: an outdated target will be computed."""
    for group_id in group_ids:
        group = groups.consumer.get(group_id)
        order = None if group is None else group.computing
        by = "" if order is None or not order.is_prepared else order.member_id
        if group is not None and by and timers.deadline(TimerKey("compute", group_id, by)) is None:
            raise _fail(group, "EventuallyConverges", f"{by} may compute for ever")
        if group is None or not group.members or group.target_epoch >= group.epoch or order is not None:
            continue
        if timers.deadline(TimerKey("assignment", group_id)) is None:
            raise _fail(group, "EventuallyConverges", "the target is old, and nothing computes another one")


def check_group(group: ConsumerGroup, image: TopicImage, clock: StaticClock | None = None) -> None:
    """Check every law about one KIP-848 group.

    `clock`: that of a static group with offline or waiting members.
    """
    check_type(group)
    _check_clock(group, clock)
    _check_balance(group, image)
    check_no_double_assignment(group)
    check_legal_target_assignment(group, image, is_gathering=clock is not None and clock.has_window)
    for member in group.members.values():
        check_valid_partition_epoch(group, member)
        check_valid_member_epoch(group, member)
    check_valid_stable_group_state(group)
    _check_waiting(group)
    _check_published(group)
    # Last, because an error in a member's state or epoch makes this fail as well.
    behind = {
        member_id
        for member_id, member in group.members.items()
        if not is_settled(member, effective_target_of(group, member_id))
    }
    if behind != group.behind:
        raise _fail(group, "TypeOK", f"noted as behind are {group.behind}, and should be {behind}")


def _check_published(group: ConsumerGroup) -> None:
    board = group.published
    if board is None:
        return
    living = board.living()
    if living.keys() - group.members.keys():
        raise _fail(group, "TypeOK", f"who is gone publishes something: {living.keys() - group.members.keys()}")
    if board.size_bytes != sum(len(metadata) for metadata, _ in living.values()):
        raise _fail(group, "TypeOK", "what is published is counted wrongly")
    if not board.floor <= board.version >= board.edition:
        raise _fail(group, "TypeOK", "a version of what is published was told before it was there")


def check_step(before: Mapping[str, tuple[int, Mapping[str, int]]], groups: GroupsState) -> None:
    """GcSideMemberEpochIsMonotonic: epochs only rise; `before` is `epochs_of` before the step.

    A member that leaves and returns within one step starts anew; no decision does both.
    """
    law = "GcSideMemberEpochIsMonotonic"
    for group_id, (epoch, members) in before.items():
        group = groups.consumer.get(group_id)
        if group is None:
            continue
        if group.epoch < epoch:
            raise InvariantViolation(f"{law}: group {group_id}: the epoch fell from {epoch} to {group.epoch}")
        for member_id, member_epoch in members.items():
            member = group.members.get(member_id)
            # A static member that leaves for a while is at -2 until its successor takes its place.
            if member is not None and commands.LEAVE_STATIC_EPOCH != member.member_epoch < member_epoch:
                now = member.member_epoch
                raise InvariantViolation(
                    f"{law}: group {group_id}: the epoch of {member_id} fell from {member_epoch} to {now}"
                )


def check_untouched(groups: GroupsState, decision: Decision) -> None:
    """Check NoEpochForNothing before `commit`: no new epoch for a member without another assignment."""
    for record in decision.records:
        group = groups.consumer.get(record.group_id)
        if group is None or not isinstance(record, CurrentAssignmentSet):
            continue
        member = group.members.get(record.member_id)
        if member is None or member.member_epoch <= 0 or record.member_epoch <= member.member_epoch:
            continue
        target = effective_target_after(decision.records, group, record.member_id)
        if record.assigned == member.assigned and member.state == MemberState.STABLE and is_settled(record, target):
            why = f"{member.member_id} is taken to epoch {record.member_epoch}, which is no news to it"
            raise _fail(group, "NoEpochForNothing", why)


def check_kept(groups: GroupsState, decision: Decision) -> None:
    """Check OwnedUntilItBegins before `commit`: no owner revokes a partition whose move is deferred.

    A member that leaves, is away or changes its subscription does lose such a partition.
    """
    subscribed = {record.member_id for record in decision.records if isinstance(record, ConsumerMemberSubscribed)}
    if any(isinstance(record, MovesHeldBack | MovesBegun) for record in decision.records):
        return
    for record in decision.records:
        group = groups.consumer.get(record.group_id)
        if group is None or not group.waiting or not isinstance(record, CurrentAssignmentSet):
            continue
        member = group.members.get(record.member_id)
        if member is None or record.member_epoch < 0 or member.member_epoch < 0 or member.member_id in subscribed:
            continue
        for topic_id, partition in group.waiting.keys() & places_of(member.assigned) - places_of(record.assigned):
            topic = groups.image.by_id.get(topic_id)
            is_kept = group.waiting[topic_id, partition].keeper == member.member_id
            if is_kept and topic is not None and topic.name in topics_of(group, member):
                why = f"{member.member_id} is asked for {topic.name}-{partition}, whose move has not begun"
                raise _fail(group, "OwnedUntilItBegins", why)


def epochs_of(groups: GroupsState, group_ids: Iterable[str] | None = None) -> dict[str, tuple[int, dict[str, int]]]:
    """Return group id -> (group epoch, member id -> member epoch), for `check_step`.

    `group_ids` `None` means every group.
    """
    found = groups.consumer if group_ids is None else (each for each in group_ids if each in groups.consumer)
    return {
        group.group_id: (group.epoch, {each.member_id: each.member_epoch for each in group.members.values()})
        for group in map(groups.consumer.__getitem__, found)
    }


def _fail(group: ConsumerGroup, law: str, why: str) -> InvariantViolation:
    story = [
        f"epoch {group.epoch}, target epoch {group.target_epoch}",
        *(
            f"{member.member_id}: epoch {member.member_epoch}, {member.state.name}, assigned {_text(member.assigned)}, "
            f"pending {_text(member.pending_revocation)}, target {_text(group.targets.get(member.member_id, {}))}"
            for member in group.members.values()
        ),
    ]
    return InvariantViolation(f"{law}: group {group.group_id}: {why}", story)


def _text(partitions: Mapping[TopicId, Iterable[int]]) -> str:
    shown = (f"{format_topic_id(topic_id)[:4]} {sorted(found)}" for topic_id, found in partitions.items())
    return "{" + ", ".join(shown) + "}"


def check_type(group: ConsumerGroup) -> None:
    """TypeOK: values are in their ranges, and derived values follow from the others."""
    law = "TypeOK"
    if group.target_epoch > group.epoch:
        raise _fail(group, law, "the target is newer than the group")
    if group.epoch < 1:
        raise _fail(group, law, "a group's epoch starts at 1 (KAFKA-20268)")
    if not group.members and group.target_epoch != group.epoch:
        raise _fail(group, law, "an empty group has a target that is not computed (KAFKA-20442)")
    if not group.members and group.target_timestamp_ms:
        raise _fail(group, law, "an empty group remembers when its target was computed")
    _check_counts(group)


def _check_counts(group: ConsumerGroup) -> None:
    """TypeOK: the counts of a group follow from its members."""
    law = "TypeOK"
    subscriptions = Counter(topics_of(group, member) for member in group.members.values())
    if dict(subscriptions) != group.subscriptions:
        why = f"counted subscriptions are {group.subscriptions}, and should be {dict(subscriptions)}"
        raise _fail(group, law, why)
    subscribers = Counter(name for member in group.members.values() for name in topics_of(group, member))
    if dict(subscribers) != group.topic_subscribers:
        raise _fail(group, law, f"counted subscribers are {group.topic_subscribers}, and should be {dict(subscribers)}")
    patterns = Counter(regex for member in group.members.values() if (regex := member.subscribed_topic_regex))
    if dict(patterns) != group.regex_subscribers:
        raise _fail(group, law, f"counted patterns are {group.regex_subscribers}, and should be {dict(patterns)}")
    if not group.regexes.keys() <= patterns.keys():
        raise _fail(group, law, f"unused patterns are kept: {group.regexes.keys() - patterns.keys()}")
    named = [(name, each.member_id) for each in group.members.values() if (name := each.instance_id) is not None]
    if sorted(group.instance_ids.items()) != sorted(named):
        raise _fail(group, law, f"static names are {group.instance_ids}, and should be {named}")
    classic = [member.classic for member in group.members.values() if member.classic is not None]
    spoken = Counter(name for own in classic for name in own.protocol_names)
    counted = (group.classic_count, group.classic_protocols, group.classic_metadata_bytes)
    if counted != (len(classic), dict(spoken), sum(own.metadata_bytes for own in classic)):
        raise _fail(group, law, f"counted of classic members are {counted}, which is not what they say")
    votes = Counter(name for member in group.members.values() if (name := member.server_assignor) is not None)
    if dict(votes) != group.assignor_votes:
        raise _fail(group, law, f"counted votes are {group.assignor_votes}, and should be {dict(votes)}")
    fault = "" if group.client_assignors is None else group.client_assignors.fault()
    if fault:
        raise _fail(group, law, fault)


def _check_clock(group: ConsumerGroup, clock: StaticClock | None) -> None:
    """TypeOK of a static group's clock: it runs only if needed, and its offline members are members."""
    if clock is None:
        return
    if clock.is_idle:
        raise _fail(group, "TypeOK", "its clock measures nothing")
    strangers = clock.offline.keys() - group.members.keys()
    if strangers:
        raise _fail(group, "TypeOK", f"{strangers} are offline, and no members")


def _check_balance(group: ConsumerGroup, image: TopicImage) -> None:
    """TypeOK of the cached balance: it equals a newly built one."""
    kept = group.balance
    if kept is None or not image.version:
        return
    topics = [
        (topic_id, image.by_id[topic_id].partition_count) for topic_id in kept.topic_ids if topic_id in image.by_id
    ]
    built = build_balance(group.members, group.targets, topics, group.metadata_hash)
    if built is None or built.as_value() != kept.as_value():
        raise _fail(group, "TypeOK", "the balance that is kept is not that of the target")


def _check_waiting(group: ConsumerGroup) -> None:
    """TypeOK of deferred moves: the old owner has the partition, and its target does not."""
    for (topic_id, partition), move in group.waiting.items():
        keeper = group.members.get(move.keeper)
        if keeper is None or partition not in keeper.assigned.get(topic_id, {}):
            raise _fail(group, "TypeOK", f"partition {partition} waits with {move.keeper}, which does not have it")
        if partition in group.targets.get(move.keeper, NO_TARGET).get(topic_id, ()):
            raise _fail(group, "TypeOK", f"partition {partition} waits to leave {move.keeper}, which shall have it")


def check_no_double_assignment(group: ConsumerGroup) -> None:
    """NoDoubleClientAssignment: no two members hold one partition, and `holders` agrees."""
    law = "NoDoubleClientAssignment"
    holders: dict[TopicId, dict[int, str]] = {}
    for member in group.members.values():
        for grants in (member.assigned, member.pending_revocation):
            for topic_id, partitions in grants.items():
                if not partitions:
                    raise _fail(group, "TypeOK", f"{member.member_id} holds a topic without partitions")
                for partition in partitions:
                    other = holders.setdefault(topic_id, {}).setdefault(partition, member.member_id)
                    if other != member.member_id:
                        raise _fail(group, law, f"{other} and {member.member_id} both hold partition {partition}")
    if holders != group.holders:
        raise _fail(group, "TypeOK", f"noted holders are {group.holders}, and should be {holders}")


def check_legal_target_assignment(group: ConsumerGroup, image: TopicImage, *, is_gathering: bool = False) -> None:
    """LegalTargetAssignment: at most one owner per partition; exactly one if subscribed, once current.

    `is_gathering`: topics that only waiting new members subscribe to have no owner yet.
    """
    law = "LegalTargetAssignment"
    targeted: dict[tuple[TopicId, int], str] = {}
    for member_id, target in group.targets.items():
        if member_id not in group.members:
            raise _fail(group, law, f"there is a target for {member_id}, which is no member")
        for topic_id, partitions in target.items():
            if list(partitions) != sorted(set(partitions)):
                raise _fail(group, law, f"the target of {member_id} is not in order")
            for partition in partitions:
                other = targeted.setdefault((topic_id, partition), member_id)
                if other != member_id:
                    raise _fail(group, law, f"the target gives partition {partition} to {other} and to {member_id}")
    if group.target_epoch != group.epoch or not image.version:
        return
    wanted = {
        (topic.topic_id, partition)
        for name in group.topic_subscribers
        if (topic := image.by_name.get(name)) is not None
        for partition in range(topic.partition_count)
    }
    if is_gathering and targeted.keys() <= wanted:
        return
    if wanted != targeted.keys():
        why = f"the target lacks {wanted - targeted.keys()} and has {targeted.keys() - wanted} beyond"
        raise _fail(group, law, why)
    for (topic_id, partition), member_id in targeted.items():
        topic = image.by_id[topic_id]
        if topic.name not in topics_of(group, group.members[member_id]):
            why = f"the target gives {topic.name}-{partition} to {member_id}, which did not subscribe"
            raise _fail(group, law, why)


def check_valid_partition_epoch(group: ConsumerGroup, member: ConsumerMember) -> None:
    """ValidPartitionEpoch: every partition was granted to its member at an epoch that the member had."""
    law = "ValidPartitionEpoch"
    for topic_id, partitions in member.assigned.items():
        if partitions.keys() & member.pending_revocation.get(topic_id, {}).keys():
            raise _fail(group, law, f"{member.member_id} may use what it has to give up")
    for grants in (member.assigned, member.pending_revocation):
        for partitions in grants.values():
            newest = group.target_epoch if member.member_epoch == commands.LEAVE_STATIC_EPOCH else member.member_epoch
            if any(not 1 <= epoch <= newest for epoch in partitions.values()):
                raise _fail(group, law, f"{member.member_id} was granted a partition at an epoch that it never had")


def check_valid_member_epoch(group: ConsumerGroup, member: ConsumerMember) -> None:
    """ValidMemberEpoch: a member at the target epoch holds only partitions of its target."""
    law = "ValidMemberEpoch"
    if member.member_epoch > group.target_epoch:
        raise _fail(group, law, f"{member.member_id} is ahead of the target")
    if not member.member_epoch == group.target_epoch == group.epoch or _has_begun_since(group, member):
        return
    target = effective_target_of(group, member.member_id)
    for topic_id, partitions in member.assigned.items():
        if not partitions.keys() <= set(target.get(topic_id, ())):
            raise _fail(group, law, f"{member.member_id} is at the target epoch and may use what is not in its target")


def check_valid_stable_group_state(group: ConsumerGroup) -> None:
    """ValidStableGroupState: STABLE means the group's epoch, no pending revocation, the whole target."""
    law = "ValidStableGroupState"
    for member in group.members.values():
        if member.pending_revocation and member.state not in (MemberState.UNREVOKED_PARTITIONS, MemberState.UNKNOWN):
            raise _fail(group, law, f"{member.member_id} is {member.state.name} and has partitions to give up")
        if member.state == MemberState.UNREVOKED_PARTITIONS and not member.pending_revocation:
            raise _fail(group, law, f"{member.member_id} is UNREVOKED_PARTITIONS and has nothing to give up")
        is_settled = member.member_epoch == group.target_epoch == group.epoch and member.state == MemberState.STABLE
        if not is_settled or _has_begun_since(group, member):
            continue
        for topic_id, wanted in effective_target_of(group, member.member_id).items():
            if member.assigned.get(topic_id, {}).keys() != set(wanted):
                raise _fail(group, law, f"{member.member_id} is STABLE and does not have all of its target")


def _has_begun_since(group: ConsumerGroup, member: ConsumerMember) -> bool:
    """Return whether a member may have reached its target before a deferred move of it began."""
    return group.has_held_back and member.member_id in group.behind


# Invariants of committed offsets that hold after every step; each raises `InvariantViolation`.
#
# The simulation and the tests call them; the broker does not.


def check_offsets(groups: GroupsState, group_id: str) -> None:
    """TypeOK of a group's offsets: no empty mapping, and pending offsets only of open transactions."""
    topics = groups.offsets.get(group_id)
    if topics is not None and (not topics or not all(topics.values())):
        raise InvariantViolation(f"TypeOK: group {group_id} has an empty mapping of offsets")
    pending = groups.pending_offsets.get(group_id)
    if pending is not None and (not pending or not all(pending.values())):
        raise InvariantViolation(f"TypeOK: group {group_id} has an empty mapping of pending offsets")
    for (topic, partition), claims in (pending or {}).items():
        for producer_id, commit in claims.items():
            transaction = groups.transactions.get(producer_id)
            if transaction is None or group_id not in transaction.group_ids:
                raise InvariantViolation(
                    f"TypeOK: group {group_id} waits for producer {producer_id} on {topic}-{partition}, and no "
                    "transaction of that producer is open"
                )
            if commit is not None and (commit.group_id, commit.topic, commit.partition) != (group_id, topic, partition):
                raise InvariantViolation(f"TypeOK: what is pending on {topic}-{partition} is of another partition")


# Invariants of a classic group that hold after every step; each raises `InvariantViolation`.
#
# The simulation and the tests call them; the broker does not. A violation begins with the name of its law. Each is the
# analogue of a law of the TLA+ model of KIP-848, with the leader as assignor and the generation in place of epochs.
#
# | law | analogue of | function |
# | --- | --- | --- |
# | ClassicTypeOK | TypeOK | `check_classic_type` |
# | ValidMemberGeneration | ValidMemberEpoch | `check_valid_member_generation` |
# | ValidStableGeneration | ValidStableGroupState | `check_valid_stable_generation` |
# | GenerationIsMonotonic | GcSideMemberEpochIsMonotonic | `check_generation_step` |
#
# LegalAssignment, OneOwnerPerGeneration (NoDoubleClientAssignment, KAFKA-12984) and EventuallyConverges need the
# embedded bytes or the members, and are in `kohort.testing`.


def check_classic_group(group: ClassicGroup) -> None:
    """Check every law about one group at one moment."""
    check_classic_type(group)
    check_valid_member_generation(group)
    check_valid_stable_generation(group)


def check_generation_step(before: int, group: ClassicGroup) -> None:
    """GenerationIsMonotonic: the generation of an existing group never falls."""
    if group.generation < before:
        raise _fail_classic(group, "GenerationIsMonotonic", f"the generation fell from {before} to {group.generation}")


def _fail_classic(group: ClassicGroup, law: str, why: str) -> InvariantViolation:
    story = [
        f"{group.state.value}, generation {group.generation}, leader {group.leader}, pending {list(group.pending)}",
        f"members {list(group.members)}",
        f"awaiting join {list(group.awaiting_join)}, awaiting sync {list(group.awaiting_sync)}",
    ]
    return InvariantViolation(f"{law}: group {group.group_id}: {why}", story)


def check_classic_type(group: ClassicGroup) -> None:
    """ClassicTypeOK: exactly one leader, and counts that follow from the members."""
    law = "ClassicTypeOK"
    if (group.leader is None) != (not group.members) or (
        group.leader is not None and group.leader not in group.members
    ):
        raise _fail_classic(group, law, "exactly a group with members has a leader, who is one of them")
    if group.pending.keys() & group.members.keys():
        raise _fail_classic(group, law, "a member is expected to become one")
    spoken = Counter(name for member in group.members.values() for name in member.protocol_names)
    if dict(spoken) != group.protocol_counts:
        raise _fail_classic(group, law, f"counted protocols are {group.protocol_counts}, and should be {dict(spoken)}")
    if group.members and len(group.members) not in spoken.values():
        raise _fail_classic(group, law, "no protocol is common to all members")
    if group.metadata_bytes != sum(member.metadata_bytes for member in group.members.values()):
        raise _fail_classic(group, law, "the bytes of metadata are counted wrongly")
    held = {member.instance_id: member.member_id for member in group.members.values() if member.instance_id is not None}
    if held != group.instance_ids:
        raise _fail_classic(group, law, f"noted instances are {group.instance_ids}, and should be {held}")


def check_valid_member_generation(group: ClassicGroup) -> None:
    """ValidMemberGeneration: only members wait for a phase, and only in that phase of the group."""
    law = "ValidMemberGeneration"
    for waiting in (group.awaiting_join, group.awaiting_sync, group.unsynced, group.new_members):
        if not waiting.keys() <= group.members.keys():
            raise _fail_classic(group, law, "a request waits for a member that is gone")
    if group.awaiting_join and group.state is not ClassicGroupState.PREPARING_REBALANCE:
        raise _fail_classic(group, law, "a JoinGroup is parked outside of the join phase")
    if group.awaiting_sync and group.state is not ClassicGroupState.COMPLETING_REBALANCE:
        raise _fail_classic(group, law, "a SyncGroup is parked outside of the sync phase")


def check_valid_stable_generation(group: ClassicGroup) -> None:
    """ValidStableGeneration: a group at work has members, a generation and a common protocol."""
    law = "ValidStableGeneration"
    is_at_work = group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE)
    if is_at_work and not group.members:
        raise _fail_classic(group, law, "a group without members is at work")
    if is_at_work and group.generation < 1:
        raise _fail_classic(group, law, "a group is at work before its first generation")
    if is_at_work and any(group.protocol_name not in member.protocol_names for member in group.members.values()):
        raise _fail_classic(group, law, f"a member does not speak {group.protocol_name}, which was elected")
    if group.state is ClassicGroupState.EMPTY and group.members:
        raise _fail_classic(group, law, "an empty group has members")
