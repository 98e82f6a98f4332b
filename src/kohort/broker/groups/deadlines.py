"""The coordinator's deadlines on the loop's clock, fair to a process that stood still.

Laws: before a deadline fires the loop has read every readable socket once; a gap of the loop of more than 500 ms
shifts every deadline by the gap, because heartbeats that were due in it could not be read. Where the wall clock is
set, or the machine has slept, every deadline goes with the clock before anything is decided by its new time.
Source: architecture rule 17.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from kohort.base.clock import WallClock

#: The longest time between two wake-ups while any deadline is set.
TICK_MS: Final = 250
#: A tick that is later than this was held up by something.
GAP_MS: Final = 500


class Deadlines:
    """One timer on the loop for all shards."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        clock: WallClock,
        *,
        on_due: Callable[[int], int | None],
        on_gap: Callable[[int], None],
        on_step: Callable[[int], None],
    ) -> None:
        """Create the timer.

        `on_due(now_ms)` fires the due deadlines and returns the next one; `on_gap(gap_ms)` shifts all of them.
        `on_step(by_ms)` moves all times: the clock was set forward, or back, by so much.
        """
        self._loop: Final = loop
        self._clock: Final = clock
        self._on_due: Final = on_due
        self._on_gap: Final = on_gap
        self._on_step: Final = on_step
        #: The sum of the clock's steps that the deadlines have followed, milliseconds.
        self._stepped_ms = clock.stepped_ms
        self._timer: asyncio.TimerHandle | None = None
        #: When the timer should run, and when it was set, in milliseconds of the clock.
        self._wake_ms = 0
        self._set_ms = 0
        #: Whether the timer has run and its deadlines have not fired yet; the next timer is set after that.
        self._is_firing = False
        self._is_stopped = False

    def now_ms(self) -> int:
        """Return the clock's time, after all deadlines have followed a step of the clock."""
        now_ms = self._clock.now_ms()
        while (stepped_ms := self._clock.stepped_ms) != self._stepped_ms:
            by_ms, self._stepped_ms = stepped_ms - self._stepped_ms, stepped_ms
            self._set_ms += by_ms
            self._wake_ms += by_ms
            self._on_step(by_ms)
            now_ms = self._clock.now_ms()
        return now_ms

    def watch(self, deadline_ms: int | None, now_ms: int) -> None:
        """Wake by `deadline_ms`, the earliest deadline of some shard."""
        if deadline_ms is None or self._is_firing or self._is_stopped:
            return
        if self._timer is None or deadline_ms < self._wake_ms:
            self._set(min(deadline_ms, now_ms + TICK_MS), now_ms)

    def time_passed(self, by_ms: int) -> None:
        """Fire all due deadlines after a test has set its clock forward; the loop has not stood still meanwhile."""
        self._wake_ms += by_ms
        self._set_ms += by_ms
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        # At once: a heartbeat that comes in this moment is later than what the test has let pass.
        self._fire()

    def stop(self) -> None:
        """Stop firing deadlines."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()

    def _set(self, wake_ms: int, now_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._set_ms, self._wake_ms = now_ms, max(wake_ms, now_ms)
        self._timer = self._loop.call_later((self._wake_ms - now_ms) / 1000, self._wake)

    def _wake(self) -> None:
        self._timer = None
        self._is_firing = True
        now_ms = self.now_ms()
        if now_ms - self._wake_ms > GAP_MS:
            self._on_gap(now_ms - self._set_ms)
        # libuv runs timers before it polls: a call scheduled by a scheduled call comes after the sockets were read.
        self._loop.call_soon(self._loop.call_soon, self._fire)

    def _fire(self) -> None:
        if self._is_stopped:
            return
        now_ms = self.now_ms()
        next_ms = self._on_due(now_ms)
        self._is_firing = False
        self.watch(next_ms, now_ms)
