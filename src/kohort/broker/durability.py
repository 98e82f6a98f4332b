"""Appends to logs, callbacks that wait until appends are on disk, full disks, and delayed syncs.

Not every append has its own fdatasync: while a log is being synced further appends to it gather, and the next sync
covers them all (group commit). Syncs run in their own threads.

Laws: the callbacks that wait for an offset are called in the order in which they began to wait, once the log is durable
up to that offset. A consumer sees only durable records (up to the log's high watermark). A failed sync stops the
broker, because the content of the disk is unknown from then on. A sync that could not begin, for lack of a file
descriptor, is repeated; until then no callback runs.
Source: architecture rules 3, 4 and 18; the fsync error handling that PostgreSQL had to learn in 2018.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Hashable
from functools import partial
from queue import SimpleQueue
from typing import Final, Generic, TypeVar

from kohort.base.clock import Clock
from kohort.base.durability_window import DurabilityWindow, durability_window, widest
from kohort.errors import StorageError
from kohort.ids import JOURNAL_TOPIC, OFFSETS_TOPIC
from kohort.metrics.exposition import Histogram
from kohort.storage.files.fs import Buffer
from kohort.storage.partitions.partition import Appended, PartitionLog
from kohort.storage.partitions.validation import CheckedBatch
from kohort.storage.store import Store
from kohort.storage.topicconfig import LogConfig

_LOGGER: Final = logging.getLogger("kohort.broker.storage")

#: The longest timer of a sync; a longer interval is cut, for a sync that is too early does no harm.
_LONGEST_TIMER_MS: Final = 86_400_000
#: The time that a stop waits for a sync in progress.
STOP_TIMEOUT_SECONDS: Final = 5.0
#: The time after which a sync that could not begin is tried again.
RETRY_SECONDS: Final = 0.5


def is_durable(log: PartitionLog) -> bool:
    """Return whether all records of `log` so far are as durable as the configs of the topic require."""
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
        disk_full: DiskFull,
    ) -> None:
        """Create the scheduler of syncs.

        `on_readable`: called with a log of which consumers may see more. `on_failure`: called when a sync fails.
        `disk_full`: notified of appends that the disk refuses and, while it does, of successful ones.
        """
        self._loop: Final = loop
        self._on_readable: Final = on_readable
        self._on_failure: Final = on_failure
        self._scheduler: Final[SyncScheduler[PartitionLog]] = SyncScheduler()
        #: Log -> (offset, callback) in the order of the calls; offsets never decrease.
        self._waiting: Final[dict[PartitionLog, deque[tuple[int, Callable[[], None]]]]] = {}
        #: Log -> the timer of its next sync, by which its oldest unsynced record is synced (`flush.ms`).
        self._timers: Final[dict[PartitionLog, asyncio.TimerHandle]] = {}
        self._disk_full: Final = disk_full
        #: Log whose last sync could not begin -> the timer of the next try.
        self._postponed: Final[dict[PartitionLog, asyncio.TimerHandle]] = {}
        self._jobs: Final[SimpleQueue[PartitionLog | None]] = SimpleQueue()
        self._threads: Final[list[threading.Thread]] = []
        self._is_idle: Final = asyncio.Event()
        self._is_idle.set()
        #: The durations of syncs, seconds.
        self.sync_times: Final = Histogram()

    def append(
        self,
        log: PartitionLog,
        batches: Buffer | CheckedBatch,
        *,
        now_ms: int,
        validate: bool = True,
        begins_transaction: bool = False,
    ) -> Appended:
        """Append to a log, and sync the log if its configs require that.

        A `Refused`, or a `StorageError` of a disk that refuses writes, leaves the log unchanged.
        """
        try:
            appended = log.append(batches, now_ms=now_ms, validate=validate, begins_transaction=begins_transaction)
        except StorageError as why:
            self._disk_full.refused(log.name, why, size_bytes=_size_of(batches))
            raise
        if self._disk_full.is_open:
            self._disk_full.took(_size_of(batches))
        if log.needs_sync:
            self._sync(log)
        elif log not in self._timers and (within_ms := log.sync_within_ms) is not None:
            self._timers[log] = self._loop.call_later(min(within_ms, _LONGEST_TIMER_MS) / 1000, self._on_time, log)
        if log.high_watermark == log.log_end_offset:
            self._on_readable(log)
        return appended

    def when_durable(self, log: PartitionLog, callback: Callable[[], None]) -> None:
        """Call `callback` once all present records of `log` are durable: at once, or later on the loop."""
        if is_durable(log):
            callback()
        else:
            self._waiting.setdefault(log, deque()).append((log.log_end_offset, callback))

    def forget(self, log: PartitionLog) -> None:
        """Drop a deleted log: sync it no more, and call its waiting callbacks."""
        self._scheduler.forget(log)
        self._stop_timer(log)
        self._stop_retry(log)
        for _, callback in self._waiting.pop(log, ()):
            callback()
        self._on_readable(log)
        self._note_idle()

    async def drain(self) -> None:
        """Wait until no sync is requested or in progress; the caller has stopped appending."""
        await self._is_idle.wait()

    def stop(self) -> None:
        """Stop the threads; called after `drain`, or when the broker fails."""
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
        """Sync a log whose oldest unsynced record has waited for `flush.ms`, unless it was synced."""
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
            # The threads are started with the first sync: brokers in memory, or without flush configs, need none.
            for number in range(SYNCS_AT_ONCE):
                thread = threading.Thread(target=self._sync_forever, name=f"kohort-sync-{number}", daemon=True)
                thread.start()
                self._threads.append(thread)
        for log in started:
            self._is_idle.clear()
            self._jobs.put(log)

    def _sync_forever(self) -> None:
        while (log := self._jobs.get()) is not None:
            began = time.perf_counter()
            try:
                durable_offset = log.sync()
            except StorageError as why:
                # A failed sync is fatal: the next one could succeed without the lost writes. A sync that could not
                # begin is repeated.
                self._post(self._on_failure if why.fatal else partial(self._on_postponed, log), why)
            except Exception as error:  # after any error the content of the disk is unknown
                self._post(self._on_failure, error)
            else:
                self._post(self._on_synced, log, durable_offset, time.perf_counter() - began)

    def _post(self, callback: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(callback, *arguments)

    def _on_postponed(self, log: PartitionLog, why: StorageError) -> None:
        """Repeat a sync that could not begin, at the next append at the latest; nothing is lost."""
        self._scheduler.finish(log, log.durable_offset)
        self._scheduler.forget(log)
        if not self._stop_retry(log):
            _LOGGER.error("event=sync_postponed partition=%s reason=%r action=acknowledge_nothing", log.name, str(why))
        self._postponed[log] = self._loop.call_later(RETRY_SECONDS, self._sync, log)
        self._start_syncs()
        self._note_idle()

    def _on_synced(self, log: PartitionLog, durable_offset: int, seconds: float) -> None:
        self.sync_times.observe(seconds)
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


# The log lines about a disk that refuses writes: one at the beginning of the outage, one at its end.
#
# Laws: an outage has these two lines, however often producers retry. The outage ends with a successful write that is as
# large as the smallest refused one, for a smaller write may fit on a full disk. It also ends with any successful write
# once nothing was refused for a minute.
# Source: Apache Kafka's KAFKA_STORAGE_ERROR; producers retry until `delivery.timeout.ms`.

log = logging.getLogger("kohort.broker.storage")

#: An outage has ended if no write was refused for so long; refused producers retry sooner.
_QUIET_MS: Final = 60_000


class DiskFull:
    """The state of an outage of the disk, by refused writes and, during the outage, successful ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock: Final = clock
        #: The start of the outage, milliseconds, and the smallest refused write, bytes; `None`: no outage.
        self._open: tuple[int, int] | None = None
        self._refused_ms = 0

    @property
    def is_open(self) -> bool:
        """Whether the disk refuses writes at present."""
        return self._open is not None

    def refused(self, what: str, why: StorageError, *, size_bytes: int | None = None) -> None:
        """Record a refused write; `size_bytes` is `None` for a small write that was not even begun."""
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
        """Record a successful write of `size_bytes`."""
        if self._open is None:
            return
        now_ms = self._clock.now_ms()
        # A smaller write may fit on a disk that is still full; a quiet minute counts as recovery, too.
        if size_bytes >= self._open[1] or now_ms - self._refused_ms >= _QUIET_MS:
            seconds = (now_ms - self._open[0]) / 1000
            self._open = None
            log.warning("event=disk_takes_again after_seconds=%.1f", seconds)


