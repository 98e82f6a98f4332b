"""Invariants of a classic group that hold after every step; each raises `InvariantViolation`.

The simulation and the tests call them; the broker does not. A violation begins with the name of its law. Each is the
analogue of a law of the TLA+ model of KIP-848, with the leader as assignor and the generation in place of epochs.

| law | analogue of | function |
| --- | --- | --- |
| ClassicTypeOK | TypeOK | `check_type` |
| ValidMemberGeneration | ValidMemberEpoch | `check_valid_member_generation` |
| ValidStableGeneration | ValidStableGroupState | `check_valid_stable_generation` |
| GenerationIsMonotonic | GcSideMemberEpochIsMonotonic | `check_generation_step` |

LegalAssignment, OneOwnerPerGeneration (NoDoubleClientAssignment, KAFKA-12984) and EventuallyConverges need the
embedded bytes or the members, and are in `kohort.testing`.
"""

from __future__ import annotations

from collections import Counter

from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.errors import InvariantViolation


def check_classic_group(group: ClassicGroup) -> None:
    """Check every law about one group at one moment."""
    check_type(group)
    check_valid_member_generation(group)
    check_valid_stable_generation(group)


def check_generation_step(before: int, group: ClassicGroup) -> None:
    """GenerationIsMonotonic: the generation of an existing group never falls."""
    if group.generation < before:
        raise _fail(group, "GenerationIsMonotonic", f"the generation fell from {before} to {group.generation}")


def _fail(group: ClassicGroup, law: str, why: str) -> InvariantViolation:
    story = [
        f"{group.state.value}, generation {group.generation}, leader {group.leader}, pending {list(group.pending)}",
        f"members {list(group.members)}",
        f"awaiting join {list(group.awaiting_join)}, awaiting sync {list(group.awaiting_sync)}",
    ]
    return InvariantViolation(f"{law}: group {group.group_id}: {why}", story)


def check_type(group: ClassicGroup) -> None:
    """ClassicTypeOK: exactly one leader, and counts that follow from the members."""
    law = "ClassicTypeOK"
    if (group.leader is None) != (not group.members) or (
        group.leader is not None and group.leader not in group.members
    ):
        raise _fail(group, law, "exactly a group with members has a leader, who is one of them")
    if group.pending.keys() & group.members.keys():
        raise _fail(group, law, "a member is expected to become one")
    spoken = Counter(name for member in group.members.values() for name in member.protocol_names)
    if dict(spoken) != group.protocol_counts:
        raise _fail(group, law, f"counted protocols are {group.protocol_counts}, and should be {dict(spoken)}")
    if group.members and len(group.members) not in spoken.values():
        raise _fail(group, law, "no protocol is common to all members")
    if group.metadata_bytes != sum(member.metadata_bytes for member in group.members.values()):
        raise _fail(group, law, "the bytes of metadata are counted wrongly")
    held = {member.instance_id: member.member_id for member in group.members.values() if member.instance_id is not None}
    if held != group.instance_ids:
        raise _fail(group, law, f"noted instances are {group.instance_ids}, and should be {held}")


def check_valid_member_generation(group: ClassicGroup) -> None:
    """ValidMemberGeneration: only members wait for a phase, and only in that phase of the group."""
    law = "ValidMemberGeneration"
    for waiting in (group.awaiting_join, group.awaiting_sync, group.unsynced, group.new_members):
        if not waiting.keys() <= group.members.keys():
            raise _fail(group, law, "a request is parked for somebody who is no member")
    if group.awaiting_join and group.state is not ClassicGroupState.PREPARING_REBALANCE:
        raise _fail(group, law, "a JoinGroup is parked outside of the join phase")
    if group.awaiting_sync and group.state is not ClassicGroupState.COMPLETING_REBALANCE:
        raise _fail(group, law, "a SyncGroup is parked outside of the sync phase")


def check_valid_stable_generation(group: ClassicGroup) -> None:
    """ValidStableGeneration: a group at work has members, a generation and a common protocol."""
    law = "ValidStableGeneration"
    is_at_work = group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE)
    if is_at_work and not group.members:
        raise _fail(group, law, "a group without members is at work")
    if is_at_work and group.generation < 1:
        raise _fail(group, law, "a group is at work before its first generation")
    if is_at_work and any(group.protocol_name not in member.protocol_names for member in group.members.values()):
        raise _fail(group, law, f"somebody does not speak {group.protocol_name}, which was elected")
    if group.state is ClassicGroupState.EMPTY and group.members:
        raise _fail(group, law, "an empty group has members")
