"""How much work something is, counted instead of timed: the count is the same on every machine."""

from __future__ import annotations

import cProfile
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType, ModuleType

import pytest

import kohort
from kohort.assign.choice import chosen_form

OURS = str(Path(kohort.__file__).parent)


def steps_of(action: Callable[[], object]) -> int:
    """How many lines of Python an action runs; each turn of a loop counts, what runs in C does not.

    Two sizes of the same thing, compared, show how its work grows.
    """
    steps = 0

    def trace(_frame: FrameType, event: str, _argument: object) -> object:
        nonlocal steps
        steps += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return steps


class CallCount:
    """Calls of Python and of C that a thread makes, counted in C: `sys.setprofile` costs twice as much."""

    def __init__(self) -> None:
        self._profile = cProfile.Profile()

    def begin(self) -> None:
        """Count from now on in this thread."""
        self._profile.clear()
        self._profile.enable(subcalls=False)

    def take(self) -> int:
        """Return the calls since the last time; those of the counting are not among them."""
        calls = 0
        for entry in self._profile.getstats():
            calls += entry.callcount
        self._profile.clear()
        return calls

    def end(self) -> None:
        """Count no more."""
        self._profile.disable()


def calls_of(action: Callable[[], object]) -> list[str]:
    """The names of our functions that an action calls, in order; a comprehension is one up to CPython 3.11."""
    names: list[str] = []

    def note(frame: FrameType, event: str, _argument: object) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(OURS):
            names.append(frame.f_code.co_name)

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        action()
    finally:
        sys.setprofile(before)
    return names


def use_plain_kernels(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the assignors run in Python alone, where their steps can be counted."""
    for room in [module for name, module in sys.modules.items() if name.startswith("kohort.assign.")]:
        for name in ("kernels", "balance_kernels", "chain_kernels"):
            known = getattr(room, name, None)
            if isinstance(known, ModuleType):
                monkeypatch.setattr(room, name, chosen_form(known, "python"))
