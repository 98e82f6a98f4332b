"""SyncGroup (key 14): the leader hands out the assignment, and every member gets its own.

Version 3: static members. Version 5: the protocol's type and name, which both sides compare.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.context import BrokerContext, Request
from kohort.broker.groups.waiting_rights import watch_group_right
from kohort.broker.limits.requests import MOST_NAMED, check_rows
from kohort.coordinator import commands
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import sync_group as wire

_DENIED: Final = wire.SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)


def handle(context: BrokerContext, request: Request, message: wire.SyncGroupRequest) -> wire.SyncGroupResponse | None:
    """Ask the group's coordinator, which parks the request until the leader has synced."""
    # From version 5 on both sides compare the protocol's type and name.
    if request.version >= 5 and (message.protocol_type is None or message.protocol_name is None):
        return wire.SyncGroupResponse(error_code=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    rights = request.rights
    if rights.is_restricted and not rights.allows(AclOperation.READ, ResourceType.GROUP, message.group_id):
        return wire.SyncGroupResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    check_rows(len(message.assignments), MOST_NAMED, "members")
    if not message.assignments and context.parked.refuses():
        # As Apache Kafka's coordinator while it loads: clients join again.
        return wire.SyncGroupResponse(error_code=ErrorCode.REBALANCE_IN_PROGRESS)
    runtime = context.runtime
    token = runtime.next_token()
    command = commands.SyncGroup(
        cause=token,
        request=token,
        group_id=message.group_id,
        principal=request.principal,
        generation_id=message.generation_id,
        member_id=message.member_id,
        instance_id=message.group_instance_id,
        protocol_type=message.protocol_type,
        protocol_name=message.protocol_name,
        assignments={row.member_id: bytes(row.assignment) for row in message.assignments},
    )
    watch_group_right(request, message.group_id, _DENIED)
    runtime.answer(request, command, _translate)
    return None


def _translate(request: Request, body: commands.SyncGroupReply | commands.Refusal) -> wire.SyncGroupResponse:
    del request
    if isinstance(body, commands.Refusal):
        return wire.SyncGroupResponse(error_code=body.code)
    return wire.SyncGroupResponse(
        error_code=body.error,
        protocol_type=body.protocol_type,
        protocol_name=body.protocol_name,
        assignment=body.assignment,
    )
