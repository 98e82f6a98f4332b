"""SubmitMoves (key 10002): move partitions of a group to named members.

Served to kohort's clients.
"""

from __future__ import annotations

from collections.abc import Sequence

from kohort.base.values import from_row
from kohort.broker.chunked_responses import GROUP_DENIED
from kohort.broker.context import BrokerContext, Request
from kohort.coordinator.commands import Refusal, admin
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import submit_moves as wire


def handle(context: BrokerContext, request: Request, message: wire.SubmitMovesRequest) -> None:
    """Ask the group's coordinator; moves of topics that the client may not describe are refused here."""
    rights = request.rights
    if not rights.allows(AclOperation.ALTER_CONFIGS, ResourceType.GROUP, message.group_id):
        request.answer(_translate(GROUP_DENIED))
        return
    denied = [not rights.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, move.topic) for move in message.moves]
    if message.moves and all(denied):
        # Nothing is left to ask for.
        request.answer(_with_denied(message, denied, _translate(admin.SubmitMovesReply(results=()))))
        return
    token = context.runtime.next_token()
    command = admin.SubmitMoves(
        cause=token,
        request=token,
        group_id=message.group_id,
        principal=request.principal,
        moves=tuple(
            admin.AskedMove(topic=move.topic, partition=move.partition, to_member_id=move.to_member_id)
            for move, is_denied in zip(message.moves, denied, strict=True)
            if not is_denied
        ),
        validate_only=message.validate_only,
    )

    def translate(request: Request, body: admin.SubmitMovesReply | Refusal) -> wire.SubmitMovesResponse:
        del request
        return _with_denied(message, denied, _translate(body))

    context.runtime.answer(request, command, translate)


def _with_denied(
    message: wire.SubmitMovesRequest, denied: Sequence[bool], response: wire.SubmitMovesResponse
) -> wire.SubmitMovesResponse:
    """Put the refused moves in their places among the results of the others."""
    if response.error_code != ErrorCode.NONE or not any(denied):
        return response
    results = iter(response.results)
    response.results = [
        wire.SubmittedMoveResult(
            topic=move.topic,
            partition=move.partition,
            move_id="",
            error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
            error_message="Topic authorization failed.",
        )
        if is_denied
        else next(results)
        for move, is_denied in zip(message.moves, denied, strict=True)
    ]
    return response


def _translate(body: admin.SubmitMovesReply | Refusal) -> wire.SubmitMovesResponse:
    if isinstance(body, Refusal):
        return wire.SubmitMovesResponse(error_code=body.code, error_message=body.message)
    return wire.SubmitMovesResponse(
        error_code=ErrorCode.NONE,
        results=[
            from_row(wire.SubmittedMoveResult, result, error_code=result.code, error_message=result.message)
            for result in body.results
        ],
    )