# The reports of records that a power cut may lose, at the start and for descriptions of the broker.
#
# Laws: topics whose appends are all synced are not reported, and neither is the journal, which promises no durability.

#: The consequences for members if a power cut loses records of groups.
GROUPS_LOSE: Final = (
    "the last commits before a power cut: their records are read again, and members join anew; set flush.messages=1 on "
    "the topic to have each commit synced"
)


def relaxed_topics(store: Store) -> dict[str, DurabilityWindow]:
    """Return the topics that are not synced before responses, with their loss windows; none in memory."""
    if store.fs.volatile:
        return {}
    found = {topic.name: _window(topic.partitions[0].config) for topic in store.topics.values()}
    return {name: window for name, window in found.items() if window is not None and name != JOURNAL_TOPIC}


def tell_relaxed(store: Store) -> None:
    """Log a line for new topics, existing topics and `__consumer_offsets`, each if not synced per append."""
    defaults = None if store.fs.volatile else _window(store.changes.log_config({}))
    if defaults is not None:
        log.warning("event=relaxed topics=new may_lose=%r", defaults.told())
    windows = relaxed_topics(store)
    if windows:
        log.warning("event=relaxed topics=%d may_lose=%r", len(windows), widest(windows.values()).told())
    if OFFSETS_TOPIC in windows or (defaults is not None and OFFSETS_TOPIC not in store.topics):
        log.warning("event=groups_relaxed topic=%s may_lose=%r", OFFSETS_TOPIC, GROUPS_LOSE)


