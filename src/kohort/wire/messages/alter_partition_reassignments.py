"""AlterPartitionReassignments (key 45), KIP-455: the brokers that are to hold partitions' replicas.

Version 1: whether the number of copies may change (KIP-860). Flexible from the first version.
"""

from kohort.wire.schema import BOOL, INT16, INT32, STRING, Message, array, field, message


class ReassignablePartition(Message):
    """One partition; null in place of brokers cancels a reassignment under way."""

    partition_index: int = field(INT32)
    replicas: list[int] | None = field(array(INT32), nullable=0, default=None)


class ReassignableTopic(Message):
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: list[ReassignablePartition] = field(array(ReassignablePartition))


@message(key=45, kind="request", versions="0-1", flexible="0+")
class AlterPartitionReassignmentsRequest(Message):
    """Partitions and their brokers."""

    timeout_ms: int = field(INT32, default=60000)
    allow_replication_factor_change: bool = field(BOOL, since=1, default=True)
    topics: list[ReassignableTopic] = field(array(ReassignableTopic))


class ReassignablePartitionResponse(Message):
    """The result for one partition."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


class ReassignableTopicResponse(Message):
    """Answers for one topic."""

    name: str = field(STRING)
    partitions: list[ReassignablePartitionResponse] = field(array(ReassignablePartitionResponse))


@message(key=45, kind="response", versions="0-1", flexible="0+")
class AlterPartitionReassignmentsResponse(Message):
    """An error for all of it, or one answer per partition."""

    throttle_time_ms: int = field(INT32)
    allow_replication_factor_change: bool = field(BOOL, since=1, default=True)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    responses: list[ReassignableTopicResponse] = field(array(ReassignableTopicResponse))
