"""Produce (key 0): append record batches.

Versions 3 to 13 are served. From version 13 on topics are named by id. acks=0 gets no answer; if such a request fails
its connection is closed, which makes the client ask for metadata anew, as in Kafka. acks=1 is answered after the
append, acks=-1 once it is as durable as the topic asks for.
"""

from __future__ import annotations

from collections.abc import Callable

from kohort.broker.context import BrokerContext
from kohort.broker.durability import is_durable
from kohort.broker.request import Request
from kohort.errors import ErrorCode, Refused, StorageError
from kohort.storage.fs import Buffer
from kohort.storage.partition import PartitionLog
from kohort.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)


def handle(context: BrokerContext, request: Request, message: ProduceRequest) -> ProduceResponse | None:
    """Append to each partition on its own; one that is refused does not hold up the others."""
    acks = message.acks
    now_ms = context.clock.now_ms()
    written: list[PartitionLog] = []
    refused = _refuse_whole(message)
    responses = [_answer_topic(context, topic, written, refused, now_ms) for topic in message.topic_data]
    response = ProduceResponse(responses=responses)
    if acks == 0:
        request.skip()
        if any(part.error_code for topic in responses for part in topic.partition_responses):
            request.connection.close()
        return None
    if acks == 1:
        return response
    unsynced = [log for log in written if not is_durable(log)]
    if not unsynced:
        return response
    request.answer_unsynced(response)
    release = request.release if len(unsynced) == 1 else _after(len(unsynced), request.release)
    for log in unsynced:
        context.durability.when_durable(log, release)
    return None


def _refuse_whole(message: ProduceRequest) -> Refused | None:
    """What is wrong with the request as a whole."""
    if message.acks not in (-1, 0, 1):
        return Refused(ErrorCode.INVALID_REQUIRED_ACKS, f"acks {message.acks}; -1, 0 and 1 are possible")
    if message.transactional_id is not None:
        return Refused(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "this broker does not serve transactions yet")
    return None


def _answer_topic(
    context: BrokerContext, data: TopicProduceData, written: list[PartitionLog], refused: Refused | None, now_ms: int
) -> TopicProduceResponse:
    topic, missing = context.cluster.find(data.name, data.topic_id)
    partitions = topic.partitions if topic is not None else ()
    if topic is not None and topic.is_internal and refused is None:
        refused = Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {topic.name} is written by the broker only")
    answers = []
    for partition_data in data.partition_data:
        number = partition_data.index
        if refused is not None:
            answers.append(_refuse(number, refused.code, str(refused)))
        elif not 0 <= number < len(partitions):
            code = missing if topic is None else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            answers.append(_refuse(number, code, None))
        else:
            log = partitions[number]
            refusal = context.leadership.refusal(log, -1)
            answers.append(
                _refuse(number, refusal, None)
                if refusal is not ErrorCode.NONE
                else _append(context, log, partition_data, written, now_ms)
            )
    return TopicProduceResponse(name=data.name, topic_id=data.topic_id, partition_responses=answers)


def _append(
    context: BrokerContext, log: PartitionLog, data: PartitionProduceData, written: list[PartitionLog], now_ms: int
) -> PartitionProduceResponse:
    number = data.index
    records = data.records
    assert records is None or isinstance(records, Buffer), "decoded records are one buffer"
    batches = b"" if records is None else records
    try:
        appended = context.durability.append(log, batches, now_ms=now_ms)
    except Refused as refused:
        return _refuse(number, refused.code, str(refused))
    except StorageError as failure:
        return _refuse(number, ErrorCode.KAFKA_STORAGE_ERROR, str(failure))
    written.append(log)
    return PartitionProduceResponse(
        index=number,
        error_code=0,
        base_offset=appended.base_offset,
        log_append_time_ms=appended.log_append_time_ms,
        log_start_offset=log.log_start_offset,
    )


def _refuse(number: int, code: ErrorCode, text: str | None) -> PartitionProduceResponse:
    return PartitionProduceResponse(index=number, error_code=code, base_offset=-1, error_message=text)


def _after(calls: int, callback: Callable[[], None]) -> Callable[[], None]:
    """A function that calls `callback` the last of `calls` times that it is called."""
    left = calls

    def count_down() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            callback()

    return count_down
