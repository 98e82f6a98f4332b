"""The log lines about a disk that takes nothing: one when that begins, one when it is over.

Laws: one line per outage, however many producers try how often. It is over when the disk has taken as much at once as
it had refused; less may fit on a disk that is still full, but not if for a minute nothing was refused.
Source: Apache Kafka's KAFKA_STORAGE_ERROR; producers repeat until `delivery.timeout.ms`.
"""

from __future__ import annotations

import logging
from typing import Final

from kohort.clock import Clock
from kohort.errors import StorageError

log = logging.getLogger("kohort.broker")

#: Producers that were refused try again sooner than that.
_QUIET_MS: Final = 60_000


class Outage:
    """Tracks refused appends and, during an outage, successful ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        #: Since when the disk refuses, and the smallest refused size; `None` if it takes writes.
        self._open: tuple[int, int] | None = None
        self._refused_ms = 0

    @property
    def is_open(self) -> bool:
        """Whether the disk refuses appends at present."""
        return self._open is not None

    def refused(self, what: str, why: StorageError, *, size_bytes: int | None = None) -> None:
        """Note a refused write; `size_bytes` is `None` for a small write that was not even begun."""
        if why.fatal:
            # A fatal error ends the broker, which logs it.
            return
        self._refused_ms = self._clock.now_ms()
        if self._open is None:
            self._open = (self._refused_ms, size_bytes or 0)
            log.error("event=disk_refuses what=%s reason=%r action=answer_KAFKA_STORAGE_ERROR", what, str(why))
        elif size_bytes is not None:
            since_ms, least = self._open
            self._open = (since_ms, min(least, size_bytes))

    def took(self, size_bytes: int) -> None:
        """Note a successful write of `size_bytes`."""
        if self._open is None:
            return
        now_ms = self._clock.now_ms()
        # A smaller write may fit on a disk that is still full; a quiet minute counts as recovery, too.
        if size_bytes >= self._open[1] or now_ms - self._refused_ms >= _QUIET_MS:
            seconds = (now_ms - self._open[0]) / 1000
            self._open = None
            log.warning("event=disk_takes_again after_seconds=%.1f", seconds)
