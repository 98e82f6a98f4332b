"""Keeps equal small values once: names, targets and grants of members that are in the same place of many groups.

Laws: a value that is handed out equals the one handed in, order included; such values are never changed in place
(`check_sharing` sees it), so nobody can tell whether they are shared. What is remembered is bounded, in number and in
size; forgetting it costs memory, nothing else.
Source: bench/memory.py: of what an idle member takes, a third were mappings with one entry and names, the same in group
after group; where all groups differ, a target and its grants take 700 bytes more.
"""

from __future__ import annotations

from typing import Final, TypeVar

from kohort.errors import InvariantViolation
from kohort.ids import TopicId

#: Values of each kind that are remembered at a time; where all differ, that is of little use and of little weight.
REMEMBERED: Final = 1_024
#: Topics of a value that is worth the search.
SMALL: Final = 2
#: Partitions of one topic, and names of topics, alike.
SMALL_COUNT: Final = 16
#: Characters of a text, alike.
SMALL_TEXT: Final = 256

_Target = dict[TopicId, tuple[int, ...]]
_Grants = dict[TopicId, dict[int, int]]
_Plain = TypeVar("_Plain", str, int, tuple[str, ...])
_Nested = TypeVar("_Nested", _Target, _Grants)


class Sharing:
    """What one coordinator has seen lately; `apply` asks it for every value that it keeps."""

    __slots__ = ("_grants", "_kept", "_plain", "_targets")

    def __init__(self) -> None:
        self._plain: Final[dict[object, object]] = {}
        #: The same value, as a tuple that cannot change -> the value.
        self._targets: Final[dict[object, _Target]] = {}
        self._grants: Final[dict[object, _Grants]] = {}
        #: id of a target or of grants that are remembered -> that value: the reader of a log hands out the same again
        #: and again, and knows them sooner.
        self._kept: Final[dict[int, object]] = {}

    def plain(self, value: _Plain) -> _Plain:
        """An equal value, perhaps another member's."""
        found = self._plain.get(value)
        if found is None:
            if not _is_small(value):
                return value
            if len(self._plain) >= REMEMBERED:
                self._plain.clear()
            self._plain[value] = found = value
        return found  # type: ignore[return-value]  # what equals a string, a number or a tuple of strings is one

    def target(self, target: _Target) -> _Target:
        """An equal target, perhaps another member's."""
        if self._kept.get(id(target)) is target:
            return target
        if not 0 < len(target) <= SMALL or any(len(partitions) > SMALL_COUNT for partitions in target.values()):
            return target
        return self._remember(self._targets, _target_key(target), target)

    def grants(self, grants: _Grants) -> _Grants:
        """Equal grants, perhaps another member's."""
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


def check_sharing(sharing: Sharing) -> None:
    """Raise if a value that was handed out has been changed since."""
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


def _target_key(target: _Target) -> object:
    return tuple(target.items())


def _grants_key(grants: _Grants) -> object:
    return tuple((topic_id, tuple(partitions.items())) for topic_id, partitions in grants.items())
