"""SubmitMoves (key 10002): move partitions of a group to named members. An API of kohort's own.

Version 0. Announced to kohort's clients only; Apache Kafka has no such API.
"""

from kohort.wire.schema import BOOL, INT16, INT32, STRING, Message, array, field, message


class MoveToSubmit(Message):
    """One partition and its new owner, whichever its present one."""

    topic: str = field(STRING)
    partition: int = field(INT32)
    to_member_id: str = field(STRING)


@message(key=10_002, kind="request", versions="0", flexible="0+")
class SubmitMovesRequest(Message):
    """At most 10,000 moves; with `validate_only` they are only checked."""

    group_id: str = field(STRING)
    validate_only: bool = field(BOOL)
    moves: list[MoveToSubmit] = field(array(MoveToSubmit))


class SubmittedMoveResult(Message):
    """The result of one move; `move_id` is empty if it was refused, or nothing has to move."""

    topic: str = field(STRING)
    partition: int = field(INT32)
    move_id: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)


@message(key=10_002, kind="response", versions="0", flexible="0+")
class SubmitMovesResponse(Message):
    """A result for each move in order, or an `error_code` if none was taken."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    results: list[SubmittedMoveResult] = field(array(SubmittedMoveResult))
