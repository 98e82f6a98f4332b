"""Descriptions of KIP-848 groups for tools, and the transitions of their states.

Source: Apache Kafka's `ConsumerGroup.asDescribedGroup`; states as KIP-848 names them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, TypeVar

from kohort.base.values import from_row
from kohort.coordinator.commands import admin
from kohort.coordinator.consumer.client_assignors.assignor_metadata import choice_of
from kohort.coordinator.consumer.member_metadata import metadata_of
from kohort.coordinator.consumer.reconciliation.effective_target import known_epoch
from kohort.coordinator.decision import Decision, Reply
from kohort.coordinator.model import NO_TARGET, ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.records.types import MemberState
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.clock import StaticClock
from kohort.errors import ErrorCode, Refused
from kohort.ids import TopicId

DescribedMember = TypeVar("DescribedMember", admin.DescribedConsumerMember, admin.DescribedClassicMember)
#: `DescribedConsumerMember.member_type` of a classic member, and of a member of the consumer protocol.
CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1


def state_of(group: ConsumerGroup, *, is_paused: bool = False) -> str:
    """Return the state in Kafka's spelling: Empty, Assigning, Reconciling or Stable.

    A rebalance is not over while the throttle defers moves. With paused moves the group counts as Stable: a tool that
    waits for a stable group would otherwise wait until an administrator resumes them.
    """
    if not group.members:
        return "Empty"
    if group.epoch > group.target_epoch:
        return "Assigning"
    return "Reconciling" if group.behind or (group.waiting and not is_paused) else "Stable"


def decide_describe(groups: GroupsState, command: admin.DescribeConsumerGroup, settings: GroupSettings) -> Decision:
    """Describe one group; `find_group` refuses any other."""
    group = find_group(groups, command.group_id)
    described = [_describe_member(group, group.members[member_id]) for member_id in sorted(group.members)]
    members = with_offline_times(described, groups.clocks.get(group.group_id))
    reply = admin.DescribeConsumerGroupReply(
        group_id=group.group_id,
        state=state_of(group, is_paused=settings.group_moves_paused),
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch,
        assignor_name=choice_of(group, settings).name,
        members=members,
        topic_names=_names(groups, members),
        is_static=settings.is_static,
        assignor_failure=_failure_of(group),
    )
    return Decision(effects=(Reply(command.request, reply),))


def with_offline_times(members: Iterable[DescribedMember], clock: StaticClock | None) -> tuple[DescribedMember, ...]:
    """Add the times since which members of a static group are offline, from the group's clock."""
    if clock is None:
        return tuple(members)
    times = ((member, clock.offline_since(member.member_id)) for member in members)
    return tuple(member if since is None else replace(member, offline_since_ms=since) for member, since in times)


def find_group(groups: GroupsState, group_id: str) -> ConsumerGroup:
    """Return the KIP-848 group that an administrator names.

    Raises:
        Refused: GROUP_ID_NOT_FOUND for an unknown or classic one.
    """
    group = groups.consumer.get(group_id)
    if group is None:
        why = "is not a consumer group" if group_id in groups.classic else "does not exist"
        raise Refused(ErrorCode.GROUP_ID_NOT_FOUND, f"the group {group_id} {why}")
    return group


def find_moving(groups: GroupsState, group_id: str) -> ConsumerGroup:
    """Return the KIP-848 group of an administrator's request about moves.

    Raises:
        Refused: GROUP_ID_NOT_FOUND; INCONSISTENT_GROUP_PROTOCOL for a classic one, whose leader assigns.
    """
    if group_id in groups.classic:
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the group {group_id} is a classic one: its leader shares the partitions out, and only a group of the "
            "consumer protocol has moves",
        )
    return find_group(groups, group_id)


def _failure_of(group: ConsumerGroup) -> str:
    if group.failure is not None:
        return f"{group.failure.assignor}: {group.failure.error}"
    return "" if group.client_assignors is None else group.client_assignors.failure


def _describe_member(group: ConsumerGroup, member: ConsumerMember) -> admin.DescribedConsumerMember:
    # KAFKA-20431: a member still owns its pending revocations, and an operator has to see where they are.
    held: dict[TopicId, set[int]] = {topic_id: set(grants) for topic_id, grants in member.assigned.items()}
    for topic_id, grants in member.pending_revocation.items():
        held.setdefault(topic_id, set()).update(grants)
    return from_row(
        admin.DescribedConsumerMember,
        member,
        member_epoch=known_epoch(group, member),
        assignment={topic_id: tuple(sorted(partitions)) for topic_id, partitions in held.items()},
        target_assignment=dict(group.targets.get(member.member_id, NO_TARGET)),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
        metadata=metadata_of(group, member.member_id),
    )


def _names(groups: GroupsState, members: tuple[admin.DescribedConsumerMember, ...]) -> dict[TopicId, str]:
    """Return the name of every topic in `members`; a deleted topic has none."""
    mentioned = {topic_id for member in members for topic_id in (*member.assignment, *member.target_assignment)}
    by_id = groups.image.by_id
    return {topic_id: by_id[topic_id].name for topic_id in sorted(mentioned) if topic_id in by_id}


# State transitions of KIP-848 members and groups, with their causes: the tables of docs/explanation/hand-over.md.
#
# Laws: a transition outside of a table does not happen; a test checks random sequences against them. The states of
# members are those of record type 8; a static member that is away (epoch -2) has a state of its own.
# Source: architecture rule 7; KIP-848, Apache Kafka's CurrentAssignmentBuilder and ConsumerGroup.

