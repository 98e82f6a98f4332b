"""DescribeTopicPartitions (key 75), KIP-966: partitions of topics, page by page.

Topics come in the order of their names; the cursor names the first partition of the next page.
"""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.broker.topics.leadership import NO_NODE, Leadership
from kohort.errors import ErrorCode, Refused
from kohort.security.access_control import AclOperation, ResourceType
from kohort.storage.catalog import check_topic_name
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.topics import Topic
from kohort.wire.messages import describe_topic_partitions as wire


def handle(
    context: BrokerContext, request: Request, message: wire.DescribeTopicPartitionsRequest
) -> wire.DescribeTopicPartitionsResponse:
    """Answer with one page, from the cursor on."""
    cluster, rights, kind = context.cluster, request.rights, ResourceType.TOPIC
    cursor = message.cursor
    names = sorted({topic.name for topic in message.topics} or set(cluster.topics))
    if cursor is not None:
        names = [name for name in names if name >= cursor.topic_name]
    denied: list[wire.DescribeTopicPartitionsResponseTopic] = []
    if rights.is_restricted:
        allowed = [name for name in names if rights.allows(AclOperation.DESCRIBE, kind, name)]
        if message.topics:
            # As Apache Kafka, each page has all denied names from its cursor on, whatever its limit.
            code, hidden = ErrorCode.TOPIC_AUTHORIZATION_FAILED, [name for name in names if name not in set(allowed)]
            denied = [wire.DescribeTopicPartitionsResponseTopic(error_code=code, name=name) for name in hidden]
        names = allowed
    limit = context.settings.values["max.request.partition.size.limit"]
    left = max(1, min(message.response_partition_limit, limit))
    rows: list[wire.DescribeTopicPartitionsResponseTopic] = []
    for name in names:
        topic = cluster.topic(name)
        first = cursor.partition_index if cursor is not None and cursor.topic_name == name else 0
        if left == 0:
            return _page(rows, denied, wire.Cursor(topic_name=name, partition_index=0))
        if topic is None:
            # An unknown name counts as a partition: a page of unknown names has an end, too.
            rows.append(_missing(name))
            left -= 1
            continue
        last = min(len(topic.partitions), max(first, 0) + left)
        numbers = range(max(first, 0), last)
        rows.append(_describe(topic, numbers, context.leadership, operations=rights.operations(kind, name)))
        left -= len(numbers)
        if last < len(topic.partitions):
            return _page(rows, denied, wire.Cursor(topic_name=name, partition_index=last))
    return _page(rows, denied, None)


def _page(
    rows: list[wire.DescribeTopicPartitionsResponseTopic],
    denied: list[wire.DescribeTopicPartitionsResponseTopic],
    cursor: wire.Cursor | None,
) -> wire.DescribeTopicPartitionsResponse:
    return wire.DescribeTopicPartitionsResponse(topics=[*rows, *denied], next_cursor=cursor)


def _missing(name: str) -> wire.DescribeTopicPartitionsResponseTopic:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    try:
        check_topic_name(name)
    except Refused as refused:
        code = refused.code
    return wire.DescribeTopicPartitionsResponseTopic(error_code=code, name=name)


def _describe(
    topic: Topic, numbers: range, leadership: Leadership, *, operations: int
) -> wire.DescribeTopicPartitionsResponseTopic:
    return wire.DescribeTopicPartitionsResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[_describe_partition(leadership, number, topic.partitions[number]) for number in numbers],
        topic_authorized_operations=operations,
    )


def _describe_partition(
    leadership: Leadership, number: int, log: PartitionLog
) -> wire.DescribeTopicPartitionsResponsePartition:
    leader_id = leadership.leader_of(log)
    return wire.DescribeTopicPartitionsResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader_id == NO_NODE else ErrorCode.NONE,
        partition_index=number,
        leader_id=leader_id,
        leader_epoch=log.leader_epoch,
        replica_nodes=list(leadership.replicas),
        isr_nodes=list(leadership.replicas),
        eligible_leader_replicas=[],
        last_known_elr=[],
        offline_replicas=leadership.offline_replicas(log),
    )
