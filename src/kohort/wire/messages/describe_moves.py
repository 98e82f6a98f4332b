"""DescribeMoves (key 10003): the moves of a group's partitions. An API of kohort's own.

Version 0. Announced to kohort's clients only; Apache Kafka has no such API.
"""

from kohort.wire.schema import INT16, INT32, INT64, STRING, Message, array, field, message


@message(key=10_003, kind="request", versions="0", flexible="0+")
class DescribeMovesRequest(Message):
    """The moves of one group, at most `max_moves`."""

    group_id: str = field(STRING)
    max_moves: int = field(INT32, default=10_000)


class DescribedMove(Message):
    """One partition's move; times in milliseconds since 1970, -1: not yet, or forgotten."""

    move_id: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)
    from_member_id: str = field(STRING)
    to_member_id: str = field(STRING)
    phase: str = field(STRING)
    cause: str = field(STRING)
    submitted_ms: int = field(INT64, default=-1)
    begun_ms: int = field(INT64, default=-1)
    fenced_ms: int = field(INT64, default=-1)
    committed_ms: int = field(INT64, default=-1)
    granted_ms: int = field(INT64, default=-1)


@message(key=10_003, kind="response", versions="0", flexible="0+")
class DescribeMovesResponse(Message):
    """Open moves by topic and partition, then ended ones, the latest first; `total` is their number."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    total: int = field(INT32)
    moves: list[DescribedMove] = field(array(DescribedMove))
