"""DescribeCluster (key 60), KIP-700: the cluster's id, brokers and controller.

Version 1: brokers or controllers may be asked for (KIP-919). Version 2: fenced brokers may be listed too (KIP-1073).
Flexible from the first version.
"""

from kohort.wire.messages.metadata import OPERATIONS_NOT_REQUESTED
from kohort.wire.schema import BOOL, INT8, INT16, INT32, STRING, Message, array, field, message


@message(key=60, kind="request", versions="0-2", flexible="0+")
class DescribeClusterRequest(Message):
    """The endpoints to list; `endpoint_type` is 1 for brokers, 2 for controllers."""

    include_cluster_authorized_operations: bool = field(BOOL)
    endpoint_type: int = field(INT8, since=1, default=1)
    include_fenced_brokers: bool = field(BOOL, since=2)


class DescribeClusterBroker(Message):
    """A broker and its address."""

    broker_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable=0, default=None)
    is_fenced: bool = field(BOOL, since=2)


@message(key=60, kind="response", versions="0-2", flexible="0+")
class DescribeClusterResponse(Message):
    """The cluster; `controller_id` is -1 while no controller is known."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    endpoint_type: int = field(INT8, since=1, default=1)
    cluster_id: str = field(STRING)
    controller_id: int = field(INT32, default=-1)
    brokers: list[DescribeClusterBroker] = field(array(DescribeClusterBroker))
    cluster_authorized_operations: int = field(INT32, default=OPERATIONS_NOT_REQUESTED)
