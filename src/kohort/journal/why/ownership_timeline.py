"""Owners of partitions, present and former.

Laws: a partition has one owner at most; a released partition without a new owner is kept with its former one.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kohort.journal.words import Partition


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
class Holdings:
    """Owners of the partitions of one group."""

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
