"""DescribeMoves (key 10003): the moves of a group's partitions that are under way.

Served to kohort's clients.
"""

from __future__ import annotations

from typing import Final

from kohort.base.values import from_row
from kohort.broker.context import BrokerContext, Request
from kohort.coordinator.commands import Refusal, admin
from kohort.errors import ErrorCode
from kohort.wire.messages import describe_moves as wire

#: Most moves in one answer.
MAX_MOVES: Final = 10_000


def handle(
    context: BrokerContext, request: Request, message: wire.DescribeMovesRequest
) -> wire.DescribeMovesResponse | None:
    """Ask the group's coordinator."""
    if message.max_moves < 1:
        return wire.DescribeMovesResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message="a positive number of moves is expected"
        )
    limit = min(message.max_moves, MAX_MOVES)
    token = context.runtime.next_token()
    command = admin.DescribeMoves(cause=token, request=token, group_id=message.group_id)

    def translate(request: Request, body: admin.DescribeMovesReply | Refusal) -> wire.DescribeMovesResponse:
        del request
        if isinstance(body, Refusal):
            return wire.DescribeMovesResponse(error_code=body.code, error_message=body.message)
        moves = [from_row(wire.DescribedMove, move) for move in body.moves[:limit]]
        return wire.DescribeMovesResponse(error_code=ErrorCode.NONE, total=len(body.moves), moves=moves)

    context.runtime.answer(request, command, translate)
    return None
