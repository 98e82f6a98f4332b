"""The state of a group while its rows are followed: members, open gaps, open rebalances.

Source: `coordinator/events/`, which words the rows.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.journal.words import Partition


@dataclass(slots=True, kw_only=True)
class OpenGap:
    """A partition that no member reads at present.

    `reason`: empty before the row that gives it.

    `is_measured`: rows say when it was read last, and will say when it is read again; `next_member` may have it.
    """

    began_ms: int
    member: str
    reason: str
    is_empty: bool = False
    is_noticed: bool = False
    is_measured: bool = False
    is_at_most: bool = False
    next_member: str | None = None


@dataclass(slots=True, kw_only=True)
class KnownMember:
    """A member; `settled`: the epoch at which it waits for nothing, -1 while it waits.

    `owned` names partitions, `unnamed` counts those that no row named; `asked` and `away` count them at those times.
    """

    member_id: str
    name: str
    began_ms: int
    host: str = ""
    settled: int = -1
    owned: set[Partition] = field(default_factory=set)
    unnamed: int = 0
    asked_ms: int | None = None
    asked: int = 0
    waits_since_ms: int | None = None
    away_since_ms: int | None = None
    away: int = 0
    lost_since_ms: int | None = None
    #: Partitions that it gave up with its last row, before the row that says why.
    just_released: tuple[Partition, ...] = ()


@dataclass(slots=True, kw_only=True)
class OpenRebalance:
    """A rebalance that is not over; `epoch` `None`: a classic one before its generation has begun.

    `awaited`: partitions that it has given to members that have not read them yet.
    """

    began_ms: int
    epoch: int | None
    why: str
    cause: str
    moved: int = 0
    unread: int = 0
    unread_ms: int = 0
    is_computed: bool = False
    givers: set[str] = field(default_factory=set)
    awaited: set[Partition] = field(default_factory=set)
