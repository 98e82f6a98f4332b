"""A clock that advances only when a test tells it to, and the events scheduled on it.

Laws: events of one instant happen in the order in which they were scheduled; no event happens twice.
Source: architecture (Determinism): worlds step machines and jump to the next deadline.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush

Action = Callable[[], None]


class VirtualClock:
    """A virtual clock with the events due on it.

    >>> clock = VirtualClock(start_ms=1_000)
    >>> clock.after(50, lambda: print("later", clock.now_ms()))
    >>> clock.after(10, lambda: print("sooner", clock.now_ms()))
    >>> clock.run_until(2_000)
    sooner 1010
    later 1050
    >>> clock.now_ms()
    2000
    """

    #: A virtual clock is never set.
    stepped_ms = 0

    def __init__(self, *, start_ms: int = 1_700_000_000_000) -> None:
        self.start_ms = start_ms
        self._now_ms = start_ms
        self._sequence = 0
        #: (time, number, action); the number keeps the order of one instant.
        self._agenda: list[tuple[int, int, Action]] = []

    def now_ms(self) -> int:
        """Return the milliseconds since 1970, as every `Clock` does."""
        return self._now_ms

    def at(self, time_ms: int, action: Action) -> None:
        """Schedule `action` at a time; one in the past means as soon as possible."""
        self._sequence += 1
        heappush(self._agenda, (max(time_ms, self._now_ms), self._sequence, action))

    def after(self, delay_ms: int, action: Action) -> None:
        """Schedule `action` `delay_ms` from now."""
        self.at(self._now_ms + delay_ms, action)

    def step(self, *, until_ms: int) -> bool:
        """Jump to the next event and run it; return `False` if there is none up to `until_ms`."""
        if not self._agenda or self._agenda[0][0] > until_ms:
            self._now_ms = max(self._now_ms, until_ms)
            return False
        self._now_ms, _, action = heappop(self._agenda)
        action()
        return True

    def run_until(self, time_ms: int) -> None:
        """Run every event up to a time."""
        while self.step(until_ms=time_ms):
            pass
