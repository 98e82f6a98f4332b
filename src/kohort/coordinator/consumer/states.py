"""State transitions of KIP-848 members and groups, with their causes: the tables of docs/groups.md.

Laws: a transition outside of a table does not happen; a test checks random sequences against them. The states of
members are those of record type 8; a static member that is away (epoch -2) has a state of its own.
Source: architecture rule 7; KIP-848, Apache Kafka's CurrentAssignmentBuilder and ConsumerGroup.
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator.consumer.describe import state_of
from kohort.coordinator.model import ConsumerMember, GroupsState
from kohort.coordinator.records import MemberState

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
    (AWAY, NOBODY): "its session ends (in a static group: its registration), or somebody takes its place and name",
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
    (CLASSIC, "Stable"): "the same; the classic group was empty, or nobody has to move",
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
