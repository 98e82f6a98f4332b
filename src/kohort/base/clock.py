"""The only place of the base layer that reads a clock."""

from __future__ import annotations

import time
from threading import Lock
from typing import Final, Protocol

#: A wall clock that differs by more than this from what has passed was set, or the machine slept.
_STEP_NS: Final = 1_000_000_000


class Clock(Protocol):
    """A clock for shells."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC, never decreasing unless a `WallClock` is set back."""


class WallClock(Clock, Protocol):
    """A clock that follows the wall clock and reports its steps."""

    @property
    def stepped_ms(self) -> int:
        """Return the sum of the clock's steps, forward less back: `now_ms() - stepped_ms` is elapsed time."""


class SystemClock:
    """A broker's clock: even wall time, with steps where the wall clock was set or the machine slept.

    Between two steps it is the monotonic clock's, so that no correction of the wall clock makes it go back.
    """

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()
        self._first_offset_ns: Final = self._offset_ns
        self._lock: Final = Lock()

    @property
    def stepped_ms(self) -> int:
        """See `WallClock`."""
        return (self._offset_ns - self._first_offset_ns) // 1_000_000

    def now_ms(self) -> int:
        """See `Clock`."""
        passed_ns = time.monotonic_ns()
        if not -_STEP_NS <= time.time_ns() - passed_ns - self._offset_ns <= _STEP_NS:
            self._step()
        return (passed_ns + self._offset_ns) // 1_000_000

    def _step(self) -> None:
        # A thread that was held up between its looks at the two clocks has seen a step that is none.
        with self._lock:
            before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
            offset_ns = wall_ns - after_ns
            if after_ns - before_ns < _STEP_NS < abs(offset_ns - self._offset_ns):
                # Whole milliseconds: what has passed and all steps are the time.
                self._offset_ns += (offset_ns - self._offset_ns) // 1_000_000 * 1_000_000


class ElapsedClock:
    """A client's clock: wall time at its creation plus the time elapsed since.

    Args:
        counts_sleep: whether time goes on while the machine sleeps. State shared with other machines, which stay
            awake, needs it; a deadline of local work is better without.
    """

    def __init__(self, *, counts_sleep: bool = False) -> None:
        #: The clock to ask; `None`: the monotonic one.
        self._clock: Final = _AWAKE_OR_NOT if counts_sleep else None
        self._offset_ns: Final = time.time_ns() - self._passed_ns()

    def now_ms(self) -> int:
        """See `Clock`."""
        # Not by `_passed_ns`: a client asks for the time several times in each event.
        passed_ns = time.monotonic_ns() if self._clock is None else time.clock_gettime_ns(self._clock)
        return (passed_ns + self._offset_ns) // 1_000_000

    def _passed_ns(self) -> int:
        return time.monotonic_ns() if self._clock is None else time.clock_gettime_ns(self._clock)


#: The clock that goes on in a machine's sleep: Linux has it beside the monotonic one, which macOS's has by this name.
#: `None`: there is none.
_AWAKE_OR_NOT: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