def _window(config: LogConfig) -> DurabilityWindow | None:
    return durability_window(config.flush_messages, config.flush_ms)


# Group commit: the choice of the logs to sync now; each sync covers all appends before it.
#
# Laws: at most one sync per log is in progress, and at most `limit` in all. Appends during a sync are covered by the
# next sync of that log, which starts as soon as the present one ends. Logs wait in the order of their requests. Nothing
# here does I/O: `Durability` runs the syncs in threads and reports their ends.
# Source: architecture, journey of an OffsetCommit, step 6.

Log = TypeVar("Log", bound=Hashable)

#: The most syncs at a time, each in its own thread; a disk handles a few of them at once.
SYNCS_AT_ONCE: Final = 4


class SyncScheduler(Generic[Log]):
    """The choice of the logs to sync; one per broker.

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
        #: Log -> the offset up to which a sync is requested, in the order of the requests. A log with a sync in flight
        #: is in here only if that sync may not cover the offset.
        self._wanted: dict[Log, int] = {}
        #: Logs whose sync was started and has not ended.
        self._in_flight: set[Log] = set()

    @property
    def is_idle(self) -> bool:
        """Whether no sync is requested or in progress."""
        return not self._wanted and not self._in_flight

    def request(self, log: Log, end_offset: int) -> None:
        """Request that everything before `end_offset` becomes durable; a repetition may raise the offset."""
        self._wanted[log] = max(end_offset, self._wanted.get(log, end_offset))

    def start(self) -> list[Log]:
        """Return the logs to sync now; their syncs count as in progress from now on."""
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
        """Record the end of a sync that made all records before `durable_offset` durable."""
        self._in_flight.discard(log)
        # The sync has covered the requested offset as well, so no further one is needed.
        if self._wanted.get(log, durable_offset + 1) <= durable_offset:
            del self._wanted[log]

    def forget(self, log: Log) -> None:
        """Drop the request for a log that was deleted; a sync in progress still reports its end."""
        self._wanted.pop(log, None)
