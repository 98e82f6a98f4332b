"""Fetches that wait for data: woken when a log grows, answered when there is enough or their time is over.

Laws: a parked fetch leaves the purgatory exactly once: answered, or abandoned with its connection; a log that grows
many times in one turn of the loop wakes each fetch once.
Source: Kafka's fetch purgatory (min.bytes, max.wait); architecture: the purgatory only keeps tokens.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from kohort.storage.partition import PartitionLog


class ParkedFetch:
    """One fetch that waits."""

    __slots__ = ("_purgatory", "complete", "logs", "timer")

    def __init__(self, purgatory: Purgatory, logs: tuple[PartitionLog, ...], complete: Callable[[bool], bool]) -> None:
        self._purgatory = purgatory
        #: The logs that it reads.
        self.logs: Final = logs
        #: Answer if there is enough, or in any case if told `True`; tells whether it has answered.
        self.complete: Final = complete
        #: Runs when its time is over.
        self.timer: asyncio.TimerHandle | None = None

    def cancel(self) -> None:
        """Take it out without an answer."""
        self._purgatory.remove(self)

    def expire(self) -> None:
        """Its time is over."""
        self._purgatory.remove(self)
        self.complete(True)


class Purgatory:
    """Every parked fetch of the broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        #: Log -> the fetches that read it, oldest first.
        self._by_log: Final[dict[PartitionLog, dict[ParkedFetch, None]]] = {}
        #: Fetches to look at in this turn of the loop.
        self._woken: dict[ParkedFetch, None] = {}

    def __len__(self) -> int:
        return len({fetch for fetches in self._by_log.values() for fetch in fetches})

    def park(self, logs: Iterable[PartitionLog], *, max_wait_ms: int, complete: Callable[[bool], bool]) -> ParkedFetch:
        """Keep a fetch until `complete` says that it has answered, or for `max_wait_ms`."""
        fetch = ParkedFetch(self, tuple(dict.fromkeys(logs)), complete)
        for log in fetch.logs:
            self._by_log.setdefault(log, {})[fetch] = None
        fetch.timer = self._loop.call_later(max_wait_ms / 1000, fetch.expire)
        return fetch

    def notify(self, log: PartitionLog) -> None:
        """Consumers may see more of `log` than before, or it is gone."""
        fetches = self._by_log.get(log)
        if not fetches:
            return
        if not self._woken:
            self._loop.call_soon(self._retry)
        self._woken.update(fetches)

    def remove(self, fetch: ParkedFetch) -> None:
        """`fetch` waits no longer; one that is not parked is fine."""
        if fetch.timer is not None:
            fetch.timer.cancel()
            fetch.timer = None
        self._woken.pop(fetch, None)
        for log in fetch.logs:
            fetches = self._by_log.get(log)
            if fetches is not None:
                fetches.pop(fetch, None)
                if not fetches:
                    del self._by_log[log]

    def release_all(self) -> None:
        """Answer every parked fetch with what there is; the broker stops."""
        for fetch in list(dict.fromkeys(fetch for fetches in self._by_log.values() for fetch in fetches)):
            fetch.expire()

    def _retry(self) -> None:
        woken, self._woken = self._woken, {}
        for fetch in woken:
            if fetch.timer is not None and fetch.complete(False):
                self.remove(fetch)
