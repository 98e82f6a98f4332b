"""Metadata (key 3): the brokers, and the topics asked for.

A topic that was deleted is refused by its id under the name that it had, where Apache Kafka says none: its Java
consumer takes a null name for a fault of its own, in the middle of a poll, and loses the answers that came with it,
mostly that to its heartbeat. A client that asks with a null name is told none, as it expects.

Version 0: an empty list asks for every topic; from 1 on null does. Version 4: the client may forbid auto-creation,
which earlier versions always allow. Version 10: topic ids. Version 12: topics may be asked for by id.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.broker.context import BrokerContext
from kohort.broker.leadership import NO_NODE, Leadership
from kohort.broker.operations import CLUSTER_OPERATIONS, TOPIC_OPERATIONS
from kohort.broker.request import Request
from kohort.errors import ErrorCode, Refused, StorageError
from kohort.ids import ZERO_TOPIC_ID
from kohort.storage.partition import PartitionLog
from kohort.storage.store import Topic
from kohort.wire.messages.metadata import (
    OPERATIONS_NOT_REQUESTED,
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)


def handle(context: BrokerContext, request: Request, message: MetadataRequest) -> MetadataResponse:
    """Describe the cluster; topics that do not exist are created where client and broker allow it."""
    cluster = context.cluster
    asked = message.topics
    rows: Iterable[MetadataResponseTopic]
    if asked is None or (request.version == 0 and not asked):
        rows = (_describe(context, topic) for topic in list(cluster.topics.values()))
    else:
        may_create = message.allow_auto_topic_creation and context.settings.values["auto.create.topics.enable"]
        # Named again and again it is answered once, as by Apache Kafka; and many new topics are one change.
        once = {(topic.topic_id, topic.name): topic for topic in asked}
        with cluster.as_one_change():
            answers = [_answer(context, request, topic, may_create=may_create) for topic in once.values()]
        # What is gone comes first: clients that keep one id per name keep that of a topic that was made again.
        rows = sorted(answers, key=lambda row: row.error_code != ErrorCode.UNKNOWN_TOPIC_ID)
    topics = list(rows)
    if message.include_topic_authorized_operations:
        for row in topics:
            if row.error_code == ErrorCode.NONE:
                row.topic_authorized_operations = TOPIC_OPERATIONS
    nodes = context.leadership.nodes(request.connection)
    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node.node_id, host=node.host, port=node.port) for node in nodes],
        cluster_id=cluster.cluster_id,
        controller_id=nodes[0].node_id,
        topics=topics,
        cluster_authorized_operations=CLUSTER_OPERATIONS
        if message.include_cluster_authorized_operations
        else OPERATIONS_NOT_REQUESTED,
    )


def _answer(
    context: BrokerContext, request: Request, asked: MetadataRequestTopic, *, may_create: bool
) -> MetadataResponseTopic:
    if asked.topic_id != ZERO_TOPIC_ID or asked.name is None:
        return _answer_by_id(context, request, asked)
    topic = context.cluster.topic(asked.name)
    if topic is None:
        try:
            context.cluster.check_new_topic(asked.name, -1)
            if not may_create:
                return _refuse(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name=asked.name)
            topic = context.cluster.create_topic(asked.name, -1, {})
        except Refused as refused:
            return _refuse(refused.code, name=asked.name)
        except StorageError as failure:
            context.outage.refused(f"topic-{asked.name}", failure)
            return _refuse(ErrorCode.KAFKA_STORAGE_ERROR, name=asked.name)
    return _describe(context, topic)


def _answer_by_id(context: BrokerContext, request: Request, asked: MetadataRequestTopic) -> MetadataResponseTopic:
    if request.version < 12:
        return _refuse(ErrorCode.INVALID_REQUEST, name=asked.name or "", topic_id=asked.topic_id)
    topic = context.cluster.topic_by_id(asked.topic_id)
    if topic is None:
        name = None if asked.name is None else context.cluster.former_name(asked.topic_id)
        return _refuse(ErrorCode.UNKNOWN_TOPIC_ID, name=name, topic_id=asked.topic_id)
    return _describe(context, topic)


def _refuse(code: ErrorCode, *, name: str | None, topic_id: bytes = ZERO_TOPIC_ID) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name, topic_id=topic_id)


def _describe(context: BrokerContext, topic: Topic) -> MetadataResponseTopic:
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=[
            _describe_partition(context.leadership, number, log) for number, log in enumerate(topic.partitions)
        ],
    )


def _describe_partition(leadership: Leadership, number: int, log: PartitionLog) -> MetadataResponsePartition:
    leader_id = leadership.leader_of(log)
    replicas = list(leadership.replicas)
    return MetadataResponsePartition(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if leader_id == NO_NODE else ErrorCode.NONE,
        partition_index=number,
        leader_id=leader_id,
        leader_epoch=log.leader_epoch,
        replica_nodes=replicas,
        isr_nodes=replicas,
    )
