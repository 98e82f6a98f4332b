"""DeleteRecords (key 21), KIP-107: delete the oldest records of partitions.

The answer leaves when the new start is on disk: after a crash no log begins before it. A file goes when all of its
records are below the start.
"""

from __future__ import annotations

from functools import partial

from kohort.broker.context import BrokerContext, Request
from kohort.errors import ErrorCode, Refused, StorageError
from kohort.ids import ZERO_TOPIC_ID
from kohort.security.access_control import AclOperation, ResourceType
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.recovery import delete_before, keep_log_start
from kohort.wire.messages import delete_records as wire

#: Stands for the high watermark: everything that consumers can see goes.
_ALL = -1


def handle(
    context: BrokerContext, request: Request, message: wire.DeleteRecordsRequest
) -> wire.DeleteRecordsResponse | None:
    """Delete in each partition independently; a refused one does not hold up the others."""
    changed: list[tuple[PartitionLog, wire.DeleteRecordsPartitionResult]] = []
    rows = []
    for asked in message.topics:
        # A partition that is named twice counts once.
        wanted = {partition.partition_index: partition.offset for partition in asked.partitions}
        if not request.rights.allows(AclOperation.DELETE, ResourceType.TOPIC, asked.name):
            denied = [_refuse(number, ErrorCode.TOPIC_AUTHORIZATION_FAILED) for number in wanted]
            rows.append(wire.DeleteRecordsTopicResult(name=asked.name, partitions=denied))
            continue
        answers = [_answer(context, asked.name, number, offset, changed) for number, offset in wanted.items()]
        rows.append(wire.DeleteRecordsTopicResult(name=asked.name, partitions=answers))
    response = wire.DeleteRecordsResponse(topics=rows)
    if not changed:
        return response

    def keep() -> None:
        for log, row in changed:
            log.filing.do(partial(keep_log_start, context.store.fs, log.directory, row.low_watermark))

    # The answer leaves when the new start is on disk: after a crash no log may begin before it.
    context.removals.do(keep, partial(_finish, request, response, changed))
    return None


def _answer(
    context: BrokerContext,
    name: str,
    number: int,
    offset: int,
    changed: list[tuple[PartitionLog, wire.DeleteRecordsPartitionResult]],
) -> wire.DeleteRecordsPartitionResult:
    topic, missing = context.cluster.find(name, ZERO_TOPIC_ID)
    log = context.cluster.partition(topic, number)
    if topic is None or log is None:
        return _refuse(number, missing)
    if topic.is_internal:
        # The broker's own topics are never cut by clients.
        return _refuse(number, ErrorCode.INVALID_TOPIC_EXCEPTION)
    refusal = context.leadership.refusal(log, -1)
    if refusal is not ErrorCode.NONE:
        return _refuse(number, refusal)
    before = log.log_start_offset
    try:
        gone = delete_before(log, log.high_watermark if offset == _ALL else offset)
    except Refused as refused:
        return _refuse(number, refused.code)
    except StorageError:
        return _refuse(number, ErrorCode.KAFKA_STORAGE_ERROR)
    context.removals.later(log, gone)
    row = wire.DeleteRecordsPartitionResult(partition_index=number, low_watermark=log.log_start_offset)
    if log.log_start_offset > before:
        changed.append((log, row))
    return row


def _finish(
    request: Request,
    response: wire.DeleteRecordsResponse,
    changed: list[tuple[PartitionLog, wire.DeleteRecordsPartitionResult]],
    failure: Exception | None,
) -> None:
    if failure is not None:
        for _, row in changed:
            row.low_watermark, row.error_code = -1, ErrorCode.KAFKA_STORAGE_ERROR
    if request.is_open:
        request.answer(response)


def _refuse(number: int, code: ErrorCode) -> wire.DeleteRecordsPartitionResult:
    return wire.DeleteRecordsPartitionResult(partition_index=number, low_watermark=-1, error_code=code)
