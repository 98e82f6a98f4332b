"""What became of a group, explained: rebalances, the owners of partitions, who keeps whom waiting.

Laws: values; all times are of rows that the coordinator wrote, milliseconds since 1970. What is over has an end.
Source: requirement J2.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from kohort.errors import NotInHistoryError
from kohort.journal.words import show_partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class Trigger:
    """One thing that set a rebalance off.

    `trigger`: the coordinator's words ("member joined"). `members`: whom it is about, by their short names. `why`: what
    was said about it, empty if nothing. `sentence`: the same for a person.
    """

    time_ms: int
    trigger: str
    members: tuple[str, ...]
    why: str
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """One partition that changed hands.

    `giver` `None`: nobody had it; `taker` `None`: nobody has it yet. `asked_ms`: when the giver was told to give it up,
    `None` if it was not asked. `committed_ms`: when it committed its position last after that, `None` if it did not.
    `released_ms` `None`: not yet, or nobody had it. `granted_ms` `None`: not yet.
    `reader`: the last member that read it before, the giver unless that never did. `read_ms`: its last fetch or commit,
    or the last sign of it; `read_again_ms`: the taker's first fetch. `None`: not yet, or not known. `is_at_most`: not
    every fetch could be told from those of others, and it may have been read for longer. `is_found`: the giver had it
    before the broker crashed, and what became of it then is not known; `released_ms` is when the broker was back.
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
        """For how long nobody has read it, `None` if that is not known, or goes on."""
        if self.read_ms is None or self.read_again_ms is None:
            return None
        return max(0, self.read_again_ms - self.read_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Phase:
    """One part of a rebalance; some lie side by side.

    `name`: "unnoticed" (from the last sign of a member that is given up, or the end of its connection, until the
    coordinator acts), "gathered" (until the assignor is asked), "computed" (by it, or by the leader), "given up" (from
    when a member was to give up until it has) and "taken" (until each partition is read by its new owner, or has it).
    `member`: whom it is about, `None`: the group. `ended_ms` `None`: it goes on.
    """

    name: str
    member: str | None
    began_ms: int
    ended_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Delay:
    """A member for which others had to wait, an assignor of the user's own, or a pace.

    `what`: "hear" (that it has to give up), "give up", "join again", "share out", "come back", "assign", "begin" (to
    move: a group's pace holds moves back). `ended_ms` `None`: it goes on. `end`: how it ended, empty if as it should.
    `meanwhile`: what it did in that time, as far as the coordinator has seen. `is_held`: of who has to
    hear, whether its heartbeat was held, so that it could be told at once; `None`: not known, or of no matter.
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
    """One rebalance: all that led to one target of a group, or to one generation, and what followed from it.

    `number`: the group's epoch, or its generation; `None` before a generation has begun. `first_number`: of its first
    trigger. `computed_ms`: when it was known who shall own what; `None`: not yet. `ended_ms` `None`: it goes on, or
    `overtaken_by` says which one came before its end. `unnamed`: partitions that moved and that no row names.
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
        """The longest that a partition was read by nobody, milliseconds; `None`: none is known to have been."""
        return max((move.unread_ms for move in self.moves if move.unread_ms is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """A member had a partition. `ended_ms` `None`: it has it. `end`: why it has it no more ("asked back", ...).

    `unread_ms`: for how long nobody had read it when this member did, at most if `is_at_most`; `None`: it has not, or
    that is not known.
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
    """What a member has, and why it has no more, where that is not the assignor's even share.

    `because`: "window" (it waits to be let into a static group), "no topic" (that it subscribes to), the config that
    keeps the group uneven, "others" (still have what it shall get), "away"; empty: it has its share. `joined_ms`: when
    it joined, `None` where no row says it.
    """

    member: str
    member_id: str
    partitions: tuple[tuple[str, int], ...]
    joined_ms: int | None
    because: str
    sentence: str

    @property
    def is_short(self) -> bool:
        """Whether it waits for a share though the group is at rest."""
        return self.because not in ("", "others", "away")


@dataclass(frozen=True, slots=True, kw_only=True)
class Gap:
    """A time of which nothing is known, as the broker crashed. `gone`: members before it that were none behind it."""

    began_ms: int
    ended_ms: int
    gone: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupExplanation:
    """A group as its history explains it, oldest first.

    `now`: who keeps others waiting at the moment, nobody if it is empty. `is_gone`: the group was deleted, or is over.
    `gap`: the latest crash of the broker, if there was one since the first row; nothing is concluded over it.
    `members`: what each has, and why.
    `is_complete`: no row of it is missing. `has_older`: the broker has older rows on disk, which were not asked for.
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
        """What a member has, and why; by the name that sentences have, or by its member id.

        Raises:
            NotInHistoryError: there is none; says which there are.
        """
        for found in self.members:
            if name in (found.member, found.member_id):
                return found
        named = ", ".join(found.member for found in self.members)
        raise NotInHistoryError(self.group_id, f"member {name}", f"it has {named}" if named else "it has none")

    @property
    def last(self) -> GroupRebalance | None:
        """The latest rebalance, `None` if none is known."""
        return self.rebalances[-1] if self.rebalances else None

    def rebalance(self, number: int) -> GroupRebalance:
        """The latest rebalance with this epoch or generation.

        Raises:
            NotInHistoryError: there is none; says which there are.
        """
        for found in reversed(self.rebalances):
            if found.number is not None and (found.first_number or found.number) <= number <= found.number:
                return found
        numbers = [found.number for found in self.rebalances if found.number is not None]
        there = f"it has {_runs(numbers)}" if numbers else "it has none"
        raise NotInHistoryError(self.group_id, f"rebalance {number}", there)

    def partition(self, topic: str, partition: int) -> tuple[Ownership, ...]:
        """Who had a partition, one after the other.

        Raises:
            NotInHistoryError: no row names the partition; says which are named.
        """
        found = tuple(row for row in self.owners if (row.topic, row.partition) == (topic, partition))
        if not found:
            named = {(row.topic, row.partition) for row in self.owners}
            there = f"it has {show_partitions(named)}" if named else "it has none"
            raise NotInHistoryError(self.group_id, f"partition {topic}-{partition}", there)
        return found


def _runs(numbers: Iterable[int]) -> str:
    return show_partitions(("", number) for number in dict.fromkeys(numbers)).removeprefix(":").replace(",", ", ")
