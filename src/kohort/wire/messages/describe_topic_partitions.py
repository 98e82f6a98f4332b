"""DescribeTopicPartitions (key 75), KIP-966: pages of partitions, with eligible leader replicas.

There is one version; it is flexible. A page ends with a cursor, which is a structure that may be null: on the wire one
byte, -1 or 1, stands before it.
"""

from kohort.wire.messages.metadata import OPERATIONS_NOT_REQUESTED
from kohort.wire.schema import BOOL, INT16, INT32, STRING, UUID, Message, array, field, message


class TopicRequest(Message):
    """A topic to describe."""

    name: str = field(STRING)


class Cursor(Message):
    """The partition with which the next page begins."""

    topic_name: str = field(STRING)
    partition_index: int = field(INT32)


@message(key=75, kind="request", versions="0", flexible="0+")
class DescribeTopicPartitionsRequest(Message):
    """Topics to describe (none means all), and the most partitions of a page."""

    topics: list[TopicRequest] = field(array(TopicRequest))
    response_partition_limit: int = field(INT32, default=2000)
    cursor: Cursor | None = field(Cursor, nullable=0, default=None)


class DescribeTopicPartitionsResponsePartition(Message):
    """Leader and replicas of one partition; None where the cluster does not keep eligible leaders."""

    error_code: int = field(INT16)
    partition_index: int = field(INT32)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1)
    replica_nodes: list[int] = field(array(INT32))
    isr_nodes: list[int] = field(array(INT32))
    eligible_leader_replicas: list[int] | None = field(array(INT32), nullable=0, default=None)
    last_known_elr: list[int] | None = field(array(INT32), nullable=0, default=None)
    offline_replicas: list[int] = field(array(INT32))


class DescribeTopicPartitionsResponseTopic(Message):
    """One topic, or the part of it that the page has room for."""

    error_code: int = field(INT16)
    name: str | None = field(STRING, nullable=0)
    topic_id: bytes = field(UUID)
    is_internal: bool = field(BOOL)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(array(DescribeTopicPartitionsResponsePartition))
    topic_authorized_operations: int = field(INT32, default=OPERATIONS_NOT_REQUESTED)


@message(key=75, kind="response", versions="0", flexible="0+")
class DescribeTopicPartitionsResponse(Message):
    """One page; `next_cursor` None means that it is the last."""

    throttle_time_ms: int = field(INT32)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(array(DescribeTopicPartitionsResponseTopic))
    next_cursor: Cursor | None = field(Cursor, nullable=0, default=None)
