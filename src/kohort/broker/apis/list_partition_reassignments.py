"""ListPartitionReassignments (key 46): the partitions that are on their way to other brokers; never any."""

from __future__ import annotations

from kohort.broker.connections.request import Request
from kohort.broker.context import BrokerContext
from kohort.errors import ErrorCode
from kohort.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(
    context: BrokerContext, request: Request, message: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    """None."""
    del context, request, message
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None)
