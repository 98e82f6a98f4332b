"""Commands to a coordinator and its replies, of members and of the broker; `admin` has those of administrators.

Laws: a command contains its identity and all random values (request token, cause, fresh ids). Nothing here depends on
API versions or wire types; `broker/apis` translates both ways. Records contain some of these values, so nothing here
imports a record.
Source: architecture rules 2, 4, 5, 9; KIP-848, and as drafted client-side assignors, which Kafka does not have; Apache
Kafka's JoinGroup, SyncGroup, Heartbeat, LeaveGroup, OffsetCommit and OffsetFetch.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from kohort.assign.interface import Assignable
from kohort.base.values import value
from kohort.coordinator.topics import TopicImage
from kohort.errors import ErrorCode
from kohort.ids import CauseId, RequestToken, TopicId

#: Member epoch in the heartbeat of a joining member, and of a static member that leaves for a while.
JOIN_EPOCH: Final = 0
LEAVE_STATIC_EPOCH: Final = -2
#: Partitions by topic id, as the KIP-848 heartbeat lists them: topic id -> ascending partitions.
Partitions = dict[TopicId, tuple[int, ...]]


@value
class Command:
    """One input of the coordinator; all its consequences carry its `cause`."""

    cause: CauseId


@value
class GroupCommand(Command):
    """A request about one group; its response is a `Reply` with the same `request`.

    `principal`: the sender's principal, only for the journal; empty if the client has none, or the request changes
    nothing. The label of a capability token follows the principal, after a space.
    """

    request: RequestToken
    group_id: str
    principal: str = ""


@value
class Done:
    """Reply to a command that succeeded and has no result."""


@value
class Refusal:
    """Reply to a command that was refused as a whole; nothing was changed."""

    code: ErrorCode
    message: str | None = None


class Sight(Protocol):
    """Visibility of topics for a client, evaluated at each use.

    Unlike all else in a command this is not a value, since topics are created and rights change long after the
    heartbeat that sent a pattern. Only names are tested, and results stay the same until the edition changes.
    """

    @property
    def edition(self) -> int:
        """A number that changes whenever a result of `sees` may change."""

    def sees(self, topic: str) -> bool:
        """Return whether the client may see the topic of this name."""


class ClientAssignor(NamedTuple):
    """A client-side assignor of a member: KIP-848 as drafted.

    `version` is that of `metadata`, between the other two; `reason` other than 0 asks for a computation.
    """

    name: str
    minimum_version: int
    maximum_version: int
    reason: int
    version: int
    metadata: bytes


class ClientAssignment(NamedTuple):
    """Message of a client-side assignor to one member; `error` other than 0: the assignor failed."""

    error: int
    version: int
    metadata: bytes


@value
class ClassicMemberFacts:
    """Facts of a member of a KIP-848 group that speaks the classic protocol.

    `protocols` are (name, metadata) in the member's order, at least one; the metadata is an embedded subscription.
    """

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]

    @property
    def protocol_names(self) -> tuple[str, ...]:
        """Return each protocol name once, in the member's order of preference."""
        return tuple(dict.fromkeys(name for name, _ in self.protocols))

    @property
    def metadata_bytes(self) -> int:
        """Return the approximate memory of the protocols: names and metadata, bytes."""
        return sum(len(name) + len(metadata) for name, metadata in self.protocols)


@value
class TopicsChanged(Command):
    """The topics have changed to `image`, or their visibility for clients; no reply.

    `hides_unseen`: topics are hidden from some clients, so a pattern gains topics only if a member's sight is known.
    """

    image: TopicImage
    hides_unseen: bool = False


@value
class PatternSent(Command):
    """A member's pattern was accepted; no reply. `sight`: visibility of topics for the member."""

    group_id: str
    regex: str
    sight: Sight


@value
class MemberDisconnected(Command):
    """The last known connection of a member is closed; no reply."""

    group_id: str
    member_id: str


@value
class MemberFetched(Command):
    """A member whose connection was closed has sent a fetch, which counts as a heartbeat; no reply."""

    group_id: str
    member_id: str


