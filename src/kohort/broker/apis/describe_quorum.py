"""DescribeQuorum (key 55): the quorum of the cluster metadata, which is this broker with its catalog.

Version 2: directories, nodes and error messages (KIP-853). The offsets count the changes of topics since the start.
Other partitions have no quorum.
"""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import describe_quorum as wire

#: The only topic with a quorum (KIP-595).
METADATA_TOPIC = "__cluster_metadata"


def handle(
    context: BrokerContext, request: Request, message: wire.DescribeQuorumRequest
) -> wire.DescribeQuorumResponse:
    """Answer with this broker as the only voter and the leader."""
    if not request.rights.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return wire.DescribeQuorumResponse(error_code=code, error_message="Cluster authorization failed.")
    name = request.connection.listener.name
    return wire.DescribeQuorumResponse(
        error_code=ErrorCode.NONE,
        error_message=None,
        topics=[
            wire.TopicDataResponse(
                topic_name=topic.topic_name,
                partitions=[
                    _describe(context, topic.topic_name, number)
                    for number in dict.fromkeys(row.partition_index for row in topic.partitions)
                ],
            )
            for topic in message.topics
        ],
        nodes=[
            wire.Node(node_id=node.node_id, listeners=[wire.Listener(name=name, host=node.host, port=node.port)])
            for node in context.leadership.nodes(request.connection)
            if node.node_id == context.leadership.node_id
        ],
    )


def _describe(context: BrokerContext, topic: str, number: int) -> wire.PartitionDataResponse:
    if (topic, number) != (METADATA_TOPIC, 0):
        return wire.PartitionDataResponse(
            partition_index=number,
            error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            error_message="only __cluster_metadata-0 has a quorum",
        )
    now_ms, offset = context.clock.now_ms(), context.cluster.image.version
    voter = wire.ReplicaState(
        replica_id=context.leadership.node_id,
        log_end_offset=offset,
        last_fetch_timestamp=now_ms,
        last_caught_up_timestamp=now_ms,
    )
    return wire.PartitionDataResponse(
        partition_index=0,
        error_code=ErrorCode.NONE,
        error_message=None,
        leader_id=context.leadership.node_id,
        leader_epoch=context.store.changes.leader_epoch,
        high_watermark=offset,
        current_voters=[voter],
    )
