"""OffsetCommit (key 8): store the offsets of a group.

Version 2, the oldest since Kafka 4.0: with a retention time, which goes in version 5, where the broker's setting
decides (KIP-211). Version 3: throttle time (KIP-124). Version 4: throttled after the answer (KIP-219).
Version 6: leader epoch of the committed record (KIP-320). Version 7: static members (KIP-345). Version 8: flexible
(KIP-482). Version 9: members of the new group protocol, whose epoch takes the generation's place; the answer may be
STALE_MEMBER_EPOCH or GROUP_ID_NOT_FOUND (KIP-848). Version 10: topics by id only, and UNKNOWN_TOPIC_ID (KIP-848).
"""

from kohort.wire.messages.consumer_group_heartbeat import TopicPartitions
from kohort.wire.messages.membership import KnownMembership, MembershipUpdate
from kohort.wire.schema import INT16, INT32, INT64, STRING, UUID, Message, array, field, message


class OffsetCommitRequestPartition(Message):
    """The next offset to read, and the committer's metadata."""

    partition_index: int = field(INT32)
    committed_offset: int = field(INT64)
    committed_leader_epoch: int = field(INT32, since=6, default=-1)
    committed_metadata: str | None = field(STRING, nullable=0)


class OffsetCommitRequestTopic(Message):
    """Partitions of one topic, which is known by `name` up to version 9 and by `topic_id` after it."""

    name: str = field(STRING, until=9)
    topic_id: bytes = field(UUID, since=10)
    partitions: list[OffsetCommitRequestPartition] = field(array(OffsetCommitRequestPartition))


@message(key=8, kind="request", versions="2-10", flexible="8+")
class OffsetCommitRequest(Message):
    """Offsets of one group; a committer that is no member sends generation -1 and an empty member id."""

    group_id: str = field(STRING)
    generation_id_or_member_epoch: int = field(INT32, default=-1)
    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=7, nullable=7, default=None)
    retention_time_ms: int = field(INT64, until=4, default=-1)
    topics: list[OffsetCommitRequestTopic] = field(array(OffsetCommitRequestTopic))
    #: Ours (wire.private): the state that the committing member knows; null if it wants no news.
    member: KnownMembership | None = field(KnownMembership, since=8, nullable=8, tag=10_000, default=None)
    #: Ours: the member's token; null: it has none.
    grant: str | None = field(STRING, since=8, nullable=8, tag=10_001, default=None, is_secret=True)
    #: Ours: partitions that the member gives up with this commit, its last one of them.
    released: list[TopicPartitions] | None = field(
        array(TopicPartitions), since=8, nullable=8, tag=10_002, default=None
    )


class OffsetCommitResponsePartition(Message):
    """The result for one offset."""

    partition_index: int = field(INT32)
    error_code: int = field(INT16)


class OffsetCommitResponseTopic(Message):
    """Answers for one topic, named as in the request."""

    name: str = field(STRING, until=9)
    topic_id: bytes = field(UUID, since=10)
    partitions: list[OffsetCommitResponsePartition] = field(array(OffsetCommitResponsePartition))


@message(key=8, kind="response", versions="2-10", flexible="8+")
class OffsetCommitResponse(Message):
    """One answer per partition; a refusal of the whole group is repeated in each of them."""

    throttle_time_ms: int = field(INT32, since=3)
    topics: list[OffsetCommitResponseTopic] = field(array(OffsetCommitResponseTopic))
    #: Ours: the coordinator's news for that member.
    membership_update: MembershipUpdate | None = field(MembershipUpdate, since=8, nullable=8, tag=10_000, default=None)
