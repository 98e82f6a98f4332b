"""An event loop for the broker's runtime on a virtual clock; it can stand still and die."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial

from kohort.testing.clock import VirtualClock


class Handle:
    """The handle of a scheduled callback."""

    __slots__ = ("_action",)

    def __init__(self, action: Callable[[], object]) -> None:
        self._action: Callable[[], object] | None = action

    def cancel(self) -> None:
        """Cancel the callback."""
        self._action = None

    def __call__(self) -> None:
        action, self._action = self._action, None
        if action is not None:
            action()


class SimulatedLoop:
    """The simulated event loop of one process.

    What comes while it stands still is dealt with when it goes on, in the same order, and before it what was planned to
    run meanwhile: libuv runs timers before it looks at sockets.
    """

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self._is_dead = False
        self.is_stalled = False
        self._late: deque[Callable[[], None]] = deque()
        self._late_plans: deque[Callable[[], None]] = deque()

    def call_soon(self, callback: Callable[..., object], *arguments: object) -> Handle:
        """Call back after everything else of this instant."""
        return self._plan(0, partial(callback, *arguments))

    def call_later(self, delay_s: float, callback: Callable[..., object], *arguments: object) -> Handle:
        """Call back after a delay."""
        return self._plan(round(delay_s * 1000), partial(callback, *arguments))

    def run(self, action: Callable[[], None]) -> None:
        """Run the action of an incoming event: a request, or the end of a connection."""
        self._run(action, self._late)

    def go_on(self) -> None:
        """End the stall."""
        self.is_stalled = False
        for late in (self._late_plans, self._late):
            while late and not self._is_dead:
                late.popleft()()

    def die(self) -> None:
        """Drop every pending action and take no more."""
        self._is_dead = True

    def _plan(self, delay_ms: int, action: Callable[[], object]) -> Handle:
        handle = Handle(action)
        self._clock.after(delay_ms, lambda: self._run(handle, self._late_plans))
        return handle

    def _run(self, action: Callable[[], None], late: deque[Callable[[], None]]) -> None:
        if self._is_dead:
            return
        if self.is_stalled:
            late.append(action)
        else:
            action()
