"""GroupHistory (key 10001): the rows that the journal still has of one group.

Served to kohort's clients. Rows in memory come first, in pages from the oldest on; older ones are in the topic, in
pages from the newest on.
"""

from __future__ import annotations

from typing import Final

from kohort.base.values import from_row
from kohort.broker.context import BrokerContext, Request
from kohort.broker.groups.journallog import read_older
from kohort.errors import ErrorCode
from kohort.ids import JOURNAL_TOPIC
from kohort.journal.rows import Row
from kohort.storage.partitions.partition import PartitionLog
from kohort.wire.messages import group_history as wire

#: Most rows in one answer.
MAX_ROWS: Final = 1_000


def handle(context: BrokerContext, request: Request, message: wire.GroupHistoryRequest) -> wire.GroupHistoryResponse:
    """Answer with a page of rows; the client asks again for the following pages."""
    del request
    journal = context.runtime.journal
    topic = context.cluster.topic(JOURNAL_TOPIC)
    target = None if topic is None else topic.partitions[0]
    if not message.group_id or message.max_rows < 1 or message.after_sequence < 0 or message.before_offset < -1:
        why = "a group id, a positive number of rows, a sequence of 0 or more and an offset of -1 or more are expected"
        return wire.GroupHistoryResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=why)
    if not journal.is_on:
        why = "this broker keeps no journal: start it with journal.ring.rows above 0"
        return wire.GroupHistoryResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=why)
    if message.before_offset >= 0:
        if target is not None and target.offline:
            return wire.GroupHistoryResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=target.offline)
        return _older(target, message)
    limit = min(message.max_rows, MAX_ROWS)
    history = journal.history(message.group_id, after=message.after_sequence, limit=limit)
    return wire.GroupHistoryResponse(
        error_code=ErrorCode.NONE,
        is_complete=history.is_complete,
        has_more=history.has_more,
        rows=[_row(row) for row in history.rows],
        counts=[wire.HistoryCount(name=name, count=count) for name, count in history.counts.items()],
        older_offset=-1 if target is None or history.is_complete else target.log_end_offset,
    )


def _older(target: PartitionLog | None, message: wire.GroupHistoryRequest) -> wire.GroupHistoryResponse:
    if target is None:
        return wire.GroupHistoryResponse(error_code=ErrorCode.NONE)
    page = read_older(target, message.group_id, before=message.before_offset)
    return wire.GroupHistoryResponse(
        error_code=ErrorCode.NONE,
        is_complete=page.is_complete,
        rows=[_row(row) for row in page.rows],
        older_offset=-1 if page.older_offset is None else page.older_offset,
    )


def _row(row: Row) -> wire.HistoryRow:
    entry = row.entry
    details = [wire.HistoryDetail(name=name, value=value) for name, value in entry.details]
    told = from_row(wire.HistoryRow, row, details=details)
    told.kind, told.event, told.member_id = entry.kind.value, entry.event, entry.member_id
    return told
