"""The loading of assignors from other packages: entry points of the group `kohort.assignors`.

Laws: finding an assignor does not import its package; the process that runs the assignor imports it. An entry point
with the name of a built-in assignor is ignored.
Source: requirement G5; docs/reference/assignors.md.
"""

from __future__ import annotations

from importlib.metadata import EntryPoint, entry_points
from typing import Final

from kohort.assign.assignors import BUILT_IN
from kohort.assign.interface import Assignor
from kohort.errors import ConfigError

#: The group of entry points.
ENTRY_POINTS: Final = "kohort.assignors"


def installed_names() -> tuple[str, ...]:
    """Return the names of all assignors in installed packages, without those of built-in ones."""
    names = sorted({found.name for found in entry_points(group=ENTRY_POINTS)})
    return tuple(name for name in names if name not in BUILT_IN)


def load_assignor(name: str) -> Assignor:
    """Import an assignor; instantiate it if it is a class.

    Raises:
        ConfigError: there is no such entry point, or the entry point is no assignor of that name.
        Exception: any error that the package raises.
    """
    found: object = _entry_point(name).load()
    assignor = found() if isinstance(found, type) else found
    if not isinstance(assignor, Assignor) or not callable(assignor.assign):
        raise ConfigError(f"the entry point {name} of {ENTRY_POINTS} is no assignor: it has no name or no assign()")
    if assignor.name != name:
        raise ConfigError(f"the assignor of the entry point {name} of {ENTRY_POINTS} calls itself {assignor.name!r}")
    return assignor


def _entry_point(name: str) -> EntryPoint:
    found = {point.value: point for point in entry_points(group=ENTRY_POINTS, name=name)}
    if not found:
        raise ConfigError(f"no installed package has the entry point {name} of {ENTRY_POINTS}")
    if len(found) > 1:
        raise ConfigError(f"{len(found)} packages have an entry point {name} of {ENTRY_POINTS}: {', '.join(found)}")
    return next(iter(found.values()))
