"""GroupHistory (key 10001): what the journal still has of one group. Version 0 is served, to kohort's clients."""

from __future__ import annotations

from typing import Final

from kohort.broker.context import BrokerContext
from kohort.broker.request import Request
from kohort.errors import ErrorCode
from kohort.journal.rows import Row
from kohort.wire.messages.group_history import (
    GroupHistoryRequest,
    GroupHistoryResponse,
    HistoryCount,
    HistoryDetail,
    HistoryRow,
)

#: Most rows in one answer.
MAX_ROWS: Final = 1_000


def handle(context: BrokerContext, request: Request, message: GroupHistoryRequest) -> GroupHistoryResponse:
    """A page of rows; the caller asks again for what is left."""
    del request
    journal = context.runtime.journal
    if not message.group_id or message.max_rows < 1 or message.after_sequence < 0:
        why = "a group id, a positive number of rows and a sequence of 0 or more are expected"
        return GroupHistoryResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=why)
    if not journal.is_on:
        why = "this broker keeps no journal: start it with journal.ring.rows above 0"
        return GroupHistoryResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=why)
    limit = min(message.max_rows, MAX_ROWS)
    history = journal.history(message.group_id, after=message.after_sequence, limit=limit)
    return GroupHistoryResponse(
        error_code=ErrorCode.NONE,
        is_complete=history.is_complete,
        has_more=history.has_more,
        rows=[_row(row) for row in history.rows],
        counts=[HistoryCount(name=name, count=count) for name, count in history.counts.items()],
    )


def _row(row: Row) -> HistoryRow:
    entry = row.entry
    return HistoryRow(
        sequence=row.sequence,
        time_ms=row.time_ms,
        last_time_ms=row.last_time_ms,
        times=row.times,
        cause=row.cause,
        origin=row.origin,
        kind=entry.kind.value,
        event=entry.event,
        member_id=entry.member_id,
        details=[HistoryDetail(name=name, value=value) for name, value in entry.details],
    )
