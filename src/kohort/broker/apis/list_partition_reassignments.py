"""ListPartitionReassignments (key 46): the reassignments under way, of which there are never any."""

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
    """Answer with no reassignment."""
    del context, request, message
    return ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None)
