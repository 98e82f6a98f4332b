"""ListOffsets (key 2): the offset of a timestamp, or of the start or end of a log.

Version 1, the oldest since Kafka 4.0: one offset with its timestamp per partition (KIP-79).
Version 2: isolation level (KIP-98) and throttle time. Version 3: throttled after the answer (KIP-219).
Version 4: leader epochs (KIP-320). Version 5: OFFSET_NOT_AVAILABLE while a new leader's high watermark lags (KIP-207).
Version 6: flexible (KIP-482). The others add a meaning for a negative timestamp each: 7 the record with the highest
timestamp (-3, KIP-734), 8 the start of the local log (-4, KIP-405), 9 the end of tiered storage (-5, KIP-1005),
11 the first offset that awaits its upload (-6, KIP-1023); version 10 lets the client bound the look-up (KIP-1075).
"""

from kohort.wire.schema import INT8, INT16, INT32, INT64, STRING, Message, array, field, message


class ListOffsetsPartition(Message):
    """One partition and a timestamp in milliseconds; -1 asks for the end, -2 for the start."""

    partition_index: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=4, default=-1)
    timestamp: int = field(INT64)


class ListOffsetsTopic(Message):
    """Partitions of one topic."""

    name: str = field(STRING)
    partitions: list[ListOffsetsPartition] = field(array(ListOffsetsPartition))


@message(key=2, kind="request", versions="1-11", flexible="6+")
class ListOffsetsRequest(Message):
    """The offsets to look up; a consumer sends `replica_id` -1 (the default of the field is 0)."""

    replica_id: int = field(INT32)
    isolation_level: int = field(INT8, since=2)
    topics: list[ListOffsetsTopic] = field(array(ListOffsetsTopic))
    timeout_ms: int = field(INT32, since=10)


class ListOffsetsPartitionResponse(Message):
    """The first offset at or after the timestamp; -1 where there is none."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    timestamp: int = field(INT64, default=-1)
    offset: int = field(INT64, default=-1)
    leader_epoch: int = field(INT32, since=4, default=-1)


class ListOffsetsTopicResponse(Message):
    """Answers for one topic."""

    name: str = field(STRING)
    partitions: list[ListOffsetsPartitionResponse] = field(array(ListOffsetsPartitionResponse))


@message(key=2, kind="response", versions="1-11", flexible="6+")
class ListOffsetsResponse(Message):
    """One answer per partition of the request."""

    throttle_time_ms: int = field(INT32, since=2)
    topics: list[ListOffsetsTopicResponse] = field(array(ListOffsetsTopicResponse))
