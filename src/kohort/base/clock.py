"""The clocks of brokers and clients; no other module of this package reads a clock."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Lock
from typing import Final, Protocol

#: If the wall clock differs from elapsed time by more than this, it was set, or the machine slept.
_STEP_NS: Final = 1_000_000_000


class Clock(Protocol):
    """A clock for code that does I/O and passes the time on to code that does none."""

    def now_ms(self) -> int:
        """Return milliseconds since 1970-01-01 UTC, never decreasing unless a `WallClock` is set back."""


class WallClock(Clock, Protocol):
    """A clock that follows the wall clock and reports its steps."""

    @property
    def stepped_ms(self) -> int:
        """Return the sum of the clock's steps, forward less back: `now_ms() - stepped_ms` is elapsed time."""


def in_milliseconds(read_s: Callable[[], float]) -> Callable[[], int]:
    """Return the whole milliseconds of a clock that has seconds, such as a loop's."""
    return lambda: int(read_s() * 1000)


class SystemClock:
    """A broker's clock: wall time, which steps only if the wall clock was set or the machine slept.

    Between two steps it follows the monotonic clock, so that no small correction of the wall clock moves it back.
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
        # A thread that was interrupted between reading the two clocks has seen a false step.
        with self._lock:
            before_ns, wall_ns, after_ns = time.monotonic_ns(), time.time_ns(), time.monotonic_ns()
            offset_ns = wall_ns - after_ns
            if after_ns - before_ns < _STEP_NS < abs(offset_ns - self._offset_ns):
                # Whole milliseconds, so that elapsed time plus all steps is exactly the time.
                self._offset_ns += (offset_ns - self._offset_ns) // 1_000_000 * 1_000_000


class ElapsedClock:
    """A client's clock: wall time at its creation plus the time elapsed since.

    Args:
        counts_sleep: whether the clock counts time while the machine sleeps. State that is shared with other machines,
            which stay awake, needs this; deadlines of local work do not.
    """

    def __init__(self, *, counts_sleep: bool = False) -> None:
        #: The system clock to read; `None` means the monotonic one.
        self._clock: Final = _AWAKE_OR_NOT if counts_sleep else None
        self._offset_ns: Final = time.time_ns() - self._passed_ns()

    def now_ms(self) -> int:
        """See `Clock`."""
        # Without a call of `_passed_ns`: a client reads the time several times for each event.
        passed_ns = time.monotonic_ns() if self._clock is None else time.clock_gettime_ns(self._clock)
        return (passed_ns + self._offset_ns) // 1_000_000

    def _passed_ns(self) -> int:
        return time.monotonic_ns() if self._clock is None else time.clock_gettime_ns(self._clock)


#: The clock that also counts a machine's sleep: on Linux a clock of its own, on macOS the monotonic clock.
#: `None` if the system has none.
_AWAKE_OR_NOT: Final[int | None] = getattr(time, "CLOCK_BOOTTIME", getattr(time, "CLOCK_MONOTONIC", None))
