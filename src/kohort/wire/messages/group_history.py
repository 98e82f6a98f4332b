"""GroupHistory (key 10001): the rows of the broker's journal about one group. An API of kohort's own.

Version 1 adds pages of the topic `__group_journal`, from its end to its beginning. Announced to kohort's clients only;
Apache Kafka has no such API.
"""

from kohort.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, array, field, message


@message(key=10_001, kind="request", versions="0-1", flexible="0+")
class GroupHistoryRequest(Message):
    """Rows of one group with a sequence above `after_sequence`, at most `max_rows`, the oldest of them.

    `before_offset` of -1: those in memory; else of the topic, those among the latest in front of that offset.
    """

    group_id: str = field(STRING)
    after_sequence: int = field(INT64)
    max_rows: int = field(INT32, default=1_000)
    before_offset: int = field(INT64, since=1, default=-1)


class HistoryDetail(Message):
    """One named value of a row."""

    name: str = field(STRING)
    value: str = field(STRING)


class HistoryRow(Message):
    """One row, with its `cause` and its rebalance's `origin`; times in milliseconds since 1970."""

    sequence: int = field(INT64)
    time_ms: int = field(INT64)
    last_time_ms: int = field(INT64)
    times: int = field(INT32)
    cause: int = field(INT64)
    origin: int = field(INT64)
    kind: str = field(STRING)
    event: str = field(STRING)
    member_id: str = field(STRING)
    details: list[HistoryDetail] = field(array(HistoryDetail))


class HistoryCount(Message):
    """The count of an event that changed only a number."""

    name: str = field(STRING)
    count: int = field(INT64)


@message(key=10_001, kind="response", versions="0-1", flexible="0+")
class GroupHistoryResponse(Message):
    """Rows of the group; `is_complete`: none are older than these; `has_more`: later ones are in memory.

    `older_offset`: the `before_offset` for older rows; -1: there are none in the topic, or no topic.
    """

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    is_complete: bool = field(BOOL)
    has_more: bool = field(BOOL)
    rows: list[HistoryRow] = field(array(HistoryRow))
    counts: list[HistoryCount] = field(array(HistoryCount))
    older_offset: int = field(INT64, since=1, default=-1)
