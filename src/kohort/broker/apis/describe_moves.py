"""DescribeMoves (key 10003): the moves of a group's partitions that are under way.

Version 0 is served, to kohort's clients.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.coordinator.commands import Refusal
from kohort.coordinator.commands import admin as commands
from kohort.errors import ErrorCode
from kohort.ids import CauseId
from kohort.wire.messages.describe_moves import DescribedMove, DescribeMovesRequest, DescribeMovesResponse

#: Most moves in one answer.
MAX_MOVES: Final = 10_000


def handle(context: BrokerContext, request: Request, message: DescribeMovesRequest) -> DescribeMovesResponse | None:
    """Ask the group's coordinator."""
    if message.max_moves < 1:
        return DescribeMovesResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message="a positive number of moves is expected"
        )
    limit = min(message.max_moves, MAX_MOVES)
    token = context.runtime.next_token()
    command = commands.DescribeMoves(cause=CauseId(token), request=token, group_id=message.group_id)

    def translate(request: Request, body: commands.DescribeMovesReply | Refusal) -> DescribeMovesResponse:
        del request
        if isinstance(body, Refusal):
            return DescribeMovesResponse(error_code=body.code, error_message=body.message)
        moves = [_row(move) for move in body.moves[:limit]]
        return DescribeMovesResponse(error_code=ErrorCode.NONE, total=len(body.moves), moves=moves)

    context.runtime.answer(request, command, translate)
    return None


def _row(move: commands.MoveStatus) -> DescribedMove:
    return DescribedMove(
        move_id=move.move_id,
        topic=move.topic,
        partition=move.partition,
        from_member_id=move.from_member_id,
        to_member_id=move.to_member_id,
        phase=move.phase,
        cause=move.cause,
        submitted_ms=move.submitted_ms,
        begun_ms=move.begun_ms,
        fenced_ms=move.fenced_ms,
        committed_ms=move.committed_ms,
        granted_ms=move.granted_ms,
    )
