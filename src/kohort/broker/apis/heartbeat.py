"""Heartbeat (key 12): keep a member of a classic group alive, and tell it of a rebalance.

Version 3: static members. Version 4: flexible.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from kohort.broker.context import BrokerContext, Request
from kohort.broker.groups.delayed_heartbeats import DelayedHeartbeat
from kohort.broker.groups.waiting_rights import watch_group_right
from kohort.coordinator import commands
from kohort.coordinator.commands import Done, Refusal
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

#: The answers to a member that is there.
_ALIVE: Final = (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)
_DENIED: Final = HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)


def handle(context: BrokerContext, request: Request, message: HeartbeatRequest) -> HeartbeatResponse | None:
    """Ask the group's coordinator."""
    rights = request.connection.rights
    if rights.is_restricted and not rights.allows(AclOperation.READ, ResourceType.GROUP, message.group_id):
        return HeartbeatResponse(error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
    runtime, connections = context.runtime, context.member_connections
    runtime.reads.note_poll((message.group_id, message.member_id), message.last_poll_ms)
    token = runtime.next_token()
    command = commands.Heartbeat(
        cause=token,
        request=token,
        group_id=message.group_id,
        generation_id=message.generation_id,
        member_id=message.member_id,
        instance_id=message.group_instance_id,
        hold_ms=context.delayed_heartbeats.classic_hold_ms(request),
        counts_requests=context.delayed_heartbeats.counts_requests(request.connection),
    )

    def translate(request: Request, body: Done | Refusal) -> HeartbeatResponse:
        code = body.code if isinstance(body, Refusal) else ErrorCode.NONE
        if code in _ALIVE:
            connections.heartbeat(request.connection, message.group_id, message.member_id)
        is_moving = code is ErrorCode.REBALANCE_IN_PROGRESS
        return HeartbeatResponse(
            error_code=code, rebalance_reason=runtime.journal.reason(message.group_id) if is_moving else None
        )

    if command.hold_ms >= 0:
        context.delayed_heartbeats.attach(
            request, DelayedHeartbeat(context.delayed_heartbeats, runtime, request.connection, command)
        )
        watch_group_right(request, message.group_id, _DENIED, partial(runtime.abandon, command))
    runtime.answer(request, command, translate)
    if command.hold_ms > 0 and request.is_open:
        # The heartbeat is accepted and held: its member is known before the answer leaves.
        connections.heartbeat(request.connection, message.group_id, message.member_id)
    return None
