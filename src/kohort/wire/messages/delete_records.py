"""DeleteRecords (key 21), KIP-107: delete the oldest records of partitions.

Version 1: throttled after the answer (KIP-219). Version 2: flexible (KIP-482).
"""

from kohort.wire.schema import INT16, INT32, INT64, STRING, Message, array, field, message


class DeleteRecordsPartition(Message):
    """A partition and its new start offset; -1 stands for its high watermark."""

    partition_index: int = field(INT32)
    offset: int = field(INT64)


class DeleteRecordsTopic(Message):
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: list[DeleteRecordsPartition] = field(array(DeleteRecordsPartition))


@message(key=21, kind="request", versions="0-2", flexible="2+")
class DeleteRecordsRequest(Message):
    """The new starts of partitions; their leader answers when all followers have followed."""

    topics: list[DeleteRecordsTopic] = field(array(DeleteRecordsTopic))
    timeout_ms: int = field(INT32)


class DeleteRecordsPartitionResult(Message):
    """The present start of one partition."""

    partition_index: int = field(INT32)
    low_watermark: int = field(INT64)
    error_code: int = field(INT16)


class DeleteRecordsTopicResult(Message):
    """Answers for one topic."""

    name: str = field(STRING)
    partitions: list[DeleteRecordsPartitionResult] = field(array(DeleteRecordsPartitionResult))


@message(key=21, kind="response", versions="0-2", flexible="2+")
class DeleteRecordsResponse(Message):
    """One answer per partition of the request."""

    throttle_time_ms: int = field(INT32)
    topics: list[DeleteRecordsTopicResult] = field(array(DeleteRecordsTopicResult))
