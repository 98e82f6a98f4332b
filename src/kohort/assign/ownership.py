"""The target assignment as one flat array: the owner of each partition, topic after topic.

Laws: the caller sets the order of topics, which is the same in every array of one `PartitionSpace`. Partitions of a
target that are not in the space (deleted topics) are dropped silently.
"""

from __future__ import annotations

from array import array
from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from itertools import compress
from typing import Final

from kohort.assign.choice import kernels
from kohort.assign.kernels import NOBODY
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

    __slots__ = ("counts", "starts", "topic_ids", "topics", "total")

    def __init__(self, topics: Iterable[tuple[TopicId, int]]) -> None:
        """Number the partitions of `topics`: (topic id, number of partitions), each id once."""
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
        #: Topic id -> its index in `topic_ids`.
        self.topics: Final = {topic_id: i for i, topic_id in enumerate(self.topic_ids)}
        assert len(self.topics) == len(pairs), "a topic is in the space twice"

    def __len__(self) -> int:
        return self.total

    def topic(self, topic_id: TopicId) -> int | None:
        """Return the index of a topic in `topic_ids`, `None` if it is not in the space."""
        return self.topics.get(topic_id)

    def flat(self, topic_id: TopicId, partition: int) -> int:
        """Return the flat number of a partition, -1 if the partition is not in the space."""
        topic = self.topics.get(topic_id)
        if topic is None or not 0 <= partition < self.counts[topic]:
            return -1
        return self.starts[topic] + partition

    def name(self, flat: int) -> tuple[TopicId, int]:
        """Return topic id and partition of a flat number; the inverse of `flat`."""
        topic = bisect_right(self.starts, flat) - 1
        # Topics without partitions start where the next one does.
        while self.counts[topic] == 0:
            topic -= 1
        return self.topic_ids[topic], flat - self.starts[topic]


def gather_owners(space: PartitionSpace, targets: Sequence[Partitions]) -> array[int]:
    """Build the array of owners from `targets` (member -> its partitions); -1: no owner."""
    owner = array("i", [NOBODY]) * space.total
    kernels.gather(list(targets), space.topics, space.starts, space.counts, owner)
    return owner


def spread_owners(
    space: PartitionSpace, owner: array[int], members: Iterable[int]
) -> dict[int, dict[TopicId, tuple[int, ...]]]:
    """List the partitions that `members` own: member -> topic id -> ascending partitions."""
    wanted = list(members)
    if not wanted:
        return {}
    firsts = array("i", [NOBODY]) * (2 + max(*wanted, kernels.largest(owner)))
    for member in wanted:
        firsts[member] = 0
    topics = array("i", bytes(4 * len(owner)))
    found = kernels.sort_by_owner(owner, space.starts, space.counts, firsts, topics)
    singles: dict[int, tuple[int, ...]] = {}
    return {
        member: kernels.group_by_topic(found, topics, space.topic_ids, firsts[member], firsts[member + 1], singles)
        for member in wanted
    }


def changed_members(before: array[int], after: array[int], member_count: int) -> list[int]:
    """Return the members whose partitions differ between two arrays of one space, ascending."""
    assert len(before) == len(after), "owners of two spaces"
    changed = bytearray(member_count)
    kernels.find_changed(before, after, changed)
    return list(compress(range(member_count), changed))