class LogExtent(NamedTuple):
    """Extent of a partition's log: its first offset, the offset after its last, its size in bytes."""

    start_offset: int
    end_offset: int
    size_bytes: int


@value
class LogsMeasured(Command):
    """Sizes of the partitions that `MeasureLogs` named, as far as they exist; no reply."""

    group_id: str
    extents: Mapping[tuple[TopicId, int], LogExtent]


@value
class TargetComputed(Command):
    """The result of a custom assignor that ran outside of the coordinator; no reply.

    `assignable`: its input, the same object as in `ComputeTarget`. `owner`: its assignment, `None` if it failed; then
    `error` says why.
    """

    group_id: str
    assignable: Assignable
    owner: array[int] | None
    error: str = ""


class Published(NamedTuple):
    """The metadata that one member publishes; `metadata`: `None` if the member has withdrawn it."""

    member_id: str
    instance_id: str | None
    metadata: bytes | None


class MetadataNews(NamedTuple):
    """A change of members' metadata, up to `version`.

    `is_whole`: members that are not named, here or on later pages, publish no metadata. `has_more`: the next page
    follows in response to a heartbeat with this version.
    """

    version: int
    is_whole: bool
    has_more: bool
    members: tuple[Published, ...]


@value
class ConsumerGroupHeartbeat(GroupCommand):
    """KIP-848 heartbeat; `None` in an optional field means "unchanged since the last heartbeat".

    `member_epoch`: 0 joins, -1 leaves, -2 leaves for a while (static), above 0 is the member's current epoch.
    `topic_partitions`: exactly the partitions that the member owns, `None` if unchanged.
    `proposed_heartbeat_interval_ms`: the interval that the member proposes; 0 or less: none. `classic`: this was made
    from a JoinGroup of a classic member, whose fields are all set. `hold_ms`: how long the response may wait for news;
    0: not at all, -1: this client never waits. `since_cut_ms`: time since a request of the same client ended one of its
    holds, -1: none did. `counts_requests`: the client counts its session from its requests, as the coordinator does,
    not from the responses. `tells_all`: the response names all partitions of the member, also those that it knows.
    `is_aside`: this is internal, not a heartbeat of the client, and news already sent with fetch or commit responses is
    not repeated. `registration_timeout_ms`, `expansion_timeout_ms`: either makes a group static if its first member
    sends it; -1: not set. `client_assignors`: the client-side assignors of the member, by preference; `None` is
    unchanged. `metadata`: the metadata that the member publishes, `b""` withdraws it, `None` is unchanged.
    `watched_version`: the version of the other members' metadata that the member knows, -1: it does not watch them.
    `sight`: visibility of topics, for the member's pattern; `None`: all are visible. `released`: this was made from
    a commit that releases these partitions; it says nothing about others.
    """

    member_id: str
    member_epoch: int
    client_id: str
    client_host: str
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = None
    subscribed_topic_regex: str | None = None
    server_assignor: str | None = None
    topic_partitions: Partitions | None = None
    proposed_heartbeat_interval_ms: int = -1
    classic: ClassicMemberFacts | None = None
    hold_ms: int = -1
    since_cut_ms: int = -1
    counts_requests: bool = False
    tells_all: bool = False
    is_aside: bool = False
    registration_timeout_ms: int = -1
    expansion_timeout_ms: int = -1
    client_assignors: tuple[ClientAssignor, ...] | None = None
    metadata: bytes | None = None
    watched_version: int = -1
    sight: Sight | None = None
    released: Partitions | None = None


@value
class ConsumerGroupHeartbeatReply:
    """Reply to a KIP-848 heartbeat.

    `assignment`: all partitions that the member may read now, `None` if unchanged. `is_complete`: the member has its
    whole target, of the current group epoch; not sent to clients. `should_compute`: this member has to compute the next
    assignment. `client_assignment`, `metadata_news`: `None` if there is nothing new.
    """

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Partitions | None
    is_complete: bool = True
    should_compute: bool = False
    client_assignment: ClientAssignment | None = None
    metadata_news: MetadataNews | None = None


