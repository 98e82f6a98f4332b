"""The state of a group while its rows are followed: members, open gaps, open rebalances.

Apart: the checkpoints of streams name its classes by this module.
Source: `coordinator/journal_events/`, which writes the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.journal.words import Partition


@dataclass(slots=True, kw_only=True)
class OpenGap:
    """A partition that no member reads at present."""

    began_ms: int
    member: str
    #: Empty until a row names it.
    reason: str
    is_empty: bool = False
    is_noticed: bool = False
    #: Whether rows have named the time of the last read, and will name that of the next one.
    is_measured: bool = False
    is_at_most: bool = False
    #: The member that it was assigned to, and that has not read it yet.
    next_member: str | None = None


@dataclass(slots=True, kw_only=True)
class KnownMember:
    """A member of the group."""

    member_id: str
    name: str
    began_ms: int
    host: str = ""
    #: The epoch that it has reached, waiting for no partition; -1 while it waits.
    settled: int = -1
    #: Owned partitions that rows named; `unnamed` counts the others.
    owned: set[Partition] = field(default_factory=set)
    unnamed: int = 0
    asked_ms: int | None = None
    #: Number of partitions asked back since `asked_ms`; `away` is the number owned at `away_since_ms`.
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
    #: `None` for a classic rebalance whose generation has not begun yet.
    epoch: int | None
    why: str
    cause: str
    moved: int = 0
    unread: int = 0
    unread_ms: int = 0
    is_computed: bool = False
    givers: set[str] = field(default_factory=set)
    #: Partitions that it has assigned to members that have not read them yet.
    awaited: set[Partition] = field(default_factory=set)
