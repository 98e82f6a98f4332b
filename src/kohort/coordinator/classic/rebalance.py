"""The two phases of a classic rebalance: all members join, then all members sync.

Laws: a step answers each parked request that it ends, and re-arms the session of each member that it answers. A phase
ends by its timer at the latest: a member that did not take part is removed.
Source: Apache Kafka's `GroupMetadataManager` (prepareRebalance, completeClassicGroupJoin); KIP-62.
"""

from __future__ import annotations

from kohort.coordinator.classic.offline_members import enter_absentees
from kohort.coordinator.classic.pending_decision import Draft
from kohort.coordinator.classic.pending_joins import admit_parked
from kohort.coordinator.classic.pending_rebalance import note_done, note_due
from kohort.coordinator.classic.replies import (
    build_join_error,
    build_join_reply,
    build_sync_error,
    build_sync_reply,
)
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.classic.volatile import (
    GenerationBegun,
    InitialDelayExtended,
    MemberRemoved,
    RebalanceBegun,
    SyncsAnswered,
)
from kohort.coordinator.records import ClassicGroupStored
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode


def begin_rebalance(draft: Draft, settings: GroupSettings, *, reason: str, is_loading: bool = False) -> None:
    """Open the join phase; an empty group waits for the initial delay, if there is one.

    `is_loading`: no record is written; the log leads to the same rebalance again after another restart.
    """
    group = draft.group
    is_initial = group.state is ClassicGroupState.EMPTY
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        # The assignment of the interrupted generation will not come.
        answer_syncs(draft, ErrorCode.REBALANCE_IN_PROGRESS)
    draft.disarm("sync")
    if settings.is_static and not is_initial and not is_loading:
        # In static mode a restart has to begin the rebalance again, for the same reason.
        note_due(draft, reason)
    delay_ms = settings.group_initial_rebalance_delay_ms if is_initial else 0
    draft.record(
        RebalanceBegun(
            group_id=draft.group_id,
            reason=reason,
            initial_remaining_ms=max(group.rebalance_timeout_ms - delay_ms, 0) if delay_ms > 0 else None,
            timestamp_ms=draft.now_ms,
        )
    )
    # The join phase admits the new members that waited outside of the group.
    admit_parked(draft)
    if delay_ms > 0:
        draft.arm("initial_delay", delay_ms)
    elif is_initial:
        # Without a delay the phase waits for no member, not even for ids that were handed out: they join the next
        # round.
        complete_join(draft)
    else:
        draft.arm("join", group.rebalance_timeout_ms)
        complete_join_if_all_are_here(draft)


def extend_or_complete_initial_delay(draft: Draft, settings: GroupSettings) -> None:
    """End the initial delay, or extend it if a member joined meanwhile and time is left."""
    remaining_ms = draft.group.initial_remaining_ms
    # Kafka: each further member extends the delay, up to the rebalance timeout in total.
    if draft.group.new_member_added and remaining_ms:
        delay_ms = min(settings.group_initial_rebalance_delay_ms, remaining_ms)
        draft.record(InitialDelayExtended(group_id=draft.group_id, initial_remaining_ms=remaining_ms - delay_ms))
        draft.arm("initial_delay", delay_ms)
    else:
        complete_join(draft)


def complete_join_if_all_are_here(draft: Draft) -> None:
    """End the join phase once all members have joined; an initial delay always runs to its end."""
    group = draft.group
    if group.state is not ClassicGroupState.PREPARING_REBALANCE or group.initial_remaining_ms is not None:
        return
    # Members that are offline take part in their absence.
    awaited = len(group.members) - len(draft.offline)
    # KIP-394: a member id that was handed out is about to join.
    if not group.members or (len(group.awaiting_join) == awaited and not group.pending):
        complete_join(draft)


def complete_join(draft: Draft) -> None:
    """End the join phase: remove dynamic members that did not join, and begin the next generation."""
    group = draft.group
    missing = [member for member_id, member in group.members.items() if member_id not in group.awaiting_join]
    for member in missing:
        # Only its session removes a static member.
        if member.instance_id is None:
            remove_member(draft, member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    # Only static members are missing: without a leader there is no generation, and the phase goes on.
    if group.members and not group.awaiting_join:
        draft.arm("join", group.rebalance_timeout_ms)
        return
    draft.disarm("join")
    draft.disarm("initial_delay")
    if not group.members:
        # The last member is gone: the group is stored as empty.
        draft.record(_build_empty(group, now_ms=draft.now_ms))
        note_done(draft)
        return
    enter_absentees(draft)
    answered = dict(group.awaiting_join)
    # As in Kafka, the leader stays if it has joined.
    leader = group.leader if group.leader in answered else next(iter(answered))
    assert leader is not None
    draft.record(
        GenerationBegun(
            group_id=draft.group_id,
            generation=group.generation + 1,
            protocol_name=group.elect_protocol(),
            leader=leader,
            timestamp_ms=draft.now_ms,
        )
    )
    for member_id, request in answered.items():
        member = group.members[member_id]
        draft.reply(request, build_join_reply(group, member))
        # A parked JoinGroup held the session; from the response on it counts again.
        draft.arm("session", member.session_timeout_ms, member_id)
    # All members have to send SyncGroup in time, the leader with the assignment.
    draft.arm("sync", group.rebalance_timeout_ms)


def answer_syncs(draft: Draft, error: ErrorCode = ErrorCode.NONE) -> None:
    """Answer every parked SyncGroup, with the member's assignment or with `error`."""
    group = draft.group
    if not group.awaiting_sync:
        return
    for member_id, request in group.awaiting_sync.items():
        member = group.members[member_id]
        draft.reply(request, build_sync_error(error) if error else build_sync_reply(group, member))
        # A session that ended while its request was parked was not held against the member; from here on it counts
        # again.
        draft.arm("session", member.session_timeout_ms, member_id)
    draft.record(SyncsAnswered(group_id=draft.group_id))


def remove_member(draft: Draft, member_id: str, error: ErrorCode) -> None:
    """Remove a member and answer its parked requests with `error`."""
    fence_parked(draft, member_id, error)
    draft.record(MemberRemoved(group_id=draft.group_id, member_id=member_id))
    draft.disarm("session", member_id)


def fence_parked(draft: Draft, member_id: str, error: ErrorCode) -> None:
    """Answer a member's parked requests with `error`; the caller's record removes them from the lists."""
    group = draft.group
    join = group.awaiting_join.get(member_id)
    if join is not None:
        draft.reply(join, build_join_error(error, member_id))
    sync = group.awaiting_sync.get(member_id)
    if sync is not None:
        draft.reply(sync, build_sync_error(error))


def go_on_without(draft: Draft, settings: GroupSettings, *, reason: str) -> None:
    """Let a group go on without removed or pending members: rebalance, or end a wait."""
    match draft.group.state:
        case ClassicGroupState.STABLE | ClassicGroupState.COMPLETING_REBALANCE:
            begin_rebalance(draft, settings, reason=reason)
        case ClassicGroupState.PREPARING_REBALANCE:
            if settings.is_static:
                note_due(draft, draft.group.rebalance_reason)
            complete_join_if_all_are_here(draft)
        case ClassicGroupState.EMPTY:
            pass


def _build_empty(group: ClassicGroup, *, now_ms: int) -> ClassicGroupStored:
    return ClassicGroupStored(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        generation=group.generation + 1,
        protocol_name=None,
        leader=None,
        state_timestamp_ms=now_ms,
        members=(),
    )
