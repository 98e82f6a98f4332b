"""OffsetDelete (key 47), KIP-496: delete committed offsets of partitions that no member reads.

There is one version, and it is not flexible. The response begins with the error code, not with the throttle time.
"""

from kohort.wire.schema import INT16, INT32, STRING, Message, array, field, message


class OffsetDeleteRequestPartition(Message):
    """A partition with an offset to delete."""

    partition_index: int = field(INT32)


class OffsetDeleteRequestTopic(Message):
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: list[OffsetDeleteRequestPartition] = field(array(OffsetDeleteRequestPartition))


@message(key=47, kind="request", versions="0", flexible="none")
class OffsetDeleteRequest(Message):
    """Offsets of one group to delete."""

    group_id: str = field(STRING)
    topics: list[OffsetDeleteRequestTopic] = field(array(OffsetDeleteRequestTopic))


class OffsetDeleteResponsePartition(Message):
    """The result for one offset."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class OffsetDeleteResponseTopic(Message):
    """Answers for one topic."""

    name: str = field(STRING)
    partitions: list[OffsetDeleteResponsePartition] = field(array(OffsetDeleteResponsePartition))


@message(key=47, kind="response", versions="0", flexible="none")
class OffsetDeleteResponse(Message):
    """One answer per partition; with an `error_code` of its own it has none."""

    error_code: int = field(INT16)
    throttle_time_ms: int = field(INT32)
    topics: list[OffsetDeleteResponseTopic] = field(array(OffsetDeleteResponseTopic))
