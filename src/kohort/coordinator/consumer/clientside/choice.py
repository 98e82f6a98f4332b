"""Which assignor of its members a group uses: the one that all of them have and most of them like best.

Laws: the choice follows from what members have and want, and from the settings; who came first plays no part. An
assignor counts only if there is a version that every member has. What an administrator has set (`group.assignor`) goes
before.
Source: KIP-848 as drafted (the highest preference that all members have); KIP-268 (versions).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from kohort.coordinator.clientside import Shape, shape_of
from kohort.coordinator.consumer.change import NO_CHANGE, MembershipChange, count_members
from kohort.coordinator.consumer.targets.assignable import chosen_assignor
from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.settings import GroupSettings


class Choice(NamedTuple):
    """An assignor by its name; `version`: the highest that all members have, `None`: it is one of the server's."""

    name: str
    version: int | None


def choice_of(group: ConsumerGroup, settings: GroupSettings, change: MembershipChange = NO_CHANGE) -> Choice:
    """What the group's targets are computed by once the change is applied."""
    found = client_choice(group, settings, change)
    return Choice(chosen_assignor(group, settings, change), None) if found is None else found


def client_choice(group: ConsumerGroup, settings: GroupSettings, change: MembershipChange = NO_CHANGE) -> Choice | None:
    """The assignor that members run themselves, `None` if there is none that all of them have."""
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
    """The assignor that every shape has in some version, which most members like best.

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
    # The first of equals: max keeps it.
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
