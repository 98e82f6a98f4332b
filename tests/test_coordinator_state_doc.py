"""docs/explanation/coordinator-state.md names what the coordinator has: modules, effects, deadlines, records."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

from kohort.coordinator.decision import Effect, TimerKind
from kohort.coordinator.records import codec
from kohort.coordinator.records.types import VolatileRecord
from kohort.coordinator.shard import Shard

ROOT = Path(__file__).resolve().parents[1]
COORDINATOR = ROOT / "src" / "kohort" / "coordinator"
TEXT = (ROOT / "docs" / "explanation" / "coordinator-state.md").read_text()


def rows_under(heading: str) -> list[list[str]]:
    """The cells of the rows of the table with that first line."""
    (table,) = re.findall(rf"^{re.escape(heading)}\n\|[ |-]+\|\n((?:\|.*\n)+)", TEXT, re.MULTILINE)
    return [[cell.strip() for cell in row.strip("|").split("|")] for row in table.splitlines()]


def quoted(text: str) -> list[str]:
    return re.findall(r"`([^`]+)`", text)


def test_the_map_names_modules_that_are_there() -> None:
    """A room is named once in a cell; the names after it are of its modules."""
    named: list[str] = []
    for cell, _ in rows_under("| modules in `coordinator/` | what |"):
        room = ""
        for name in quoted(cell):
            room = f"{name.rpartition('/')[0]}/" if "/" in name else room
            named.append(f"{room}{name.rpartition('/')[2]}")
    assert len(named) == len(set(named))
    assert [name for name in named if not (COORDINATOR / name).is_file()] == []


def test_every_effect_is_explained() -> None:
    named = [name for cell, _ in rows_under("| effect | carried out by |") for name in quoted(cell)]
    assert sorted(named) == sorted(effect.__name__ for effect in get_args(Effect))


def kinds_of(parent: type) -> list[type]:
    """All classes below one, at any depth."""
    return [kind for each in parent.__subclasses__() for kind in (each, *kinds_of(each))]


def test_every_volatile_record_is_explained() -> None:
    cells = rows_under("| of | records | why a restart may forget it |")
    named = [name for cell in cells for name in quoted(cell[1])]
    # A shard has loaded every module that declares one.
    assert Shard.__module__ == "kohort.coordinator.shard"
    volatile = {each.__name__ for each in kinds_of(VolatileRecord) if each.__module__.startswith("kohort.")}
    assert sorted(named) == sorted(volatile)


def test_every_kind_of_deadline_is_explained() -> None:
    named = {kind for kinds, *_ in rows_under("| kind | of | set by | after a restart |") for kind in kinds.split(", ")}
    assert named == set(get_args(TimerKind))


def test_every_type_of_record_is_listed() -> None:
    rows = rows_under("| type | fact | key | value version written |")
    listed = {int(kind.replace(" ", "")) for kind, *_ in rows}
    assert listed == codec.RECORD_TYPES.keys()
