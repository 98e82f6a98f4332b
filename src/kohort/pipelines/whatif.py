"""What another assignor would have moved: the membership of a group again, each assignment asked of assignors.

Laws: an assignor goes on from its own last answer, not from what was so; what it would have moved is counted as the
rebalances count it: partitions that go from one member to another while both are there. Pure: rows in, counts out.
Source: requirement P5; `coordinator/consumer/target.py`, which asks assignors the same way.
"""

from __future__ import annotations

import re
from array import array
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kohort.assign.interface import Assignable, AssignableMember, Assignor
from kohort.assign.ownership import PartitionSpace
from kohort.assign.registry import BUILT_IN, built_in
from kohort.assign.subscribers import subscribers_by_topic
from kohort.errors import ConfigError
from kohort.ids import TopicId
from kohort.pipelines.following import RETURNED, JournalRow
from kohort.pipelines.groupstate import Partition, parse_partitions
from kohort.pipelines.journal import follow_groups

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_COLUMNS: Final = {
    "group_id": "string",
    "began_ms": "bigint",
    "epoch": "int",
    "why": "string",
    "assignor": "string",
    "members": "int",
    "partitions": "int",
    "moved": "int",
    "fewest": "int",
    "most": "int",
}


def what_if(
    rows: DataFrame, assignors: Sequence[str | Assignor] = BUILT_IN, *, partitions: Mapping[str, int] | None = None
) -> DataFrame:
    """What each assignor would have moved, had the group had it from the beginning; batch and stream.

    Args:
        rows: journal rows, of groups of the consumer protocol; of classic ones there is no table.
        assignors: names of those that come with kohort, or assignors of one's own.
        partitions: topic -> how many it has; by default what the rows name.

    Returns:
        `group_id`; `began`, when the coordinator computed an assignment, its `epoch` and `why`; `assignor`; `members`
        and `partitions` it had to do with; `moved`, as in `rebalances`; `fewest` and `most` partitions of one member
        then. To be held against `moved` of `rebalances`, which is what was.

    Raises:
        ConfigError: there is no assignor of that name.

    >>> moved = what_if(rows, ["range", "sticky"]).groupBy("assignor").sum("moved")  # doctest: +SKIP
    """
    from pyspark.sql import functions as f

    chosen = tuple(_find(assignor) for assignor in assignors)
    told = follow_groups(rows, _Replays(chosen, dict(partitions or {})), _COLUMNS)
    others = [name for name in _COLUMNS if name not in ("group_id", "began_ms")]
    return told.select("group_id", f.timestamp_millis("began_ms").alias("began"), *others)


@dataclass(slots=True, kw_only=True)
class Replayed:
    """What one assignor made of one assignment."""

    group_id: str
    began_ms: int
    epoch: int
    why: str
    assignor: str
    members: int
    partitions: int
    moved: int
    fewest: int
    most: int


@dataclass(frozen=True)
class _Replays:
    """Makes the replay of a group."""

    assignors: tuple[Assignor, ...]
    partitions: dict[str, int]

    def __call__(self, group_id: str) -> Replay:
        return Replay(group_id, self.assignors, self.partitions)


