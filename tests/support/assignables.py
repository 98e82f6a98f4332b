"""Groups as assignors see them, from what a test wants to say."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence

from kohort.assign.interface import UNLIMITED, Assignable, AssignableMember
from kohort.assign.ownership import PartitionSpace
from kohort.ids import TopicId


def group_of(
    topics: Mapping[str, int],
    subscriptions: Mapping[str, Sequence[str]],
    *,
    owner: Sequence[int] = (),
    static: Mapping[str, str] | None = None,
    max_moves: int = UNLIMITED,
    imbalance: int = 0,
) -> Assignable:
    """A group.

    Args:
        topics: topic -> number of partitions.
        subscriptions: member id -> topics that it subscribes to.
        owner: who owns each partition, topics in the order of their names, as the numbers of members in the order of
            their ids; empty: nobody owns any.
        static: member id -> static name.
        max_moves: as in `Assignable`.
        imbalance: as in `Assignable`.
    """
    members = sorted(subscriptions)
    wanted = {name for names in subscriptions.values() for name in names}
    names = sorted(name for name in topics if name in wanted)
    space = PartitionSpace((TopicId(name.encode().rjust(16, b"-")), topics[name]) for name in names)
    return Assignable(
        space=space,
        topic_names=tuple(names),
        members=tuple(AssignableMember(member_id=each, instance_id=(static or {}).get(each)) for each in members),
        subscribers=tuple(
            tuple(i for i, member in enumerate(members) if name in subscriptions[member]) for name in names
        ),
        owner=array("i", owner) if owner else array("i", [-1]) * len(space),
        max_moves=max_moves,
        imbalance=imbalance,
    )


def owned(group: Assignable, owner: array[int]) -> dict[str, dict[str, list[int]]]:
    """An answer in words: member id -> topic -> partitions."""
    found: dict[str, dict[str, list[int]]] = {member.member_id: {} for member in group.members}
    for name, start, count in zip(group.topic_names, group.space.starts, group.space.counts, strict=True):
        for partition, member in enumerate(owner[start : start + count]):
            found[group.members[member].member_id].setdefault(name, []).append(partition)
    return found
