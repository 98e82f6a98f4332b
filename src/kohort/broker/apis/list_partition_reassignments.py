"""ListPartitionReassignments (key 46): the reassignments under way, of which there are never any."""

from __future__ import annotations

from kohort.broker.context import BrokerContext, Request
from kohort.errors import ErrorCode
from kohort.wire.messages import list_partition_reassignments as wire


def handle(
    context: BrokerContext, request: Request, message: wire.ListPartitionReassignmentsRequest
) -> wire.ListPartitionReassignmentsResponse:
    """Answer with no reassignment."""
    del context, request, message
    return wire.ListPartitionReassignmentsResponse(error_code=ErrorCode.NONE, error_message=None)
