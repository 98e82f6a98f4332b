"""The state of a group while its rows are followed: members, open gaps, open rebalances.

Apart: the checkpoints of streams name its classes by this module.
Source: `coordinator/journal_events/`, which words the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.journal.words import Partition


@dataclass(slots=True, kw_only=True)
class OpenGap:
    """A partition that no member reads at present."""

    began_ms: int
    member: str
    #: Empty before the row that gives it.
    reason: str
    is_empty: bool = False
    is_noticed: bool = False
    #: Rows say when it was read last, and will say when it is read again.
    is_measured: bool = False
    is_at_most: bool = False
    #: The member that may have it.
    next_member: str | None = None


@dataclass(slots=True, kw_only=True)
class KnownMember:
    """A member."""

    member_id: str
    name: str
    began_ms: int
    host: str = ""
    #: The epoch at which it waits for nothing, -1 while it waits.
    settled: int = -1
    #: Those that rows named; `unnamed` counts the others.
    owned: set[Partition] = field(default_factory=set)
    unnamed: int = 0
    asked_ms: int | None = None
    #: Counts its partitions at `asked_ms`, as `away` at `away_since_ms`.
    asked: int = 0
    waits_since_ms: int | None = None
    away_since_ms: int | None = None
    away: int = 0
    lost_since_ms: int | None = None
    #: Partitions that it gave up with its last row, before the row that says why.
    just_released: tuple[Partition, ...] = ()


@dataclass(slots=True, kw_only=True)
class OpenRebalance:
    """A rebalance that is not over."""

    began_ms: int
    #: `None`: a classic one before its generation has begun.
    epoch: int | None
    why: str
    cause: str
    moved: int = 0
    unread: int = 0
    unread_ms: int = 0
    is_computed: bool = False
    givers: set[str] = field(default_factory=set)
    #: Partitions that it has given to members that have not read them yet.
    awaited: set[Partition] = field(default_factory=set)
