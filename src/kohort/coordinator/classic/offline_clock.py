"""Offline members of a static classic group: silent for a session, or with a closed connection.

An offline member keeps its place and its partitions until the registration timeout of the earliest one ends. Then it
and all members that have been offline for as long are removed in one rebalance. A member that is heard of again is
back, and no partition moves.

Laws: the group does not wait for an offline member. A member with an accepted request is online.
Source: KIP-345's draft (registration timeout); requirement S1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kohort.coordinator.classic.expansion import end_window
from kohort.coordinator.classic.pending_decision import Draft
from kohort.coordinator.classic.rebalance import (
    begin_rebalance,
    complete_join_if_all_are_here,
    fence_parked,
    go_on_without,
    remove_member,
)
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.classic.volatile import ClassicConnectionLost, SyncReceived
from kohort.coordinator.decision import Decision
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records import OfflineMemberForgotten
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.mode import heard, note, start_offline
from kohort.errors import ErrorCode

#: Most members that the reason of a rebalance names.
MOST_NAMED: Final = 3


def go_offline(draft: Draft, settings: GroupSettings, heard_ms: Mapping[str, int]) -> None:
    """Mark members offline since they were last heard of (member id -> time), and end the wait for them."""
    assert draft.known is not None, "a static group has a clock"
    group = draft.group
    draft.add(*start_offline(draft.known, draft.group_id, heard_ms, settings, now_ms=draft.now_ms))
    for member_id in heard_ms:
        # From here on the registration timeout counts, not the session.
        draft.disarm("session", member_id)
        if member_id in group.unsynced:
            # The sync phase does not wait for an offline member.
            draft.record(SyncReceived(group_id=draft.group_id, member_id=member_id, request=None))
            if not group.unsynced:
                draft.disarm("sync")
    if group.state is ClassicGroupState.COMPLETING_REBALANCE and group.leader in heard_ms:
        # Without its leader a generation gets no assignment.
        begin_rebalance(draft, settings, reason=f"{group.leader}, who was to share out, is offline")
    else:
        complete_join_if_all_are_here(draft)


def come_back(draft: Draft, member_id: str) -> None:
    """Bring a member back that was offline."""
    if draft.is_offline(member_id):
        assert draft.known is not None
        for record in heard(draft.known, draft.group_id, member_id):
            draft.record(record)


def decide_connection_closed(
    group: ClassicGroup, member_id: str, settings: GroupSettings, groups: GroupsState, *, heard_ms: int, now_ms: int
) -> Decision:
    """Mark a static member with a closed connection offline, and drop its parked requests.

    A new member with a parked JoinGroup is removed: it has no partitions to come back to.

    Args:
        heard_ms: when the member was last heard of.
    """
    draft = Draft(group, group.group_id, now_ms=now_ms, image=groups.image, known=groups)
    if member_id in group.new_members:
        remove_member(draft, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        go_on_without(draft, settings, reason=f"the connection of the new member {member_id} was closed")
    elif not draft.is_offline(member_id):
        if member_id in group.awaiting_join or member_id in group.awaiting_sync:
            # A member with a parked request sends nothing meanwhile.
            heard_ms = now_ms
        # The connection of the parked requests is closed: no response would arrive.
        fence_parked(draft, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        draft.record(ClassicConnectionLost(group_id=group.group_id, member_id=member_id))
        go_offline(draft, settings, {member_id: heard_ms})
    return draft.decision()


def decide_back(
    group: ClassicGroup | None,
    member_id: str,
    groups: GroupsState | None,
    decide: Callable[[ClassicGroup | None], Decision],
    *,
    now_ms: int,
) -> Decision:
    """Decide a member's request; if it is accepted, the member is offline no longer."""
    clock = None if group is None or groups is None else groups.clocks.get(group.group_id)
    # The usual case: the member is online.
    if group is None or clock is None or member_id not in clock.offline:
        return decide(group)
    draft = Draft(group, group.group_id, now_ms=now_ms, known=groups)
    come_back(draft, member_id)
    # The request is decided for the group with the member online; a refusal is raised and brings no one back.
    back, decision = draft.decision(), decide(draft.group)
    return Decision((*back.records, *decision.records), (*back.effects, *decision.effects))


def look_at_clock(draft: Draft, settings: GroupSettings) -> None:
    """Act on the due clock of a static group: registrations or the window end, or its state is stored."""
    clock = None if draft.known is None else draft.known.clocks.get(draft.group_id)
    if clock is None:
        return
    assert draft.known is not None
    expired = clock.expired(settings, now_ms=draft.now_ms)
    gone = [member_id for member_id in expired if member_id in draft.group.members]
    for member_id in expired:
        if member_id not in draft.group.members:
            # The member had this id in a rebalance that a crash has undone.
            draft.record(OfflineMemberForgotten(group_id=draft.group_id, member_id=member_id))
    for member_id in gone:
        remove_member(draft, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    if gone:
        more = f" and {len(gone) - MOST_NAMED} others" if gone[MOST_NAMED:] else ""
        reason = f"the registration of {', '.join(gone[:MOST_NAMED])}{more} ended"
        go_on_without(draft, settings, reason=reason)
    # No registration has ended, so the deadline may be that of the window.
    elif clock.is_window_over(settings, now_ms=draft.now_ms):
        end_window(draft, settings)
    elif not expired:
        # Otherwise only the progress of the clock is due.
        draft.add(*note(draft.known, draft.group_id, settings, now_ms=draft.now_ms))
