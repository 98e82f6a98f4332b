"""Explanation of a group's history: rebalances, owners of partitions, members that others wait for.

Laws: all classes are values. Times are those of the coordinator's rows, milliseconds since 1970. `ended_ms` is set for
every finished event.
Source: requirement J2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kohort.errors import NotInHistoryError
from kohort.journal.words import show_duration, show_partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """One trigger of a rebalance.

    `trigger`: the coordinator's words ("member joined"). `members`: short names of the members concerned. `why`: the
    reason that the request gave, empty if none. `sentence`: all of this as text for people.
    """

    time_ms: int
    trigger: str
    members: tuple[str, ...]
    why: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition that changes its owner, from `giver` to `taker`; times in milliseconds.

    `giver`: `None` if the partition had no owner. `taker`: `None` while it has no new owner. `asked_ms`: time of the
    response that told the giver to revoke it, `None` if none did. `committed_ms`: the giver's last commit after that,
    `None` if none. `released_ms`, `granted_ms`: `None` until then, or without a giver. `reader`: the last member that
    read the partition before the move, mostly the giver. `read_ms`: the reader's last fetch or commit, or its last sign
    of life. `read_again_ms`: the taker's first fetch. Both are `None` if unknown or not yet reached. `is_at_most`: some
    fetches had no known member, so the unread time may be shorter. `is_found`: the giver owned the partition before
    a crash of the broker, and later steps are unknown; `released_ms` is then the time of the restart.
    """

    topic: str
    partition: int
    giver: str | None
    taker: str | None
    asked_ms: int | None
    committed_ms: int | None
    released_ms: int | None
    granted_ms: int | None
    reader: str | None = None
    read_ms: int | None = None
    read_again_ms: int | None = None
    is_at_most: bool = False
    is_found: bool = False

    @property
    def unread_ms(self) -> int | None:
        """Return the time in which no member read the partition, ms; `None`: unknown, or not over."""
        if self.read_ms is None or self.read_again_ms is None:
            return None
        return max(0, self.read_again_ms - self.read_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase of a rebalance; some phases overlap.

    `name`: "unnoticed" (from a removed member's last sign of life, or the end of its connection, until the coordinator
    removes it), "gathered" (until the assignor starts), "computed" (by the assignor, or by the leader), "given up"
    (from the response that tells a member to revoke partitions until it has revoked them) and "taken" (until the new
    owner of each partition reads it, or owns it). `member`: `None` for the whole group. `ended_ms`: `None` if not over.
    """

    name: str
    member: str | None
    began_ms: int
    ended_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """A time in which other members waited for one member, for a custom assignor, or for the move throttle.

    `what` others wait for: "hear" (a heartbeat that tells the member to revoke partitions), "give up" (the revocation),
    "join again", "share out" (the leader's SyncGroup), "come back", "assign", "begin" (the throttle lets moves begin).
    `ended_ms`: `None` if not over. `end`: how the wait ended, empty if as intended. `meanwhile`: the member's actions
    in that time that the coordinator saw. `is_held`: for "hear", whether the coordinator held a heartbeat of the member
    and so could respond at once; `None`: unknown, or irrelevant.
    """

    member: str
    what: str
    partitions: tuple[tuple[str, int], ...]
    began_ms: int
    ended_ms: int | None
    end: str
    meanwhile: tuple[str, ...]
    sentence: str
    is_held: bool | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupRebalance:
    """One rebalance: the triggers of one target assignment, or of one generation, and the consequences.

    `number`: group epoch or generation; `None` before the generation begins. `first_number`: the same of the first
    trigger. `computed_ms`: when the target was ready; `None`: not yet. `ended_ms`: `None` if not over.
    `overtaken_by`: the rebalance that began before this one ended. `unnamed`: number of moved partitions that no row
    names. `phases`: in order of their beginning; `timing`: the phases as text for people.
    """

    number: int | None
    first_number: int | None
    protocol: str
    began_ms: int
    computed_ms: int | None
    ended_ms: int | None
    overtaken_by: int | None
    triggers: tuple[Trigger, ...]
    moves: tuple[Move, ...]
    unnamed: int
    delays: tuple[Delay, ...]
    sentence: str
    phases: tuple[Phase, ...] = ()
    timing: str = ""

    @property
    def unread_ms(self) -> int | None:
        """Return the longest time in which a moved partition was not read, ms; `None`: none is known."""
        return max((move.unread_ms for move in self.moves if move.unread_ms is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """A member's time as owner of a partition.

    `ended_ms`: `None` if the member still owns it. `end`: why it no longer does ("asked back", ...). `unread_ms`: time
    without a reader before this member's first fetch, an upper bound if `is_at_most`; `None`: no fetch yet, or unknown.
    """

    topic: str
    partition: int
    member: str
    began_ms: int
    ended_ms: int | None
    end: str
    sentence: str
    unread_ms: int | None = None
    is_at_most: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """A member's partitions, and the reason if it has fewer than an even share.

    `because`: "window" (the member waits for a static group's expansion window to end), "no topic" (none that it
    subscribes to exists), a config (which keeps the group uneven), "others" (still own its target partitions), "away";
    empty: it has its share. `joined_ms`: when it joined, `None` if no row shows it.
    """

    member: str
    member_id: str
    partitions: tuple[tuple[str, int], ...]
    joined_ms: int | None
    because: str
    sentence: str

    @property
    def is_short(self) -> bool:
        """Whether the member lacks partitions although no rebalance is open."""
        return self.because not in ("", "others", "away")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A time without rows, because the broker crashed; `gone`: members that did not survive it."""

    began_ms: int
    ended_ms: int
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class HoldingTransaction:
    """An open transaction that holds a group back in one partition.

    `offset`: where the group's readers of committed records wait; `None`: the transaction has a commit of the group for
    the partition, and members get UNSTABLE_OFFSET_COMMIT until it ends. `transactional_id`: `None` if hidden from this
    client or unknown. `state`: that of its coordinator; empty: no coordinator knows it, so it hangs. `open_ms`: its
    age, milliseconds, `None` if unknown.
    """

    topic: str
    partition: int
    offset: int | None
    producer_id: int
    transactional_id: str | None
    state: str
    open_ms: int | None

    @property
    def sentence(self) -> str:
        """Return the description for people."""
        where, id_ = f"{self.topic}:{self.partition}", self.transactional_id
        name = f"producer {self.producer_id}" if id_ is None else f"{id_} (producer {self.producer_id})"
        age = "" if self.open_ms is None else f" for {show_duration(self.open_ms)}"
        state = f"{self.state}{age}" if self.state else "no coordinator knows it: kohort transactions abort ends it"
        if self.offset is None:
            return f"the offset of {where} is pending in a transaction of {name}: {state}"
        return f"{where} is held back from readers of committed records at offset {self.offset} by {name}: {state}"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupExplanation:
    """Explanation of a group by its history, oldest first.

    `now`: present waits for members, empty if none. `is_gone`: the group was deleted, or has expired. `gap`: the latest
    crash of the broker since the first row, if any; no conclusion spans it. `members`: partitions of each member, with
    reasons. `is_complete`: no row of the group is missing. `has_older`: the broker has older rows on disk, which were
    not requested. `held_by`: open transactions for which members wait now.
    """

    group_id: str
    is_gone: bool
    rebalances: tuple[GroupRebalance, ...]
    owners: tuple[Ownership, ...]
    now: tuple[Delay, ...]
    summary: str
    is_complete: bool = True
    has_older: bool = False
    gap: Gap | None = None
    members: tuple[Standing, ...] = ()
    held_by: tuple[HoldingTransaction, ...] = ()

    def member(self, name: str) -> Standing:
        """Return a member's partitions and the reason, by its short name or its member id.

        Raises:
            NotInHistoryError: there is no such member; the error names the known ones.
        """
        for found in self.members:
            if name in (found.member, found.member_id):
                return found
        named = ", ".join(found.member for found in self.members)
        raise NotInHistoryError(self.group_id, f"member {name}", f"it has {named}" if named else "it has none")

    @property
    def last(self) -> GroupRebalance | None:
        """Return the latest rebalance, `None` if none is known."""
        return self.rebalances[-1] if self.rebalances else None

    def rebalance(self, number: int) -> GroupRebalance:
        """Return the latest rebalance with this epoch or generation.

        Raises:
            NotInHistoryError: there is no such rebalance; the error names the known ones.
        """
        for found in reversed(self.rebalances):
            if found.number is not None and (found.first_number or found.number) <= number <= found.number:
                return found
        numbers = [found.number for found in self.rebalances if found.number is not None]
        there = f"it has {_runs(numbers)}" if numbers else "it has none"
        raise NotInHistoryError(self.group_id, f"rebalance {number}", there)

    def partition(self, topic: str, partition: int) -> tuple[Ownership, ...]:
        """Return the owners of a partition in order.

        Raises:
            NotInHistoryError: no row names the partition; the error lists those that are named.
        """
        found = tuple(row for row in self.owners if (row.topic, row.partition) == (topic, partition))
        if not found:
            named = {(row.topic, row.partition) for row in self.owners}
            there = f"it has {show_partitions(named)}" if named else "it has none"
            raise NotInHistoryError(self.group_id, f"partition {topic}-{partition}", there)
        return found


def _runs(numbers: Iterable[int]) -> str:
    return show_partitions(("", number) for number in dict.fromkeys(numbers)).removeprefix(":").replace(",", ", ")
