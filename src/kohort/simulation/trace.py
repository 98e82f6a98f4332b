"""The story of a simulated world, from which a person finds the cause of a failure.

Laws: recording is cheap, because nearly no story is ever read: values are kept as they are, and are formatted only when
the story is printed.
Source: architecture rule 9 (a story is a filter over the journal, attached to every invariant failure).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import cache
from typing import Any, Final

from kohort.coordinator.decision import ComputeTarget
from kohort.errors import InvariantViolation
from kohort.testing.clock import VirtualClock

#: Fields that every command has, or that say nothing to a reader.
_UNTOLD: Final = frozenset(
    {"cause", "request", "group_id", "client_id", "client_host", "fresh_member_id", "image", "assignable"}
)
#: Most values of a story are of these types, which their text says whole.
_PLAIN: Final = frozenset({str, int, bool, float, type(None)})
#: A row is no longer than this.
_ROW_LENGTH: Final = 240


class LawBroken(InvariantViolation):
    """Violation of a law, about one group or none; the world adds the story.

    `name`: name of the law, as `kohort.simulation.checkers` lists it. `why`: description of the observation that breaks
    the law.
    """

    def __init__(self, name: str, why: str, *, group_id: str = "") -> None:
        super().__init__(f"{name}: group {group_id}: {why}" if group_id else f"{name}: {why}")
        self.group_id = group_id


#: An event of a story: its time, group, actor, text, and the values that it is about. A plain tuple is made sooner.
Row = tuple[int, str, str, str, tuple[object, ...]]


class Story:
    """Every event of a world, in order."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._rows: list[Row] = []
        #: Topic id -> name, for words; a world tells every topic that it makes.
        self.topic_names: dict[bytes, str] = {}

    def tell(self, actor: str, what: str, *about: object, group_id: str = "") -> None:
        """Record an event; without a group id it concerns all groups."""
        self._rows.append((self._clock.now_ms(), group_id, actor, what, about))

    def __len__(self) -> int:
        return len(self._rows)

    def of(self, group_id: str = "", *, last: int = 80) -> list[str]:
        """Return the latest events of one group, and those that concern every group, as text."""
        rows = [row for row in self._rows if not group_id or row[1] in ("", group_id)]
        return [self._in_words(row) for row in rows[-last:]]

    def _in_words(self, row: Row) -> str:
        time_ms, _, actor, what, values = row
        seconds = (time_ms - self._clock.start_ms) / 1000
        about = " · ".join(self._describe(value) for value in values)
        text = f"{seconds:9.3f} s  {actor:<12} {what}{' ' if about else ''}{about}"
        return text if len(text) <= _ROW_LENGTH else f"{text[: _ROW_LENGTH - 1]}…"

    def _describe(self, value: object) -> str:
        kind: Any = type(value)
        if kind in _PLAIN:
            return str(value)
        names = _told_fields(kind)
        if names is not None:
            if isinstance(value, ComputeTarget):
                return f"{value.assignor} for epoch {value.epoch}"
            told = ((name, getattr(value, name)) for name in names)
            words = ", ".join(f"{name}={self._describe(said)}" for name, said in told if _is_told(said))
            return f"{kind.__name__}({words})"
        if isinstance(value, bytes):
            known = self.topic_names.get(value)
            return known if known is not None else f"{len(value)} bytes"
        if isinstance(value, Mapping):
            return "{" + ", ".join(f"{self._describe(k)}: {self._describe(v)}" for k, v in value.items()) + "}"
        if isinstance(value, tuple | list | set | frozenset):
            items: Iterable[object] = sorted(value) if isinstance(value, set | frozenset) else value
            return "[" + ", ".join(self._describe(item) for item in items) + "]"
        if type(value).__repr__ is object.__repr__:
            # Its address differs from run to run.
            return type(value).__name__
        return getattr(value, "name", None) or str(value)


@cache
def _told_fields(kind: type[Any]) -> tuple[str, ...] | None:
    """Return the names of a dataclass's informative fields; `None` if the type is not a dataclass."""
    return tuple(each.name for each in fields(kind) if each.name not in _UNTOLD) if is_dataclass(kind) else None


def _is_told(value: object) -> bool:
    return value is not None and value not in ("", -1)
