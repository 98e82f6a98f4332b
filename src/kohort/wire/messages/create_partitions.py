"""CreatePartitions (key 37), KIP-195: give a topic more partitions.

Version 1: throttled after the answer (KIP-219). Version 2: flexible (KIP-482).
Version 3: THROTTLING_QUOTA_EXCEEDED (KIP-599).
"""

from kohort.wire.schema import BOOL, INT16, INT32, STRING, Message, array, field, message


class CreatePartitionsAssignment(Message):
    """The brokers for one of the new partitions."""

    broker_ids: list[int] = field(array(INT32))


class CreatePartitionsTopic(Message):
    """A topic and its new total `count`; `assignments` None leaves the choice of brokers to the cluster."""

    name: str = field(STRING)
    count: int = field(INT32)
    assignments: list[CreatePartitionsAssignment] | None = field(array(CreatePartitionsAssignment), nullable=0)


@message(key=37, kind="request", versions="0-3", flexible="2+")
class CreatePartitionsRequest(Message):
    """Topics to enlarge, or only to check."""

    topics: list[CreatePartitionsTopic] = field(array(CreatePartitionsTopic))
    timeout_ms: int = field(INT32)
    validate_only: bool = field(BOOL)


class CreatePartitionsTopicResult(Message):
    """The result for one topic."""

    name: str = field(STRING)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)


@message(key=37, kind="response", versions="0-3", flexible="2+")
class CreatePartitionsResponse(Message):
    """One result per topic of the request."""

    throttle_time_ms: int = field(INT32)
    results: list[CreatePartitionsTopicResult] = field(array(CreatePartitionsTopicResult))
