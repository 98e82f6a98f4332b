"""State of a group while its rows are explained: members, rebalances, owners of partitions.

Laws: no logic; `explaining.py` and `rebalances.py` change it row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kohort.journal.explain.explanation import Delay, Trigger
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
    unknown or irrelevant. `session_ms`: its session timeout. `is_lost`: it was removed for its connection. `by_fetch`:
    its last sign of life was a fetch.
    """

    member: str
    began_ms: int
    noticed_ms: int
    disconnected_ms: int | None
    session_ms: int
    is_lost: bool
    by_fetch: bool = False


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


@dataclass(slots=True, kw_only=True)
class Holding:
    """A member's time with a partition, by the member's short name.

    `ended_ms` `None`: the member has it. `end`: why it does not have it any more. `unread`: the move that brought it,
    once the partition is read again, with the time in which it was not.
    """

    partition: Partition
    member: str
    began_ms: int
    ended_ms: int | None = None
    end: str = ""
    unread: OpenMove | None = None


@dataclass(slots=True, kw_only=True)
class OpenMove:
    """A partition on its way; see `explanation.Move`.

    `is_over`: its taker has lost it without having read it. `is_found`: a crash of the broker has kept from the rows
    when, and to which member, its giver released it.
    """

    giver: str | None
    asked_ms: int | None = None
    committed_ms: int | None = None
    released_ms: int | None = None
    taker: str | None = None
    granted_ms: int | None = None
    reader: str | None = None
    read_ms: int | None = None
    read_again_ms: int | None = None
    is_at_most: bool = False
    is_over: bool = False
    is_found: bool = False

    def learn(self, details: Mapping[str, str]) -> None:
        """Add details of the row of its arrival that no earlier row has given."""
        for name in ("asked_ms", "committed_ms", "released_ms", "read_ms"):
            # The first row that has a value counts.
            if getattr(self, name) is None and details.get(name, "").isdecimal():
                setattr(self, name, int(details[name]))
        self.is_at_most = self.is_at_most or details.get("at_most") == "true"

    def read_again(self, details: Mapping[str, str], reader: str, now_ms: int) -> None:
        """Note that its taker reads it, with the former reader and its last time."""
        self.learn(details)
        self.reader, self.read_again_ms = reader, now_ms


@dataclass(slots=True)
class OwnershipTimeline:
    """Owners of the partitions of one group.

    Laws: a partition has one owner at most; a released partition without a new owner is kept with its former one.
    """

    #: All holdings, present and former.
    all: list[Holding] = field(default_factory=list)
    #: Partition -> its present holding.
    now: dict[Partition, Holding] = field(default_factory=dict)
    #: Partitions that have lost their owner, and the move that took them.
    loose: dict[Partition, OpenMove] = field(default_factory=dict)
    #: Holdings that ended with the latest rows, before the row with the reason.
    _unexplained: list[Holding] = field(default_factory=list)

    def of(self, member: str) -> list[Partition]:
        """Return the partitions of a member."""
        return [partition for partition, holding in self.now.items() if holding.member == member]

    def of_partition(self, partition: Partition) -> str | None:
        """Return the owner of a partition, `None` if it has none."""
        holding = self.now.get(partition)
        return None if holding is None else holding.member

    def give(self, member: str, partition: Partition, now_ms: int) -> OpenMove:
        """Give a partition to a member; return the move."""
        move = self.loose.pop(partition, None)
        holding = self.now.get(partition)
        if holding is not None and holding.member != member:
            # The leader's assignment: the former owner's loss has a row of its own.
            holding.ended_ms, holding.end = now_ms, "the leader gave it to another"
            move = OpenMove(giver=holding.member, released_ms=now_ms)
        # A row may repeat an ownership that is known.
        if holding is None or holding.member != member:
            self.now[partition] = Holding(partition=partition, member=member, began_ms=now_ms)
            self.all.append(self.now[partition])
        move = move or OpenMove(giver=None)
        move.taker, move.granted_ms = member, now_ms
        return move

    def take(
        self, member: str, partition: Partition, now_ms: int, *, end: str, asked_ms: int | None
    ) -> OpenMove | None:
        """Take a partition from a member; return the move, or `None` where another member has it by now."""
        holding = self.now.get(partition)
        # The partition has another owner already, and its loss is known.
        if holding is not None and holding.member != member:
            return None
        if holding is not None:
            holding.ended_ms, holding.end = now_ms, end
            del self.now[partition]
            # The row with the reason comes after the rows of the released partitions.
            if not end:
                self._unexplained.append(holding)
        # The partition is known as released: the row repeats it.
        elif partition in self.loose:
            return None
        move = self.loose[partition] = OpenMove(giver=member, asked_ms=asked_ms, released_ms=now_ms)
        return move

    def explain(self, member: str, end: str) -> None:
        """Set the reason for a member's latest releases, whose row comes after theirs."""
        for holding in self._unexplained:
            if holding.member == member:
                holding.end = end
        self._unexplained = [holding for holding in self._unexplained if not holding.end]

    def rename(self, former: str, member: str) -> None:
        """Pass the holdings of a process on to the one that replaces it."""
        for holding in self.now.values():
            if holding.member == former:
                holding.member = member
