"""DescribeMoves (key 10003): the moves of a group's partitions that are under way.

Served to kohort's clients.
"""

from __future__ import annotations

from typing import Final

from kohort.base.values import from_row
from kohort.broker.chunked_responses import GROUP_DENIED
from kohort.broker.context import BrokerContext, Request
from kohort.coordinator.commands import Refusal, admin
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
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
    rights = request.rights
    if not rights.allows(AclOperation.DESCRIBE, ResourceType.GROUP, message.group_id):
        return wire.DescribeMovesResponse(error_code=GROUP_DENIED.code, error_message=GROUP_DENIED.message)
    limit = min(message.max_moves, MAX_MOVES)
    token = context.runtime.next_token()
    command = admin.DescribeMoves(cause=token, request=token, group_id=message.group_id)

    def translate(request: Request, body: admin.DescribeMovesReply | Refusal) -> wire.DescribeMovesResponse:
        del request
        if isinstance(body, Refusal):
            return wire.DescribeMovesResponse(error_code=body.code, error_message=body.message)
        # Moves of topics that may not be described are not counted either.
        found = [each for each in body.moves if rights.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, each.topic)]
        moves = [from_row(wire.DescribedMove, move) for move in found[:limit]]
        return wire.DescribeMovesResponse(error_code=ErrorCode.NONE, total=len(found), moves=moves)

    context.runtime.answer(request, command, translate)
    return None
