"""SubmitMoves (key 10002): move partitions of a group to named members.

Version 0 is served, to kohort's clients.
"""

from __future__ import annotations

from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.coordinator.commands import Refusal
from kohort.coordinator.commands import admin as commands
from kohort.errors import ErrorCode
from kohort.ids import CauseId
from kohort.wire.messages.submit_moves import SubmitMovesRequest, SubmitMovesResponse, SubmittedMoveResult


def handle(context: BrokerContext, request: Request, message: SubmitMovesRequest) -> None:
    """Ask the group's coordinator."""
    token = context.runtime.next_token()
    command = commands.SubmitMoves(
        cause=CauseId(token),
        request=token,
        group_id=message.group_id,
        moves=tuple(
            commands.AskedMove(topic=move.topic, partition=move.partition, to_member_id=move.to_member_id)
            for move in message.moves
        ),
        validate_only=message.validate_only,
    )
    context.runtime.answer(request, command, _translate)


def _translate(request: Request, body: commands.SubmitMovesReply | Refusal) -> SubmitMovesResponse:
    del request
    if isinstance(body, Refusal):
        return SubmitMovesResponse(error_code=body.code, error_message=body.message)
    return SubmitMovesResponse(
        error_code=ErrorCode.NONE,
        results=[
            SubmittedMoveResult(
                topic=result.topic,
                partition=result.partition,
                move_id=result.move_id,
                error_code=result.code,
                error_message=result.message,
            )
            for result in body.results
        ],
    )
