"""CreatePartitions (key 37): bring topics to a larger number of partitions.

Versions 0 to 3 are served. An assignment by hand may only name the brokers that there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from kohort.broker.context import BrokerContext
from kohort.broker.request import Request
from kohort.errors import ErrorCode, Refused, StorageError
from kohort.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)


def handle(context: BrokerContext, request: Request, message: CreatePartitionsRequest) -> CreatePartitionsResponse:
    """Grow each topic on its own; one that is refused does not hold up the others."""
    del request
    counts = Counter(topic.name for topic in message.topics)
    with context.cluster.as_one_change():
        rows = [
            _answer(context, topic, is_only=counts[topic.name] == 1, validate_only=message.validate_only)
            for topic in message.topics
        ]
    return CreatePartitionsResponse(results=rows)


def _answer(
    context: BrokerContext, asked: CreatePartitionsTopic, *, is_only: bool, validate_only: bool
) -> CreatePartitionsTopicResult:
    cluster = context.cluster
    try:
        if not is_only:
            raise Refused(ErrorCode.INVALID_REQUEST, f"topic {asked.name} is named twice in the request")
        topic = cluster.check_growth(asked.name, asked.count)
        _check_assignments(asked, asked.count - len(topic.partitions), context.leadership.replicas)
        if not validate_only:
            cluster.grow_topic(asked.name, asked.count)
    except Refused as refused:
        return CreatePartitionsTopicResult(name=asked.name, error_code=refused.code, error_message=str(refused))
    except StorageError as why:
        code = ErrorCode.KAFKA_STORAGE_ERROR
        return CreatePartitionsTopicResult(name=asked.name, error_code=code, error_message=str(why))
    return CreatePartitionsTopicResult(name=asked.name, error_code=ErrorCode.NONE)


def _check_assignments(asked: CreatePartitionsTopic, added: int, replicas: Sequence[int]) -> None:
    if asked.assignments is None:
        return
    which = f"broker {replicas[0]}" if len(replicas) == 1 else f"the brokers {list(replicas)}"
    if len(asked.assignments) != added or any(sorted(row.broker_ids) != list(replicas) for row in asked.assignments):
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"{added} assignments to {which} are expected, or none")
