"""The subscribers of each topic, computed from each member's subscription.

Laws: topics of the same subscribers get the same object, by which assignors recognize that their partitions are
interchangeable, without comparing thousands of numbers.
"""

from __future__ import annotations

from array import array
from collections.abc import Collection, Mapping, Sequence


def subscribers_by_topic(subscriptions: Sequence[Collection[str]]) -> Mapping[str, Sequence[int]]:
    """Return topic -> ascending numbers of its subscribers.

    `subscriptions`: member -> topics, each once.

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
