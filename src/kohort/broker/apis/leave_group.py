"""LeaveGroup (key 13): a member leaves, or an administrator removes several.

Up to version 2 one member leaves and the answer's only error is about it; from version 3 on there is a list of members
with an error each (KIP-345). Version 5: the reason (KIP-800).
"""

from __future__ import annotations

from functools import partial

from kohort.broker.connections.memberconnections import MemberConnections
from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.requests import MOST_NAMED, check_rows
from kohort.coordinator import commands
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import leave_group as wire


def handle(context: BrokerContext, request: Request, message: wire.LeaveGroupRequest) -> wire.LeaveGroupResponse | None:
    """Ask the group's coordinator."""
    if not request.rights.allows(AclOperation.READ, ResourceType.GROUP, message.group_id):
        return wire.LeaveGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    runtime = context.runtime
    token = runtime.next_token()
    members: tuple[commands.LeavingMember, ...]
    if request.version < 3:
        # Up to version 2 a request names one member; from version 3 on it has a list (KIP-345).
        members = (commands.LeavingMember(member_id=message.member_id),)
    else:
        check_rows(len(message.members), MOST_NAMED, "members")
        members = tuple(
            commands.LeavingMember(
                member_id=member.member_id, instance_id=member.group_instance_id, reason=member.reason
            )
            for member in message.members
        )
    command = commands.LeaveGroup(
        cause=token,
        request=token,
        group_id=message.group_id,
        principal=request.principal,
        members=members,
        client_id=request.client_id,
    )
    runtime.answer(request, command, partial(_translate, context.member_connections, message.group_id))
    return None


def _translate(
    connections: MemberConnections, group_id: str, request: Request, body: commands.LeaveGroupReply | commands.Refusal
) -> wire.LeaveGroupResponse:
    if isinstance(body, commands.Refusal):
        return wire.LeaveGroupResponse(error_code=body.code)
    for member, error in body.members:
        if error is ErrorCode.NONE:
            connections.left(group_id, member.member_id)
    if request.version < 3:
        return wire.LeaveGroupResponse(error_code=body.members[0][1])
    return wire.LeaveGroupResponse(
        error_code=ErrorCode.NONE,
        members=[
            wire.MemberResponse(member_id=member.member_id, group_instance_id=member.instance_id, error_code=error)
            for member, error in body.members
        ],
    )
