"""Pool of equal small values: names, targets and grants that are the same in many groups.

Laws: a returned value equals the given one, order included. Such values are never changed in place (`check_sharing`
checks that), so sharing has no visible effect. The pool is bounded in number and size of its values; dropping a value
only costs memory.
Source: bench/memory.py: a third of the memory of an idle member was mappings with one entry and names, the same in
every group; where all groups differ, a target and its grants take 700 bytes more.
"""

from __future__ import annotations

from typing import Final, TypeVar

from kohort.coordinator.records.types import Grants, Target
from kohort.errors import InvariantViolation

#: Number of values of each kind in the pool; where all values differ, the pool is of little use and of little weight.
REMEMBERED: Final = 1_024
#: Most topics of a value that is looked up in the pool.
SMALL: Final = 2
#: Most partitions of one topic, and most names of topics, of such a value.
SMALL_COUNT: Final = 16
#: Most characters of such a text.
SMALL_TEXT: Final = 256

_Plain = TypeVar("_Plain", str, int, tuple[str, ...])
_Nested = TypeVar("_Nested", Target, Grants)


class Interning:
    """Recent values of one coordinator; `apply` passes each value through this pool before storing it."""

    __slots__ = ("_grants", "_kept", "_plain", "_targets")

    def __init__(self) -> None:
        self._plain: Final[dict[object, object]] = {}
        #: The value as an immutable tuple -> the value.
        self._targets: Final[dict[object, Target]] = {}
        self._grants: Final[dict[object, Grants]] = {}
        #: id of a pooled target or of pooled grants -> that value: the log reader hands out the same object again and
        #: again, and this finds it sooner.
        self._kept: Final[dict[int, object]] = {}

    def plain(self, value: _Plain) -> _Plain:
        """Return an equal value, perhaps another member's."""
        found = self._plain.get(value)
        if found is None:
            if not _is_small(value):
                return value
            if len(self._plain) >= REMEMBERED:
                self._plain.clear()
            self._plain[value] = found = value
        return found  # type: ignore[return-value]  # what equals a string, a number or a tuple of strings is one

    def target(self, target: Target) -> Target:
        """Return an equal target, perhaps another member's."""
        if self._kept.get(id(target)) is target:
            return target
        if not 0 < len(target) <= SMALL or any(len(partitions) > SMALL_COUNT for partitions in target.values()):
            return target
        return self._remember(self._targets, _target_key(target), target)

    def grants(self, grants: Grants) -> Grants:
        """Return equal grants, perhaps another member's."""
        if self._kept.get(id(grants)) is grants:
            return grants
        if not 0 < len(grants) <= SMALL or any(len(partitions) > SMALL_COUNT for partitions in grants.values()):
            return grants
        return self._remember(self._grants, _grants_key(grants), grants)

    def _remember(self, known: dict[object, _Nested], key: object, value: _Nested) -> _Nested:
        found = known.get(key)
        if found is None:
            if len(known) >= REMEMBERED:
                known.clear()
                self._kept.clear()
            known[key] = found = value
            self._kept[id(value)] = value
        return found


def check_sharing(sharing: Interning) -> None:
    """Raise if a value of the pool has been changed in place."""
    for key, target in sharing._targets.items():
        if _target_key(target) != key:
            raise InvariantViolation(f"SharedValuesStay: a target was changed in place, from {key} to {target}")
    for key, grants in sharing._grants.items():
        if _grants_key(grants) != key:
            raise InvariantViolation(f"SharedValuesStay: grants were changed in place, from {key} to {grants}")


def _is_small(value: str | int | tuple[str, ...]) -> bool:
    if isinstance(value, tuple):
        return len(value) <= SMALL_COUNT and all(len(text) <= SMALL_TEXT for text in value)
    return isinstance(value, int) or len(value) <= SMALL_TEXT


def _target_key(target: Target) -> object:
    return tuple(target.items())


def _grants_key(grants: Grants) -> object:
    return tuple((topic_id, tuple(partitions.items())) for topic_id, partitions in grants.items())
