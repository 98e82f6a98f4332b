"""The only place of the base layer that reads a clock."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Time as the shells see it."""

    def now_ms(self) -> int:
        """Milliseconds since 1970-01-01 UTC, never decreasing while the process lives."""
        ...


class SystemClock:
    """Wall time at start plus monotonic time since: comparable with timestamps, immune to jumps of the wall clock."""

    def __init__(self) -> None:
        self._offset_ns = time.time_ns() - time.monotonic_ns()

    def now_ms(self) -> int:
        return (time.monotonic_ns() + self._offset_ns) // 1_000_000
