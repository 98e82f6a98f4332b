"""Keys and values of kohort's own records in `__consumer_offsets`; `wire.private` has their numbers.

Apache Kafka skips record types that it does not know, with a line in its log. As in Kafka's own records, an int16 with
the type, or with the version of the value, stands before each message and is no part of it.
"""

from kohort.wire.schema import BYTES, INT8, INT16, INT32, INT64, STRING, UUID, Message, array, field, message


@message(key=20_001, kind="coordinator-key", versions="0", flexible="none")
class GroupConfigsKey(Message):
    """The configs of one group."""

    group_id: str = field(STRING)


class GroupConfig(Message):
    """One config as it was set."""

    name: str = field(STRING)
    value: str = field(STRING)


@message(key=20_001, kind="coordinator-value", versions="0", flexible="0+")
class GroupConfigsValue(Message):
    """Every config that the group has of its own."""

    configs: list[GroupConfig] = field(array(GroupConfig))


@message(key=20_002, kind="coordinator-key", versions="0", flexible="none")
class SubmittedMoveKey(Message):
    """One partition, for one group."""

    group_id: str = field(STRING)
    topic_id: bytes = field(UUID)
    partition: int = field(INT32)


@message(key=20_002, kind="coordinator-value", versions="0", flexible="0+")
class SubmittedMoveValue(Message):
    """The latest requested move of the partition; times in milliseconds since 1970, -1: not yet."""

    granted_epoch: int = field(INT32)
    from_member_id: str = field(STRING)
    to_member_id: str = field(STRING)
    submitted_ms: int = field(INT64)
    begun_ms: int = field(INT64, default=-1)
    fenced_ms: int = field(INT64, default=-1)
    committed_ms: int = field(INT64, default=-1)
    granted_ms: int = field(INT64, default=-1)


@message(key=20_003, kind="coordinator-key", versions="0", flexible="none")
class OfflineMemberKey(Message):
    """One member of a static group."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


@message(key=20_003, kind="coordinator-value", versions="0", flexible="0+")
class OfflineMemberValue(Message):
    """The time since which it is offline, by the group's clock, milliseconds."""

    since_ms: int = field(INT64)


@message(key=20_004, kind="coordinator-key", versions="0", flexible="none")
class StaticClockKey(Message):
    """The clock of one static group."""

    group_id: str = field(STRING)


@message(key=20_004, kind="coordinator-value", versions="0", flexible="0+")
class StaticClockValue(Message):
    """The time at which the broker was last known to run, and the group clock's lag behind it.

    -1 stands for a group in which no new members wait.
    """

    noted_ms: int = field(INT64)
    lost_ms: int = field(INT64)
    window_opened_ms: int = field(INT64, default=-1)


@message(key=20_005, kind="coordinator-key", versions="0", flexible="none")
class ClassicRebalanceKey(Message):
    """One classic group in static mode."""

    group_id: str = field(STRING)


@message(key=20_005, kind="coordinator-value", versions="0", flexible="0+")
class ClassicRebalanceValue(Message):
    """A rebalance under way: its reason, and the recorded members that have left."""

    reason: str = field(STRING)
    removed: list[str] = field(array(STRING))


@message(key=20_006, kind="coordinator-key", versions="0", flexible="none")
class ClientAssignorsKey(Message):
    """One member of one group."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


class StoredClientAssignor(Message):
    """An assignor that the member can run itself, as it last sent it."""

    name: str = field(STRING)
    minimum_version: int = field(INT16)
    maximum_version: int = field(INT16)
    reason: int = field(INT8)
    metadata_version: int = field(INT16)
    metadata_bytes: bytes = field(BYTES)


@message(key=20_006, kind="coordinator-value", versions="0", flexible="0+")
class ClientAssignorsValue(Message):
    """The member's assignors, in the order of its preference."""

    assignors: list[StoredClientAssignor] = field(array(StoredClientAssignor))


@message(key=20_007, kind="coordinator-key", versions="0", flexible="none")
class ClientAssignmentKey(Message):
    """One member of one group; an empty member id means all members."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


@message(key=20_007, kind="coordinator-value", versions="0", flexible="0+")
class ClientAssignmentValue(Message):
    """The computing member's metadata beside the target; `error` is not 0 if the latest failed."""

    error: int = field(INT8)
    metadata_version: int = field(INT16)
    metadata_bytes: bytes = field(BYTES)


@message(key=20_008, kind="coordinator-key", versions="0", flexible="none")
class MemberMetadataKey(Message):
    """One member of one group."""

    group_id: str = field(STRING)
    member_id: str = field(STRING)


@message(key=20_008, kind="coordinator-value", versions="0", flexible="0+")
class MemberMetadataValue(Message):
    """The member's published metadata, and its time, in milliseconds since 1970."""

    metadata: bytes = field(BYTES)
    published_ms: int = field(INT64)
