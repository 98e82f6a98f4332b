"""Facts about groups, past tense: the only things that change a coordinator's state.

Laws: a `Record` is written to `__consumer_offsets` in Kafka's format before it is applied and means the same when
it is read back after a restart; a `VolatileRecord` is applied alike but never written, and a restart forgets it.
Source: Apache Kafka's group coordinator records; the type number of each is named in its docstring.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from kohort.coordinator.assigncommands import ClientAssignment, ClientAssignor
from kohort.coordinator.topics import TopicImage
from kohort.ids import ZERO_TOPIC_ID, TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One fact about one group."""

    group_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class VolatileRecord(Record):
    """A fact that only matters while the process lives."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicImageReplaced(VolatileRecord):
    """The picture of topics is now `image`; concerns every group, so `group_id` is empty."""

    image: TopicImage


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetCommitted(Record):
    """Type 1. `expire_timestamp_ms` -1: by the broker's retention."""

    topic: str
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    commit_timestamp_ms: int
    expire_timestamp_ms: int = -1
    topic_id: TopicId = ZERO_TOPIC_ID


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionalOffsetCommitted(Record):
    """Type 1 in a batch of a transaction: the commit counts when, and only if, the transaction is committed."""

    producer_id: int
    producer_epoch: int
    commit: OffsetCommitted


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionCompleted(Record):
    """A control batch: what the producer wrote in its transaction counts, or never happened; of no group."""

    producer_id: int
    producer_epoch: int
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetForgotten(Record):
    """Tombstone of type 1."""

    topic: str
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupStored(Record):
    """Type 2: a classic group that is Stable, or Empty when `members` is; `state_timestamp_ms` is when it became so."""

    protocol_type: str
    generation: int
    protocol_name: str | None
    leader: str | None
    state_timestamp_ms: int
    members: tuple[StoredClassicMember, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicGroupForgotten(Record):
    """Tombstone of type 2."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupEpochSet(Record):
    """Type 3: the group epoch, and the hash of the subscribed topics that it was set for (0: not computed)."""

    epoch: int
    metadata_hash: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupForgotten(Record):
    """Tombstone of type 3."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMemberFacts:
    """What is known of a member of a KIP-848 group because it speaks the classic protocol.

    `protocols` are (name, metadata) in the member's order, at least one; the metadata is an embedded subscription.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol_names(self) -> tuple[str, ...]:
        """Each name once, in the member's order of preference."""
        return tuple(dict.fromkeys(name for name, _ in self.protocols))

    @property
    def metadata_bytes(self) -> int:
        """What the protocols take in memory, roughly: names and metadata."""
        return sum(len(name) + len(metadata) for name, metadata in self.protocols)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberSubscribed(Record):
    """Type 5: who a member is and what it wants; `classic` is `None` for one that speaks the consumer protocol."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMemberForgotten(Record):
    """Tombstone of type 5."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignmentEpochSet(Record):
    """Type 6: the group epoch that the target assignment belongs to, and when it was computed (0: group is empty)."""

    assignment_epoch: int
    assignment_timestamp_ms: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignmentEpochForgotten(Record):
    """Tombstone of type 6."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTargetSet(Record):
    """Type 7: what a member shall own; topic id -> ascending partitions."""

    member_id: str
    partitions: dict[TopicId, tuple[int, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberTargetForgotten(Record):
    """Tombstone of type 7."""

    member_id: str


class MemberState(IntEnum):
    """How far a KIP-848 member is on the way to its target; the numbers are those of record type 8."""

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignmentSet(Record):
    """Type 8: what a member owns and what it still has to give up; topic id -> partition -> epoch of the grant."""

    member_id: str
    member_epoch: int
    previous_member_epoch: int
    state: MemberState
    assigned: dict[TopicId, dict[int, int]]
    pending_revocation: dict[TopicId, dict[int, int]]


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignmentForgotten(Record):
    """Tombstone of type 8."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigsSet(Record):
    """Type 20,001, of ours: the group's own configs, all of them, as Kafka writes values; never empty."""

    configs: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfigsForgotten(Record):
    """Tombstone of type 20,001."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicRebalanceDue(Record):
    """Type 20,005, of ours: a classic group in static mode rebalances, and has not written what comes of it.

    `removed`: members that its latest record has and that are gone for good.
    """

    reason: str
    removed: tuple[str, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicRebalanceDone(Record):
    """Tombstone of type 20,005: what came of the rebalance is written."""


class MoveFacts(NamedTuple):
    """A partition's way from one member to another; times in milliseconds of the coordinator, -1: not so far yet.

    `granted_epoch`: when `from_member_id` was granted it. `fenced_ms`: when that one was asked for it, or lost it;
    `committed_ms`: when it had committed and given it up.
    """

    granted_epoch: int
    from_member_id: str
    to_member_id: str
    submitted_ms: int
    begun_ms: int = -1
    fenced_ms: int = -1
    committed_ms: int = -1
    granted_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedMoveSet(Record):
    """Type 20,002, of ours: how far the latest move of a partition is that somebody asked for; also once it is over."""

    topic_id: TopicId
    partition: int
    move: MoveFacts


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedMoveForgotten(Record):
    """Tombstone of type 20,002: it was called off, or its topic or group is gone."""

    topic_id: TopicId
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineMemberSet(Record):
    """Type 20,003, of ours: a member of a static group is offline since then, by the group's clock."""

    member_id: str
    since_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class OfflineMemberForgotten(Record):
    """Tombstone of type 20,003: it was heard of, or is a member no more."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticClockSet(Record):
    """Type 20,004, of ours: the clock of a static group, see `staticmode.clock`; -1: no new members wait."""

    noted_ms: int
    lost_ms: int
    window_opened_ms: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticClockForgotten(Record):
    """Tombstone of type 20,004: nobody is offline, and no new members wait."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadataSet(Record):
    """Type 20,008, of ours: what a member publishes, never empty, and since when; milliseconds of the coordinator."""

    member_id: str
    metadata: bytes
    published_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadataForgotten(Record):
    """Tombstone of type 20,008: it publishes nothing any more, or is gone."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberConnectionSeen(VolatileRecord):
    """The connection of a KIP-848 member is known to be gone, or the member was heard of again."""

    member_id: str
    is_gone: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticMemberOusted(VolatileRecord):
    """A process of a static group, which had not left, has lost its name to a younger one."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class RegularExpressionResolved(Record):
    """Type 16: the topics that a pattern matched, ascending; for which version of the picture of topics, and when."""

    regex: str
    topics: tuple[str, ...]
    image_version: int
    timestamp_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RegularExpressionForgotten(Record):
    """Tombstone of type 16."""

    regex: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAssignorsSet(Record):
    """Type 20,006, of ours: the assignors that a member can run itself, in the order of its preference; never empty."""

    member_id: str
    assignors: tuple[ClientAssignor, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAssignorsForgotten(Record):
    """Tombstone of type 20,006."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAssignmentSet(Record):
    """Type 20,007, of ours: what came with the target from the member that computed it, for one member.

    `member_id` empty: it is for all of them, and says with which error the latest computation ended.
    """

    member_id: str
    said: ClientAssignment


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientAssignmentForgotten(Record):
    """Tombstone of type 20,007: there is another target, or the member is gone."""

    member_id: str
