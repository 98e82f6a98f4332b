"""ListPartitionReassignments (key 46), KIP-455: the partitions that are being reassigned.

There is one version.
"""

from kohort.wire.schema import INT16, INT32, STRING, Message, array, field, message


class ListPartitionReassignmentsTopics(Message):
    """Partitions of one topic."""

    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


@message(key=46, kind="request", versions="0", flexible="0+")
class ListPartitionReassignmentsRequest(Message):
    """The partitions to look for; null means all."""

    timeout_ms: int = field(INT32, default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(
        array(ListPartitionReassignmentsTopics), nullable=0, default=None
    )


class OngoingPartitionReassignment(Message):
    """One partition; `replicas` are all present replicas, those to be removed included."""

    partition_index: int = field(INT32)
    replicas: list[int] = field(array(INT32))
    adding_replicas: list[int] = field(array(INT32))
    removing_replicas: list[int] = field(array(INT32))


class OngoingTopicReassignment(Message):
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: list[OngoingPartitionReassignment] = field(array(OngoingPartitionReassignment))


@message(key=46, kind="response", versions="0", flexible="0+")
class ListPartitionReassignmentsResponse(Message):
    """The reassignments under way."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)
    topics: list[OngoingTopicReassignment] = field(array(OngoingTopicReassignment))
