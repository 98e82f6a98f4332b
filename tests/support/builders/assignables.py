"""Groups as assignors see them, from what a test wants to say."""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from random import Random

from kohort.assign.choice import kernels
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
            if member < 0:
                continue
            found[group.members[member].member_id].setdefault(name, []).append(partition)
    return found


def random_group(random: Random, *, most_members: int = 30, most_partitions: int = 60) -> Assignable:
    """Any group of these sizes: homogeneous, in teams or everybody by itself; new, settled or in disorder."""
    topics = {f"t{i:02}": 0 for i in range(random.randint(1, 12))}
    for _ in range(random.randint(0, most_partitions)):
        topics[random.choice(sorted(topics))] += 1
    members = [f"m{i:02}" for i in range(random.randint(1, most_members))]
    share = random.choice([1.0, 0.7, 0.4, 0.2])
    teams = [[name for name in topics if random.random() < share] for _ in range(random.randint(1, len(members)))]
    subscriptions = {member: random.choice(teams) for member in members}
    static = {member: f"name-{random.random()}" for member in members if random.random() < 0.2}
    group = group_of(topics, subscriptions, static=static)
    mess = random.choice([0.0, 0.1, 1.0])
    owner = [random.choice(members_of) for members_of in partitions_of(group)]
    owner = [random.randint(-1, len(members) - 1) if random.random() < mess else member for member in owner]
    return group_of(
        topics,
        subscriptions,
        owner=owner,
        static=static,
        max_moves=random.choice([UNLIMITED, UNLIMITED, 0, 3]),
        imbalance=random.choice([0, 0, 1, 3]),
    )


def partitions_of(group: Assignable) -> list[Sequence[int]]:
    """Partition -> who subscribes to its topic."""
    pairs = zip(group.subscribers, group.space.counts, strict=True)
    return [members for members, count in pairs for _ in range(count)]


def loads_of(owner: array[int], member_count: int) -> array[int]:
    """Count the partitions of each member.

    >>> list(loads_of(array("i", [2, 0, -1, 2]), 3))
    [1, 0, 2]
    """
    loads = array("i", bytes(4 * member_count))
    kernels.count_loads(owner, loads)
    return loads
