"""The measurement of the loop's longest turn: its length, and the API during it.

Laws: every turn of a broker's own loop is measured, from the moment the sockets were looked at to the moment they are
looked at again; it costs two looks at the clock. Where nobody sees turns, on uvloop or on a loop of somebody else's,
it is what the requests take that one connection has sent together.
Source: architecture rule 18: 20 ms.
"""

from __future__ import annotations

import time
from selectors import DefaultSelector, SelectorKey
from typing import Final

from kohort.clock import Clock, SystemClock


class LoopWatch:
    """The measurement of a loop's turns."""

    __slots__ = (
        "_began",
        "_clock",
        "during",
        "longest_at_ms",
        "longest_during",
        "longest_seconds",
        "sees_turns",
        "turns",
    )

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Final = clock or SystemClock()
        self._began = 0.0
        #: Whether the loop itself tells of its turns.
        self.sees_turns = False
        #: The API of the last request that was handled in this turn, if any.
        self.during = ""
        self.turns = 0
        self.longest_seconds = 0.0
        self.longest_during = ""
        #: When it ended, milliseconds since 1970; 0 while there was none.
        self.longest_at_ms = 0

    def begin(self, now: float) -> None:
        """Begin a turn; `now` is in seconds of any clock that never goes back."""
        self._began = now
        self.during = ""

    def end(self, now: float) -> None:
        """End the turn."""
        # No turn was begun: the loop's first call of `select` has none before it.
        if not self._began:
            return
        self.turns += 1
        seconds = now - self._began
        if seconds > self.longest_seconds:
            self.longest_seconds, self.longest_during = seconds, self.during
            self.longest_at_ms = self._clock.now_ms()

    def enter(self) -> None:
        """Begin work that may be long, where turns are not measured."""
        if not self.sees_turns:
            self.begin(time.perf_counter())

    def leave(self) -> None:
        """End that work."""
        if not self.sees_turns:
            self.end(time.perf_counter())


class WatchedSelector(DefaultSelector):
    """The selector of a loop, which sees where turns begin and end."""

    def __init__(self, watch: LoopWatch) -> None:
        super().__init__()
        self._watch: Final = watch
        watch.sees_turns = True

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """End the measured turn, wait for events, and begin the next turn (asyncio)."""
        self._watch.end(time.perf_counter())
        found = super().select(timeout)
        self._watch.begin(time.perf_counter())
        return found
