"""LeaveGroup: removal of members by their own request or by an administrator's.

Source: Apache Kafka's `GroupMetadataManager.classicGroupLeave`; KIP-345 (batches, removal by instance).
"""

from __future__ import annotations

from kohort.coordinator.classic.checks import check_member
from kohort.coordinator.classic.pending_decision import Draft
from kohort.coordinator.classic.rebalance import complete_join_if_all_are_here, go_on_without, remove_member
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.classic.volatile import ClassicGroupDropped, PendingMemberRemoved
from kohort.coordinator.commands.groups import LeaveGroup, LeaveGroupReply, LeavingMember
from kohort.coordinator.decision import Decision
from kohort.coordinator.model import GroupsState
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode, Refused


def decide_leave(
    group: ClassicGroup | None,
    command: LeaveGroup,
    settings: GroupSettings,
    *,
    now_ms: int,
    groups: GroupsState | None = None,
) -> Decision:
    """Remove the members that may be removed, with one rebalance for all; the reply has the refusals.

    `groups`: state with the clocks of static groups; a removed member of one is gone at once, too.
    """
    draft = Draft(group, command.group_id, now_ms=now_ms, known=groups)
    outcomes: list[tuple[LeavingMember, ErrorCode]] = []
    gone: list[str] = []
    for leaving in command.members:
        try:
            if group is None:
                raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
            gone.extend(_leave(draft, leaving))
            outcomes.append((leaving, ErrorCode.NONE))
        except Refused as refused:
            outcomes.append((leaving, refused.code))
    draft.reply(command.request, LeaveGroupReply(members=tuple(outcomes)))
    if gone:
        go_on_without(draft, settings, reason=f"{', '.join(gone[:3])}{' and others' if gone[3:] else ''} left")
    elif group is not None and len(draft.group.pending) < len(group.pending):
        complete_join_if_all_are_here(draft)
        drop_if_unused(draft)
    return draft.decision()


def drop_if_unused(draft: Draft) -> None:
    """Forget a group that has never had a member and expects none."""
    group = draft.group
    if group.state is ClassicGroupState.EMPTY and group.stored is None and not group.pending:
        draft.record(ClassicGroupDropped(group_id=draft.group_id))


def _leave(draft: Draft, leaving: LeavingMember) -> list[str]:
    """Remove one member; return its id unless it was only pending."""
    group = draft.group
    if leaving.member_id in group.pending:
        draft.record(PendingMemberRemoved(group_id=draft.group_id, member_id=leaving.member_id))
        draft.disarm("pending", leaving.member_id)
        return []
    # An administrator names the instance id alone.
    holder = group.instance_ids.get(leaving.instance_id or "", "") if not leaving.member_id else leaving.member_id
    member = check_member(group, holder, leaving.instance_id)
    remove_member(draft, member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    return [member.member_id]
