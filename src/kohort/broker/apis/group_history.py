"""GroupHistory (key 10001): the rows that the journal still has of one group, or of one transactional id.

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
from kohort.broker.transactions.hanging import NAMED, holding
from kohort.errors import ErrorCode
from kohort.ids import JOURNAL_TOPIC
from kohort.journal.rows import TRANSACTION_PREFIX, Row, transaction_key
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
    group_id, transactional_id = message.group_id, message.transactional_id
    is_one = bool(group_id) != bool(transactional_id) and not group_id.startswith(TRANSACTION_PREFIX)
    if not is_one or message.max_rows < 1 or message.after_sequence < 0 or message.before_offset < -1:
        why = "a group id or a transactional id, a positive number of rows, a sequence of 0 or more and an offset of "
        return wire.GroupHistoryResponse(
            error_code=ErrorCode.INVALID_REQUEST, error_message=f"{why}-1 or more are expected"
        )
    if transactional_id:
        if not rights.allows(AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            return wire.GroupHistoryResponse(error_code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    elif not rights.allows(AclOperation.DESCRIBE, ResourceType.GROUP, group_id):
        return wire.GroupHistoryResponse(error_code=GROUP_DENIED.code, error_message=GROUP_DENIED.message)
    if not journal.is_on:
        why = "this broker keeps no journal: start it with journal.ring.rows above 0"
        return wire.GroupHistoryResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=why)
    # The rows of both are in one journal.
    key = transaction_key(transactional_id) if transactional_id else group_id
    if message.before_offset >= 0:
        if target is not None and target.offline:
            return wire.GroupHistoryResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, error_message=target.offline)
        return _older(rights, target, key, before=message.before_offset)
    limit = min(message.max_rows, MAX_ROWS)
    history = journal.history(key, after=message.after_sequence, limit=limit)
    return wire.GroupHistoryResponse(
        error_code=ErrorCode.NONE,
        is_complete=history.is_complete,
        has_more=history.has_more,
        rows=[_row(rights, row) for row in history.rows],
        counts=[wire.HistoryCount(name=name, count=count) for name, count in history.counts.items()],
        older_offset=-1 if target is None or history.is_complete else target.log_end_offset,
        held_by=[] if transactional_id else _held_by(context, rights, group_id),
    )


def _held_by(context: BrokerContext, rights: Rights, group_id: str) -> list[wire.HoldingTransaction]:
    """Return the open transactions for which the group's members wait, as far as the client may see them."""
    now_ms, rows = context.clock.now_ms(), []
    for each in holding(context.cluster, context.transactions.runtime, context.runtime.offsets_of(group_id)):
        if rights.allows(AclOperation.DESCRIBE, ResourceType.TOPIC, each.topic):
            row = from_row(wire.HoldingTransaction, each)
            row.open_ms = max(0, now_ms - each.started_ms) if each.started_ms >= 0 else -1
            transactional_id = each.transactional_id
            if transactional_id is not None and not rights.allows(
                AclOperation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id
            ):
                row.transactional_id = None
            rows.append(row)
        if len(rows) == NAMED:
            break
    return rows


def _older(rights: Rights, target: PartitionLog | None, key: str, *, before: int) -> wire.GroupHistoryResponse:
    if target is None:
        return wire.GroupHistoryResponse(error_code=ErrorCode.NONE)
    page = read_older(target, key, before=before)
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
