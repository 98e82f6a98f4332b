"""Fetch (key 1): read record batches.

Version 4, the oldest since Kafka 4.0: batches of format 2, isolation level, aborted transactions (KIP-98).
Version 5: where the log starts (KIP-107). Version 6: a failed disk may be reported (KIP-112).
Version 7: fetch sessions, in which only changed partitions travel (KIP-227). Version 8: throttled after the answer
(KIP-219). Version 9: the leader epoch that the reader believes in (KIP-320). Version 10: zstd (KIP-110).
Version 11: rack of the reader and a preferred replica near it (KIP-392). Version 12: flexible (KIP-482), with the epoch
of the last fetched record and the answer where logs part (KIP-595). Version 13: topics by id only (KIP-516).
Version 14: an error for offsets in tiered storage (KIP-405). Version 15: replicas name themselves in a tagged field
(KIP-903). Version 16: addresses of present leaders (KIP-951). Version 17: directory ids (KIP-853).
Version 18: the high watermark that the replica knows (KIP-1166).

The cluster id, tagged from version 12 on, is sent by replicas of the metadata log only.
"""

from kohort.wire.messages import RecordBuffers
from kohort.wire.messages.membership import KnownMembership, MembershipUpdate
from kohort.wire.schema import INT8, INT16, INT32, INT64, RECORDS, STRING, UUID, Message, array, field, message


class ReplicaState(Message):
    """The broker that fetches; -1 means a consumer."""

    replica_id: int = field(INT32, default=-1)
    replica_epoch: int = field(INT64, default=-1)


class FetchPartition(Message):
    """The offset and limits for one partition; the fields of replicas keep their defaults in a consumer."""

    partition: int = field(INT32)
    current_leader_epoch: int = field(INT32, since=9, default=-1)
    fetch_offset: int = field(INT64)
    last_fetched_epoch: int = field(INT32, since=12, default=-1)
    log_start_offset: int = field(INT64, since=5, default=-1)
    partition_max_bytes: int = field(INT32)
    replica_directory_id: bytes = field(UUID, since=17, tag=0)
    high_watermark: int = field(INT64, since=18, tag=1, default=9223372036854775807)


class FetchTopic(Message):
    """Partitions of one topic, which is known by `topic` up to version 12 and by `topic_id` after it."""

    topic: str = field(STRING, until=12)
    topic_id: bytes = field(UUID, since=13)
    partitions: list[FetchPartition] = field(array(FetchPartition))


class ForgottenTopic(Message):
    """Partitions that leave the fetch session."""

    topic: str = field(STRING, until=12)
    topic_id: bytes = field(UUID, since=13)
    partitions: list[int] = field(array(INT32))


@message(key=1, kind="request", versions="4-18", flexible="12+")
class FetchRequest(Message):
    """The partitions to read, and the longest wait for their data.

    `session_epoch` -1 stands for a fetch without a session, 0 opens one (or closes it, with a `session_id`).
    """

    cluster_id: str | None = field(STRING, since=12, nullable=12, tag=0, default=None)
    replica_id: int = field(INT32, until=14, default=-1)
    replica_state: ReplicaState = field(ReplicaState, since=15, tag=1)
    max_wait_ms: int = field(INT32)
    min_bytes: int = field(INT32)
    max_bytes: int = field(INT32, default=2147483647)
    isolation_level: int = field(INT8)
    session_id: int = field(INT32, since=7)
    session_epoch: int = field(INT32, since=7, default=-1)
    topics: list[FetchTopic] = field(array(FetchTopic))
    forgotten_topics_data: list[ForgottenTopic] = field(array(ForgottenTopic), since=7)
    rack_id: str = field(STRING, since=11)
    #: Ours (wire.private): the member that fetches by this connection from now on; null is unchanged.
    member: KnownMembership | None = field(KnownMembership, since=12, nullable=12, tag=10_000, default=None)
    #: Ours: the member's token from now on; null is unchanged, as long as the connection has the same member.
    grant: str | None = field(STRING, since=12, nullable=12, tag=10_001, default=None, is_secret=True)


class EpochEndOffset(Message):
    """The point where the reader's log diverges from the leader's; -1 if it does not."""

    epoch: int = field(INT32, default=-1)
    end_offset: int = field(INT64, default=-1)


class LeaderIdAndEpoch(Message):
    """The leader that the refused reader should turn to; -1 means unknown."""

    leader_id: int = field(INT32, default=-1)
    leader_epoch: int = field(INT32, default=-1)


class SnapshotId(Message):
    """A snapshot to fetch instead of the log; -1 means none."""

    end_offset: int = field(INT64, default=-1)
    epoch: int = field(INT32, default=-1)


class AbortedTransaction(Message):
    """A producer's records from `first_offset` up to its abort marker are to be skipped."""

    producer_id: int = field(INT64)
    first_offset: int = field(INT64)


class PartitionData(Message):
    """The data of one partition; -1 means unknown in every offset, and no preference as a replica."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)
    high_watermark: int = field(INT64)
    last_stable_offset: int = field(INT64, default=-1)
    log_start_offset: int = field(INT64, since=5, default=-1)
    diverging_epoch: EpochEndOffset = field(EpochEndOffset, since=12, tag=0)
    current_leader: LeaderIdAndEpoch = field(LeaderIdAndEpoch, since=12, tag=1)
    snapshot_id: SnapshotId = field(SnapshotId, since=12, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field(array(AbortedTransaction), nullable=0)
    preferred_read_replica: int = field(INT32, since=11, default=-1)
    records: RecordBuffers = field(RECORDS, nullable=0)


class FetchableTopicResponse(Message):
    """Answers for one topic, named as in the request."""

    topic: str = field(STRING, until=12)
    topic_id: bytes = field(UUID, since=13)
    partitions: list[PartitionData] = field(array(PartitionData))


class NodeEndpoint(Message):
    """Address of a broker that is named as a leader."""

    node_id: int = field(INT32)
    host: str = field(STRING)
    port: int = field(INT32)
    rack: str | None = field(STRING, nullable=0, default=None)


@message(key=1, kind="response", versions="4-18", flexible="12+")
class FetchResponse(Message):
    """Batches per partition; `error_code` is about the session, `session_id` 0 says that there is none."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16, since=7)
    session_id: int = field(INT32, since=7)
    responses: list[FetchableTopicResponse] = field(array(FetchableTopicResponse))
    node_endpoints: list[NodeEndpoint] = field(array(NodeEndpoint), since=16, tag=0)
    #: Ours: the coordinator's news for that member.
    membership_update: MembershipUpdate | None = field(
        MembershipUpdate, since=12, nullable=12, tag=10_000, default=None
    )
