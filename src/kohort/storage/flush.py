"""Group commit: the choice of logs to sync now; each sync covers all that was appended before it.

Laws: at most one sync per log is under way, and at most `limit` in all. What is appended while a sync runs rides with
the next one of that log, which starts as soon as this one ends. Logs wait in the order in which they asked.
Nothing here does I/O: the runtime runs the syncs in threads and reports their ends.
Source: architecture, journey of an OffsetCommit, step 6.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final, Generic, TypeVar

Log = TypeVar("Log", bound=Hashable)

#: A disk takes a few syncs at once; each of them holds a thread.
SYNCS_AT_ONCE: Final = 4


class SyncScheduler(Generic[Log]):
    """Decides which logs to sync; one per broker.

    >>> scheduler: SyncScheduler[str] = SyncScheduler()
    >>> scheduler.request("orders-0", 7)
    >>> scheduler.start()
    ['orders-0']
    >>> scheduler.request("orders-0", 9)
    >>> scheduler.start()
    []
    >>> scheduler.finish("orders-0", 7)
    >>> scheduler.start()
    ['orders-0']
    """

    __slots__ = ("_in_flight", "_limit", "_wanted")

    def __init__(self, *, limit: int = SYNCS_AT_ONCE) -> None:
        assert limit > 0
        self._limit = limit
        #: Log -> the offset up to which it is to be durable, in the order of asking; those in flight are among them
        #: only if their present sync is not known to cover it.
        self._wanted: dict[Log, int] = {}
        #: Logs whose sync was started and has not ended.
        self._in_flight: set[Log] = set()

    @property
    def is_idle(self) -> bool:
        """Whether no sync waits or is under way."""
        return not self._wanted and not self._in_flight

    @property
    def in_flight(self) -> frozenset[Log]:
        """Logs that are being synced."""
        return frozenset(self._in_flight)

    def request(self, log: Log, end_offset: int) -> None:
        """Request that everything before `end_offset` becomes durable; a repetition may raise the offset."""
        self._wanted[log] = max(end_offset, self._wanted.get(log, end_offset))

    def start(self) -> list[Log]:
        """Return the logs to sync now; they count as under way from here on."""
        free = self._limit - len(self._in_flight)
        if free <= 0 or not self._wanted:
            return []
        # At most one sync per log: later appends wait for the next one.
        ready = [log for log in self._wanted if log not in self._in_flight][:free]
        for log in ready:
            del self._wanted[log]
        self._in_flight.update(ready)
        return ready

    def finish(self, log: Log, durable_offset: int) -> None:
        """Note the end of a sync that made everything before `durable_offset` durable; the rest waits again."""
        self._in_flight.discard(log)
        # The sync covered more than it was asked for: no further one is needed.
        if self._wanted.get(log, durable_offset + 1) <= durable_offset:
            del self._wanted[log]

    def forget(self, log: Log) -> None:
        """Drop a deleted log; a sync of it that is under way still reports its end."""
        self._wanted.pop(log, None)
