"""New members of a static group with members: they wait for the end of the window, or any rebalance.

A consumer is put into the present generation with an empty assignment, heartbeats like any other member, and rejoins
when it is told to. Members of other protocol types are parked (pending_joins.py).

Laws: no member gains or loses a partition by a join while the window is open. A group without any assignment does not
wait for new members.
Source: KIP-345's draft (expansion timeout); requirement S1.
"""

from __future__ import annotations

from dataclasses import replace

from kohort.coordinator.classic.offline_members import has_nothing
from kohort.coordinator.classic.pending_decision import Draft
from kohort.coordinator.classic.pending_joins import has_parked, park, unpark
from kohort.coordinator.classic.rebalance import begin_rebalance
from kohort.coordinator.classic.replies import build_join_reply
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState, ClassicMember, build_stored
from kohort.coordinator.classic.subscriptions import CONSUMER_PROTOCOL_TYPE
from kohort.coordinator.classic.volatile import MemberPut, NewcomerGone, NewcomerHosted
from kohort.coordinator.commands.groups import JoinGroup
from kohort.coordinator.embeddedcodec import write_assignment
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.mode import has_window, open_window, without_window


def is_window_for(group: ClassicGroup, member: ClassicMember, settings: GroupSettings) -> bool:
    """Whether a new member waits for the window, instead of the group rebalancing for it."""
    # A member without an instance id never waits: outside of static mode, each join begins a rebalance.
    if not settings.is_static or member.instance_id is None:
        return False
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        # An empty group's first assignment waits for no member, and so no member that joins before it waits.
        return any(each.assignment for each in group.members.values())
    return group.state is ClassicGroupState.STABLE


def is_waiting(draft: Draft, member: ClassicMember) -> bool:
    """Whether a member is in the present generation without partitions, and waits for the next."""
    known = draft.known
    return (
        known is not None
        and member.instance_id is not None
        and has_window(known, draft.group_id)
        and has_nothing(draft.group, member)
    )


def receive(draft: Draft, command: JoinGroup, settings: GroupSettings, member: ClassicMember) -> None:
    """Let a new member wait; the first of them opens the window."""
    assert draft.known is not None, "a static group has a clock"
    unpark(draft, member)
    # The leader need not know a consumer: an empty assignment can be written for it here.
    if command.protocol_type == CONSUMER_PROTOCOL_TYPE and draft.group.protocol_name in member.protocol_names:
        host(draft, command, member)
    else:
        park(draft, command, member)
    draft.add(*open_window(draft.known, draft.group_id, settings, now_ms=draft.now_ms))


def host(draft: Draft, command: JoinGroup, member: ClassicMember) -> None:
    """Put a member into the present generation with an empty assignment, or put it there again."""
    group_id, group = draft.group_id, draft.group
    nothing = write_assignment({}, subscription=member.metadata(group.protocol_name))
    member = replace(member, assignment=nothing)
    draft.record(MemberPut(group_id=group_id, protocol_type=command.protocol_type, member=member))
    draft.record(NewcomerHosted(group_id=group_id, member_id=member.member_id))
    # A restart must know the member; during a rebalance the log keeps the last stored state.
    if group.state is ClassicGroupState.STABLE:
        draft.record(build_stored(group))
    draft.reply(command.request, build_join_reply(group, member))
    draft.arm("session", member.session_timeout_ms, member.member_id)


def may_stay(draft: Draft, member: ClassicMember) -> bool:
    """Whether a waiting member with new protocols may wait on."""
    group = draft.group
    return (
        group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE)
        and is_waiting(draft, group.members[member.member_id])
        # A leader that rejoins may know of changed topics: that needs a rebalance.
        and group.leader != member.member_id
        and group.protocol_name in member.protocol_names
    )


def end_window(draft: Draft, settings: GroupSettings) -> None:
    """Begin one rebalance for all waiting members, if there are any left."""
    group, known = draft.group, draft.known
    assert known is not None
    waiting = [member.member_id for member in group.members.values() if has_nothing(group, member)]
    if group.state is not ClassicGroupState.PREPARING_REBALANCE and (waiting or has_parked(draft)):
        count = len(waiting) + sum(found.request is not None for found in group.parked.values())
        begin_rebalance(draft, settings, reason=f"the expansion timeout ended, and {count} members have nothing")
        return
    # No member waits any more: the window closes without a rebalance.
    for instance_id in list(group.parked):
        draft.record(NewcomerGone(group_id=draft.group_id, instance_id=instance_id))
    draft.record(without_window(draft.group_id, known.clocks[draft.group_id]))
