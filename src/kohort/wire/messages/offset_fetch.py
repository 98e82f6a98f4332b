"""OffsetFetch (key 9): read the offsets of groups.

Version 1, the oldest since Kafka 4.0. Version 2: a null topic list asks for all offsets, and the response has an
error code of its own (KIP-88). Version 3: throttle time (KIP-124). Version 4: throttled after the answer (KIP-219).
Version 5: leader epochs (KIP-320). Version 6: flexible (KIP-482). Version 7: the reader may insist on offsets with no
transaction pending (KIP-447). Version 8: many groups in one request; the fields of the single group are gone from here
on (KIP-709). Version 9: member id and epoch, checked for groups of the new protocol (KIP-848).
Version 10: topics by id only, and UNKNOWN_TOPIC_ID (KIP-848).
"""

from kohort.wire.schema import BOOL, INT16, INT32, INT64, STRING, UUID, Message, array, field, message


class OffsetFetchRequestTopic(Message):
    """Partitions of one topic, up to version 7."""

    name: str = field(STRING)
    partition_indexes: list[int] = field(array(INT32))


class OffsetFetchRequestTopics(Message):
    """Partitions of one topic from version 8 on; known by `topic_id` from version 10 on."""

    name: str = field(STRING, until=9)
    topic_id: bytes = field(UUID, since=10)
    partition_indexes: list[int] = field(array(INT32))


class OffsetFetchRequestGroup(Message):
    """One group to read; `topics` None means every offset that it has."""

    group_id: str = field(STRING)
    member_id: str | None = field(STRING, since=9, nullable=9, default=None)
    member_epoch: int = field(INT32, since=9, default=-1)
    topics: list[OffsetFetchRequestTopics] | None = field(array(OffsetFetchRequestTopics), nullable=0)


@message(key=9, kind="request", versions="1-10", flexible="6+")
class OffsetFetchRequest(Message):
    """The groups to read: up to version 7 one in `group_id` and `topics`, after it `groups`."""

    group_id: str = field(STRING, until=7)
    topics: list[OffsetFetchRequestTopic] | None = field(array(OffsetFetchRequestTopic), until=7, nullable=2)
    groups: list[OffsetFetchRequestGroup] = field(array(OffsetFetchRequestGroup), since=8)
    require_stable: bool = field(BOOL, since=7)


class OffsetFetchResponsePartition(Message):
    """One committed offset up to version 7; -1 means that there is none."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=5, default=-1)
    metadata: str | None = field(STRING, nullable=0)
    error_code: int = field(INT16)


class OffsetFetchResponseTopic(Message):
    """Offsets of one topic, up to version 7."""

    name: str = field(STRING)
    partitions: list[OffsetFetchResponsePartition] = field(array(OffsetFetchResponsePartition))


class OffsetFetchResponsePartitions(Message):
    """One committed offset from version 8 on; -1 means that there is none."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, default=-1)
    metadata: str | None = field(STRING, nullable=0)
    error_code: int = field(INT16)


class OffsetFetchResponseTopics(Message):
    """Offsets of one topic from version 8 on, named as in the request."""

    name: str = field(STRING, until=9)
    topic_id: bytes = field(UUID, since=10)
    partitions: list[OffsetFetchResponsePartitions] = field(array(OffsetFetchResponsePartitions))


class OffsetFetchResponseGroup(Message):
    """Offsets of one group; with an `error_code` its topics are empty."""

    group_id: str = field(STRING)
    topics: list[OffsetFetchResponseTopics] = field(array(OffsetFetchResponseTopics))
    error_code: int = field(INT16)


@message(key=9, kind="response", versions="1-10", flexible="6+")
class OffsetFetchResponse(Message):
    """The offsets: up to version 7 of one group in `topics`, after it one entry per group in `groups`."""

    throttle_time_ms: int = field(INT32, since=3)
    topics: list[OffsetFetchResponseTopic] = field(array(OffsetFetchResponseTopic), until=7)
    error_code: int = field(INT16, since=2, until=7)
    groups: list[OffsetFetchResponseGroup] = field(array(OffsetFetchResponseGroup), since=8)
