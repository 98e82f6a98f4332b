"""DescribeGroups (key 15): members and state of classic groups.

Version 3: authorised operations. Version 4: static members. Version 6: GROUP_ID_NOT_FOUND with a message where
earlier versions show a group in state Dead (KIP-1043).
"""

from __future__ import annotations

from kohort.base.values import from_row
from kohort.broker.apis.consumer_group_describe import add_signs
from kohort.broker.chunked_responses import answer_groups
from kohort.broker.context import BrokerContext, Request
from kohort.coordinator.commands import Refusal, admin
from kohort.errors import ErrorCode
from kohort.security.access_control import ResourceType
from kohort.wire.messages import describe_groups as wire
from kohort.wire.private import SOFTWARE_NAME


def handle(context: BrokerContext, request: Request, message: wire.DescribeGroupsRequest) -> None:
    """Ask the coordinator of each group."""

    def row_of(group_id: str, reply: admin.DescribeClassicGroupReply | Refusal) -> wire.DescribedGroup:
        row = group_row(group_id, reply, request.version)
        if request.connection.software == SOFTWARE_NAME:
            add_signs(context, group_id, row.members)
        if message.include_authorized_operations and row.error_code == ErrorCode.NONE:
            row.authorized_operations = request.rights.operations(ResourceType.GROUP, group_id)
        return row

    def response_of(rows: list[wire.DescribedGroup]) -> wire.DescribeGroupsResponse:
        return wire.DescribeGroupsResponse(groups=rows)

    answer_groups(
        context, request, message.groups, command=admin.DescribeClassicGroup, row_of=row_of, response_of=response_of
    )


def group_row(group_id: str, reply: admin.DescribeClassicGroupReply | Refusal, version: int) -> wire.DescribedGroup:
    """Build the row of a group from the coordinator's reply; fields of the same name are taken over."""
    if isinstance(reply, Refusal):
        return wire.DescribedGroup(
            error_code=reply.code, error_message=reply.message, group_id=group_id, group_state="Dead"
        )
    error = reply.error
    if error == ErrorCode.GROUP_ID_NOT_FOUND and version < 6:
        error = ErrorCode.NONE
    return from_row(
        wire.DescribedGroup,
        reply,
        error_code=error,
        error_message=None if error == ErrorCode.NONE else f"there is no classic group {group_id}",
        group_state=reply.state,
        protocol_data=reply.protocol_name,
        members=[
            from_row(
                wire.DescribedGroupMember,
                member,
                group_instance_id=member.instance_id,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in reply.members
        ],
    )
