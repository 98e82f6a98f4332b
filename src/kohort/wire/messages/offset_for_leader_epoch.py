"""OffsetForLeaderEpoch (key 23), KIP-101: the end offset of a leader epoch, to detect truncation.

Version 2, the oldest since Kafka 4.0: open to consumers, with the reader's own idea of the leader epoch and the
throttle time (KIP-320). Version 3: the asking replica (KIP-392). Version 4: flexible (KIP-482).
"""

from kohort.wire.schema import INT16, INT32, INT64, STRING, Message, array, field, message


class OffsetForLeaderPartition(Message):
    """The epoch to look up in one partition."""

    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32)


class OffsetForLeaderTopic(Message):
    """Partitions of one topic."""

    topic: str = field(STRING)
    partitions: list[OffsetForLeaderPartition] = field(array(OffsetForLeaderPartition))


@message(key=23, kind="request", versions="2-4", flexible="4+")
class OffsetForLeaderEpochRequest(Message):
    """Epochs to look up; `replica_id` -1: a consumer, -2: one that may read above the high watermark."""

    replica_id: int = field(INT32, since=3, default=-2)
    topics: list[OffsetForLeaderTopic] = field(array(OffsetForLeaderTopic))


class EpochEndOffset(Message):
    """The largest epoch up to the requested one, and the offset after its last record; -1: none."""

    error_code: int = field(INT16)
    partition: int = field(INT32)
    leader_epoch: int = field(INT32, default=-1)
    end_offset: int = field(INT64, default=-1)


class OffsetForLeaderTopicResult(Message):
    """Answers for one topic."""

    topic: str = field(STRING)
    partitions: list[EpochEndOffset] = field(array(EpochEndOffset))


@message(key=23, kind="response", versions="2-4", flexible="4+")
class OffsetForLeaderEpochResponse(Message):
    """One answer per partition of the request."""

    throttle_time_ms: int = field(INT32)
    topics: list[OffsetForLeaderTopicResult] = field(array(OffsetForLeaderTopicResult))
