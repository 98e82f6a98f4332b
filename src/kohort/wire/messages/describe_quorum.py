"""DescribeQuorum (key 55), KIP-595: the voters of the cluster metadata, and their progress.

Version 1: when each was heard of last (KIP-836). Version 2: error messages, directories and listeners (KIP-853).
Flexible from the first version.
"""

from kohort.wire.schema import INT16, INT32, INT64, STRING, UINT16, UUID, Message, array, field, message


class PartitionData(Message):
    """A partition with a quorum to describe."""

    partition_index: int = field(INT32)


class TopicData(Message):
    """Partitions of one topic; the metadata's is `__cluster_metadata`, with the only partition 0."""

    topic_name: str = field(STRING)
    partitions: list[PartitionData] = field(array(PartitionData))


@message(key=55, kind="request", versions="0-2", flexible="0+")
class DescribeQuorumRequest(Message):
    """Partitions that are kept by quorums."""

    topics: list[TopicData] = field(array(TopicData))


class ReplicaState(Message):
    """A replica of the partition; times in milliseconds since 1970, -1 where they are not known."""

    replica_id: int = field(INT32)
    replica_directory_id: bytes = field(UUID, since=2)
    log_end_offset: int = field(INT64)
    last_fetch_timestamp: int = field(INT64, since=1, default=-1)
    last_caught_up_timestamp: int = field(INT64, since=1, default=-1)


class PartitionDataResponse(Message):
    """The quorum of one partition: its voters and its observers."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, since=2, nullable=2)
    leader_id: int = field(INT32)
    leader_epoch: int = field(INT32)
    high_watermark: int = field(INT64)
    current_voters: list[ReplicaState] = field(array(ReplicaState))
    observers: list[ReplicaState] = field(array(ReplicaState))


class TopicDataResponse(Message):
    """Answers for one topic."""

    topic_name: str = field(STRING)
    partitions: list[PartitionDataResponse] = field(array(PartitionDataResponse))


class Listener(Message):
    """The address of a controller."""

    name: str = field(STRING)
    host: str = field(STRING)
    port: int = field(UINT16)


class Node(Message):
    """A member of the quorum."""

    node_id: int = field(INT32)
    listeners: list[Listener] = field(array(Listener))


@message(key=55, kind="response", versions="0-2", flexible="0+")
class DescribeQuorumResponse(Message):
    """One answer per partition; this response has no throttle time."""

    error_code: int = field(INT16)
    error_message: str | None = field(STRING, since=2, nullable=2)
    topics: list[TopicDataResponse] = field(array(TopicDataResponse))
    nodes: list[Node] = field(array(Node), since=2)
