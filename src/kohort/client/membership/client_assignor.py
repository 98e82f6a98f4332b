"""Assignors that a classic group's leader runs for everybody.

Laws: each partition of a subscribed topic goes to exactly one member that subscribes to it; the result depends on
nothing but the arguments, so every client that implements the same name computes the same.
Source: Kafka's `range` and `roundrobin` assignors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import cycle

from kohort.ids import TopicPartition

#: member -> its partitions.
Assignment = dict[str, list[TopicPartition]]


def assign(
    name: str, subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, Sequence[int]]
) -> Assignment:
    """Assign by the assignor of that name.

    Args:
        subscriptions: member -> topics that it subscribes to, in the order in which members get their turns.
        partitions: topic -> its partitions, ascending; topics that do not exist are left out.
    """
    assert name in ("range", "roundrobin"), f"no assignor {name}"
    chosen = assign_range if name == "range" else assign_roundrobin
    return chosen(subscriptions, partitions)


def assign_range(subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, Sequence[int]]) -> Assignment:
    """Per topic, consecutive partitions to consecutive members; the first members get one more.

    >>> assign_range({"a": ["t"], "b": ["t"]}, {"t": [0, 1, 2]})["a"]
    [TopicPartition(topic='t', partition=0), TopicPartition(topic='t', partition=1)]
    """
    result: Assignment = {member: [] for member in subscriptions}
    for topic in sorted(partitions):
        members = [member for member, topics in subscriptions.items() if topic in topics]
        if not members:
            continue
        numbers = partitions[topic]
        share, extra = divmod(len(numbers), len(members))
        start = 0
        for index, member in enumerate(members):
            count = share + (1 if index < extra else 0)
            result[member] += [TopicPartition(topic, number) for number in numbers[start : start + count]]
            start += count
    return result


def assign_roundrobin(
    subscriptions: Mapping[str, Sequence[str]], partitions: Mapping[str, Sequence[int]]
) -> Assignment:
    """All partitions in order, each to the next member in a circle that subscribes to its topic.

    >>> assign_roundrobin({"a": ["t"], "b": ["t"]}, {"t": [0, 1, 2]})["a"]
    [TopicPartition(topic='t', partition=0), TopicPartition(topic='t', partition=2)]
    """
    result: Assignment = {member: [] for member in subscriptions}
    members = list(subscriptions)
    if not members:
        return result
    wanted = {topic for topics in subscriptions.values() for topic in topics}
    circle = cycle(members)
    for topic in sorted(wanted & partitions.keys()):
        for number in partitions[topic]:
            member = next(candidate for candidate in circle if topic in subscriptions[candidate])
            result[member].append(TopicPartition(topic, number))
    return result
