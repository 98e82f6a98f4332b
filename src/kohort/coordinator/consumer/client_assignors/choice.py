"""Choice of a group's client-side assignor: common to all members, preferred by most.

Laws: the choice follows from the members' assignors and preferences, and from the settings; the order of joining does
not matter. An assignor counts only if all members have a common version of it. An administrator's choice
(`group.assignor`) takes precedence.
Source: KIP-848 as drafted (the highest preference that all members have); KIP-268 (versions).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kohort.coordinator.client_assignors import Shape, shape_of
from kohort.coordinator.consumer.subscription_metadata import NO_CHANGE, MembershipChange, count_members
from kohort.coordinator.consumer.targets.assignor_input import chosen_assignor
from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.settings import GroupSettings


class Choice(NamedTuple):
    """Name of an assignor; `version`: the highest common one, `None`: it is one of the server's."""

    name: str
    version: int | None


def choice_of(group: ConsumerGroup, settings: GroupSettings, change: MembershipChange = NO_CHANGE) -> Choice:
    """Return the assignor of the group's targets after the change."""
    found = client_choice(group, settings, change)
    return Choice(chosen_assignor(group, settings, change), None) if found is None else found


def client_choice(group: ConsumerGroup, settings: GroupSettings, change: MembershipChange = NO_CHANGE) -> Choice | None:
    """Return the client-side assignor that all members have, `None` if there is none."""
    side = group.client_side
    if settings.group_assignor or (side is None and not change.assignors):
        return None
    shapes = {} if side is None else side.shapes
    if change.assignors or change.gone:
        shapes = _shapes_after(group, change)
    if not shapes or sum(shapes.values()) != count_members(group, change):
        return None
    return choose(shapes)


def choose(shapes: Mapping[Shape, int]) -> Choice | None:
    """Choose the assignor of all shapes in a common version that most members prefer.

    >>> a, b = ("a", 0, 3), ("b", 1, 1)
    >>> choose({(a, b): 2, (("b", 1, 4), ("a", 2, 9)): 1}), choose({(a,): 1, (("a", 4, 4),): 1})
    (Choice(name='a', version=3), None)
    """
    ranges: dict[str, tuple[int, int, int]] = {}
    for shape in shapes:
        for name, minimum, maximum in shape:
            low, high, count = ranges.get(name, (minimum, maximum, 0))
            ranges[name] = max(low, minimum), min(high, maximum), count + 1
    highest = {name: high for name, (low, high, count) in ranges.items() if count == len(shapes) and low <= high}
    if not highest:
        return None
    votes = dict.fromkeys(sorted(highest), 0)
    for shape, count in shapes.items():
        votes[next(name for name, _, _ in shape if name in highest)] += count
    # Of equal ones max keeps the first.
    best = max(votes, key=lambda name: votes[name])
    return Choice(best, highest[best])


def _shapes_after(group: ConsumerGroup, change: MembershipChange) -> dict[Shape, int]:
    side = group.client_side
    after = {} if side is None else dict(side.shapes)
    known = {} if side is None else side.assignors
    for member_id in {*change.assignors, *change.gone}:
        if member_id in known:
            shape = shape_of(known[member_id])
            after[shape] -= 1
            if not after[shape]:
                del after[shape]
    for member_id, assignors in change.assignors.items():
        if assignors and member_id not in change.gone:
            shape = shape_of(assignors)
            after[shape] = after.get(shape, 0) + 1
    return after
