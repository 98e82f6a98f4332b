"""What goes on in groups between two rests, as far as the journal tells it when it is over.

A rebalance has a beginning, a partition on its way has somebody who was asked for it and who let it go, and a member is
waited for. The rows that end each of them have these times.

Laws: nothing is decided here. What is remembered is of groups that are on their way and of partitions that nobody has;
it is bounded: of too much the group that was heard of first is forgotten, and its next rows lack their times.
Source: requirements H3 (the phases of a move) and J1.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kohort.coordinator.events.reads import LastRead
from kohort.journal.words import Partition

#: Partitions on their way that are remembered, and groups.
_PARTITIONS_LIMIT: Final = 100_000
_GROUPS_LIMIT: Final = 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Passage:
    """How a partition leaves its member; times in milliseconds of the coordinator.

    `granted_epoch`: when it was granted it, which with the partition names the move; `None` where classic members share
    out. `asked_ms` `None`: it was not asked. `committed_ms`: its latest commit of it since, `None` if there was none.
    `released_ms` `None`: it still has it. `last_read`: until when it was read before that, `None` if not known.
    """

    giver: str
    granted_epoch: int | None = None
    asked_ms: int | None = None
    committed_ms: int | None = None
    released_ms: int | None = None
    last_read: LastRead | None = None

    def later(self, by_ms: int) -> Passage:
        """The same by a clock that was set by so much."""
        asked_ms, committed_ms, released_ms = (
            None if at_ms is None else at_ms + by_ms for at_ms in (self.asked_ms, self.committed_ms, self.released_ms)
        )
        last_read = None if self.last_read is None else self.last_read.later(by_ms)
        return replace(self, asked_ms=asked_ms, committed_ms=committed_ms, released_ms=released_ms, last_read=last_read)

    @property
    def details(self) -> dict[str, str]:
        """As a row has them; empty: there is none."""
        names = ("granted_epoch", "asked_ms", "committed_ms", "released_ms")
        read = {} if self.last_read is None else self.last_read.details()
        return {name: "" if (value := getattr(self, name)) is None else str(value) for name in names} | read


class Course:
    """One group."""

    __slots__ = ("awaited", "began_ms", "counted", "is_answered", "moved", "passages", "triggers", "unowned_ms")

    def __init__(self) -> None:
        #: When the present rebalance began; `None` at rest.
        self.began_ms: int | None = None
        #: Whether it is known who shall own what: the next change begins another rebalance.
        self.is_answered = False
        #: What set it off, each once.
        self.triggers: dict[str, None] = {}
        #: How many partitions it has brought to another member, and the longest for which one had none, milliseconds.
        self.moved = 0
        self.unowned_ms = 0
        #: Partition -> how it leaves, or left, its member; it has no new one yet.
        self.passages: dict[Partition, Passage] = {}
        #: Of them, how many `Courses` has counted.
        self.counted = 0
        #: Member -> since when others wait for it.
        self.awaited: dict[str, int] = {}

    def begin(self, trigger: str, *, now_ms: int, is_new: bool = False) -> None:
        """The group has changed; `is_new`: whatever went on before, a rebalance begins with it."""
        if self.began_ms is None or self.is_answered or is_new:
            self.began_ms, self.is_answered = now_ms, False
            self.moved = self.unowned_ms = 0
            self.triggers = {}
        self.triggers[trigger] = None

    def ask(self, member_id: str, partitions: Iterable[Partition], *, now_ms: int) -> None:
        """A member was told to give partitions up."""
        passage = Passage(giver=member_id, asked_ms=now_ms)
        self.passages.update(dict.fromkeys(partitions, passage))
        self.awaited.setdefault(member_id, now_ms)

    def commit(self, member_id: str, partitions: Iterable[Partition], *, now_ms: int) -> None:
        """A member has committed partitions; it says nothing of those that it was not asked for."""
        for partition in partitions:
            passage = self.passages.get(partition)
            if passage is not None and passage.giver == member_id and passage.released_ms is None:
                self.passages[partition] = replace(passage, committed_ms=now_ms)

    def release(
        self,
        member_id: str,
        partitions: Mapping[Partition, int | None],
        *,
        now_ms: int,
        last_reads: Mapping[Partition, LastRead] | None = None,
    ) -> None:
        """A member has partitions no more, each with the epoch at which it was granted it.

        `last_reads`: who has read each, and until when.
        """
        unasked = Passage(giver=member_id)
        #: What went the same way is one passage, however many partitions it has.
        released: dict[tuple[Passage, int | None, LastRead | None], Passage] = {}
        for partition, granted_epoch in partitions.items():
            passage = self.passages.get(partition)
            if passage is None or passage.giver != member_id:
                passage = unasked
            if passage.released_ms is None:
                last_read = None if last_reads is None else last_reads.get(partition)
                way = passage, granted_epoch, last_read
                if way not in released:
                    released[way] = replace(
                        passage, granted_epoch=granted_epoch, released_ms=now_ms, last_read=last_read
                    )
                passage = released[way]
            self.passages[partition] = passage

    def grant(
        self, member_id: str, partitions: Iterable[Partition], *, now_ms: int, former: str | None = None
    ) -> list[tuple[Passage, list[Partition]]]:
        """A member has partitions now; what came from another, and how. `former`: the process whose place it took."""
        found: dict[Passage, list[Partition]] = {}
        for partition in sorted(partitions):
            passage = self.passages.pop(partition, None)
            if passage is None or passage.released_ms is None:
                continue
            self.unowned_ms = max(self.unowned_ms, now_ms - passage.released_ms)
            if passage.giver not in (member_id, former):
                found.setdefault(passage, []).append(partition)
        self.moved += sum(map(len, found.values()))
        return list(found.items())

    def follow_clock(self, by_ms: int) -> None:
        """The clock was set by so much, which is nothing that anything took."""
        self.began_ms = None if self.began_ms is None else self.began_ms + by_ms
        self.awaited = {member_id: since_ms + by_ms for member_id, since_ms in self.awaited.items()}
        moved: dict[Passage, Passage] = {}
        for partition, passage in self.passages.items():
            if passage not in moved:
                moved[passage] = passage.later(by_ms)
            self.passages[partition] = moved[passage]

    def rest(self, *, now_ms: int) -> dict[str, int]:
        """The rebalance is over; what it took, nothing if its beginning is not known."""
        began_ms, self.began_ms = self.began_ms, None
        self.awaited.clear()
        if began_ms is None:
            return {}
        return {"took_ms": now_ms - began_ms, "moved": self.moved, "unowned_ms": self.unowned_ms}


class Courses:
    """All groups that are on their way, or have partitions that nobody has."""

    def __init__(self) -> None:
        #: Group -> its course, in the order in which they were heard of.
        self._courses: Final[dict[str, Course]] = {}
        #: Partitions on their way, over all groups.
        self._size = 0

    def follow_clock(self, by_ms: int) -> None:
        """The clock was set by so much."""
        for course in self._courses.values():
            course.follow_clock(by_ms)

    def find(self, group_id: str) -> Course | None:
        """The course of a group, if it has one."""
        return self._courses.get(group_id)

    def of(self, group_id: str) -> Course:
        """The course of a group, a new one if it has none."""
        course = self._courses.get(group_id)
        if course is None:
            course = self._courses[group_id] = Course()
        return course

    def end(self, group_id: str) -> None:
        """The group is gone."""
        course = self._courses.pop(group_id, None)
        if course is not None:
            self._size -= course.counted

    def tidy(self, group_id: str) -> None:
        """After something has happened to a group: forget what has come to its end, and what is too much."""
        course = self._courses.get(group_id)
        if course is None:
            return
        if course.began_ms is None and not course.passages:
            self.end(group_id)
            return
        self._size += len(course.passages) - course.counted
        course.counted = len(course.passages)
        while len(self._courses) > _GROUPS_LIMIT or self._size > _PARTITIONS_LIMIT:
            self.end(next(iter(self._courses)))
