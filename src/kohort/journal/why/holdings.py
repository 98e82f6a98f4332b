"""Which member has which partition, and who had it before.

Laws: a partition has one owner at most; what somebody gave up and nobody has yet is remembered with who it was.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from kohort.journal.words import Partition


@dataclass(slots=True, kw_only=True)
class Holding:
    """A member, by its short name, and a partition; `ended_ms` `None`: it has it. `end`: why it has it no more.

    `unread`: the move that brought it, once it is read, which says for how long it was not.
    """

    partition: Partition
    member: str
    began_ms: int
    ended_ms: int | None = None
    end: str = ""
    unread: OpenMove | None = None


@dataclass(slots=True, kw_only=True)
class OpenMove:
    """A partition on its way; see `explanation.Move`. `is_over`: its taker has lost it without having read it.

    `is_found`: a crash of the broker has kept from the rows when, and to whom, its giver gave it up.
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
        """What the row of its arrival says of its way, as far as no row before has said it."""
        for name in ("asked_ms", "committed_ms", "released_ms", "read_ms"):
            if getattr(self, name) is None and details.get(name, "").isdecimal():
                setattr(self, name, int(details[name]))
        self.is_at_most = self.is_at_most or details.get("at_most") == "true"

    def read_again(self, details: Mapping[str, str], reader: str, now_ms: int) -> None:
        """Its taker reads it by now; who did before, and until when."""
        self.learn(details)
        self.reader, self.read_again_ms = reader, now_ms


@dataclass(slots=True)
class Holdings:
    """The partitions of one group."""

    #: Every holding that there was or is.
    all: list[Holding] = field(default_factory=list)
    #: Partition -> who has it.
    now: dict[Partition, Holding] = field(default_factory=dict)
    #: Partitions that had an owner and have none, and the move that took them.
    loose: dict[Partition, OpenMove] = field(default_factory=dict)
    #: Holdings that ended with the latest rows, before the row that says why.
    _unexplained: list[Holding] = field(default_factory=list)

    def of(self, member: str) -> list[Partition]:
        """What a member has."""
        return [partition for partition, holding in self.now.items() if holding.member == member]

    def of_partition(self, partition: Partition) -> str | None:
        """The member that has it."""
        holding = self.now.get(partition)
        return None if holding is None else holding.member

    def give(self, member: str, partition: Partition, now_ms: int) -> OpenMove:
        """A member has a partition from now on; from whom it has it."""
        move = self.loose.pop(partition, None)
        holding = self.now.get(partition)
        if holding is not None and holding.member != member:
            # A classic leader's word: who loses it is told in a row of its own.
            holding.ended_ms, holding.end = now_ms, "the leader gave it to another"
            move = OpenMove(giver=holding.member, released_ms=now_ms)
        if holding is None or holding.member != member:
            self.now[partition] = Holding(partition=partition, member=member, began_ms=now_ms)
            self.all.append(self.now[partition])
        move = move or OpenMove(giver=None)
        move.taker, move.granted_ms = member, now_ms
        return move

    def take(
        self, member: str, partition: Partition, now_ms: int, *, end: str, asked_ms: int | None
    ) -> OpenMove | None:
        """A member has a partition no more; `None` where another one has it by now."""
        holding = self.now.get(partition)
        if holding is not None and holding.member != member:
            return None
        if holding is not None:
            holding.ended_ms, holding.end = now_ms, end
            del self.now[partition]
            if not end:
                self._unexplained.append(holding)
        elif partition in self.loose:
            return None
        move = self.loose[partition] = OpenMove(giver=member, asked_ms=asked_ms, released_ms=now_ms)
        return move

    def explain(self, member: str, end: str) -> None:
        """Why a member has given up what it gave up a moment ago: that row comes after the ones that say what."""
        for holding in self._unexplained:
            if holding.member == member:
                holding.end = end
        self._unexplained = [holding for holding in self._unexplained if not holding.end]

    def rename(self, former: str, member: str) -> None:
        """Another process has the place of one, with all that it had."""
        for holding in self.now.values():
            if holding.member == former:
                holding.member = member
