"""Records about groups, named in the past tense: only they change a coordinator's state.

Laws: a `Record` is written to `__consumer_offsets` in Kafka's format before it is applied, and means the same when it
is read back after a restart. A `VolatileRecord` is applied alike but never written, so a restart forgets it. The
attributes of a `Record` are in the order of the fields of its key and value: `codec` pairs them by position.
Source: Apache Kafka's group coordinator records; the type number of each is named in its docstring.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from kohort.base.values import value
from kohort.coordinator.commands import ClassicMemberFacts, ClientAssignment, ClientAssignor
from kohort.coordinator.topics import TopicImage
from kohort.ids import ZERO_TOPIC_ID, TopicId

#: Partitions that a member holds: topic id -> partition -> epoch of the grant.
Grants = dict[TopicId, dict[int, int]]
#: Partitions that a member shall hold: topic id -> ascending partitions.
Target = dict[TopicId, tuple[int, ...]]


@value
class Record:
    """One event in one group."""

    group_id: str


@value
class VolatileRecord(Record):
    """A record that is never written, because it matters only while the process runs."""


@value
class TopicImageReplaced(VolatileRecord):
    """The topics have changed to `image`; `group_id` is empty, because this concerns every group."""

    image: TopicImage


@value
class OffsetCommitted(Record):
    """Type 1: a committed offset; `expire_timestamp_ms` -1: it expires by `offsets.retention.minutes`."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: TopicId = ZERO_TOPIC_ID


@value
class TransactionalOffsetCommitted(Record):
    """Type 1 in a batch of a transaction: the commit counts once the transaction is committed."""

    producer_id: int
    producer_epoch: int
    commit: OffsetCommitted


@value
class TransactionCompleted(Record):
    """A control batch: a producer's transaction was committed or aborted; `group_id` is empty."""

    producer_id: int
    producer_epoch: int
    is_commit: bool
    #: Of the transaction coordinator that has sent the marker.
    coordinator_epoch: int = 0


@value
class OffsetForgotten(Record):
    """Tombstone of type 1: a committed offset is removed."""

    topic: str
    partition: int


@value
class StoredClassicMember:
    """A member as record type 2 keeps it; `subscription` and `assignment` are the client's bytes."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    subscription: bytes
    assignment: bytes


@value
class ClassicGroupStored(Record):
    """Type 2: a classic group in state Stable, or Empty; `state_timestamp_ms`: since when.

    The group is Empty if `members` is empty.
    """

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[StoredClassicMember, ...]


@value
class ClassicGroupForgotten(Record):
    """Tombstone of type 2: a classic group is removed."""


@value
class ConsumerGroupEpochSet(Record):
    """Type 3: the group epoch, and the hash of the subscribed topics at that time (0: not computed)."""

    epoch: int
    metadata_hash: int = 0


@value
class ConsumerGroupForgotten(Record):
    """Tombstone of type 3: a KIP-848 group is removed."""


@value
class ConsumerMemberSubscribed(Record):
    """Type 5: a member and its subscription; `classic` is `None` if it speaks the consumer protocol."""

    member_id: str
    instance_id: str | None
    rack_id: str | None
    client_id: str
    client_host: str
    subscribed_topic_names: tuple[str, ...]
    subscribed_topic_regex: str | None
    rebalance_timeout_ms: int
    server_assignor: str | None
    classic: ClassicMemberFacts | None = None


@value
class ConsumerMemberForgotten(Record):
    """Tombstone of type 5: a member of a KIP-848 group is removed."""

    member_id: str


@value
class TargetAssignmentEpochSet(Record):
    """Type 6: the group epoch of the target assignment, and when it was computed (0: group is empty)."""

    assignment_epoch: int
    assignment_timestamp_ms: int = 0


@value
class TargetAssignmentEpochForgotten(Record):
    """Tombstone of type 6: a KIP-848 group has no target assignment."""


@value
class MemberTargetSet(Record):
    """Type 7: the target assignment of a member; topic id -> ascending partitions."""

    member_id: str
    partitions: Target


@value
class MemberTargetForgotten(Record):
    """Tombstone of type 7: a member has no target assignment."""

    member_id: str


class MemberState(IntEnum):
    """State of a KIP-848 member in its reconciliation; the numbers are those of record type 8."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@value
