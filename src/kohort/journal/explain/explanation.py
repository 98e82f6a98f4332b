"""Explanation of a group's history: rebalances, owners of partitions, members that others wait for.

Laws: values; all times are those of the coordinator's rows, milliseconds since 1970. A finished event has an end.
Source: requirement J2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kohort.errors import NotInHistoryError
from kohort.journal.words import show_partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """One trigger of a rebalance.

    `trigger`: the coordinator's words ("member joined"). `members`: the members concerned, by their short names. `why`:
    the given reason, empty if none. `sentence`: the same for a person.
    """

    time_ms: int
    trigger: str
    members: tuple[str, ...]
    why: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition that changes its owner.

    `giver` `None`: it had no owner; `taker` `None`: it has none yet. `asked_ms`: when the giver was told to revoke it,
    `None` if it was not. `committed_ms`: its last commit after that, `None` if there was none. `released_ms` `None`:
    not yet, or there was no owner. `granted_ms` `None`: not yet. `reader`: the last member that read it before, the
    giver unless that never did. `read_ms`: its last fetch or commit, or the last sign of it; `read_again_ms`: the
    taker's first fetch. `None`: not yet, or not known. `is_at_most`: not every fetch could be told from those of
    others, and the partition may have been read for longer. `is_found`: the giver had it before the broker crashed, and
    its way since then is not known; `released_ms` is when the broker was back.
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
        """Return for how long no member has read it, ms; `None`: unknown, or not over."""
        if self.read_ms is None or self.read_again_ms is None:
            return None
        return max(0, self.read_again_ms - self.read_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One phase of a rebalance; some run at the same time.

    `name`: "unnoticed" (from the last sign of a removed member, or the end of its connection, until the coordinator
    acts), "gathered" (until the assignor is asked), "computed" (by the assignor, or by the leader), "given up" (from
    the time at which a member was to revoke partitions until it has) and "taken" (until the new owner of each partition
    reads it, or has it). `member`: the member concerned, `None`: the group. `ended_ms` `None`: it is not over.
    """

    name: str
    member: str | None
    began_ms: int
    ended_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """A wait of others for a member, an assignor of the user's own, or a pace.

    `what`: "hear" (that it has to revoke partitions), "give up", "join again", "share out", "come back", "assign",
    "begin" (to move: a group's pace holds moves back). `ended_ms` `None`: it is not over. `end`: how it ended, empty if
    as it should. `meanwhile`: the member's actions in that time, as far as the coordinator has seen them. `is_held`: of
    a member that has to hear, whether its heartbeat was held, so that it could be told at once; `None`: not known, or
    irrelevant.
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
    """One rebalance: the triggers of one target, or of one generation, and its consequences.

    `number`: the group's epoch, or its generation; `None` before a generation has begun. `first_number`: of its first
    trigger. `computed_ms`: when the target was known; `None`: not yet. `ended_ms` `None`: it is not over.
    `overtaken_by`: the rebalance that came before its end. `unnamed`: partitions that moved and that no row names.
    `phases`: in the order in which they began, `timing` the same for a person.
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
        """Return the longest time in which no member read a partition, ms; `None`: none is known."""
        return max((move.unread_ms for move in self.moves if move.unread_ms is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """A member's time as owner of a partition.

    `ended_ms` `None`: it still has it. `end`: why it does not have it any more ("asked back", ...).

    `unread_ms`: for how long no member had read it when this one did, at most if `is_at_most`; `None`: this one has
    not, or that is not known.
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
    """A member's partitions, and why it has no more, unless by the assignor's even share.

    `because`: "window" (it waits to be admitted to a static group), "no topic" (of its subscription exists), the config
    that keeps the group uneven, "others" (still have its partitions), "away"; empty: it has its share. `joined_ms`:
    when it joined, `None` where no row has it.
    """

    member: str
    member_id: str
    partitions: tuple[tuple[str, int], ...]
    joined_ms: int | None
    because: str
    sentence: str

    @property
    def is_short(self) -> bool:
        """Whether it waits for partitions though the group is at rest."""
        return self.because not in ("", "others", "away")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """An unknown time, as the broker crashed; `gone`: former members that were none after it."""

    began_ms: int
    ended_ms: int
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupExplanation:
    """Explanation of a group by its history, oldest first.

    `now`: the members that others wait for at present, empty if none. `is_gone`: the group was deleted, or is over.
    `gap`: the latest crash of the broker since the first row, if any; no conclusion spans it. `members`: the partitions
    of each, and why. `is_complete`: no row of it is missing. `has_older`: the broker has older rows on disk, which were
    not requested.
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

    def member(self, name: str) -> Standing:
        """Return a member's partitions and the reason, by the name in sentences or by its member id.

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
            NotInHistoryError: no row names the partition; the error has the named ones.
        """
        found = tuple(row for row in self.owners if (row.topic, row.partition) == (topic, partition))
        if not found:
            named = {(row.topic, row.partition) for row in self.owners}
            there = f"it has {show_partitions(named)}" if named else "it has none"
            raise NotInHistoryError(self.group_id, f"partition {topic}-{partition}", there)
        return found


def _runs(numbers: Iterable[int]) -> str:
    return show_partitions(("", number) for number in dict.fromkeys(numbers)).removeprefix(":").replace(",", ", ")
