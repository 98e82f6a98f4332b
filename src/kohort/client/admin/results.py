"""What the admin client answers: plain values, ready for tables and JSON."""

from __future__ import annotations

from dataclasses import dataclass

from kohort.errorcodes import ErrorCode
from kohort.ids import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class HistoryEvent:
    """One row of a group's history.

    `kind`: "stimulus" came in, "decision" was taken, "transition" has changed. `cause`: number of the input that made
    the row; `origin`: number of the input that began the rebalance it belongs to. `times` above 1: it was repeated
    until `last_time_ms`. Times in milliseconds since 1970.
    """

    sequence: int
    time_ms: int
    last_time_ms: int
    times: int
    cause: int
    origin: int
    kind: str
    event: str
    member_id: str
    details: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupHistory:
    """What a broker still has of a group's history, oldest first, and how often what changed nothing happened.

    `is_complete`: no row of the group is missing. `has_older`: the broker has older rows on disk, which were not asked
    for (`whole`).
    """

    group_id: str
    events: tuple[HistoryEvent, ...]
    counts: dict[str, int]
    is_complete: bool
    has_older: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicListing:
    """One topic; `topic_id` in Kafka's base64 form."""

    name: str
    topic_id: str
    partition_count: int
    is_internal: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """One partition; `leader` is a broker id, -1 while there is none; offsets are what a reader may see."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    begin_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """One topic with its partitions in order and its configs (those that differ from the broker's defaults).

    `idle`: which of these the broker takes but does not act on, and its words for it ("not acted on yet").
    """

    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    configs: dict[str, str]
    idle: dict[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupListing:
    """One group; `group_type` "classic" or "consumer", `state` as the broker names it."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSummary:
    """One group with its members counted; `lag`: over the partitions it has committed, `None` if there are none."""

    group_id: str
    group_type: str
    state: str
    protocol_type: str
    members: int
    lag: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberDescription:
    """One member; `member_epoch` is `None` for a classic member, `target` is empty where the protocol has none."""

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    member_epoch: int | None
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """One group; epochs are `None` for a classic group."""

    group_id: str
    group_type: str
    state: str
    assignor: str
    group_epoch: int | None
    assignment_epoch: int | None
    members: tuple[MemberDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupOffset:
    """Where a group stands in one partition; `committed` and `lag` are `None` where nothing is committed."""

    topic: str
    partition: int
    committed: int | None
    end_offset: int
    lag: int | None
    member_id: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """One config of a group; with `is_own` it was set for the group, otherwise `value` is the broker's.

    `doc` is `None` where the broker says nothing about it.
    """

    name: str
    value: str | None
    is_own: bool
    doc: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class SubmittedMove:
    """What a coordinator made of one move that was asked for.

    `move_id`: how the move is called in `GroupMove`; empty where it was refused, and where nobody has to give the
    partition up for it. `code` is NONE where it was taken, otherwise `message` says why it was not.
    """

    topic: str
    partition: int
    to_member_id: str
    move_id: str
    code: ErrorCode
    message: str | None

    @property
    def is_taken(self) -> bool:
        """Whether the member shall have the partition."""
        return self.code is ErrorCode.NONE


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupMove:
    """A partition on its way from one member to another.

    `phase`: "waiting" for the pace; "revoking", its owner is to hear of it; "fenced", that one may not use it any more;
    "committed", it has committed and given it up; "granted", the new owner has it. `cause`: why it moves. Times of the
    coordinator in milliseconds since 1970; `None`: it is not so far yet, or a restart has forgotten it.
    """

    move_id: str
    topic: str
    partition: int
    from_member_id: str
    to_member_id: str
    phase: str
    cause: str
    submitted_ms: int | None
    begun_ms: int | None
    fenced_ms: int | None
    committed_ms: int | None
    granted_ms: int | None

    @property
    def is_open(self) -> bool:
        """Whether it is on its way."""
        return self.granted_ms is None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The brokers as (id, host, port)."""

    cluster_id: str
    controller_id: int
    brokers: tuple[tuple[int, str, int], ...]
