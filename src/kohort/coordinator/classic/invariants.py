"""The laws of a classic group that hold after every step, as functions that raise `InvariantViolation`.

The simulation and the tests call them; the broker does not.
"""

from __future__ import annotations

from collections import Counter

from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.errors import InvariantViolation


def check_classic_group(group: ClassicGroup) -> None:
    """Every law about one group at one moment."""
    _check_members(group)
    _check_waiting(group)
    _check_derived(group)


def _fail(group: ClassicGroup, law: str) -> InvariantViolation:
    story = [
        f"{group.state.value}, generation {group.generation}, leader {group.leader}, pending {list(group.pending)}",
        f"members {list(group.members)}",
        f"awaiting join {list(group.awaiting_join)}, awaiting sync {list(group.awaiting_sync)}",
    ]
    return InvariantViolation(f"group {group.group_id}: {law}", story)


def _check_members(group: ClassicGroup) -> None:
    if (group.leader is None) != (not group.members) or (
        group.leader is not None and group.leader not in group.members
    ):
        raise _fail(group, "exactly a group with members has a leader, who is one of them")
    if group.pending.keys() & group.members.keys():
        raise _fail(group, "a member is expected to become one")
    is_at_work = group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE)
    if is_at_work and not group.members:
        raise _fail(group, "a group without members is at work")
    if group.state is ClassicGroupState.EMPTY and group.members:
        raise _fail(group, "an empty group has members")


def _check_waiting(group: ClassicGroup) -> None:
    for waiting in (group.awaiting_join, group.awaiting_sync, group.unsynced, group.new_members):
        if not waiting.keys() <= group.members.keys():
            raise _fail(group, "a request is parked for somebody who is no member")
    if group.awaiting_join and group.state is not ClassicGroupState.PREPARING_REBALANCE:
        raise _fail(group, "a JoinGroup is parked outside of the join phase")
    if group.awaiting_sync and group.state is not ClassicGroupState.COMPLETING_REBALANCE:
        raise _fail(group, "a SyncGroup is parked outside of the sync phase")


def _check_derived(group: ClassicGroup) -> None:
    spoken = Counter(name for member in group.members.values() for name in member.protocol_names)
    if dict(spoken) != group.protocol_counts:
        raise _fail(group, f"counted protocols are {group.protocol_counts}, and should be {dict(spoken)}")
    if group.members and len(group.members) not in spoken.values():
        raise _fail(group, "no protocol is common to all members")
    if group.metadata_bytes != sum(member.metadata_bytes for member in group.members.values()):
        raise _fail(group, "the bytes of metadata are counted wrongly")
    held = {member.instance_id: member.member_id for member in group.members.values() if member.instance_id is not None}
    if held != group.instance_ids:
        raise _fail(group, f"noted instances are {group.instance_ids}, and should be {held}")
