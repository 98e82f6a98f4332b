"""The heartbeat schedule: when the next heartbeat is due, and for how long its answer may be awaited.

A broker may hold the answer to a heartbeat until it has news for the member, for most of the interval. A broker answers
the requests of one connection in order. So the hold is cut as soon as the member sends another request by the same
connection.

Laws: the interval counts from when a heartbeat is sent, never from its answer: the member owes the broker a sign of
life. A member whose heartbeat was held, to its end or until it was cut, heartbeats again at once, so that the broker
can reach it. A member that cuts hold after hold heartbeats once a second. A hold is no silence of the broker.
A session counts from when the latest answered heartbeat was sent, since the coordinator counts from when it arrived:
the member lets go of its partitions first, even where one of the two clocks is slower by a hundredth.
Source: requirement H1; KIP-848 (the coordinator sets the heartbeat interval); Apache Kafka's clients, which count so.
"""

from __future__ import annotations

from typing import Final

#: Added to the end of the longest hold: a broker may stand still for a moment before it answers.
_MARGIN_MS: Final = 2_000
#: Holds in a row that a member may cut before it heartbeats by `_PAUSE_MS`.
_PROMPT_CUTS: Final = 2
_PAUSE_MS: Final = 1_000
#: Least heartbeats in a session, so that two that are held are answered before it ends.
_BEATS_PER_SESSION: Final = 3
#: The session is shortened by one part of this many, for clocks that differ.
_CLOCK_PARTS: Final = 100


class Beats:
    """The schedule of one member's heartbeats."""

    __slots__ = ("_cuts",)

    def __init__(self) -> None:
        #: Holds in a row that were cut.
        self._cuts = 0

    def next_ms(self, sent_ms: int, interval_ms: int, now_ms: int, *, is_cut: bool, former_ms: int = 0) -> int:
        """Return when to send the next heartbeat, now that the one of `sent_ms` is answered.

        Args:
            interval_ms: by that answer.
            is_cut: something was asked behind it, by its connection, before it was answered.
            former_ms: the interval by which it was held; 0: the same.
        """
        self._cuts = self._cuts + 1 if is_cut else 0
        # No broker takes half of an interval for an answer, unless it holds it.
        is_held = 2 * (now_ms - sent_ms) >= min(interval_ms, former_ms or interval_ms)
        if is_held or 0 < self._cuts <= _PROMPT_CUTS:
            # The broker can hold the next heartbeat, too, only once it has it.
            return now_ms
        return sent_ms + (min(interval_ms, _PAUSE_MS) if is_cut else interval_ms)


def patience_ms(request_timeout_ms: int, interval_ms: int, session_ms: int) -> int:
    """Return for how long to wait for the answer to a heartbeat, milliseconds.

    That is the request timeout, or the longest hold if that is longer.
    """
    # A third of the session is left for a heartbeat by another connection.
    return max(min(request_timeout_ms, session_ms * 2 // 3), interval_ms + _MARGIN_MS)


def longest_interval_ms(interval_ms: int, session_ms: int) -> int:
    """Return the longest time between two heartbeats for a member that shall send one in `interval_ms`."""
    return min(interval_ms, session_ms // _BEATS_PER_SESSION)


def silence_ms(session_ms: int) -> int:
    """Return for how long after an answered heartbeat was sent a member surely keeps its partitions."""
    return session_ms - session_ms // _CLOCK_PARTS
