"""GroupHistory (key 10001): the rows that the journal still has of one group.

Served to kohort's clients. Rows in memory come first, in pages from the oldest on; older ones are in the topic, in
pages from the newest on.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kohort.base.values import from_row
from kohort.broker.access.rights import Rights
from kohort.broker.chunked_responses import GROUP_DENIED
from kohort.broker.context import BrokerContext, Request
from kohort.broker.groups.journallog import read_older
from kohort.errors import ErrorCode
from kohort.ids import JOURNAL_TOPIC
from kohort.journal.rows import Row
from kohort.journal.words import read_partitions, write_partitions
from kohort.security.access_control import AclOperation, ResourceType
from kohort.storage.partitions.partition import PartitionLog
from kohort.wire.messages import group_history as wire

#: Most rows in one answer.
MAX_ROWS: Final = 1_000
#: Details of rows with partitions, and those with topics; a test holds that no other names a topic.
_WITH_PARTITIONS: Final = frozenset({"asked_back", "gained", "held", "partitions", "released"})
_WITH_TOPICS: Final = frozenset({"topics"})


def handle(context: BrokerContext, request: Request, message: wire.GroupHistoryRequest) -> wire.GroupHistoryResponse:
    """Answer with a page of rows; the client asks again for the following pages."""
    rights = request.rights
    journal = context.runtime.journal
    topic = context.cluster.topic(JOURNAL_TOPIC)
    target = None if topic is None else topic.partitions[0]
    if not message.group_id or message.max_rows < 1 or message.after_sequence < 0 or message.before_offset < -1:
        why = "a group id, a positive number of rows, a sequence of 0 or more and an offset of -1 or more are expected"
        return wire.GroupHistoryResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=why)
    if not rights.allows(AclOperation.DESCRIBE, ResourceType.GROUP, message.group_id):
        return wire.GroupHistoryResponse(error_code=GROUP_DENIED.code, error_message=GROUP_DENIED.message)
    if not journal.is_on:
        why = "this broker keeps no journal: start it with journal.ring.rows above 0"
        return wire.GroupHistoryResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=why)
    if message.before_offset >= 0:
        if target is not None and target.offline:
            return wire.GroupHistoryResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=target.offline)
        return _older(rights, target, message)
    limit = min(message.max_rows, MAX_ROWS)
    history = journal.history(message.group_id, after=message.after_sequence, limit=limit)
    return wire.GroupHistoryResponse(
        error_code=ErrorCode.NONE,
        is_complete=history.is_complete,
        has_more=history.has_more,
        rows=[_row(rights, row) for row in history.rows],
        counts=[wire.HistoryCount(name=name, count=count) for name, count in history.counts.items()],
        older_offset=-1 if target is None or history.is_complete else target.log_end_offset,
    )


def _older(rights: Rights, target: PartitionLog | None, message: wire.GroupHistoryRequest) -> wire.GroupHistoryResponse:
    if target is None:
        return wire.GroupHistoryResponse(error_code=ErrorCode.NONE)
    page = read_older(target, message.group_id, before=message.before_offset)
    return wire.GroupHistoryResponse(
        error_code=ErrorCode.NONE,
        is_complete=page.is_complete,
        rows=[_row(rights, row) for row in page.rows],
        older_offset=-1 if page.older_offset is None else page.older_offset,
    )


def _row(rights: Rights, row: Row) -> wire.HistoryRow:
    entry = row.entry
    shown = _visible(rights, entry.details) if rights.is_restricted else entry.details
    details = [wire.HistoryDetail(name=name, value=value) for name, value in shown]
    told = from_row(wire.HistoryRow, row, details=details)
    told.kind, told.event, told.member_id = entry.kind.value, entry.event, entry.member_id
    return told


def _visible(rights: Rights, details: Iterable[tuple[str, str]]) -> Iterator[tuple[str, str]]:
    """Yield the details of a row without the topics that the client may not describe."""

    def sees(name: str) -> bool:
        return rights.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, name)

    for name, value in details:
        if name in _WITH_TOPICS:
            yield name, ",".join(topic for topic in value.split(",") if sees(topic))
        # Some rows only count their partitions.
        elif name in _WITH_PARTITIONS and not value.isdecimal():
            named, others = read_partitions(value)
            visible = [each for each in named if sees(each[0])]
            # What is hidden still counts: a reader sees that the row has more.
            others += len(named) - len(visible)
            yield name, write_partitions(visible) + (f" and {others} more" if others else "")
        else:
            yield name, value