#: State before a join and after a leave.
NOBODY: Final = "(no member)"
#: `member_state` of a static member that left for a while.
AWAY: Final = "AWAY"
#: State without a group of that id.
NO_GROUP: Final = "(no group)"
#: `group_state` of a classic group, whatever its own state.
CLASSIC: Final = "(classic group)"

_STABLE, _UNREVOKED = MemberState.STABLE.name, MemberState.UNREVOKED_PARTITIONS.name
_UNRELEASED, _UNKNOWN = MemberState.UNRELEASED_PARTITIONS.name, MemberState.UNKNOWN.name

#: (state, next state) -> cause of a member's transition.
MEMBER_TRANSITIONS: Final = {
    (NOBODY, _STABLE): "it joins, and all of its target is free; or it comes with its classic group",
    (NOBODY, _UNRELEASED): "it joins, and others still have something of its target",
    (NOBODY, _UNREVOKED): "it takes the place of a static member, and does not want all that one had",
    (_STABLE, _STABLE): "a new target gives it what it has, or more that is free",
    (_STABLE, _UNREVOKED): "a new target takes something from it, or it subscribes to less: it is told to give up",
    (_STABLE, _UNRELEASED): "a new target gives it something that others still have",
    (_STABLE, AWAY): "a static member leaves with epoch -2; in a static group also: its session ends",
    (_UNREVOKED, _UNREVOKED): "it has given up a part, which is free at once; takes what is free; is asked for more",
    (_UNREVOKED, _STABLE): "it has given up everything it was told to, and has all of its target",
    (
        _UNREVOKED,
        _UNRELEASED,
    ): "it has given up everything it was told to, and others still have something of its target",
    (_UNREVOKED, AWAY): "as for STABLE, or in a static group it did not give up in time; what it had to is free",
    (_UNRELEASED, _UNRELEASED): "others have released a part of what it waits for",
    (_UNRELEASED, _STABLE): "others have released all that it waits for, or it shall not have it any more",
    (_UNRELEASED, _UNREVOKED): "a newer target takes something from it",
    (_UNRELEASED, AWAY): "as for STABLE",
    (_UNKNOWN, AWAY): "as for STABLE",
    (AWAY, _STABLE): "it comes back under the id that it had, and all of its target is free",
    (AWAY, _UNRELEASED): "the same, and others still have something of its target",
    (AWAY, AWAY): "what a new target takes from it is free at once",
    (_UNKNOWN, _STABLE): "a newer broker stored its state; it says that it owns nothing",
    (_UNKNOWN, _UNRELEASED): "the same, and others still have something of its target",
    (_STABLE, NOBODY): "it leaves, is silent, is removed, is replaced, or its group becomes classic",
    (_UNREVOKED, NOBODY): "as for STABLE, or it did not give up in time",
    (_UNRELEASED, NOBODY): "as for STABLE",
    (_UNKNOWN, NOBODY): "as for STABLE",
    (AWAY, NOBODY): "its session ends (in a static group: its registration), or another member takes its name",
}

#: (state, next state) -> cause of a group's transition. Each state may also stay as it is.
GROUP_TRANSITIONS: Final = {
    (NO_GROUP, "Assigning"): "the first member joins; its target is computed when the window closes",
    (NO_GROUP, "Stable"): "the first member joins, and nothing is waited for",
    ("Empty", "Assigning"): "a member joins; its target is computed when the window closes",
    ("Empty", "Stable"): "a member joins, and nothing is waited for",
    ("Empty", NO_GROUP): "it is deleted, or has expired",
    ("Empty", CLASSIC): "a classic member joins",
    ("Assigning", "Reconciling"): "the target is computed, and members have to move",
    ("Assigning", "Stable"): "the target is computed, and every member has it",
    ("Assigning", "Empty"): "the last member is gone",
    ("Assigning", CLASSIC): "only classic members are left, and the policy lets the group become classic",
    ("Reconciling", "Stable"): "every member has its target, or what is left to move is paused",
    ("Reconciling", "Assigning"): "members, subscriptions or topics change",
    ("Reconciling", "Empty"): "the last member is gone",
    ("Reconciling", CLASSIC): "only classic members are left, and the policy lets the group become classic",
    ("Stable", "Assigning"): "members, subscriptions or topics change",
    ("Stable", "Reconciling"): "the target is computed at once; or limited moves, or paused ones, go on",
    ("Stable", "Empty"): "the last member is gone",
    ("Stable", CLASSIC): "only classic members are left, and the policy lets the group become classic",
    (CLASSIC, "Assigning"): "a member joins by the consumer protocol, and the policy lets the group move",
    (CLASSIC, "Reconciling"): "the same, and the target is computed at once",
    (CLASSIC, "Stable"): "the same; the classic group was empty, or no partition has to move",
}


def member_state(member: ConsumerMember | None) -> str:
    """Return a member's state by the names of `MEMBER_TRANSITIONS`."""
    if member is None:
        return NOBODY
    # A member that left with epoch -2 keeps its state in the log, where it has no meaning any more.
    return AWAY if member.member_epoch < 0 else member.state.name


def group_state(groups: GroupsState, group_id: str) -> str:
    """Return a group's state by the names of `GROUP_TRANSITIONS`."""
    group = groups.consumer.get(group_id)
    if group is not None:
        return state_of(group)
    return CLASSIC if group_id in groups.classic else NO_GROUP