@value
class JoinGroup(GroupCommand):
    """Classic JoinGroup; `fresh_member_id` is used if the member has none; `protocols` by preference.

    `requires_known_member_id`: the member understands MEMBER_ID_REQUIRED (KIP-394, version 4 on).
    `supports_skip_assignment`: KIP-814, version 9 on.
    `registration_timeout_ms`, `expansion_timeout_ms`: as in `ConsumerGroupHeartbeat`.
    """

    member_id: str
    fresh_member_id: str
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[tuple[str, bytes], ...]
    instance_id: str | None = None
    reason: str | None = None
    requires_known_member_id: bool = False
    supports_skip_assignment: bool = False
    registration_timeout_ms: int = -1
    expansion_timeout_ms: int = -1


@value
class JoinedMember:
    """One row of the member list that the leader gets; `metadata` is the embedded subscription."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@value
class JoinGroupReply:
    """Reply to a classic JoinGroup, also to a refused one.

    Refused: `error` is set and `member_id` may carry the id to join with.
    """

    error: ErrorCode
    generation_id: int = -1
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = ""
    member_id: str
    members: tuple[JoinedMember, ...] = ()
    skip_assignment: bool = False


@value
class SyncGroup(GroupCommand):
    """Classic SyncGroup; only the leader's carries `assignments`: member id -> embedded assignment."""

    generation_id: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: dict[str, bytes]


@value
class SyncGroupReply:
    """Reply to a classic SyncGroup; `assignment` is the embedded assignment of the member that sent it."""

    error: ErrorCode
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


@value
class Heartbeat(GroupCommand):
    """Classic heartbeat; the reply is `Done` or a `Refusal`.

    `hold_ms`: how long the response may wait for news; 0 or less: not at all.
    `counts_requests`: as in `ConsumerGroupHeartbeat`.
    """

    generation_id: int
    member_id: str
    instance_id: str | None = None
    hold_ms: int = -1
    counts_requests: bool = False


#: Commands whose reply may be held.
AnyHeartbeat = ConsumerGroupHeartbeat | Heartbeat


@value
class LeavingMember:
    """One member that leaves: by member id, by instance id (from an administrator), or both."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@value
class LeaveGroup(GroupCommand):
    """Classic LeaveGroup, of one member or several; `client_id`: that of the sender, `None`: unknown."""

    members: tuple[LeavingMember, ...]
    client_id: str | None = None


@value
class LeaveGroupReply:
    """Reply to a LeaveGroup: one result per member of the request, in its order."""

    members: tuple[tuple[LeavingMember, ErrorCode], ...]


@value
class WatchMember(GroupCommand):
    """Request the news for a member since a known state.

    The reply is a `ConsumerGroupHeartbeatReply` or a `Refusal`. `member_epoch`, `assigned`: the state that was last
    sent to the member. `is_look`: reply at once, even without news.
    """

    member_id: str
    member_epoch: int
    assigned: Partitions
    is_look: bool = False


@value
class PrepareAssignment(GroupCommand):
    """Request of the member chosen to compute the assignment for the assignor's input."""

    member_id: str
    member_epoch: int


@value
class PrepareAssignmentReply:
    """Reply to `PrepareAssignment`: the input of the assignor.

    `group_epoch`: `InstallAssignment` has to name it. `assignor`, `version`: the chosen assignor, in the highest
    version that all members support. `assignable`: the group, as an assignor sees it. `member_epochs`: in the order of
    its members.
    """

    group_epoch: int
    assignor: str
    version: int
    assignable: Assignable
    member_epochs: tuple[int, ...]


@value
class InstallAssignment(GroupCommand):
    """The result of a client-side assignor.

    `group_epoch`: the one that `PrepareAssignmentReply` named. `error` other than 0: the assignor failed, and the other
    fields are ignored. `owners`: partition -> number of its member, both as in the `Assignable` that was sent.
    `said`: messages to members: member id, version, metadata.
    """

    member_id: str
    member_epoch: int
    group_epoch: int
    error: int = 0
    owners: tuple[int, ...] = ()
    said: tuple[tuple[str, int, bytes], ...] = ()


