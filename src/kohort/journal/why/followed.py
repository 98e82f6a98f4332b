"""State of a group while its rows are explained: members and rebalances.

Laws: no logic; `explaining.py` and `rebalances.py` change it row by row.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from kohort.journal.why.explanation import Delay, Trigger
from kohort.journal.why.ownership_timeline import OpenMove
from kohort.journal.words import Partition


@dataclass(slots=True, kw_only=True)
class FollowedMember:
    """One member; times in milliseconds.

    `settled`: the epoch at which it waits for no partitions, -1 while it does. `asked`: partitions that it was told to
    revoke and has not, with the time. `planned`: partitions that it has to be told to revoke, since `planned_since_ms`;
    `former_plan_ms`: the same of the target before. `is_held`: whether its heartbeat was held then, `None` if that is
    not known. `meanwhile`: its visible actions since others wait. `is_new`: it waits to be admitted to a static group;
    `short`: why it has fewer partitions than others.
    """

    member_id: str
    name: str
    settled: int = -1
    asked: dict[Partition, int] = field(default_factory=dict)
    asked_since_ms: int | None = None
    planned: tuple[Partition, ...] = ()
    planned_since_ms: int | None = None
    former_plan_ms: int | None = None
    waits_since_ms: int | None = None
    away_since_ms: int | None = None
    is_held: bool | None = None
    meanwhile: list[str] = field(default_factory=list)
    joined_ms: int | None = None
    is_new: bool = False
    short: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class HeldBack:
    """Moves that a pace holds back: since when, the pace, all of them and those that have not begun."""

    since_ms: int
    pace: str
    partitions: set[Partition]
    left: set[Partition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A member that was removed for its silence at `noticed_ms`; times in milliseconds.

    `began_ms`: its last sign of life. `disconnected_ms`: how long before its connection had ended, `None` if that is
    unknown or irrelevant. `session_ms`: its session timeout. `is_lost`: it was removed for its connection.
    """

    member: str
    began_ms: int
    noticed_ms: int
    disconnected_ms: int | None
    session_ms: int
    is_lost: bool


@dataclass(slots=True, kw_only=True)
class FollowedRebalance:
    """A rebalance, open or over; see `explanation.GroupRebalance`.

    `held_back`: moves that wait for their turn, `None` if none does. `changed`: number of members with a new target;
    `touched`: members with a move. `joined`: members that have joined, or rejoined, and when. `trigger_cause`: the
    input of the latest trigger. `is_at_rest`: a row says that it is over. `is_cut`: a crash of the broker has kept its
    end from the rows; `is_found`: it was found after one. `computing_ms`: since when an assignor works on it.
    `silences`: members whose silence it followed. `short`: member -> why it has fewer partitions than others, though
    the rebalance is over.
    """

    protocol: str
    began_ms: int
    number: int | None = None
    first_number: int | None = None
    computed_ms: int | None = None
    latest_ms: int = 0
    ended_ms: int | None = None
    is_overtaken: bool = False
    is_at_rest: bool = False
    is_cut: bool = False
    is_found: bool = False
    changed: int = 0
    unnamed: int = 0
    leader: str = ""
    assignor: str = ""
    assignor_asked_ms: int | None = None
    held_back: HeldBack | None = None
    triggers: list[Trigger] = field(default_factory=list)
    moves: dict[Partition, OpenMove] = field(default_factory=dict)
    delays: list[Delay] = field(default_factory=list)
    touched: set[str] = field(default_factory=set)
    joined: dict[str, int] = field(default_factory=dict)
    trigger_cause: int = -1
    computing_ms: int | None = None
    silences: list[Silence] = field(default_factory=list)
    short: dict[str, dict[str, str]] = field(default_factory=dict)
