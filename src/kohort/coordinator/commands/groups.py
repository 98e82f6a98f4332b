"""Commands of members about their group, those of the broker, and the replies to them.

Laws: those of `commands`.
Source: KIP-848; Apache Kafka's JoinGroup, SyncGroup, Heartbeat and LeaveGroup.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from kohort.assign.interface import Assignable
from kohort.coordinator.commands.base import Command, GroupCommand, Partitions
from kohort.coordinator.commands.values import ClassicMemberFacts, ClientAssignment, ClientAssignor
from kohort.coordinator.topics import TopicImage
from kohort.errors import ErrorCode
from kohort.ids import TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicsChanged(Command):
    """The topics have changed to `image`; no reply."""

    image: TopicImage


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDisconnected(Command):
    """The last known connection of a member is closed; no reply."""

    group_id: str
    member_id: str


class LogExtent(NamedTuple):
    """Extent of a partition's log: its first offset, the offset after its last, its size in bytes."""

    start_offset: int
    end_offset: int
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogsMeasured(Command):
    """Sizes of the partitions that `MeasureLogs` named, as far as they exist; no reply."""

    group_id: str
    extents: Mapping[tuple[TopicId, int], LogExtent]


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetComputed(Command):
    """The result of an assignor that ran beside the coordinator; no reply.

    `assignable`: its input, the same object as in `ComputeTarget`. `owner`: its assignment, `None` if it failed; then
    `error` says why.
    """

    group_id: str
    assignable: Assignable
    owner: array[int] | None
    error: str = ""


class Published(NamedTuple):
    """The metadata that one member publishes; `metadata` `None`: it publishes none any more."""

    member_id: str
    instance_id: str | None
    metadata: bytes | None


class MetadataNews(NamedTuple):
    """A change of members' metadata, up to `version`.

    `is_whole`: a member that is not named, here or in the rest, publishes no metadata. `has_more`: the client gets the
    rest when it asks with this version.
    """

    version: int
    is_whole: bool
    has_more: bool
    members: tuple[Published, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeat(GroupCommand):
    """KIP-848 heartbeat; `None` in an optional field means "unchanged since the last heartbeat".

    `member_epoch`: 0 joins, -1 leaves, -2 leaves for a while (static), above 0 is the member's current epoch.
    `topic_partitions`: exactly the partitions that the member owns, `None` if unchanged.
    `proposed_heartbeat_interval_ms`: the interval that the member asks for; 0 and less: the coordinator's.
    `classic`: this stands for a JoinGroup of a classic member, whose fields are all set.
    `hold_ms`: how long the response may wait for news; 0: not at all, -1: this client never waits.
    `since_cut_ms`: how long ago a request of the same client ended one of its holds, -1: none did.
    `counts_requests`: the client counts its session from its requests, as the coordinator does, not from the responses.
    `tells_all`: the response names all partitions of the member, also those that it knows.
    `is_aside`: this is an internal look, no heartbeat of the client; news delivered beside heartbeats is not repeated.
    `registration_timeout_ms`, `expansion_timeout_ms`: either makes a group static if its first member sends it; -1: not
    set.
    `client_assignors`: the client-side assignors of the member, in the order of its preference; `None` is unchanged.
    `metadata`: the metadata that it publishes, `b""` withdraws it, `None` unchanged. `watched_version`: the version of
    the other members' metadata that it knows, -1: it does not follow them.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupHeartbeatReply:
    """Reply to a KIP-848 heartbeat.

    `assignment`: the whole set that the member may use now, `None` if unchanged. `is_complete`: the member has its
    whole target, and the target is as new as its group; no client is told that. `should_compute`: this member is asked
    to compute the next assignment. `client_assignment`, `metadata_news`: `None` if there is nothing new.
    """

    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int
    assignment: Partitions | None
    is_complete: bool = True
    should_compute: bool = False
    client_assignment: ClientAssignment | None = None
    metadata_news: MetadataNews | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinedMember:
    """One row of the member list that the leader gets; `metadata` is the embedded subscription."""

    member_id: str
    instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinGroupReply:
    """Reply to a classic JoinGroup, also to a refused one.

    Refused: `error` is set and `member_id` may carry the id to join with.
    """

    error: ErrorCode
    generation_id: int
    protocol_type: str | None
    protocol_name: str | None
    leader: str
    member_id: str
    members: tuple[JoinedMember, ...]
    skip_assignment: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroup(GroupCommand):
    """Classic SyncGroup; only the leader's carries `assignments`: member id -> embedded assignment."""

    generation_id: int
    member_id: str
    instance_id: str | None = None
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignments: dict[str, bytes]


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncGroupReply:
    """Reply to a classic SyncGroup; `assignment` is the embedded assignment of the member that sent it."""

    error: ErrorCode
    protocol_type: str | None
    protocol_name: str | None
    assignment: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat(GroupCommand):
    """Classic heartbeat; answered with `Done` or a `Refusal`.

    `hold_ms`: how long the answer may wait for news; 0 and less: not at all.
    `counts_requests`: as in `ConsumerGroupHeartbeat`.
    """

    generation_id: int
    member_id: str
    instance_id: str | None = None
    hold_ms: int = -1
    counts_requests: bool = False


#: Commands whose reply may be held.
AnyHeartbeat = ConsumerGroupHeartbeat | Heartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class LeavingMember:
    """One member that leaves: by member id, by instance id (from an administrator), or both."""

    member_id: str
    instance_id: str | None = None
    reason: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroup(GroupCommand):
    """Classic LeaveGroup, of one member or several; `client_id`: that of the sender, `None`: unknown."""

    members: tuple[LeavingMember, ...]
    client_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveGroupReply:
    """Reply to a LeaveGroup: one result per member of the request, in its order."""

    members: tuple[tuple[LeavingMember, ErrorCode], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchMember(GroupCommand):
    """Ask for the news of a member since a known state.

    Answered by a `ConsumerGroupHeartbeatReply` or a `Refusal`. `member_epoch`, `assigned`: the state that the member
    was told last. `is_look`: the reply does not wait for news.
    """

    member_id: str
    member_epoch: int
    assigned: Partitions
    is_look: bool = False