class CurrentAssignmentSet(Record):
    """Type 8: the current assignment of a member and its pending revocations."""

    member_id: str
    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned: Grants
    pending_revocation: Grants


@value
class CurrentAssignmentForgotten(Record):
    """Tombstone of type 8: a member has no current assignment."""

    member_id: str


@value
class GroupConfigsSet(Record):
    """Type 20,001, kohort's own: all configs set for the group, with values as text; never empty."""

    configs: dict[str, str]


@value
class GroupConfigsForgotten(Record):
    """Tombstone of type 20,001: a group has no configs of its own any more."""


@value
class ClassicRebalanceDue(Record):
    """Type 20,005, kohort's own: an open rebalance of a classic group in static mode.

    `removed`: members of the group's latest type 2 record that were removed since.
    """

    reason: str
    removed: tuple[str, ...]


@value
class ClassicRebalanceDone(Record):
    """Tombstone of type 20,005: the rebalance has ended, and its result is written."""


class MoveFacts(NamedTuple):
    """Progress of a partition's move; times in ms of the coordinator's clock, -1: not reached yet.

    `granted_epoch`: the epoch at which `from_member_id` was assigned the partition. `fenced_ms`: when that member was
    told to revoke it, or lost it. `committed_ms`: when that member had committed and revoked it.
    """

    granted_epoch: int
    from_member_id: str
    to_member_id: str
    submitted_ms: int
    begun_ms: int = -1
    fenced_ms: int = -1
    committed_ms: int = -1
    granted_ms: int = -1


@value
class SubmittedMoveSet(Record):
    """Type 20,002, kohort's own: progress of the latest submitted move of a partition, open or ended."""

    topic_id: TopicId
    partition: int
    move: MoveFacts


@value
class SubmittedMoveForgotten(Record):
    """Tombstone of type 20,002: the move was cancelled, or its topic or group was deleted."""

    topic_id: TopicId
    partition: int


@value
class OfflineMemberSet(Record):
    """Type 20,003, kohort's own: a member of a static group is offline since a time of the group's clock."""

    member_id: str
    since_ms: int


@value
class OfflineMemberForgotten(Record):
    """Tombstone of type 20,003: the member is online again, or was removed."""

    member_id: str


@value
class StaticClockSet(Record):
    """Type 20,004, kohort's own: clock of a static group, see `static_membership.clock`; -1: no new members wait."""

    noted_ms: int
    lost_ms: int
    window_opened_ms: int = -1


@value
class StaticClockForgotten(Record):
    """Tombstone of type 20,004: no member is offline, and no new members wait."""


@value
class MemberMetadataSet(Record):
    """Type 20,008, kohort's own: the metadata that a member publishes, never empty, and its time, ms."""

    member_id: str
    metadata: bytes
    published_ms: int


@value
class MemberMetadataForgotten(Record):
    """Tombstone of type 20,008: the member has withdrawn its metadata, or was removed."""

    member_id: str


@value
class MemberConnectionSeen(VolatileRecord):
    """The connection of a KIP-848 member was closed, or the member has sent a request since."""

    member_id: str
    is_gone: bool


@value
class StaticMemberFenced(VolatileRecord):
    """A process of a static group has lost its instance id to a newer process, without having left."""

    member_id: str


@value
class RegularExpressionResolved(Record):
    """Type 16: the topics that a pattern matched, ascending, with the topic image version and the time."""

    regex: str
    topics: tuple[str, ...]
    image_version: int
    timestamp_ms: int


@value
class RegularExpressionForgotten(Record):
    """Tombstone of type 16: a pattern has no subscribers any more."""

    regex: str


@value
class ClientAssignorsSet(Record):
    """Type 20,006, kohort's own: the client-side assignors of a member by preference; never empty."""

    member_id: str
    assignors: tuple[ClientAssignor, ...]


@value
class ClientAssignorsForgotten(Record):
    """Tombstone of type 20,006: a member has no client-side assignors any more."""

    member_id: str


@value
class ClientAssignmentSet(Record):
    """Type 20,007, kohort's own: message of the client-side assignor to one member, sent with its target.

    If `member_id` is empty, the message is for all members and has the error of the latest computation.
    """

    member_id: str
    said: ClientAssignment


@value
class ClientAssignmentForgotten(Record):
    """Tombstone of type 20,007: a newer target exists, or the member was removed."""

    member_id: str
