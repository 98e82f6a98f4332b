"""When a member's next heartbeat is due, how long its answer may take, and for how long none may be answered.

A broker may hold the answer until it has something to say, for most of the interval. It answers in order, so whatever
else the member asks by the same connection meanwhile makes it answer the heartbeat first: the hold is cut.

Laws: the interval counts from when a heartbeat is sent, never from its answer: it is the broker that is promised a
sign of life. A member whose heartbeat was held, to its end or until it was cut, heartbeats again at once, so that it is
within reach; one that cuts hold after hold does so once a second. An answer that is held is no silence of its broker.
A session counts from when the latest heartbeat that was answered has left, since the coordinator counts from when it
came: the member lets go of its partitions first, by clocks of which one may be slower by a hundredth.
Source: requirement H1; KIP-848 (the coordinator says how often to heartbeat); Apache Kafka's clients, which count so.
"""

from __future__ import annotations

from typing import Final

#: Between the end of the longest hold and the time at which its answer has to be there, in addition to what is left of
#: the interval then: a broker may stand still for a moment.
_MARGIN_MS: Final = 2_000
#: So many holds in a row may be cut before the member takes its time.
_PROMPT_CUTS: Final = 2
_PAUSE_MS: Final = 1_000
#: So many heartbeats fit into a session at least, so that two that are held are answered before it ends.
_BEATS_PER_SESSION: Final = 3
#: Such a part of a session is left out, for clocks that differ.
_CLOCK_PARTS: Final = 100


class Beats:
    """Says when to heartbeat again."""

    __slots__ = ("_cuts",)

    def __init__(self) -> None:
        #: Holds in a row that were cut.
        self._cuts = 0

    def next_ms(self, sent_ms: int, interval_ms: int, now_ms: int, *, is_cut: bool, former_ms: int = 0) -> int:
        """The heartbeat of `sent_ms` is answered.

        Args:
            interval_ms: by that answer.
            is_cut: something was asked behind it, by its connection, before it was answered.
            former_ms: the interval by which it was held; 0: the same.
        """
        self._cuts = self._cuts + 1 if is_cut else 0
        # No broker takes half of an interval for an answer, unless it holds it.
        is_held = 2 * (now_ms - sent_ms) >= min(interval_ms, former_ms or interval_ms)
        if is_held or 0 < self._cuts <= _PROMPT_CUTS:
            return now_ms
        return sent_ms + (min(interval_ms, _PAUSE_MS) if is_cut else interval_ms)


def patience_ms(request_timeout_ms: int, interval_ms: int, session_ms: int) -> int:
    """How long to wait for the answer to a heartbeat: as long as for any other, or for the longest hold.

    But no longer than leaves time to say so by another connection before the session ends.
    """
    return max(min(request_timeout_ms, session_ms * 2 // 3), interval_ms + _MARGIN_MS)


def longest_interval_ms(interval_ms: int, session_ms: int) -> int:
    """How long a member may let pass between two heartbeats that is to send one in `interval_ms`."""
    return min(interval_ms, session_ms // _BEATS_PER_SESSION)


def silence_ms(session_ms: int) -> int:
    """How long after a heartbeat that was answered has left a member may be sure of what it has."""
    return session_ms - session_ms // _CLOCK_PARTS
