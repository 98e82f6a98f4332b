"""The records acknowledged with acks=all that a power cut may lose, because a topic syncs them later.

Laws: with flush.messages=1 none, since no producer gets a response before the sync; otherwise the records since the
last sync. The first limit that is reached starts a sync.
Source: flush.messages and flush.ms of Apache Kafka's topics, which say the same of each copy of a partition.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

#: The number of records or milliseconds that means no limit: the operating system decides when to write.
NO_LIMIT: Final = (1 << 63) - 1


class DurabilityWindow(NamedTuple):
    """The records that may be lost: the last `records`, or those of the last `ms`.

    `None` means no limit.
    """

    records: int | None
    ms: int | None

    def told(self, copies: int = 1) -> str:
        """Describe the window as a sentence; `copies`: number of replicas of each partition.

        >>> DurabilityWindow(10_000, 1_000).told().partition(": ")[2]
        'a power cut may take about the last 10,000 records or 1 s of a partition'
        >>> DurabilityWindow(None, None).told(copies=3).partition(": ")[2]
        'a power cut of one broker may take all that its system has not written yet'
        """
        limits = [f"{self.records:,} records"] if self.records is not None else []
        if self.ms is not None:
            limits.append(f"{self.ms:,} ms" if self.ms % 1_000 else f"{self.ms // 1_000:,} s")
        where, system, of = (" of one broker", "its system", "its copy of ") if copies > 1 else ("", "the system", "")
        lost = f"about the last {' or '.join(limits)} of {of}a partition" if limits else None
        lost = lost or f"all that {system} has not written yet"
        return f"acks=all is answered before records are on disk: a power cut{where} may take {lost}"


def durability_window(flush_messages: int, flush_ms: int) -> DurabilityWindow | None:
    """Return the durability window of these configs; `None` if nothing can be lost.

    >>> durability_window(1, NO_LIMIT)
    >>> durability_window(10_000, NO_LIMIT)
    DurabilityWindow(records=10000, ms=None)
    """
    if flush_messages == 1:
        return None
    return DurabilityWindow(*(None if limit == NO_LIMIT else limit for limit in (flush_messages, flush_ms)))


def widest(windows: Iterable[DurabilityWindow]) -> DurabilityWindow:
    """Return the window with the greatest loss: first one without limits, then by records, then by time.

    >>> widest([DurabilityWindow(7, 100), DurabilityWindow(9, 5), DurabilityWindow(None, 5)])
    DurabilityWindow(records=None, ms=5)
    """

    def width(window: DurabilityWindow) -> tuple[bool, int, int]:
        return window == (None, None), window.records or NO_LIMIT, NO_LIMIT if window.ms is None else window.ms

    return max(windows, key=width)