class Replay:
    """Reads the rows of one group in order."""

    def __init__(self, group_id: str, assignors: Sequence[Assignor], partitions: Mapping[str, int]) -> None:
        """`partitions`: topic -> how many it has; what rows name is added."""
        self._group_id: Final = group_id
        self._assignors: Final = tuple(assignors)
        self._counts: Final = dict(partitions)
        #: Member id -> (instance id, topics, pattern).
        self._members: dict[str, tuple[str, tuple[str, ...], str]] = {}
        #: By assignor: partition -> the member that it gave it to.
        self._owners: list[dict[Partition, str]] = [{} for _ in self._assignors]
        #: Instance id -> the member id that it had until the row before.
        self._returning: dict[str, str] = {}
        #: The latest epoch of the group and its trigger.
        self._epoch = ""
        self._why = ""
        self._last = (-1, -1)
        self._told: list[Replayed] = []

    def read(self, row: JournalRow) -> None:
        """Take the next row in."""
        if row.sequence <= self._last[0] and row.time_ms <= self._last[1]:
            return
        self._last = (row.sequence, row.time_ms)
        details = row.details
        match row.event:
            case "member_joined" | "member_kept" | "subscription_changed":
                self._put(row)
            case "member_removed":
                instance = self._members.pop(row.member_id, ("", (), ""))[0]
                if details.get("reason") == RETURNED:
                    self._returning[instance] = row.member_id
            case "assignment_changed":
                for name in ("gained", "held"):
                    for topic, number in parse_partitions(details.get(name, ""))[0]:
                        self._counts[topic] = max(self._counts.get(topic, 0), number + 1)
            case "epoch_bumped":
                self._epoch, self._why = details["epoch"], details.get("trigger", "")
            case "target_computed" if details["epoch"] == self._epoch:
                # Several epochs in a short time are one assignment; one of an epoch before says nothing new.
                for assignor, owners in zip(self._assignors, self._owners, strict=True):
                    self._ask(assignor, owners, row)
            case "group_forgotten":
                self._members = {}
                self._owners = [{} for _ in self._assignors]

    def take(self) -> list[Replayed]:
        """What has been replayed since the last call."""
        told, self._told = self._told, []
        return told

    def finish(self) -> list[Replayed]:
        """What is left: each assignment is asked when its row comes."""
        return self.take()

    def _put(self, row: JournalRow) -> None:
        details = row.details
        instance, topics, pattern = self._members.get(row.member_id, ("", (), ""))
        if "topics" in details or "pattern" in details:
            named = details.get("topics", "")
            topics, pattern = tuple(named.split(",")) if named else (), details.get("pattern", "")
        self._members[row.member_id] = (details.get("instance", instance), topics, pattern)
        former = self._returning.pop(details.get("instance", ""), None)
        for owners in self._owners if former is not None else ():
            owners.update({each: row.member_id for each, owner in owners.items() if owner == former})

    def _ask(self, assignor: Assignor, owners: dict[Partition, str], row: JournalRow) -> None:
        member_ids = sorted(self._members)
        wanted = [self._topics_of(member_id) for member_id in member_ids]
        subscribers = subscribers_by_topic(wanted)
        topics = sorted(topic for topic in subscribers if self._counts.get(topic))
        space = PartitionSpace((TopicId(topic.encode()), self._counts[topic]) for topic in topics)
        flat = [(topic, number) for topic in topics for number in range(self._counts[topic])]
        numbers = {member_id: number for number, member_id in enumerate(member_ids)}
        before = array("i", (numbers.get(owners.get(each, ""), -1) for each in flat))
        after = before
        if member_ids and flat:
            members = tuple(
                AssignableMember(member_id=each, instance_id=self._members[each][0] or None) for each in member_ids
            )
            group = Assignable(
                space=space,
                topic_names=tuple(topics),
                members=members,
                subscribers=tuple(subscribers[topic] for topic in topics),
                owner=before,
            )
            after = assignor.assign(group)
        owners.clear()
        owners.update({each: member_ids[owner] for each, owner in zip(flat, after, strict=True) if owner >= 0})
        loads = [after.count(number) for number in range(len(member_ids))]
        self._told.append(
            Replayed(
                group_id=self._group_id,
                began_ms=row.time_ms,
                epoch=int(row.details["epoch"]),
                why=self._why,
                assignor=assignor.name,
                members=len(member_ids),
                partitions=len(flat),
                moved=sum(old not in (-1, new) for old, new in zip(before, after, strict=True)),
                fewest=min(loads, default=0),
                most=max(loads, default=0),
            )
        )

    def _topics_of(self, member_id: str) -> tuple[str, ...]:
        _, topics, pattern = self._members[member_id]
        if not pattern:
            return topics
        try:
            matches = re.compile(pattern).fullmatch
        except re.error:
            return topics
        return (*topics, *(topic for topic in self._counts if topic not in topics and matches(topic)))


def _find(assignor: str | Assignor) -> Assignor:
    found = built_in(assignor) if isinstance(assignor, str) else assignor
    if found is None:
        raise ConfigError(f"there is no assignor {assignor!r}: one of {', '.join(BUILT_IN)} is expected, or an object")
    return found