@value
class InstallAssignmentReply:
    """Reply to `InstallAssignment`; `error` other than NONE: the assignment was refused.

    The coordinator then asks another member. `message` explains the error.
    """

    error: ErrorCode = ErrorCode.NONE
    message: str | None = None


@value
class OffsetToCommit:
    """One partition of a commit; `leader_epoch` -1: unknown, `topic_id` zero: the client did not know it."""

    topic: str
    topic_id: TopicId
    partition: int
    offset: int
    leader_epoch: int = -1
    metadata: str = ""


@value
class CommitOffsets(GroupCommand):
    """Commit offsets (OffsetCommit).

    `generation_or_member_epoch`: generation (classic), member epoch (848), -1 (no member: simple consumer, admin).
    `is_member_epoch_aware`: OffsetCommit version 9 on; a KIP-848 member that speaks an older one is refused.
    `retention_ms`: how long the offsets are kept (OffsetCommit up to version 4), -1 leaves it to the coordinator.
    `released`: partitions that the member releases with this commit, its last commit of them.
    `shows_grant`: the member has shown a grant, and may commit only partitions it owns; others also unowned ones.
    """

    member_id: str
    generation_or_member_epoch: int
    offsets: tuple[OffsetToCommit, ...]
    instance_id: str | None = None
    is_member_epoch_aware: bool = True
    retention_ms: int = -1
    released: Partitions | None = None
    shows_grant: bool = False


@value
class CommitTransactionOffsets(CommitOffsets):
    """Commit offsets within a producer's transaction (TxnOffsetCommit).

    Answered with `CommitOffsetsReply`. Without member id, instance id and generation (the producer does not know its
    consumer's) the membership is not checked.
    `is_stale_epoch_aware`: version 6 on; before it a stale member epoch is refused as ILLEGAL_GENERATION.
    """

    producer_id: int
    producer_epoch: int
    is_stale_epoch_aware: bool = False


@value
class CompleteTransaction(Command):
    """End a producer's transaction in every group of the shard; the reply is `Done` or a `Refusal`."""

    request: RequestToken
    producer_id: int
    producer_epoch: int
    is_commit: bool
    coordinator_epoch: int = 0


@value
class CommitOffsetsReply:
    """Reply to a commit: one code per partition of the request, in its order.

    `news`: the response that a heartbeat of the member would get now, if the commit has released partitions and so
    changed the member's epoch or partitions; otherwise `None`.
    """

    errors: tuple[ErrorCode, ...]
    news: ConsumerGroupHeartbeatReply | None = None


@value
class FetchOffsets(GroupCommand):
    """Fetch committed offsets (OffsetFetch).

    `partitions` `None`: every committed partition. `member_id` `None` and epoch -1 are not checked.
    """

    partitions: tuple[tuple[str, int], ...] | None
    member_id: str | None = None
    member_epoch: int = -1
    require_stable: bool = False


class CommittedOffset(NamedTuple):
    """One committed offset; `offset` -1: none is committed.

    `error` is UNSTABLE_OFFSET_COMMIT while a transaction is open. A tuple: an administrator asks for tens of thousands
    at once, and a frozen dataclass takes three times as long.
    """

    topic: str
    topic_id: TopicId
    partition: int
    offset: int
    leader_epoch: int
    metadata: str
    error: ErrorCode = ErrorCode.NONE


@value
class FetchOffsetsReply:
    """Reply to `FetchOffsets`, in the order of the request; by topic and partition if it asked for all."""

    offsets: tuple[CommittedOffset, ...]


@value
class ExpireOffsets(Command):
    """Remove the expired offsets of the named groups; sent by the broker's periodic task, not by clients."""

    request: RequestToken
    group_ids: tuple[str, ...]


@value
class ExpireOffsetsReply:
    """Reply to `ExpireOffsets`; `unfinished`: groups that may have more expired offsets.

    One decision removes a bounded number. `expired` and `removed`: number of removed offsets and groups.
    """

    unfinished: tuple[str, ...]
    expired: int
    removed: int
