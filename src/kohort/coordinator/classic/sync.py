"""SyncGroup: the leader says who owns what, everybody learns its part.

Laws: the assignment is in the log before anybody is told of it.
Source: Apache Kafka's `GroupMetadataManager.classicGroupSync`.
"""

from __future__ import annotations

from dataclasses import replace

from kohort.coordinator.classic.checks import (
    ASSIGNMENTS_LIMIT_BYTES,
    check_generation,
    check_group_id,
    check_member,
)
from kohort.coordinator.classic.draft import Draft
from kohort.coordinator.classic.rebalance import answer_syncs, build_sync_error, build_sync_reply
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState, build_stored
from kohort.coordinator.classic.volatile import SyncReceived
from kohort.coordinator.commands import SyncGroup
from kohort.coordinator.decision import Decision
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode, Refused


def decide_sync(group: ClassicGroup | None, command: SyncGroup, settings: GroupSettings, *, now_ms: int) -> Decision:  # noqa: ARG001
    """Park a follower until the leader has spoken; the leader's word makes the group Stable.

    Raises:
        Refused: INVALID_GROUP_ID, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
            INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS; UNKNOWN_SERVER_ERROR if the assignments are too large.
    """
    check_group_id(command.group_id)
    member = check_member(group, command.member_id, command.instance_id)
    assert group is not None
    check_generation(group, command.generation_id)
    if command.protocol_type not in (None, group.protocol_type):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if command.protocol_name not in (None, group.protocol_name):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    draft = Draft(group, command.group_id, now_ms=now_ms)
    match group.state:
        case ClassicGroupState.PREPARING_REBALANCE:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
        case ClassicGroupState.COMPLETING_REBALANCE:
            _receive(draft, command)
        case ClassicGroupState.STABLE:
            _note(draft, command.member_id, parked=None)
            draft.reply(command.request, build_sync_reply(group, member))
            draft.arm("session", member.session_timeout_ms, member.member_id)
        case ClassicGroupState.EMPTY:
            raise AssertionError("an empty group has no members")
    return draft.decision()


def _receive(draft: Draft, command: SyncGroup) -> None:
    group = draft.group
    older = group.awaiting_sync.get(command.member_id)
    if older is not None:
        draft.reply(older, build_sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    _note(draft, command.member_id, parked=command)
    if group.leader != command.member_id:
        return
    size_bytes = sum(len(assignment) for assignment in command.assignments.values())
    if size_bytes > ASSIGNMENTS_LIMIT_BYTES:
        raise Refused(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the assignments take {size_bytes} bytes, {ASSIGNMENTS_LIMIT_BYTES} are allowed",
        )
    unassigned = build_stored(group)
    draft.record(
        replace(
            unassigned,
            state_timestamp_ms=draft.now_ms,
            # Whom the leader forgot owns nothing; whom it invented is no member.
            members=tuple(
                replace(member, assignment=command.assignments.get(member.member_id, b""))
                for member in unassigned.members
            ),
        )
    )
    answer_syncs(draft)


def _note(draft: Draft, member_id: str, *, parked: SyncGroup | None) -> None:
    if parked is None and member_id not in draft.group.unsynced:
        return
    request = None if parked is None else parked.request
    draft.record(SyncReceived(group_id=draft.group_id, member_id=member_id, request=request))
    if not draft.group.unsynced:
        draft.disarm("sync")
