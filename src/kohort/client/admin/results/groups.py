"""What the admin client returns of groups and their offsets."""

from __future__ import annotations

from dataclasses import dataclass

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
    """One member; `member_epoch` is `None` for a classic member, `target` is empty where the protocol has none.

    `offline_since_ms`: of a static group, when its offline member was last heard of, milliseconds since 1970; `None`
    for one that is online. `metadata`: what it publishes, `None` for nothing, as of every classic member and on
    brokers that are none of kohort's. `metadata_size`: how many bytes that is, -1 for nothing; where all that a group
    publishes is more than 1 MiB, some members have a size and `None`.
    """

    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    member_epoch: int | None
    assignment: tuple[TopicPartition, ...]
    target: tuple[TopicPartition, ...]
    offline_since_ms: int | None = None
    metadata: bytes | None = None
    metadata_size: int = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """One group; epochs are `None` for a classic group.

    `authorized_operations`: what the caller may do with it ("describe", "read", ...), where that was asked for.
    `is_static`: its membership is static (`Admin.enable_static_membership`).
    `assignor_failure`: how an assignor of your own, the broker's or a member's, has failed last; `None` if it has not
    since the latest assignment.
    """

    group_id: str
    group_type: str
    state: str
    assignor: str
    group_epoch: int | None
    assignment_epoch: int | None
    members: tuple[MemberDescription, ...]
    authorized_operations: tuple[str, ...] | None = None
    is_static: bool = False
    assignor_failure: str | None = None


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
class OffsetReset:
    """Where a group begins anew in one partition; `committed` is `None` where nothing was.

    `wanted`: what was asked for; `offset` is the nearest that the log has.
    """

    topic: str
    partition: int
    committed: int | None
    offset: int
    wanted: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """One config of a group; with `is_own` it was set for the group, otherwise `value` is the broker's.

    `doc` is `None` where the broker says nothing about it.
    """

    name: str
    value: str | None
    is_own: bool
    doc: str | None
