"""The offsets to commit for watched queries: each one's position, and each group's known offsets.

Laws: pure; a group's offset never moves backwards; where several running queries of one group read a partition, the
slowest counts; a query that has ended counts until its last offsets are committed.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Final

from kohort.ids import TopicPartition

Offsets = dict[TopicPartition, int]

#: A query that has never committed anything; below every offset.
NONE: Final = -1


class Standings:
    """Groups and the queries followed for them; a query is any value that survives its restarts."""

    def __init__(self) -> None:
        #: group -> query -> the next offset that it reads of each partition.
        self._ends: dict[str, dict[object, Offsets]] = {}
        #: group -> its queries that have ended, a subset of those of `_ends`.
        self._ended: dict[str, set[object]] = {}
        #: group -> what it has committed, as far as it was asked for.
        self._known: dict[str, Offsets] = {}

    def note(self, group: str, query: object, ends: Iterable[tuple[TopicPartition, int]]) -> None:
        """Note a finished batch of a query; a partition that it reads twice is at its slower position."""
        found: Offsets = {}
        for partition, end in ends:
            found[partition] = min(end, found.get(partition, end))
        self._ends.setdefault(group, {}).setdefault(query, {}).update(found)
        self._ended.get(group, set()).discard(query)

    def end(self, query: object) -> None:
        """Note the end of a query, in whichever group."""
        for group, queries in self._ends.items():
            if query in queries:
                self._ended.setdefault(group, set()).add(query)
        self._forget()

    def groups(self) -> list[str]:
        """Return the groups with something to commit, in order."""
        return [group for group in sorted(self._ends) if self.due(group)]

    def due(self, group: str) -> Offsets:
        """Return the offsets that the group lacks, also for partitions not asked about yet (`unknown`)."""
        known = self._known.get(group, {})
        return {
            partition: offset
            for partition, offset in self._slowest(group).items()
            if offset > known.get(partition, NONE)
        }

    def unknown(self, group: str) -> set[TopicPartition]:
        """Return the partitions to ask the group about before anything is committed."""
        return self.due(group).keys() - self._known.get(group, {}).keys()

    def know(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Note the offsets that the group has committed, by any member."""
        self._known.setdefault(group, {}).update(
            {partition: NONE if offset is None else offset for partition, offset in offsets.items()}
        )
        self._forget()

    def doubt(self, group: str) -> None:
        """Forget the group's offsets, so that they are asked for again."""
        self._known.pop(group, None)

    def drop(self, group: str, topics: Collection[str]) -> None:
        """Drop topics that do not exist any more."""
        for offsets in (*self._ends.get(group, {}).values(), self._known.get(group, {})):
            for partition in [partition for partition in offsets if partition.topic in topics]:
                del offsets[partition]
        self._forget()

    def committed(self) -> dict[str, Offsets]:
        """Return group -> partition -> committed offset, as far as it is known."""
        return {
            group: {partition: offset for partition, offset in offsets.items() if offset != NONE}
            for group, offsets in self._known.items()
        }

    def _slowest(self, group: str) -> Offsets:
        ended = self._ended.get(group, set())
        found: Offsets = {}
        for is_running in (True, False):
            slowest: Offsets = {}
            for query, ends in self._ends.get(group, {}).items():
                if (query not in ended) == is_running:
                    for partition, end in ends.items():
                        slowest[partition] = min(end, slowest.get(partition, end))
            found = {**slowest, **found}
        return found

    def _forget(self) -> None:
        """Forget ended queries after their last commit."""
        for group, ended in self._ended.items():
            if ended and not self.due(group):
                for query in ended:
                    del self._ends[group][query]
                ended.clear()
