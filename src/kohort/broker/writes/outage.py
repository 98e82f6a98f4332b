"""What the broker says of a disk that takes nothing: a line when that begins, a line when it is over.

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

#: Who was refused tries again sooner than that.
_QUIET_MS: Final = 60_000


class Outage:
    """Told of what the disk refuses and, while there is an outage, of what it takes."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        #: Since when, and the least that was refused; `None` while all is well.
        self._open: tuple[int, int] | None = None
        self._refused_ms = 0

    @property
    def is_open(self) -> bool:
        """Whether the disk refuses at present."""
        return self._open is not None

    def refused(self, what: str, why: StorageError, *, size_bytes: int | None = None) -> None:
        """The disk did not take that; `size_bytes` `None` where something small was not even begun."""
        if why.fatal:
            # That is the end of the broker, and said as such.
            return
        self._refused_ms = self._clock.now_ms()
        if self._open is None:
            self._open = (self._refused_ms, size_bytes or 0)
            log.error("event=disk_refuses what=%s reason=%r action=answer_KAFKA_STORAGE_ERROR", what, str(why))
        elif size_bytes is not None:
            since_ms, least = self._open
            self._open = (since_ms, min(least, size_bytes))

    def took(self, size_bytes: int) -> None:
        """The disk took so much."""
        if self._open is None:
            return
        now_ms = self._clock.now_ms()
        if size_bytes >= self._open[1] or now_ms - self._refused_ms >= _QUIET_MS:
            seconds = (now_ms - self._open[0]) / 1000
            self._open = None
            log.warning("event=disk_takes_again after_seconds=%.1f", seconds)
