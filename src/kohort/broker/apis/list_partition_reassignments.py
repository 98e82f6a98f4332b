"""ListPartitionReassignments (key 46): the reassignments under way, of which there are never any."""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.messages import list_partition_reassignments as wire


def handle(
    context: BrokerContext, request: Request, message: wire.ListPartitionReassignmentsRequest
) -> wire.ListPartitionReassignmentsResponse:
    """Answer with no reassignment."""
    del context
    if not request.rights.allows(AclOperation.DESCRIBE, ResourceType.CLUSTER):
        # Apache Kafka names the partitions again that were asked for.
        rows = [
            wire.OngoingTopicReassignment(
                name=topic.name,
                partitions=[
                    wire.OngoingPartitionReassignment(partition_index=number) for number in topic.partition_indexes
                ],
            )
            for topic in message.topics or ()
        ]
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        return wire.ListPartitionReassignmentsResponse(
            error_code=code, error_message="Cluster authorization failed.", topics=rows
        )
    return wire.ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None)
