"""AlterPartitionReassignments (key 45): the brokers that are to hold the replicas of partitions.

Every broker has every partition: to ask for that changes nothing, anything else is refused, and there is never a
reassignment under way that could be called off.
Source: Apache Kafka's codes, INVALID_REPLICA_ASSIGNMENT and NO_REASSIGNMENT_IN_PROGRESS.
"""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.errors import ErrorCode, Refused
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import alter_partition_reassignments as wire


def handle(
    context: BrokerContext, request: Request, message: wire.AlterPartitionReassignmentsRequest
) -> wire.AlterPartitionReassignmentsResponse:
    """Answer for each partition independently."""
    if not request.rights.allows(AclOperation.ALTER, ResourceType.CLUSTER):
        return _denied(message)
    return wire.AlterPartitionReassignmentsResponse(
        allow_replication_factor_change=message.allow_replication_factor_change,
        error_code=ErrorCode.NONE,
        error_message=None,
        responses=[
            wire.ReassignableTopicResponse(
                name=topic.name, partitions=[_answer(context, topic.name, each) for each in topic.partitions]
            )
            for topic in message.topics
        ],
    )


def _denied(message: wire.AlterPartitionReassignmentsRequest) -> wire.AlterPartitionReassignmentsResponse:
    """Refuse the request, and each of its partitions as well, as Apache Kafka does."""
    code, text = ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed."
    rows = [
        wire.ReassignableTopicResponse(
            name=topic.name,
            partitions=[
                wire.ReassignablePartitionResponse(
                    partition_index=each.partition_index, error_code=code, error_message=text
                )
                for each in topic.partitions
            ],
        )
        for topic in message.topics
    ]
    return wire.AlterPartitionReassignmentsResponse(error_code=code, error_message=text, responses=rows)


def _answer(context: BrokerContext, name: str, asked: wire.ReassignablePartition) -> wire.ReassignablePartitionResponse:
    code, text = ErrorCode.NONE, None
    try:
        _check(context, name, asked)
    except Refused as why:
        code, text = why.code, str(why)
    return wire.ReassignablePartitionResponse(
        partition_index=asked.partition_index, error_code=code, error_message=text
    )


def _check(context: BrokerContext, name: str, asked: wire.ReassignablePartition) -> None:
    topic, replicas = context.cluster.topic(name), list(context.leadership.replicas)
    if context.cluster.partition(topic, asked.partition_index) is None:
        raise Refused(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find a topic named {name}." if topic is None else f"there is no {name}-{asked.partition_index}",
        )
    if asked.replicas is None:
        raise Refused(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    if sorted(asked.replicas) != replicas:
        where = f"broker {replicas[0]}" if len(replicas) == 1 else f"the brokers {replicas}"
        raise Refused(ErrorCode.INVALID_REPLICA_ASSIGNMENT, f"every partition of this cluster is on {where}, and stays")
