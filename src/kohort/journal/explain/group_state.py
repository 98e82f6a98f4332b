"""State of a group while its rows are explained: members, rebalances, owners of partitions.

Laws: no conclusions are drawn here; `explaining.py` and `rebalances.py` change this state row by row.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kohort.journal.explain.explanation import Delay, Trigger
from kohort.journal.words import Partition


@dataclass(slots=True, kw_only=True)
class FollowedMember:
    """One member; times in milliseconds.

    `settled`: the epoch that the member has reconciled, -1 while it has not. `asked`: partitions that it was told to
    revoke and has not yet revoked, with the time. `planned`: partitions that it is not yet told to revoke, waiting
    since `planned_since_ms`; `former_plan_ms`: that time by the previous target. `is_held`: whether the coordinator
    held a heartbeat of the member then, `None` if unknown. `meanwhile`: its visible actions since others wait for it.
    `is_new`: it waits for a static group's expansion window. `short`: why it has fewer partitions than others.
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
    """Moves that the throttle defers: since when, its pace, all partitions, and those still deferred."""

    since_ms: int
    pace: str
    partitions: set[Partition]
    left: set[Partition]


@dataclass(frozen=True, slots=True, kw_only=True)
class Silence:
    """A member that was removed at `noticed_ms` because it was silent; times in milliseconds.

    `began_ms`: its last sign of life. `disconnected_ms`: time between its disconnection and `noticed_ms`, `None` if
    unknown or irrelevant. `session_ms`: its session timeout. `is_lost`: it was removed because its connection ended.
    `by_fetch`: its last sign of life was a fetch.
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
    """A rebalance, open or ended; see `explanation.GroupRebalance`.

    `held_back`: deferred moves, `None` if there are none. `changed`: number of members with a new target; `touched`:
    members with a move. `joined`: members that joined or rejoined, with the time. `trigger_cause`: the input that was
    the latest trigger. `is_at_rest`: a row states its end. `is_cut`: no row states its end, because the broker crashed;
    `is_found`: it was in progress or over when the broker restarted. `computing_ms`: since when an assignor computes
    its target. `silences`: silent members whose removal triggered it. `short`: member -> why it has fewer partitions
    than others after the rebalance.
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
    """A member's time as owner of a partition; `member` is its short name.

    `ended_ms`: `None` if the member still owns it. `end`: why it no longer does. `unread`: the move that brought
    the partition, with its unread time, set once the member reads.
    """

    partition: Partition
    member: str
    began_ms: int
    ended_ms: int | None = None
    end: str = ""
    unread: OpenMove | None = None


@dataclass(slots=True, kw_only=True)
class OpenMove:
    """A partition that is moving between members; see `explanation.Move`.

    `is_over`: the taker lost the partition before its first fetch. `is_found`: the broker crashed, and no row states
    when the giver released the partition.
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
        """Add details of the row of the move's end that no earlier row had."""
        for name in ("asked_ms", "committed_ms", "released_ms", "read_ms"):
            # The first row that has a value counts.
            if getattr(self, name) is None and details.get(name, "").isdecimal():
                setattr(self, name, int(details[name]))
        self.is_at_most = self.is_at_most or details.get("at_most") == "true"

    def read_again(self, details: Mapping[str, str], reader: str, now_ms: int) -> None:
        """Note the taker's first fetch, with the former reader and that reader's last time."""
        self.learn(details)
        self.reader, self.read_again_ms = reader, now_ms


@dataclass(slots=True)
class OwnershipTimeline:
    """Owners of the partitions of one group.

    Laws: a partition has one owner at most. For a released partition without a new owner, the former one is kept. A
    member of the eager protocol gives all up when it joins again, and its leader alone says what it gets back.
    """

    #: All holdings, present and former.
    all: list[Holding] = field(default_factory=list)
    #: Partition -> its present holding.
    now: dict[Partition, Holding] = field(default_factory=dict)
    #: Partitions that have lost their owner, and the move that took them.
    loose: dict[Partition, OpenMove] = field(default_factory=dict)
    #: Partition -> the holding of the member that gave it up to join again, until the leader has assigned it.
    given_up: dict[Partition, Holding] = field(default_factory=dict)
    #: Holdings that ended with the latest rows, before the row with the reason.
    _unexplained: list[Holding] = field(default_factory=list)

    def of(self, member: str) -> list[Partition]:
        """Return the partitions of a member."""
        return [partition for partition, holding in self.now.items() if holding.member == member]

    def give_up(self, member: str, now_ms: int, end: str) -> list[Partition]:
        """End all ownerships of a member that joins again; return the partitions."""
        partitions = self.of(member)
        for partition in partitions:
            holding = self.given_up[partition] = self.now.pop(partition)
            holding.ended_ms, holding.end = now_ms, end
        return partitions

    def given_up_by(self, member: str) -> list[Partition]:
        """Return the partitions that a member has given up to join again."""
        return [partition for partition, holding in self.given_up.items() if holding.member == member]

    def give_back(self, now_ms: int) -> None:
        """Give partitions back to members that gave them up, where the leader chose no other owner."""
        for partition, holding in list(self.given_up.items()):
            self.give(holding.member, partition, now_ms)

    def of_partition(self, partition: Partition) -> str | None:
        """Return the owner of a partition, `None` if it has none."""
        holding = self.now.get(partition)
        return None if holding is None else holding.member

    def give(self, member: str, partition: Partition, now_ms: int) -> OpenMove:
        """Make a member the owner of a partition; return the move."""
        move = self.loose.pop(partition, None)
        holding, former = self.now.get(partition), self.given_up.pop(partition, None)
        if holding is not None and holding.member != member:
            # The leader's assignment: the former owner's loss has a row of its own.
            holding.ended_ms, holding.end = now_ms, "the leader gave it to another"
            move = OpenMove(giver=holding.member, released_ms=now_ms)
        elif former is not None and former.member != member:
            move = OpenMove(giver=former.member, released_ms=former.ended_ms)
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
        """End a member's ownership; return the move, `None` if another member owns the partition already."""
        holding = self.now.get(partition)
        # The partition has another owner already, and its loss is known.
        if holding is not None and holding.member != member:
            return None
        former = self.given_up.get(partition)
        if former is not None and former.member == member:
            del self.given_up[partition]
            now_ms = now_ms if former.ended_ms is None else former.ended_ms
        elif holding is not None:
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
        """Set the reason of a member's latest releases; its row comes after theirs."""
        for holding in self._unexplained:
            if holding.member == member:
                holding.end = end
        self._unexplained = [holding for holding in self._unexplained if not holding.end]

    def rename(self, former: str, member: str) -> None:
        """Transfer ownerships from a static member's former process to the one that replaces it."""
        for holding in (*self.now.values(), *self.given_up.values()):
            if holding.member == former:
                holding.member = member
