"""A replay of a group's membership, in which other assignors compute each of its assignments.

Laws: an assignor continues from its own last assignment, not from the actual one. Moves are counted as for rebalances:
partitions that go from one member to another while both are in the group. No I/O: rows in, counts out.
Source: requirement P5; `coordinator/consumer/assignment/target.py`, which calls assignors the same way.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from kohort.assign.assignors import BUILT_IN, built_in
from kohort.assign.interface import Assignable, AssignableMember, Assignor
from kohort.assign.ownership import PartitionSpace
from kohort.assign.subscribers import subscribers_by_topic
from kohort.errors import ConfigError
from kohort.ids import TopicId
from kohort.journal.words import JournalRow, read_partitions
from kohort.pipelines.fact import Fact, Kind
from kohort.pipelines.following import RETURNED


def find_assignor(assignor: str | Assignor) -> Assignor:
    """Return the assignor of that name among kohort's own, or the given object itself.

    Raises:
        ConfigError: there is no assignor of that name.
    """
    found = built_in(assignor) if isinstance(assignor, str) else assignor
    if found is None:
        raise ConfigError(f"there is no assignor {assignor!r}: one of {', '.join(BUILT_IN)} is expected, or an object")
    return found


@dataclass(frozen=True)
class Replays:
    """A picklable factory of replays, each for one group."""

    assignors: tuple[Assignor, ...]
    partitions: dict[str, int]

    def __call__(self, group_id: str) -> Replay:
        return Replay(group_id, self.assignors, self.partitions)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Shape:
    """The input of an assignor without the present owners: members, topics and subscriptions."""

    #: Sorted; a number of a member is an index into this list.
    member_ids: list[str]
    members: tuple[AssignableMember, ...]
    topics: list[str]
    space: PartitionSpace
    subscribers: tuple[Sequence[int], ...]


class Replay:
    """The replay of one group, whose rows are read in order."""

    def __init__(self, group_id: str, assignors: Sequence[Assignor], partitions: Mapping[str, int]) -> None:
        """Create a replay of one group.

        `partitions`: topic -> its number of partitions; topics that rows name are added.
        """
        self._group_id: Final = group_id
        self._assignors: Final = tuple(assignors)
        self._counts: Final = dict(partitions)
        #: Member id -> (instance id, topics, pattern).
        self._members: dict[str, tuple[str, tuple[str, ...], str]] = {}
        #: The input of the latest assignment, to which the numbers in `_owners` refer.
        self._shape = _NOBODY
        self._is_changed = True
        #: By assignor: the number of each partition's owner, in the order of the shape; -1 for none.
        self._owners: list[array[int]] = [array("i") for _ in self._assignors]
        #: Instance id of a restarting static member -> its former member id.
        self._returning: dict[str, str] = {}
        #: The latest epoch of the group and its trigger.
        self._epoch = ""
        self._why = ""
        self._last = (-1, -1)
        self._told: list[Fact] = []

    def read(self, row: JournalRow) -> None:
        """Process the next row."""
        if row.event not in _READERS or (row.sequence <= self._last[0] and row.time_ms <= self._last[1]):
            return
        self._last = (row.sequence, row.time_ms)
        _READERS[row.event](self, row)

    def take(self) -> list[Fact]:
        """Return the facts replayed since the last call."""
        told, self._told = self._told, []
        return told

    def finish(self) -> list[Fact]:
        """Return the remaining facts; each assignment is replayed when its row is read."""
        return self.take()

    def _put(self, row: JournalRow) -> None:
        details = row.details
        instance, topics, pattern = self._members.get(row.member_id, ("", (), ""))
        if "topics" in details or "pattern" in details:
            named = details.get("topics", "")
            topics, pattern = tuple(named.split(",")) if named else (), details.get("pattern", "")
        self._members[row.member_id] = (details.get("instance", instance), topics, pattern)
        self._is_changed = True
        former = self._returning.pop(details.get("instance", ""), None)
        if former is not None:
            renamed = [row.member_id if each == former else each for each in self._shape.member_ids]
            self._shape = replace(self._shape, member_ids=renamed)

    def _removed(self, row: JournalRow) -> None:
        instance = self._members.pop(row.member_id, ("", (), ""))[0]
        self._is_changed = True
        if row.details.get("reason") == RETURNED:
            self._returning[instance] = row.member_id

    def _named(self, row: JournalRow) -> None:
        for name in ("gained", "held"):
            for topic, number in read_partitions(row.details.get(name, ""))[0]:
                if number >= self._counts.get(topic, 0):
                    self._counts[topic], self._is_changed = number + 1, True

    def _bumped(self, row: JournalRow) -> None:
        self._epoch, self._why = row.details["epoch"], row.details.get("trigger", "")

    def _forgotten(self, _: JournalRow) -> None:
        self._members, self._shape, self._is_changed = {}, _NOBODY, True
        self._owners = [array("i") for _ in self._assignors]

    def _computed(self, row: JournalRow) -> None:
        if row.details["epoch"] != self._epoch:
            # Several epochs in a short time give one assignment; a target of an older epoch is skipped.
            return
        if self._is_changed:
            old, self._shape = self._shape, self._look()
            self._owners = _carry(self._owners, old, self._shape)
            self._is_changed = False
        for number, assignor in enumerate(self._assignors):
            before, after = self._owners[number], self._ask(assignor, self._owners[number])
            self._owners[number] = after
            self._tell(row, assignor.name, before, after)

    def _look(self) -> _Shape:
        member_ids = sorted(self._members)
        subscribers = subscribers_by_topic([self._topics_of(member_id) for member_id in member_ids])
        topics = sorted(topic for topic in subscribers if self._counts.get(topic))
        counts = [self._counts[topic] for topic in topics]
        space = self._shape.space
        if topics != self._shape.topics or counts != space.counts:
            space = PartitionSpace(
                (TopicId(topic.encode()), count) for topic, count in zip(topics, counts, strict=True)
            )
        return _Shape(
            member_ids=member_ids,
            members=tuple(
                AssignableMember(member_id=each, instance_id=self._members[each][0] or None) for each in member_ids
            ),
            topics=topics,
            space=space,
            subscribers=tuple(subscribers[topic] for topic in topics),
        )

    def _ask(self, assignor: Assignor, owner: array[int]) -> array[int]:
        shape = self._shape
        if not shape.member_ids or not owner:
            return owner
        return assignor.assign(
            Assignable(
                space=shape.space,
                topic_names=tuple(shape.topics),
                members=shape.members,
                subscribers=shape.subscribers,
                owner=owner,
            )
        )

    def _tell(self, row: JournalRow, assignor: str, before: array[int], after: array[int]) -> None:
        # -1, no owner, is the last one.
        loads = [0] * (len(self._shape.member_ids) + 1)
        for owner in after:
            loads[owner] += 1
        loads.pop()
        moved = 0 if before == after else sum(old not in (-1, new) for old, new in zip(before, after, strict=True))
        fact = Fact(
            kind=Kind.REPLAY, group_id=self._group_id, began_ms=row.time_ms, ended_ms=row.time_ms, why=self._why,
            epoch=int(self._epoch), assignor=assignor, members=len(loads), partitions=len(after), moved=moved,
            fewest=min(loads, default=0), most=max(loads, default=0),
        )  # fmt: skip
        self._told.append(fact)

    def _topics_of(self, member_id: str) -> tuple[str, ...]:
        _, topics, pattern = self._members[member_id]
        if not pattern:
            return topics
        try:
            matches = re.compile(pattern).fullmatch
        except re.error:
            return topics
        return (*topics, *(topic for topic in self._counts if topic not in topics and matches(topic)))


def _carry(owners: list[array[int]], old: _Shape, new: _Shape) -> list[array[int]]:
    """Translate owners into another shape; partitions of removed members and new topics have none."""
    numbers = {member_id: number for number, member_id in enumerate(new.member_ids)}
    # -1, no owner, is the last one.
    translated = [*(numbers.get(member_id, -1) for member_id in old.member_ids), -1]
    renumbered = [array("i", map(translated.__getitem__, each)) for each in owners]
    return renumbered if new.space is old.space else [_lay_out(each, old, new) for each in renumbered]


def _lay_out(owners: array[int], old: _Shape, new: _Shape) -> array[int]:
    """Return the owners in the new shape's order of partitions; new partitions have none."""
    by_topic = {
        topic: owners[start : start + count]
        for topic, start, count in zip(old.topics, old.space.starts, old.space.counts, strict=True)
    }
    laid = array("i")
    for topic, count in zip(new.topics, new.space.counts, strict=True):
        had = by_topic.get(topic, array("i"))[:count]
        laid.extend(had)
        laid.extend([-1] * (count - len(had)))
    return laid


_NOBODY: Final = _Shape(member_ids=[], members=(), topics=[], space=PartitionSpace([]), subscribers=())

#: Event -> its handler; other rows change neither a group's membership nor its assignment.
_READERS: Final = {
    "member_joined": Replay._put,
    "member_kept": Replay._put,
    "subscription_changed": Replay._put,
    "member_removed": Replay._removed,
    "assignment_changed": Replay._named,
    "epoch_bumped": Replay._bumped,
    "target_computed": Replay._computed,
    "group_forgotten": Replay._forgotten,
}
#: The events that a replay reads.
EVENTS: Final = frozenset(_READERS)
