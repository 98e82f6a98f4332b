"""JoinGroup (key 11): enter the next generation of a classic group.

Version 1: a rebalance timeout of its own (before it, the session timeout serves). Version 4: a member without an id is
first told one (KIP-394). Version 5: static members. Version 7: the protocol's type, and no protocol name on errors.
Version 8: the reason (KIP-800). Version 9: a leader may be told to skip the assignment (KIP-814).
"""

from __future__ import annotations

from functools import partial

from kohort.broker.context import BrokerContext, Request
from kohort.broker.groups.coordination import new_member_id
from kohort.broker.groups.waiting_rights import watch_group_right
from kohort.coordinator import commands
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import join_group as wire


def handle(context: BrokerContext, request: Request, message: wire.JoinGroupRequest) -> wire.JoinGroupResponse | None:
    """Ask the group's coordinator, which may park the request."""
    if (refused := _refuse_unasked(context, request, message)) is not None:
        return refused
    runtime, connections = context.runtime, context.member_connections
    token = runtime.next_token()
    version = request.version
    command = commands.JoinGroup(
        cause=token,
        request=token,
        group_id=message.group_id,
        principal=request.principal,
        member_id=message.member_id,
        fresh_member_id=new_member_id(message.group_instance_id or request.client_id),
        client_id=request.client_id,
        client_host=request.client_host,
        session_timeout_ms=message.session_timeout_ms,
        rebalance_timeout_ms=message.rebalance_timeout_ms if version >= 1 else message.session_timeout_ms,
        protocol_type=message.protocol_type,
        protocols=tuple((protocol.name, bytes(protocol.metadata)) for protocol in message.protocols),
        instance_id=message.group_instance_id,
        reason=message.reason,
        # KIP-394: a member without an id is told one and has to join again with it.
        requires_known_member_id=version >= 4,
        # KIP-814: from version 9 on a leader can be told to skip the assignment.
        supports_skip_assignment=version >= 9,
        registration_timeout_ms=message.registration_timeout_ms,
        expansion_timeout_ms=message.expansion_timeout_ms,
    )

    member_id = command.member_id or command.fresh_member_id
    if not connections.is_known(request.connection, command.group_id, member_id):
        # Its first request may be parked: then only the request connects the member to this connection.
        request.on_abandon = partial(runtime.member_disconnected, command.group_id, member_id)
    # Others of the group do not wait for a member that may not read it any more.
    refusal = _refusal(request, message, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    watch_group_right(
        request, message.group_id, refusal, partial(runtime.member_disconnected, command.group_id, member_id)
    )
    runtime.answer(request, command, partial(_translate, context, message))
    return None


def _refuse_unasked(
    context: BrokerContext, request: Request, message: wire.JoinGroupRequest
) -> wire.JoinGroupResponse | None:
    """Return the refusal of a request that the coordinator is not asked about; `None`: it is."""
    rights, code, member_id = request.rights, ErrorCode.NONE, message.member_id
    if rights.is_restricted and not rights.allows(AclOperation.READ, ResourceType.GROUP, message.group_id):
        code, member_id = ErrorCode.GROUP_AUTHORIZATION_FAILED, ""
    elif context.parked.refuses():
        # Clients ask this coordinator again a moment later.
        code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    if code is ErrorCode.NONE:
        return None
    return wire.JoinGroupResponse(error_code=code, protocol_name=_name(None, request), member_id=member_id)


def _translate(
    context: BrokerContext,
    message: wire.JoinGroupRequest,
    request: Request,
    body: commands.JoinGroupReply | commands.Refusal,
) -> wire.JoinGroupResponse:
    if isinstance(body, commands.Refusal):
        return _refusal(request, message, body.code)
    if body.error is ErrorCode.NONE:
        context.member_connections.joined(request.connection, message.group_id, body.member_id)
    return wire.JoinGroupResponse(
        error_code=body.error,
        generation_id=body.generation_id,
        protocol_type=body.protocol_type,
        protocol_name=_name(body.protocol_name, request),
        leader=body.leader,
        skip_assignment=body.skip_assignment,
        member_id=body.member_id,
        members=[
            wire.JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in body.members
        ],
    )


def _refusal(request: Request, message: wire.JoinGroupRequest, code: ErrorCode) -> wire.JoinGroupResponse:
    return wire.JoinGroupResponse(error_code=code, protocol_name=_name(None, request), member_id=message.member_id)


def _name(protocol_name: str | None, request: Request) -> str | None:
    return protocol_name if protocol_name is not None or request.version >= 7 else ""
