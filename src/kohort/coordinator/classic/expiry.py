"""Expiry of the deadlines of a classic group, and the deadlines that a restart sets again.

Laws: an obsolete deadline changes nothing. After a restart every session runs in full: no member is removed for a
heartbeat that the broker missed. The deadlines of a rebalance are not rebuilt, because the rebalance is not.
Source: Apache Kafka's `GroupMetadataManager` (expireClassicGroupMemberHeartbeat, expirePendingSync, onLoaded).
"""

from __future__ import annotations

from kohort.coordinator.classic.leave import drop_if_unused
from kohort.coordinator.classic.offline_clock import go_offline, look_at_clock
from kohort.coordinator.classic.pending_decision import Draft
from kohort.coordinator.classic.pending_joins import send_back
from kohort.coordinator.classic.rebalance import (
    begin_rebalance,
    complete_join,
    complete_join_if_all_are_here,
    extend_or_complete_initial_delay,
    go_on_without,
    remove_member,
)
from kohort.coordinator.classic.state import NOT_REBALANCED, ClassicGroup, ClassicGroupState
from kohort.coordinator.classic.volatile import PendingMemberRemoved
from kohort.coordinator.decision import Decision, TimerKey
from kohort.coordinator.model import GroupsState
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode


def decide_expiry(
    group: ClassicGroup | None,
    key: TimerKey,
    settings: GroupSettings,
    *,
    now_ms: int,
    groups: GroupsState | None = None,
) -> Decision:
    """Act on a deadline that has passed.

    Args:
        group: `None` if it is gone; then there is nothing to do.
        key: kinds "session" and "pending" belong to a member, "join", "sync", "initial_delay" and "clock" to the group;
            "join" also to a parked new member of a static group.
        groups: state with the clocks of static groups.
    """
    if group is None:
        return Decision()
    draft = Draft(group, group.group_id, now_ms=now_ms, image=None if groups is None else groups.image, known=groups)
    match key.kind:
        case "session":
            _expire_session(draft, key.member_id, settings)
        case "pending":
            _expire_pending(draft, key.member_id)
        case "clock":
            look_at_clock(draft, settings)
        case "join" | "sync" if key.member_id:
            # Others are deadlines of classic members of the former KIP-848 group: they do not concern the phases here.
            send_back(draft, key.member_id)
        case "join" if group.state is ClassicGroupState.PREPARING_REBALANCE:
            complete_join(draft)
        case "initial_delay" if group.initial_remaining_ms is not None:
            extend_or_complete_initial_delay(draft, settings)
        case "sync":
            _expire_sync(draft, settings)
        case _:
            pass
    return draft.decision()


def decide_loaded(
    group: ClassicGroup, settings: GroupSettings, *, now_ms: int, groups: GroupsState | None = None
) -> Decision:
    """Set the deadlines of a group that was read from the log, and begin a rebalance that it needs.

    A rebalance is needed for a group larger than allowed, for a former KIP-848 group that could not assign the
    partitions of its KIP-848 members, and for a static group in whose rebalance the broker stopped.
    """
    draft = Draft(group, group.group_id, now_ms=now_ms, known=groups)
    for member in group.members.values():
        if not draft.is_offline(member.member_id):
            draft.arm("session", member.session_timeout_ms, member.member_id)
    if group.due is not None and group.members:
        gone = [member_id for member_id in group.due.removed if member_id in group.members]
        # The record of an empty group is written, and loading writes nothing: the last members are removed by their
        # sessions.
        for member_id in gone if len(gone) < len(group.members) else ():
            remove_member(draft, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        begin_rebalance(draft, settings, reason=group.due.reason, is_loading=True)
    elif len(group.members) > settings.group_max_size:
        begin_rebalance(draft, settings, reason="the group is larger than group.max.size", is_loading=True)
    elif group.members and group.state_timestamp_ms == NOT_REBALANCED:
        begin_rebalance(draft, settings, reason="the group was a consumer group before the restart", is_loading=True)
    return draft.decision()


def _expire_session(draft: Draft, member_id: str, settings: GroupSettings) -> None:
    group = draft.group
    if member_id not in group.members:
        return
    waits = member_id in group.awaiting_join or member_id in group.awaiting_sync
    if waits and member_id not in group.new_members:
        # A member whose request is parked cannot heartbeat; its session is set anew when it is answered.
        return
    member = group.members[member_id]
    if settings.is_static and member.instance_id is not None and member_id not in group.new_members:
        if not draft.is_offline(member_id):
            go_offline(draft, settings, {member_id: draft.now_ms - member.session_timeout_ms})
        return
    remove_member(draft, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    go_on_without(draft, settings, reason=f"the session of member {member_id} ended")


def _expire_pending(draft: Draft, member_id: str) -> None:
    if member_id not in draft.group.pending:
        return
    draft.record(PendingMemberRemoved(group_id=draft.group_id, member_id=member_id))
    complete_join_if_all_are_here(draft)
    drop_if_unused(draft)


def _expire_sync(draft: Draft, settings: GroupSettings) -> None:
    group = draft.group
    if group.state not in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE) or not group.unsynced:
        return
    silent = list(group.unsynced)
    if settings.is_static:
        named = [member_id for member_id in silent if group.members[member_id].instance_id is not None]
        silent = [member_id for member_id in silent if member_id not in named]
        go_offline(draft, settings, dict.fromkeys(named, draft.now_ms))
        if not silent:
            return
    for member_id in silent:
        remove_member(draft, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    begin_rebalance(draft, settings, reason=f"{len(silent)} members did not ask for their assignment")
