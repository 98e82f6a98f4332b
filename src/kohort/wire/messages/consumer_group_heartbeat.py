"""ConsumerGroupHeartbeat (key 68), KIP-848: join, stay in and leave a group of the new protocol.

Version 1 adds the subscription by regular expression, which the coordinator evaluates, and demands a member id made by
the client (KIP-1082); in version 0 an empty id asks the coordinator for one.
Flexible from the first version.

A null field of the request means "as before"; the full state is sent when joining and after a failed answer.
"""

from kohort.wire.schema import BOOL, BYTES, INT8, INT16, INT32, INT64, STRING, UUID, Message, array, field, message


class TopicPartitions(Message):
    """Partitions of one topic, owned or assigned."""

    topic_id: bytes = field(UUID)
    partitions: list[int] = field(array(INT32))


class ClientAssignor(Message):
    """Ours: an assignor that the member can run, its versions, and its metadata for the computing member.

    `reason` other than 0 asks for a computation; `metadata_version` lies within the two others.
    """

    name: str = field(STRING)
    minimum_version: int = field(INT16)
    maximum_version: int = field(INT16)
    reason: int = field(INT8)
    metadata_version: int = field(INT16)
    metadata_bytes: bytes = field(BYTES)


@message(key=68, kind="request", versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatRequest(Message):
    """The state of one member; `member_epoch` 0 joins, -1 leaves, -2 leaves for a while (static members)."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)
    member_epoch: int = field(INT32)
    instance_id: str | None = field(STRING, nullable=0, default=None)
    rack_id: str | None = field(STRING, nullable=0, default=None)
    rebalance_timeout_ms: int = field(INT32, default=-1)
    subscribed_topic_names: list[str] | None = field(array(STRING), nullable=0, default=None)
    subscribed_topic_regex: str | None = field(STRING, since=1, nullable=1, default=None)
    server_assignor: str | None = field(STRING, nullable=0, default=None)
    topic_partitions: list[TopicPartitions] | None = field(array(TopicPartitions), nullable=0, default=None)
    #: Ours (wire.private): how often the member would like to heartbeat; -1 leaves it to the coordinator.
    proposed_heartbeat_interval_ms: int = field(INT32, tag=10_000, default=-1)
    #: Ours: either of them, sent by the first member of a group, makes the group static; -1: not sent.
    registration_timeout_ms: int = field(INT32, tag=10_001, default=-1)
    expansion_timeout_ms: int = field(INT32, tag=10_002, default=-1)
    #: Ours: the assignors that the member can run, in the order of its preference; null is unchanged.
    client_assignors: list[ClientAssignor] | None = field(array(ClientAssignor), nullable=0, tag=10_003, default=None)
    #: Ours: the metadata that the member publishes to the others; null is unchanged.
    metadata: bytes | None = field(BYTES, nullable=0, tag=10_004, default=None)
    #: Ours: the version up to which the member knows the others' metadata, 0: none; -1: it does not want them.
    watched_version: int = field(INT64, tag=10_005, default=-1)
    #: Ours: whether the member takes news in answers to fetches and commits as well, and wants assignments numbered.
    wants_numbers: bool = field(BOOL, tag=10_006, default=False)
    #: Ours: milliseconds since the application polled, 0 if it does so all the time; -1: the member does not tell.
    last_poll_ms: int = field(INT32, tag=10_007, default=-1)


class Assignment(Message):
    """All partitions that the member shall own, not only the changes."""

    topic_partitions: list[TopicPartitions] = field(array(TopicPartitions))


class OwnershipGrant(Message):
    """Ours: a capability token for the partitions of one assignment; it is renewed before its lease is over.

    `lease_ms` counts from when the request left that this answers.
    """

    token: str = field(STRING, is_secret=True)
    lease_ms: int = field(INT32)


class ClientAssignment(Message):
    """Ours: metadata of the computing member beside an assignment; `error` is not 0 if it failed."""

    error: int = field(INT8)
    metadata_version: int = field(INT16)
    metadata_bytes: bytes = field(BYTES)


class PublishedMetadata(Message):
    """Ours: the published metadata of one member; null if it has left or publishes nothing any more."""

    member_id: str = field(STRING)
    instance_id: str | None = field(STRING, nullable=0, default=None)
    metadata: bytes | None = field(BYTES, nullable=0, default=None)


class MetadataNews(Message):
    """Ours: members' published metadata up to `version`; of all members if `is_whole`, else the changes.

    `has_more`: the rest comes with the next answer to a request with this version.
    """

    version: int = field(INT64)
    is_whole: bool = field(BOOL)
    has_more: bool = field(BOOL)
    members: list[PublishedMetadata] = field(array(PublishedMetadata))


@message(key=68, kind="response", versions="0-1", flexible="0+")
class ConsumerGroupHeartbeatResponse(Message):
    """The member's epoch; `assignment` None means that nothing changed since the last answer."""

    throttle_time_ms: int = field(INT32)
    error_code: int = field(INT16)
    error_message: str | None = field(STRING, nullable=0, default=None)
    member_id: str | None = field(STRING, nullable=0, default=None)
    member_epoch: int = field(INT32)
    heartbeat_interval_ms: int = field(INT32)
    assignment: Assignment | None = field(Assignment, nullable=0, default=None)
    #: Ours (wire.private): why there is a new assignment, for people.
    rebalance_reason: str | None = field(STRING, nullable=0, tag=10_000, default=None)
    #: Ours: whether this member is the one that shall compute the group's next assignment.
    should_compute_assignment: bool = field(BOOL, tag=10_001, default=False)
    #: Ours: the metadata that the computing member sent with the assignment; null is nothing new.
    client_assignment: ClientAssignment | None = field(ClientAssignment, nullable=0, tag=10_002, default=None)
    #: Ours: the other members' metadata, for a member that watches it; null is nothing new.
    metadata_news: MetadataNews | None = field(MetadataNews, nullable=0, tag=10_003, default=None)
    #: Ours: beside an assignment, its number among all that the member is told; 0 without one.
    number: int = field(INT64, tag=10_004, default=0)
    #: Ours: how long the member may be silent, counted from its request; -1: the coordinator does not say.
    session_timeout_ms: int = field(INT32, tag=10_005, default=-1)
    #: Ours: the token for the member's partitions; null: it has the latest, or its group enforces nothing.
    grant: OwnershipGrant | None = field(OwnershipGrant, nullable=0, tag=10_006, default=None)
    #: Ours: whether a fetch that names its member counts as a heartbeat of a settled member.
    counts_fetches: bool = field(BOOL, tag=10_007, default=False)
