"""Keys and values of the records of `__consumer_offsets`, the group coordinator's log.

Every record's key and value begin with an int16 that is no part of these messages: in a key it is the record's type,
in a value the version of the value. Types 0 and 1 share one key layout: 0 is the oldest form of an offset, 1 today's.

OffsetCommitValue (types 0 and 1): version 1 adds the time of expiry, 2 drops it again (KIP-211), 3 adds the leader
epoch (KIP-320), 4 is flexible and has the topic's id as a tagged field. Kafka itself writes 3 today, and 1 where an
expiry was asked for; it never raises that, so that an older broker can read what a newer one wrote (KIP-915).
GroupMetadataValue (type 2, classic groups): version 1 adds the rebalance timeout, 2 the time of the last change of
state, 3 static members (KIP-345), 4 is flexible; Kafka writes 3.
Types 3 to 8 (groups of KIP-848) and 16 (resolved regular expressions) are flexible from version 0. Type 4 is written no
more since the hash in type 3 took its place (KIP-1101); it is still read, and deleted. Type 6 got the time of the
assignment (KIP-1263), type 8 the epoch at which each partition was granted (KIP-1251), both as tagged fields.
The definitions of types 5 and 8 seem to give null as the default of a tagged field, but Kafka's generator reads a
default of JSON's null as none given: what it has compiled is an empty structure and an empty list.

Types 9 to 15 and from 17 on belong to share and streams groups, which have no place here.
"""

from kohort.wire.schema import BYTES, INT8, INT32, INT64, STRING, UUID, Message, array, field, message


@message(key=0, kind="coordinator-key", versions="0", flexible="none")
class LegacyOffsetCommitKey(Message):
    """One partition's offset of one group, as the oldest brokers wrote it."""

    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


@message(key=0, kind="coordinator-value", versions="0", flexible="none")
class LegacyOffsetCommitValue(Message):
    """A committed offset, as the oldest brokers wrote it."""

    offset: int = field(INT64)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)


@message(key=1, kind="coordinator-key", versions="0", flexible="none")
class OffsetCommitKey(Message):
    """One partition's offset of one group."""

    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


@message(key=1, kind="coordinator-value", versions="0-4", flexible="4+")
class OffsetCommitValue(Message):
    """A committed offset; `expire_timestamp` -1 means that the broker's retention applies."""

    offset: int = field(INT64)
    leader_epoch: int = field(INT32, since=3, default=-1)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, since=1, until=1, default=-1)
    topic_id: bytes = field(UUID, since=4, tag=0)


@message(key=2, kind="coordinator-key", versions="0", flexible="none")
class GroupMetadataKey(Message):
    """One classic group."""

    group: str = field(STRING)


class MemberMetadata(Message):
    """A member of a classic group; `rebalance_timeout` -1 means the session timeout."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable=3, default=None)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, since=1, default=-1)
    session_timeout: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


@message(key=2, kind="coordinator-value", versions="0-4", flexible="4+")
class GroupMetadataValue(Message):
    """A classic group after its last rebalance; without members it is empty or only stores offsets."""

    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(STRING, nullable=0)
    leader: str | None = field(STRING, nullable=0)
    current_state_timestamp: int = field(INT64, since=2, default=-1)
    members: list[MemberMetadata] = field(array(MemberMetadata))


@message(key=3, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupMetadataKey(Message):
    """One group of the new protocol."""

    group_id: str = field(STRING)


@message(key=3, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupMetadataValue(Message):
    """The group's epoch, and a hash over the topics that it subscribes to (0: none was computed)."""

    epoch: int = field(INT32)
    metadata_hash: int = field(INT64, tag=0)


@message(key=4, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupPartitionMetadataKey(Message):
    """The subscribed topics of one group, as Kafka before 4.1 kept them."""

    group_id: str = field(STRING)


class PartitionMetadata(Message):
    """The racks of one partition's replicas."""

    partition: int = field(INT32)
    racks: list[str] = field(array(STRING))


class TopicMetadata(Message):
    """One subscribed topic."""

    topic_id: bytes = field(UUID)
    topic_name: str = field(STRING)
    num_partitions: int = field(INT32)
    partition_metadata: list[PartitionMetadata] = field(array(PartitionMetadata))


@message(key=4, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupPartitionMetadataValue(Message):
    """The subscribed topics with their numbers of partitions."""

    topics: list[TopicMetadata] = field(array(TopicMetadata))


@message(key=5, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupMemberMetadataKey(Message):
    """One member's subscription."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


class ClassicProtocol(Message):
    """One assignor that a classic member offers, with its subscription blob."""

    name: str = field(STRING)
    metadata: bytes = field(BYTES)


class ClassicMemberMetadata(Message):
    """The state of a member that speaks the classic protocol in a group of the new one."""

    session_timeout_ms: int = field(INT32)
    supported_protocols: list[ClassicProtocol] = field(array(ClassicProtocol))


@message(key=5, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupMemberMetadataValue(Message):
    """A member's subscription; `classic_member_metadata` is None for a member of the new protocol.

    That null must be written: Kafka takes a record without the field for a classic member with a timeout of 0.
    """

    instance_id: str | None = field(STRING, nullable=0)
    rack_id: str | None = field(STRING, nullable=0)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    subscribed_topic_names: list[str] = field(array(STRING))
    subscribed_topic_regex: str | None = field(STRING, nullable=0)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    server_assignor: str | None = field(STRING, nullable=0)
    classic_member_metadata: ClassicMemberMetadata | None = field(ClassicMemberMetadata, nullable=0, tag=0)


@message(key=6, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMetadataKey(Message):
    """The target assignment of one group."""

    group_id: str = field(STRING)


@message(key=6, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMetadataValue(Message):
    """The group epoch of the target, and the time of its computation (0: unknown)."""

    assignment_epoch: int = field(INT32)
    assignment_timestamp: int = field(INT64, tag=0)


@message(key=7, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupTargetAssignmentMemberKey(Message):
    """The target of one member."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


class TopicPartition(Message):
    """Partitions of one topic that a member is to own."""

    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))


@message(key=7, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupTargetAssignmentMemberValue(Message):
    """The partitions that a member is to own in the end."""

    topic_partitions: list[TopicPartition] = field(array(TopicPartition))


@message(key=8, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupCurrentMemberAssignmentKey(Message):
    """The present assignment of one member."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


class TopicPartitions(Message):
    """Partitions of one topic that a member owns; `assignment_epochs` has one for each, or is empty."""

    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))
    assignment_epochs: list[int] | None = field(array(INT32), nullable=0, tag=0)


@message(key=8, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupCurrentMemberAssignmentValue(Message):
    """A member's epochs, state number, owned partitions and partitions to revoke."""

    member_epoch: int = field(INT32)
    previous_member_epoch: int = field(INT32)
    state: int = field(INT8)
    assigned_partitions: list[TopicPartitions] = field(array(TopicPartitions))
    partitions_pending_revocation: list[TopicPartitions] = field(array(TopicPartitions))


@message(key=16, kind="coordinator-key", versions="0", flexible="none")
class ConsumerGroupRegularExpressionKey(Message):
    """One regular expression that members of a group subscribe with."""

    group_id: str = field(STRING)
    regular_expression: str = field(STRING)


@message(key=16, kind="coordinator-value", versions="0", flexible="0+")
class ConsumerGroupRegularExpressionValue(Message):
    """The topics that an expression matched, with the metadata version and the time."""

    topics: list[str] = field(array(STRING))
    version: int = field(INT64)
    timestamp: int = field(INT64)
