"""Names in the tables of a document: which there are, and whether what they name exists.

A name is written `Consumer.poll(timeout)`: a path below some modules, with parameters of its own.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import NamedTuple

#: What stands for a thing that is missing.
NONE = "none"


class Row(NamedTuple):
    """One row of a table that sets their names beside ours; no name of ours where there is none."""

    theirs: tuple[str, ...]
    ours: tuple[str, ...]
    remark: str


def rows_under(text: str, header: str) -> Iterator[Row]:
    """The rows of every table with that header."""
    for table in text.split(f"{header}\n")[1:]:
        for line in table.split("\n\n", 1)[0].splitlines()[1:]:
            theirs, ours, remark = (
                cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")
            )
            yield Row(names_in(theirs), () if ours == NONE else names_in(ours), remark)


def names_in(cell: str) -> tuple[str, ...]:
    """The names of a cell, which has nothing but names."""
    names = re.findall(r"`([^`]+)`", cell)
    assert cell == ", ".join(f"`{name}`" for name in names), f"not a list of names: {cell}"
    return tuple(names)


def problem_with(name: str, modules: Sequence[ModuleType]) -> str | None:
    """Why a name leads nowhere; `None` if it leads to something that takes these parameters."""
    path, _, parameters = name.removesuffix(")").partition("(")
    for module in modules:
        thing: object = module
        parts = path.split(".")
        while parts and (hasattr(thing, parts[0])):
            thing = getattr(thing, parts.pop(0))
        if not parts:
            taken = parameters_of(thing)
            missing = [each for each in parameters.split(", ") if each and each not in taken]
            return f"{path} takes no {missing[0]}" if missing else None
        if len(parts) == 1 and isinstance(thing, type) and parts[0] in parameters_of(thing):
            # Set by the constructor of an error.
            return None
    return f"there is no {path}"


def parameters_of(thing: object) -> set[str]:
    """By signature, or where a function of C has none by its description."""
    try:
        return set(inspect.signature(thing).parameters)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        return set(re.findall(r"\w+", (getattr(thing, "__doc__", None) or "").partition("\n")[0]))


def public_names(kind: type) -> set[str]:
    """What a class offers beside what every object and every exception does."""
    common = dir(Exception) if issubclass(kind, Exception) else dir(object)
    return {f"{kind.__name__}.{name}" for name in dir(kind) if not name.startswith("_") and name not in common}
