"""Who of a static group is there, and who is offline: silent for its session, or its connection is closed.

Whoever is offline keeps its place and its share until the registration timeout of the earliest one ends; then it and
everybody who has been offline for as long go in one rebalance. Whoever is heard of again is back, and nothing moves.

Laws: nobody waits for a member that is offline. A member that says anything which is accepted is not.
Source: KIP-345's draft (registration timeout); requirement S1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from kohort.coordinator.classic.draft import Draft
from kohort.coordinator.classic.expansion import end_window
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
from kohort.coordinator.staticmode.mode import heard, note, start_offline
from kohort.errors import ErrorCode

#: So many members are named in the reason of a rebalance.
MOST_NAMED: Final = 3


def go_offline(draft: Draft, settings: GroupSettings, heard_ms: Mapping[str, int]) -> None:
    """Named members are not there any more since they were last heard of: member id -> time. Nobody waits for them."""
    assert draft.known is not None, "a static group has a clock"
    group = draft.group
    draft.add(*start_offline(draft.known, draft.group_id, heard_ms, settings, now_ms=draft.now_ms))
    for member_id in heard_ms:
        draft.disarm("session", member_id)
        if member_id in group.unsynced:
            draft.record(SyncReceived(group_id=draft.group_id, member_id=member_id, request=None))
            if not group.unsynced:
                draft.disarm("sync")
    if group.state is ClassicGroupState.COMPLETING_REBALANCE and group.leader in heard_ms:
        begin_rebalance(draft, settings, reason=f"{group.leader}, who was to share out, is offline")
    else:
        complete_join_if_all_are_here(draft)


def come_back(draft: Draft, member_id: str) -> None:
    """A member is heard of again, if it was offline."""
    if draft.is_offline(member_id):
        assert draft.known is not None
        for record in heard(draft.known, draft.group_id, member_id):
            draft.record(record)


def decide_connection_closed(
    group: ClassicGroup, member_id: str, settings: GroupSettings, groups: GroupsState, *, heard_ms: int, now_ms: int
) -> Decision:
    """The connection of a named member of a static group is closed: it is offline, and nobody answers what it asked.

    One whose first JoinGroup is parked has nothing to come back to.

    Args:
        heard_ms: when the member was last heard of.
    """
    draft = Draft(group, group.group_id, now_ms=now_ms, image=groups.image, known=groups)
    if member_id in group.new_members:
        remove_member(draft, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        go_on_without(draft, settings, reason=f"the connection of the new member {member_id} was closed")
    elif not draft.is_offline(member_id):
        if member_id in group.awaiting_join or member_id in group.awaiting_sync:
            # Whoever waits for an answer need say nothing meanwhile.
            heard_ms = now_ms
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
    """What a request of a member leads to, which is offline no longer by that it is accepted."""
    clock = None if group is None or groups is None else groups.clocks.get(group.group_id)
    if group is None or clock is None or member_id not in clock.offline:
        return decide(group)
    draft = Draft(group, group.group_id, now_ms=now_ms, known=groups)
    come_back(draft, member_id)
    back, decision = draft.decision(), decide(draft.group)
    return Decision((*back.records, *decision.records), (*back.effects, *decision.effects))


def look_at_clock(draft: Draft, settings: GroupSettings) -> None:
    """The clock of the group is due: registrations end, or the window, or it is written how far it has run."""
    clock = None if draft.known is None else draft.known.clocks.get(draft.group_id)
    if clock is None:
        return
    assert draft.known is not None
    expired = clock.expired(settings, now_ms=draft.now_ms)
    gone = [member_id for member_id in expired if member_id in draft.group.members]
    for member_id in expired:
        if member_id not in draft.group.members:
            # It had this id in a rebalance that a crash has undone.
            draft.record(OfflineMemberForgotten(group_id=draft.group_id, member_id=member_id))
    for member_id in gone:
        remove_member(draft, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    if gone:
        more = f" and {len(gone) - MOST_NAMED} others" if gone[MOST_NAMED:] else ""
        reason = f"the registration of {', '.join(gone[:MOST_NAMED])}{more} ended"
        go_on_without(draft, settings, reason=reason)
    elif clock.is_window_over(settings, now_ms=draft.now_ms):
        end_window(draft, settings)
    elif not expired:
        draft.add(*note(draft.known, draft.group_id, settings, now_ms=draft.now_ms))
