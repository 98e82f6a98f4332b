"""The limits of topics, of partitions, and of topics that are auto-created in a minute.

Laws: what exceeds a limit is refused with POLICY_VIOLATION and a sentence that names the option; what is there stays.
Source: requirement B4. Clients take that code for final: librdkafka fails the records of that topic at once, Java's
client logs it by name and asks again. Apache Kafka has no such limits.
"""

from __future__ import annotations

from typing import Final

from kohort.base.clock import Clock
from kohort.errors import ErrorCode, Refused

_MINUTE_MS: Final = 60_000


class TopicRate:
    """The rate of auto-created topics: a minute's number at once, then as many as time allows."""

    __slots__ = ("_at_ms", "_clock", "_left", "_per_minute", "refused")

    def __init__(self, clock: Clock, per_minute: int) -> None:
        self._clock: Final = clock
        self._per_minute: Final = per_minute
        #: Topics that may be created as of `_at_ms`, in parts of 1 / `_MINUTE_MS`.
        self._left = per_minute * _MINUTE_MS
        self._at_ms = clock.now_ms()
        #: Topics that were refused since the start.
        self.refused = 0

    def take(self) -> None:
        """Count one more topic; raise `Refused` if it is one too many."""
        now_ms = self._clock.now_ms()
        passed_ms = max(0, now_ms - self._at_ms)
        self._left = min(self._per_minute * _MINUTE_MS, self._left + passed_ms * self._per_minute)
        self._at_ms = now_ms
        if self._left < _MINUTE_MS:
            self.refused += 1
            raise Refused(
                ErrorCode.POLICY_VIOLATION,
                f"more than {self._per_minute} topics a minute would come by being asked for "
                "(auto.create.topics.per.minute); create them, or ask again later",
            )
        self._left -= _MINUTE_MS


def check_count(count: int, most: int, what: str) -> None:
    """Raise `Refused` if a broker would have too many topics or partitions.

    >>> check_count(5, 5, "topics")
    >>> check_count(6, 5, "topics")
    Traceback (most recent call last):
    kohort.errors.Refused: this broker would have 6 topics; max.topics allows 5
    """
    if count > most:
        text = f"this broker would have {count} {what}; max.{what} allows {most}"
        raise Refused(ErrorCode.POLICY_VIOLATION, text)
