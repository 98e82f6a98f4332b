"""Who shall own what, as one flat array: topics side by side, partitions in order, one int per partition.

Laws: the order of topics is the caller's and the same in every array of one space; a target that names partitions
which are not in the space (deleted topics) loses them silently.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from kohort.assign.kernels import NOBODY, find_changed
from kohort.ids import TopicId

#: topic id -> ascending partitions.
Partitions = Mapping[TopicId, tuple[int, ...]]


class PartitionSpace:
    """The partitions of some topics, numbered from 0.

    >>> space = PartitionSpace([(TopicId(b"a" * 16), 3), (TopicId(b"b" * 16), 2)])
    >>> len(space), space.flat(TopicId(b"b" * 16), 1), space.flat(TopicId(b"b" * 16), 2)
    (5, 4, -1)
    >>> space.name(4) == (TopicId(b"b" * 16), 1)
    True
    """

    __slots__ = ("_topics", "counts", "starts", "topic_ids", "total")

    def __init__(self, topics: Iterable[tuple[TopicId, int]]) -> None:
        """`topics`: (topic id, number of partitions), each id once."""
        pairs = list(topics)
        #: Topic ids in the order of their partitions.
        self.topic_ids: Final = [topic_id for topic_id, _ in pairs]
        #: Partitions per topic, in that order.
        self.counts: Final = [count for _, count in pairs]
        #: Flat number of each topic's partition 0.
        self.starts: Final[list[int]] = []
        total = 0
        for count in self.counts:
            self.starts.append(total)
            total += count
        #: Number of partitions.
        self.total: Final = total
        self._topics: Final = {topic_id: i for i, topic_id in enumerate(self.topic_ids)}
        assert len(self._topics) == len(pairs), "a topic is in the space twice"

    def __len__(self) -> int:
        return self.total

    def topic(self, topic_id: TopicId) -> int | None:
        """Position of a topic in `topic_ids`, `None` if it is not in the space."""
        return self._topics.get(topic_id)

    def flat(self, topic_id: TopicId, partition: int) -> int:
        """Number of a partition, -1 if it is not in the space."""
        topic = self._topics.get(topic_id)
        if topic is None or not 0 <= partition < self.counts[topic]:
            return -1
        return self.starts[topic] + partition

    def name(self, flat: int) -> tuple[TopicId, int]:
        """The inverse of `flat` for numbers in the space."""
        topic = bisect_right(self.starts, flat) - 1
        # Topics without partitions start where the next one does.
        while self.counts[topic] == 0:
            topic -= 1
        return self.topic_ids[topic], flat - self.starts[topic]


def gather_owners(space: PartitionSpace, targets: Sequence[Partitions]) -> array[int]:
    """The array of owners that `targets` (member -> what it shall own) describes; -1 is nobody."""
    owner = array("i", [NOBODY]) * space.total
    starts, counts, topics = space.starts, space.counts, space._topics
    for member, target in enumerate(targets):
        for topic_id, partitions in target.items():
            topic = topics.get(topic_id)
            if topic is None:
                continue
            start = starts[topic]
            count = counts[topic]
            for partition in partitions:
                if partition < count:
                    owner[start + partition] = member
    return owner


def spread_owners(
    space: PartitionSpace, owner: array[int], members: Iterable[int]
) -> dict[int, dict[TopicId, tuple[int, ...]]]:
    """What each of `members` owns by `owner`: member -> topic id -> ascending partitions."""
    lists: dict[int, dict[int, list[int]]] = {member: {} for member in members}
    if not lists:
        return {}
    for topic, start in enumerate(space.starts):
        for partition, member in enumerate(owner[start : start + space.counts[topic]]):
            wanted = lists.get(member)
            if wanted is not None:
                wanted.setdefault(topic, []).append(partition)
    return {
        member: {space.topic_ids[topic]: tuple(partitions) for topic, partitions in topics.items()}
        for member, topics in lists.items()
    }


def changed_members(before: array[int], after: array[int], member_count: int) -> list[int]:
    """Members whose partitions differ between two arrays of owners of one space, ascending."""
    changed = bytearray(member_count)
    find_changed(before, after, changed)
    return [member for member in range(member_count) if changed[member]]
