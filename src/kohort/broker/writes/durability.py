"""Appends to logs, and the replies that wait until these are on disk.

One append is not one fdatasync: while a log is being synced further appends to it gather, and one sync afterwards
covers them all (group commit). Syncs run on threads of their own.

Laws: what waits for an offset is called in the order in which it began to wait, after the log is durable up to that
offset; a reader sees only what is durable (the log's high watermark). A failed sync stops the broker: what the disk
holds is unknown from then on. A sync that could not begin, for want of a descriptor, comes again; until then nobody is
called.
Source: architecture rules 3, 4 and 18; the fsync error handling that PostgreSQL had to learn in 2018.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue
from typing import Final

from kohort.broker.writes.disk_full import Outage
from kohort.errors import StorageError
from kohort.storage.files.fs import Buffer
from kohort.storage.flush import SYNCS_AT_ONCE, SyncScheduler
from kohort.storage.partitions.partition import Appended, PartitionLog
from kohort.storage.partitions.record_validation import CheckedBatch

_LOGGER: Final = logging.getLogger("kohort.broker")

#: A timer for longer runs that long: a sync too early does no harm.
_LONGEST_TIMER_MS: Final = 86_400_000
#: How long a stop waits for a sync that is under way.
STOP_TIMEOUT_SECONDS: Final = 5.0
#: After so long a sync is tried again that could not begin.
RETRY_SECONDS: Final = 0.5


def is_durable(log: PartitionLog) -> bool:
    """Whether everything that was appended to `log` so far is as durable as its topic asks for."""
    return log.high_watermark >= log.log_end_offset


def _size_of(batches: Buffer | CheckedBatch) -> int:
    return len(batches.batch if isinstance(batches, CheckedBatch) else batches)


class Durability:
    """Appends to logs, syncs them, and calls back when appends are durable."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        on_readable: Callable[[PartitionLog], None],
        on_failure: Callable[[Exception], None],
        outage: Outage,
    ) -> None:
        """Create the scheduler of syncs.

        `on_readable`: called with a log of which consumers may see more; `on_failure`: called when a sync fails.
        `outage` is told of appends that the disk refuses, and of those that it takes.
        """
        self._loop: Final = loop
        self._on_readable: Final = on_readable
        self._on_failure: Final = on_failure
        self._scheduler: Final[SyncScheduler[PartitionLog]] = SyncScheduler()
        #: Log -> (offset, callback) in the order of the calls; offsets never decrease.
        self._waiting: Final[dict[PartitionLog, deque[tuple[int, Callable[[], None]]]]] = {}
        #: Log -> when its oldest unsynced record has waited for as long as its topic allows.
        self._timers: Final[dict[PartitionLog, asyncio.TimerHandle]] = {}
        self._outage: Final = outage
        #: Logs whose last sync could not begin -> when it is tried again.
        self._postponed: Final[dict[PartitionLog, asyncio.TimerHandle]] = {}
        self._jobs: Final[SimpleQueue[PartitionLog | None]] = SimpleQueue()
        self._threads: Final[list[threading.Thread]] = []
        self._is_idle: Final = asyncio.Event()
        self._is_idle.set()

    def append(
        self, log: PartitionLog, batches: Buffer | CheckedBatch, *, now_ms: int, validate: bool = True
    ) -> Appended:
        """Append to a log, and sync it if its topic asks for that; `Refused` leaves the log unchanged.

        A `StorageError` of a disk that takes nothing leaves it unchanged, too.
        """
        try:
            appended = log.append(batches, now_ms=now_ms, validate=validate)
        except StorageError as why:
            self._outage.refused(log.name, why, size_bytes=_size_of(batches))
            raise
        if self._outage.is_open:
            self._outage.took(_size_of(batches))
        if log.needs_sync:
            self._sync(log)
        elif log not in self._timers and (within_ms := log.sync_within_ms) is not None:
            self._timers[log] = self._loop.call_later(min(within_ms, _LONGEST_TIMER_MS) / 1000, self._on_time, log)
        if log.high_watermark == log.log_end_offset:
            self._on_readable(log)
        return appended

    def when_durable(self, log: PartitionLog, callback: Callable[[], None]) -> None:
        """Call back once all present records of `log` are durable: at once, or later from the loop."""
        if is_durable(log):
            callback()
        else:
            self._waiting.setdefault(log, deque()).append((log.log_end_offset, callback))

    def forget(self, log: PartitionLog) -> None:
        """Drop a deleted log: sync it no more, and call all that wait for it."""
        self._scheduler.forget(log)
        self._stop_timer(log)
        self._stop_retry(log)
        for _, callback in self._waiting.pop(log, ()):
            callback()
        self._on_readable(log)
        self._note_idle()

    async def drain(self) -> None:
        """Wait until no sync is wanted or under way; the caller has stopped appending."""
        await self._is_idle.wait()

    def stop(self) -> None:
        """End the threads; called after `drain`, or when the broker fails."""
        for log in list(self._timers):
            self._stop_timer(log)
        for log in list(self._postponed):
            self._stop_retry(log)
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            # A disk that hangs must not keep the broker from ending; the threads are daemons.
            thread.join(STOP_TIMEOUT_SECONDS)
        self._threads.clear()

    def _sync(self, log: PartitionLog) -> None:
        self._scheduler.request(log, log.log_end_offset)
        self._start_syncs()

    def _on_time(self, log: PartitionLog) -> None:
        """Sync a log after its oldest unsynced record has waited as long as allowed, unless it was synced."""
        del self._timers[log]
        if log.sync_within_ms is not None:
            self._sync(log)

    def _stop_timer(self, log: PartitionLog) -> None:
        timer = self._timers.pop(log, None)
        if timer is not None:
            timer.cancel()

    def _stop_retry(self, log: PartitionLog) -> bool:
        """Cancel the next try of a sync; return whether there was one."""
        retry = self._postponed.pop(log, None)
        if retry is not None:
            retry.cancel()
        return retry is not None

    def _start_syncs(self) -> None:
        started = self._scheduler.start()
        if started and not self._threads:
            # Brokers in memory and those that leave syncing to the system never need the threads.
            for number in range(SYNCS_AT_ONCE):
                thread = threading.Thread(target=self._sync_forever, name=f"kohort-sync-{number}", daemon=True)
                thread.start()
                self._threads.append(thread)
        for log in started:
            self._is_idle.clear()
            self._jobs.put(log)

    def _sync_forever(self) -> None:
        while (log := self._jobs.get()) is not None:
            try:
                durable_offset = log.sync()
            except StorageError as why:
                # A failed sync is final: the next could succeed and prove nothing. One that never began is repeated.
                self._post(self._on_failure if why.fatal else partial(self._on_postponed, log), why)
            except Exception as error:  # whatever it is, the disk's content is unknown now
                self._post(self._on_failure, error)
            else:
                self._post(self._on_synced, log, durable_offset)

    def _post(self, callback: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _on_postponed(self, log: PartitionLog, why: StorageError) -> None:
        """Try a sync again that could not begin, at the next append at the latest; nothing is lost."""
        self._scheduler.finish(log, log.durable_offset)
        self._scheduler.forget(log)
        if not self._stop_retry(log):
            _LOGGER.error("event=sync_postponed partition=%s reason=%r action=acknowledge_nothing", log.name, str(why))
        self._postponed[log] = self._loop.call_later(RETRY_SECONDS, self._sync, log)
        self._start_syncs()
        self._note_idle()

    def _on_synced(self, log: PartitionLog, durable_offset: int) -> None:
        self._scheduler.finish(log, durable_offset)
        self._start_syncs()
        if self._postponed and self._stop_retry(log):
            _LOGGER.warning("event=sync_done_again partition=%s", log.name)
        log.mark_durable(durable_offset)
        self._on_readable(log)
        waiting = self._waiting.get(log)
        if waiting:
            # One sync covers all appends before it (group commit).
            while waiting and waiting[0][0] <= durable_offset:
                waiting.popleft()[1]()
            if not waiting:
                self._waiting.pop(log, None)
        self._note_idle()

    def _note_idle(self) -> None:
        if self._scheduler.is_idle:
            self._is_idle.set()
