"""GroupHistory (key 10001): the rows of the broker's journal about one group. An API of kohort's own.

Version 1 adds pages of the topic `__group_journal`, from its end to its beginning. Version 2 adds the rows about a
transactional id, and the transactions that hold a group back. Announced to kohort's clients only;
Apache Kafka has no such API.
"""

from kohort.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, array, field, message


@message(key=10_001, kind="request", versions="0-2", flexible="0+")
class GroupHistoryRequest(Message):
    """Rows of one group with a sequence above `after_sequence`, at most `max_rows`, the oldest of them.

    `before_offset` of -1: those in memory; else of the topic, those among the latest in front of that offset.
    `transactional_id`: rows about it instead of a group's; `group_id` is empty then.
    """

    group_id: str = field(STRING)
    after_sequence: int = field(INT64)
    max_rows: int = field(INT32, default=1_000)
    before_offset: int = field(INT64, since=1, default=-1)
    transactional_id: str | None = field(STRING, since=2, nullable=2, default=None)


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


class HoldingTransaction(Message):
    """One partition of a group that an open transaction holds back.

    `offset`: the offset at which the group's readers of committed records wait; -1: the transaction has a commit of the
    group for this partition, which members wait for. `transactional_id`: null if the client may not see it or no
    coordinator knows it. `state`: that of the coordinator, "" if it does not know the transaction. `open_ms`: its age,
    milliseconds; -1: unknown.
    """

    topic: str = field(STRING)
    partition: int = field(INT32)
    offset: int = field(INT64)
    producer_id: int = field(INT64)
    transactional_id: str | None = field(STRING, nullable=0, default=None)
    state: str = field(STRING)
    open_ms: int = field(INT64)


@message(key=10_001, kind="response", versions="0-2", flexible="0+")
class GroupHistoryResponse(Message):
    """Rows of the group; `is_complete`: none are older than these; `has_more`: later ones are in memory.

    `older_offset`: the `before_offset` for older rows; -1: there are none in the topic, or no topic. `held_by`: the
    transactions that hold the group back now.
    """

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    is_complete: bool = field(BOOL)
    has_more: bool = field(BOOL)
    rows: list[HistoryRow] = field(array(HistoryRow))
    counts: list[HistoryCount] = field(array(HistoryCount))
    older_offset: int = field(INT64, since=1, default=-1)
    held_by: list[HoldingTransaction] = field(array(HoldingTransaction), since=2)
