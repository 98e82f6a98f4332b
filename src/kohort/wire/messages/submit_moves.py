"""SubmitMoves (key 10002): which members of a group shall have which partitions. An API of kohort's own.

Version 0. Announced to kohort's clients only; Apache Kafka has no such API.
"""

from __future__ import annotations

from kohort.wire.schema import BOOL, INT16, INT32, STRING, Message, array, field, message, struct


@struct
class MoveToSubmit(Message):
    """One partition and the member that shall have it, whoever has it now."""

    topic: str = field(STRING)
    partition: int = field(INT32)
    to_member_id: str = field(STRING)


@message(key=10_002, kind="request", versions="0", flexible="0+")
class SubmitMovesRequest(Message):
    """At most 10,000 moves; `validate_only`: say what would be answered and change nothing."""

    group_id: str = field(STRING)
    validate_only: bool = field(BOOL)
    moves: list[MoveToSubmit] = field(array(MoveToSubmit))


@struct
class SubmittedMoveResult(Message):
    """What became of one move; `move_id` is empty where it was refused, or where there is nothing to hand over."""

    topic: str = field(STRING)
    partition: int = field(INT32)
    move_id: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)


@message(key=10_002, kind="response", versions="0", flexible="0+")
class SubmitMovesResponse(Message):
    """`error_code`: why nothing was taken; without one, a result for each move, in the order of the request."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    results: list[SubmittedMoveResult] = field(array(SubmittedMoveResult))
