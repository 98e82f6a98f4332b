"""Sessions of classic members: Heartbeat renews them, LeaveGroup and deadlines end them.

Source: Apache Kafka's `GroupMetadataManager.classicGroupHeartbeat`.
"""

from __future__ import annotations

from kohort.coordinator.classic import pending_decision, rebalance, state
from kohort.coordinator.classic.state import ClassicGroupState
from kohort.coordinator.classic.static import decide_back, go_offline, look_at_clock
from kohort.coordinator.classic.validation import check_generation, check_member
from kohort.coordinator.commands import Done, Heartbeat, LeaveGroup, LeaveGroupReply, LeavingMember, Refusal
from kohort.coordinator.decision import Arm, Decision, Reply, TimerKey
from kohort.coordinator.model import GroupsState
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode, Refused


def decide_heartbeat(
    group: state.ClassicGroup | None, command: Heartbeat, *, now_ms: int, groups: GroupsState | None = None
) -> Decision:
    """Renew a member's session, and mark it as online; REBALANCE_IN_PROGRESS tells it to rejoin.

    Raises:
        Refused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    return decide_back(
        group, command.member_id, groups, lambda found: _renew_session(found, command, now_ms=now_ms), now_ms=now_ms
    )


def _renew_session(group: state.ClassicGroup | None, command: Heartbeat, *, now_ms: int) -> Decision:
    member = check_member(group, command.member_id, command.instance_id)
    assert group is not None
    check_generation(group, command.generation_id)
    # A member that is told to rejoin is alive all the same, so this refusal is a response with an effect.
    is_rebalancing = group.state is ClassicGroupState.PREPARING_REBALANCE
    body = Refusal(code=ErrorCode.REBALANCE_IN_PROGRESS) if is_rebalancing else Done()
    session = Arm(TimerKey("session", group.group_id, member.member_id), now_ms + member.session_timeout_ms)
    return Decision(effects=(session, Reply(command.request, body)))


# LeaveGroup: removal of members by their own request or by an administrator's.
#
# Source: Apache Kafka's `GroupMetadataManager.classicGroupLeave`; KIP-345 (batches, removal by instance).


def decide_leave(
    group: state.ClassicGroup | None,
    command: LeaveGroup,
    settings: GroupSettings,
    *,
    now_ms: int,
    groups: GroupsState | None = None,
) -> Decision:
    """Remove the named members, with one rebalance for all; the reply has an error code for each.

    `groups`: state with the clocks of static groups. A member of a static group is removed at once, too.
    """
    pending = pending_decision.PendingDecision(group, command.group_id, now_ms=now_ms, known=groups)
    outcomes: list[tuple[LeavingMember, ErrorCode]] = []
    gone: list[str] = []
    for leaving in command.members:
        try:
            if group is None:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
            gone.extend(_leave(pending, leaving))
            outcomes.append((leaving, ErrorCode.NONE))
        except Refused as refused:
            outcomes.append((leaving, refused.code))
    pending.reply(command.request, LeaveGroupReply(members=tuple(outcomes)))
    if gone:
        rebalance.go_on_without(
            pending, settings, reason=f"{', '.join(gone[:3])}{' and others' if gone[3:] else ''} left"
        )
    elif group is not None and len(pending.group.pending) < len(group.pending):
        rebalance.complete_join_if_all_are_here(pending)
        drop_if_unused(pending)
    return pending.decision()


def drop_if_unused(pending: pending_decision.PendingDecision) -> None:
    """Drop a group that has never had a member, and in which no member id is expected to join."""
    group = pending.group
    if group.state is ClassicGroupState.EMPTY and group.stored is None and not group.pending:
        pending.record(state.ClassicGroupDropped(group_id=pending.group_id))


def _leave(pending: pending_decision.PendingDecision, leaving: LeavingMember) -> list[str]:
    """Remove one member; return its id in a list, which is empty if the id had not joined yet."""
    group = pending.group
    if leaving.member_id in group.pending:
        pending.record(state.PendingMemberRemoved(group_id=pending.group_id, member_id=leaving.member_id))
        pending.disarm("pending", leaving.member_id)
        return []
    # An administrator names the instance id alone.
    holder = group.instance_ids.get(leaving.instance_id or "", "") if not leaving.member_id else leaving.member_id
    member = check_member(group, holder, leaving.instance_id)
    rebalance.remove_member(pending, member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    return [member.member_id]


# Expiry of the deadlines of a classic group, and the deadlines that a restart sets again.
#
# Laws: an obsolete deadline changes nothing. After a restart every session runs in full: no member is removed for a
# heartbeat that the broker missed. The deadlines of a rebalance are not rebuilt, because the rebalance is not.
# Source: Apache Kafka's `GroupMetadataManager` (expireClassicGroupMemberHeartbeat, expirePendingSync, onLoaded).


def decide_expiry(
    group: state.ClassicGroup | None,
    key: TimerKey,
    settings: GroupSettings,
    *,
    now_ms: int,
    groups: GroupsState | None = None,
) -> Decision:
    """Act on a passed deadline of the group or of one member.

    "join" with a member id is the deadline of a static group's pending join. `groups`: state with the clocks.
    """
    if group is None:
        return Decision()
    pending = pending_decision.PendingDecision(
        group, group.group_id, now_ms=now_ms, image=None if groups is None else groups.image, known=groups
    )
    match key.kind:
        case "session":
            _expire_session(pending, key.member_id, settings)
        case "pending":
            _expire_pending(pending, key.member_id)
        case "clock":
            look_at_clock(pending, settings)
        case "join" | "sync" if key.member_id:
            # Others are deadlines of classic members of the former KIP-848 group: they do not concern the phases here.
            rebalance.send_back(pending, key.member_id)
        case "join" if group.state is ClassicGroupState.PREPARING_REBALANCE:
            rebalance.complete_join(pending)
        case "initial_delay" if group.initial_remaining_ms is not None:
            rebalance.extend_or_complete_initial_delay(pending, settings)
        case "sync":
            _expire_sync(pending, settings)
        case _:
            pass
    return pending.decision()


def decide_loaded(
    group: state.ClassicGroup, settings: GroupSettings, *, now_ms: int, groups: GroupsState | None = None
) -> Decision:
    """Set the deadlines of a group loaded from the log, and begin a rebalance if the group needs one."""
    # A rebalance is needed for a group larger than allowed, for a former KIP-848 group that could not assign the
    # partitions of its KIP-848 members, and for a static group in whose rebalance the broker stopped.
    pending = pending_decision.PendingDecision(group, group.group_id, now_ms=now_ms, known=groups)
    for member in group.members.values():
        if not pending.is_offline(member.member_id):
            pending.arm("session", member.session_timeout_ms, member.member_id)
    if group.due is not None and group.members:
        gone = [member_id for member_id in group.due.removed if member_id in group.members]
        # The record of an empty group is written, and loading writes nothing: the last members are removed by their
        # sessions.
        for member_id in gone if len(gone) < len(group.members) else ():
            rebalance.remove_member(pending, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        rebalance.begin_rebalance(pending, settings, reason=group.due.reason, is_loading=True)
    elif len(group.members) > settings.group_max_size:
        rebalance.begin_rebalance(pending, settings, reason="the group is larger than group.max.size", is_loading=True)
    elif group.members and group.state_timestamp_ms == state.NOT_REBALANCED:
        rebalance.begin_rebalance(
            pending, settings, reason="the group was a consumer group before the restart", is_loading=True
        )
    return pending.decision()


def _expire_session(pending: pending_decision.PendingDecision, member_id: str, settings: GroupSettings) -> None:
    group = pending.group
    if member_id not in group.members:
        return
    waits = member_id in group.awaiting_join or member_id in group.awaiting_sync
    if waits and member_id not in group.new_members:
        # A member whose request is delayed cannot heartbeat; its session is set anew when it is answered.
        return
    member = group.members[member_id]
    if settings.is_static and member.instance_id is not None and member_id not in group.new_members:
        if not pending.is_offline(member_id):
            go_offline(pending, settings, {member_id: pending.now_ms - member.session_timeout_ms})
        return
    rebalance.remove_member(pending, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    rebalance.go_on_without(pending, settings, reason=f"the session of member {member_id} ended")


def _expire_pending(pending: pending_decision.PendingDecision, member_id: str) -> None:
    if member_id not in pending.group.pending:
        return
    pending.record(state.PendingMemberRemoved(group_id=pending.group_id, member_id=member_id))
    rebalance.complete_join_if_all_are_here(pending)
    drop_if_unused(pending)


def _expire_sync(pending: pending_decision.PendingDecision, settings: GroupSettings) -> None:
    group = pending.group
    if group.state not in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE) or not group.unsynced:
        return
    silent = list(group.unsynced)
    if settings.is_static:
        named = [member_id for member_id in silent if group.members[member_id].instance_id is not None]
        silent = [member_id for member_id in silent if member_id not in named]
        go_offline(pending, settings, dict.fromkeys(named, pending.now_ms))
        if not silent:
            return
    for member_id in silent:
        rebalance.remove_member(pending, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    rebalance.begin_rebalance(pending, settings, reason=f"{len(silent)} members did not ask for their assignment")
