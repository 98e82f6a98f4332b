"""SubmitMoves (key 10002): move partitions of a group to named members.

Served to kohort's clients.
"""

from __future__ import annotations

from kohort.base.values import from_row
from kohort.broker.context import BrokerContext, Request
from kohort.coordinator.commands import Refusal, admin
from kohort.errors import ErrorCode
from kohort.wire.messages import submit_moves as wire


def handle(context: BrokerContext, request: Request, message: wire.SubmitMovesRequest) -> None:
    """Ask the group's coordinator."""
    token = context.runtime.next_token()
    command = admin.SubmitMoves(
        cause=token,
        request=token,
        group_id=message.group_id,
        moves=tuple(
            admin.AskedMove(topic=move.topic, partition=move.partition, to_member_id=move.to_member_id)
            for move in message.moves
        ),
        validate_only=message.validate_only,
    )
    context.runtime.answer(request, command, _translate)


def _translate(request: Request, body: admin.SubmitMovesReply | Refusal) -> wire.SubmitMovesResponse:
    del request
    if isinstance(body, Refusal):
        return wire.SubmitMovesResponse(error_code=body.code, error_message=body.message)
    return wire.SubmitMovesResponse(
        error_code=ErrorCode.NONE,
        results=[
            from_row(wire.SubmittedMoveResult, result, error_code=result.code, error_message=result.message)
            for result in body.results
        ],
    )
