"""GroupHistory (key 10001): what the broker's journal still has of one group. An API of kohort's own.

Version 0. Announced to kohort's clients only; Apache Kafka has no such API.
"""

from __future__ import annotations

from kohort.wire.schema import BOOL, INT16, INT32, INT64, STRING, Message, array, field, message, struct


@message(key=10_001, kind="request", versions="0", flexible="0+")
class GroupHistoryRequest(Message):
    """Rows of one group with a sequence above `after_sequence`, at most `max_rows`, the oldest of them."""

    group_id: str = field(STRING)
    after_sequence: int = field(INT64)
    max_rows: int = field(INT32, default=1_000)


@struct
class HistoryDetail(Message):
    """One named value of a row."""

    name: str = field(STRING)
    value: str = field(STRING)


@struct
class HistoryRow(Message):
    """One row: `cause` made it, `origin` began the rebalance that it belongs to; times in milliseconds since 1970."""

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


@struct
class HistoryCount(Message):
    """How often something happened that changed nothing but a number."""

    name: str = field(STRING)
    count: int = field(INT64)


@message(key=10_001, kind="response", versions="0", flexible="0+")
class GroupHistoryResponse(Message):
    """`is_complete`: no row of the group was dropped since the broker started. `has_more`: there are later ones."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    is_complete: bool = field(BOOL)
    has_more: bool = field(BOOL)
    rows: list[HistoryRow] = field(array(HistoryRow))
    counts: list[HistoryCount] = field(array(HistoryCount))
