"""The subscribers of each topic: as lists, as marks, or in an assignor's order of members.

Laws: topics with equal subscribers get the same object. Assignors recognize by it that their partitions are
interchangeable, without comparing thousands of numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Iterator, Mapping, Sequence

from kohort.assign.interface import Assignable, AssignableMember


def subscribers_by_topic(subscriptions: Sequence[Collection[str]]) -> Mapping[str, Sequence[int]]:
    """Return topic -> indexes of its subscribers, ascending.

    `subscriptions`: member -> its topics, each once.

    >>> found = subscribers_by_topic([("a", "b"), ("b", "c", "d"), ("a", "b")])
    >>> {topic: list(members) for topic, members in found.items()}
    {'a': [0, 2], 'b': [0, 1, 2], 'c': [1], 'd': [1]}
    >>> found["c"] is found["d"]
    True
    """
    teams: dict[frozenset[str], array[int]] = {}
    # Members mostly share what they subscribe to as the same object, which is compared faster than its names.
    known: dict[int, array[int]] = {}
    for member, names in enumerate(subscriptions):
        team = known.get(id(names))
        if team is None:
            team = known[id(names)] = teams.setdefault(frozenset(names), array("i"))
        team.append(member)
    teams_of: dict[str, list[int]] = {}
    for number, distinct in enumerate(teams):
        for name in sorted(distinct):
            teams_of.setdefault(name, []).append(number)
    arrays = list(teams.values())
    merged: dict[tuple[int, ...], array[int]] = {}
    found: dict[str, array[int]] = {}
    for name, numbers in teams_of.items():
        key = tuple(numbers)
        members = merged.get(key)
        if members is None:
            members = merged[key] = _merge([arrays[number] for number in numbers])
        found[name] = members
    return found


def _merge(teams: Sequence[array[int]]) -> array[int]:
    if len(teams) == 1:
        return teams[0]
    members = array("i")
    for team in teams:
        members.extend(team)
    return array("i", sorted(members))


# The subscribers of each topic, as marks and in the order in which assignors serve members: static members first.
#
# Source: Apache Kafka's range assignor and its client's assignors: static members by instance id, then the others by
# member id.


def order_members(members: Sequence[AssignableMember]) -> array[int]:
    """Return the members' indexes: static members by instance id, then the others in given order."""
    names = sorted((member.instance_id, i) for i, member in enumerate(members) if member.instance_id is not None)
    order = array("i", [i for _, i in names])
    order.extend(i for i, member in enumerate(members) if member.instance_id is None)
    return order


def ranks_of(order: array[int]) -> array[int]:
    """Return member -> its rank in `order`, which has all members."""
    rank = array("i", bytes(4 * len(order)))
    for place, member in enumerate(order):
        rank[member] = place
    return rank


def subscribers_in_order(group: Assignable, order: array[int]) -> Iterator[array[int]]:
    """Return each topic's subscribers, sorted like `order`, which has all members."""
    has_static_members = any(member.instance_id is not None for member in group.members)
    rank = ranks_of(order)
    # Topics of the same subscribers share their list, mostly as the same object.
    known: dict[int, array[int]] = {}
    for members in group.subscribers:
        found = known.get(id(members))
        if found is None:
            if len(members) == len(order):
                found = order
            elif has_static_members:
                found = array("i", sorted(members, key=rank.__getitem__))
            else:
                found = array("i", members)
            known[id(members)] = found
        yield found


def mark_subscribers(group: Assignable) -> Iterator[bytearray]:
    """Return for each topic member -> 1 if it subscribes, else 0."""
    count = len(group.members)
    # Topics of the same subscribers share their marks, mostly as the same object.
    known: dict[int, bytearray] = {}
    for members in group.subscribers:
        marks = known.get(id(members))
        if marks is None:
            marks = known[id(members)] = bytearray(b"\1" * count if len(members) == count else count)
            if len(members) != count:
                for member in members:
                    marks[member] = 1
        yield marks
