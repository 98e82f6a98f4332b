"""ElectLeaders (key 43), KIP-183: elect the leaders of partitions.

Version 1: unclean elections, and an error for all of it (KIP-460). Version 2: flexible (KIP-482).
"""

from kohort.wire.schema import INT8, INT16, INT32, STRING, Message, array, field, message


class TopicPartitions(Message):
    """Partitions of one topic."""

    topic: str = field(STRING)
    partitions: list[int] = field(array(INT32))


@message(key=43, kind="request", versions="0-2", flexible="2+")
class ElectLeadersRequest(Message):
    """Partitions (null: all); type 0 elects the first replica, 1 any live one if none is in sync."""

    election_type: int = field(INT8, since=1)
    topic_partitions: list[TopicPartitions] | None = field(array(TopicPartitions), nullable=0)
    timeout_ms: int = field(INT32, default=60000)


class PartitionResult(Message):
    """The result for one partition."""

    partition_id: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0)


class ReplicaElectionResult(Message):
    """Answers for one topic."""

    topic: str = field(STRING)
    partition_result: list[PartitionResult] = field(array(PartitionResult))


@message(key=43, kind="response", versions="0-2", flexible="2+")
class ElectLeadersResponse(Message):
    """One answer per partition; of all partitions only those that needed an election."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=1)
    replica_election_results: list[ReplicaElectionResult] = field(array(ReplicaElectionResult))
