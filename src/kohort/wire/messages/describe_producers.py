"""DescribeProducers (key 61), KIP-664: the producers of a partition, asked of its leader.

There is one version. The epoch of a producer is an int32 here, an int16 everywhere else.
"""

from kohort.wire.schema import INT16, INT32, INT64, STRING, Message, array, field, message


class TopicRequest(Message):
    """Partitions of one topic."""

    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


@message(key=61, kind="request", versions="0", flexible="0+")
class DescribeProducersRequest(Message):
    """Partitions that the broker leads."""

    topics: list[TopicRequest] = field(array(TopicRequest))


class ProducerState(Message):
    """The leader's state of one producer; -1 where there is none, such as no open transaction."""

    producer_id: int = field(INT64)
    producer_epoch: int = field(INT32)
    last_sequence: int = field(INT32, default=-1)
    last_timestamp: int = field(INT64, default=-1)
    coordinator_epoch: int = field(INT32)
    current_txn_start_offset: int = field(INT64, default=-1)


class PartitionResponse(Message):
    """One partition's producers."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    active_producers: list[ProducerState] = field(array(ProducerState))


class TopicResponse(Message):
    """Answers for one topic."""

    name: str = field(STRING)
    partitions: list[PartitionResponse] = field(array(PartitionResponse))


@message(key=61, kind="response", versions="0", flexible="0+")
class DescribeProducersResponse(Message):
    """One answer per partition."""

    throttle_time_ms: int = field(INT32)
    topics: list[TopicResponse] = field(array(TopicResponse))
