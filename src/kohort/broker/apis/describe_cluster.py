"""DescribeCluster (key 60): the brokers.

Version 1: brokers or controllers may be asked for (KIP-919); a broker knows no controllers. Version 2: fenced brokers.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.apis.metadata import cluster_operations
from kohort.broker.context import BrokerContext, Request
from kohort.errors import ErrorCode
from kohort.wire.messages import describe_cluster as wire

#: Kafka's endpoint types (KIP-919).
BROKERS: Final = 1
CONTROLLERS: Final = 2


def handle(
    context: BrokerContext, request: Request, message: wire.DescribeClusterRequest
) -> wire.DescribeClusterResponse:
    """Answer with all brokers."""
    cluster = context.cluster
    if message.endpoint_type != BROKERS:
        is_known = message.endpoint_type == CONTROLLERS
        return wire.DescribeClusterResponse(
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if is_known else ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message="this is a broker; ask it for brokers (endpoint type 1)",
            endpoint_type=BROKERS,
        )
    nodes = context.leadership.nodes(request.connection)
    response = wire.DescribeClusterResponse(
        error_code=ErrorCode.NONE,
        endpoint_type=BROKERS,
        cluster_id=cluster.cluster_id,
        controller_id=nodes[0].node_id,
        brokers=[wire.DescribeClusterBroker(broker_id=node.node_id, host=node.host, port=node.port) for node in nodes],
    )
    if message.include_cluster_authorized_operations:
        response.cluster_authorized_operations = cluster_operations(request)
    return response
