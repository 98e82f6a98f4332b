"""The law that a value shared by equal members is replaced as a whole, never changed in place.

At the end of a world, and after a restart, `coordinator.invariants.check_shared` looks at everything that is shared.
Here are the values that a step is about, so that the step that changes one is the one that is named.
Source: `coordinator.interning`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from kohort.coordinator.decision import Decision
from kohort.coordinator.model import GroupsState
from kohort.ids import TopicId
from kohort.testing.trace import LawBroken

#: A target or grants.
_Value = Mapping[TopicId, tuple[int, ...] | dict[int, int]]


class SharingLaws:
    """Comparison of members' values before and after a step; of all shards."""

    def __init__(self) -> None:
        #: (group, the value itself, what it said before the step)
        self._before: list[tuple[str, _Value, object]] = []

    def before_step(self, groups: GroupsState, decision: Decision) -> None:
        """Note the values of the members that the step concerns."""
        about = dict.fromkeys((record.group_id, getattr(record, "member_id", "")) for record in decision.records)
        self._before = [(who[0], value, _copy(value)) for who in about for value in _values_of(groups, *who)]

    def after_step(self) -> None:
        """SharedValuesStay: check that the noted values are unchanged, whether members still have them or not."""
        for group_id, value, said in self._before:
            if _copy(value) != said:
                why = f"a value was changed in place, from {said} to {value}"
                raise LawBroken("SharedValuesStay", why, group_id=group_id)


def _values_of(groups: GroupsState, group_id: str, member_id: str) -> Iterator[_Value]:
    group = groups.consumer.get(group_id)
    member = None if group is None else group.members.get(member_id)
    if group is None or member is None:
        return
    yield group.targets.get(member_id, {})
    yield member.assigned
    yield member.pending_revocation


def _copy(value: _Value) -> object:
    return {topic_id: tuple(found.items()) if isinstance(found, dict) else found for topic_id, found in value.items()}
