"""DescribeGroups (key 15): members and state of classic groups.

Version 3: authorised operations. Version 4: static members. Version 6: GROUP_ID_NOT_FOUND with a message where
earlier versions show a group in state Dead (KIP-1043).
"""

from __future__ import annotations

from kohort.base.values import from_row
from kohort.broker.authorized_operations import GROUP_OPERATIONS
from kohort.broker.chunked_responses import answer_rows, rows_of_coordinators
from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.broker.limits.requests import MOST_NAMED, check_rows
from kohort.coordinator.commands import Refusal
from kohort.coordinator.commands import admin as commands
from kohort.coordinator.decision import ReplyBody
from kohort.errors import ErrorCode
from kohort.ids import CauseId
from kohort.wire.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)


def handle(context: BrokerContext, request: Request, message: DescribeGroupsRequest) -> None:
    """Ask the coordinator of each group."""
    # A group that is named twice is described once: repeated large groups would be more than any client can take.
    group_ids = list(dict.fromkeys(message.groups))
    check_rows(len(group_ids), MOST_NAMED, "groups")
    runtime = context.runtime

    def command_of(group_id: str) -> commands.DescribeClassicGroup:
        token = runtime.next_token()
        return commands.DescribeClassicGroup(cause=CauseId(token), request=token, group_id=group_id)

    def row_of(group_id: str, reply: ReplyBody) -> DescribedGroup:
        row = group_row(group_id, reply, request.version)
        if message.include_authorized_operations:
            row.authorized_operations = GROUP_OPERATIONS
        return row

    rows_of = rows_of_coordinators(runtime, command_of, row_of)
    answer_rows(context.loop.call_soon, request, group_ids, rows_of, lambda rows: DescribeGroupsResponse(groups=rows))


def group_row(group_id: str, reply: ReplyBody, version: int) -> DescribedGroup:
    """Build the row of a group from the coordinator's reply; fields of the same name are taken over."""
    if isinstance(reply, Refusal):
        return DescribedGroup(error_code=reply.code, error_message=reply.message, group_id=group_id, group_state="Dead")
    assert isinstance(reply, commands.DescribeClassicGroupReply)
    error = reply.error
    if error == ErrorCode.GROUP_ID_NOT_FOUND and version < 6:
        error = ErrorCode.NONE
    return from_row(
        DescribedGroup,
        reply,
        error_code=error,
        error_message=None if error == ErrorCode.NONE else f"there is no classic group {group_id}",
        group_state=reply.state,
        protocol_data=reply.protocol_name,
        members=[
            from_row(
                DescribedGroupMember,
                member,
                group_instance_id=member.instance_id,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in reply.members
        ],
    )
