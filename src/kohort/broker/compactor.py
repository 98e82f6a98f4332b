"""Compacts the coordinator's log while the broker serves: looks now and then, works in a thread of its own.

Laws: one log at a time, the dirtiest first. The thread reads closed files and writes new ones, and rests as long as it
works, so that the loop gets its turns; a log changes only on the loop, by one rename per file. What goes wrong is
logged and tried again: the log is as it was.
Source: architecture rule 18; Apache Kafka's log cleaner and its options log.cleaner.*.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from functools import partial
from typing import Final

from kohort.clock import Clock
from kohort.storage.cleaned import load_cleaned, save_cleaned
from kohort.storage.compaction import (
    Compacted,
    CompactedSegment,
    CompactionPlan,
    CompactionStopped,
    compact,
    finish_replacement,
    plan_compaction,
)
from kohort.storage.partition import PartitionLog
from kohort.storage.store import Store

log = logging.getLogger("kohort.broker")

#: The longest rest between two pieces of work.
REST_SECONDS: Final = 0.05
#: How long a stop waits for the thread; a disk that hangs must not keep the broker from ending.
STOP_TIMEOUT_SECONDS: Final = 2.0


class Compactor:
    """Keeps the group log short; belongs to the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, store: Store, clock: Clock, *, backoff_ms: int, dedupe_buffer_bytes: int
    ) -> None:
        self._loop: Final = loop
        self._store: Final = store
        self._clock: Final = clock
        self._backoff: Final = backoff_ms / 1000
        self._dedupe_buffer_bytes: Final = dedupe_buffer_bytes
        #: (topic, partition) -> the offset before which the log is compacted.
        self._cleaned = load_cleaned(store.fs, store.directory)
        self._timer: asyncio.Handle | None = None
        self._is_idle: Final = asyncio.Event()
        self._is_idle.set()
        self._is_stopped = False
        self._rested_at = 0.0

    def start(self) -> None:
        """Look from now on."""
        self._timer = self._loop.call_soon(self._look)

    async def stop(self) -> None:
        """Look no more; returns when the thread has noticed."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._is_idle.wait(), STOP_TIMEOUT_SECONDS)

    def _look(self) -> None:
        chosen = self._choose()
        if chosen is None:
            self._timer = self._loop.call_later(self._backoff, self._look)
            return
        self._is_idle.clear()
        # A daemon: should it hang in the disk, the process can end all the same.
        threading.Thread(target=self._work, args=chosen, name="kohort-compaction", daemon=True).start()

    def _choose(self) -> tuple[PartitionLog, CompactionPlan] | None:
        """The dirtiest log that is dirty enough, and what is to be done."""
        best: tuple[float, PartitionLog, CompactionPlan] | None = None
        for topic in self._store.topics.values():
            if not topic.is_internal:
                continue
            for partition in topic.partitions:
                if not partition.config.is_compacted or partition.is_failed:
                    continue
                first_dirty = self._cleaned.get((partition.topic, partition.partition), 0)
                found = plan_compaction(partition, first_dirty, dedupe_buffer_bytes=self._dedupe_buffer_bytes)
                if found is None or found[1] < partition.config.min_cleanable_dirty_ratio:
                    continue
                if best is None or found[1] > best[0]:
                    best = found[1], partition, found[0]
        return None if best is None else best[1:]

    def _work(self, partition: PartitionLog, plan: CompactionPlan) -> None:
        """All of one compaction, in its thread."""
        began_ms = self._clock.now_ms()
        self._rested_at = time.monotonic()
        try:
            made = compact(self._store.fs, plan, now_ms=began_ms, is_stopped=self._rest)
            for part in made.segments:
                replaced = self._on_loop(partial(self._replace, partition, part))
                finish_replacement(self._store.fs, plan.directory, replaced)
            self._cleaned = {**self._cleaned, (partition.topic, partition.partition): made.end_offset}
            save_cleaned(self._store.fs, self._store.directory, self._cleaned)
            _report(partition, made, self._clock.now_ms() - began_ms)
        except CompactionStopped:
            pass
        except Exception as error:  # the log is as it was, whatever it is
            log.warning(
                "event=compaction_failed partition=%s-%d error=%r", partition.topic, partition.partition, str(error)
            )
        self._post(self._on_done)

    def _rest(self) -> bool:
        """Between two pieces of work: whether to stop; rests as long as the last one took."""
        if self._is_stopped:
            return True
        time.sleep(min(time.monotonic() - self._rested_at, REST_SECONDS))
        self._rested_at = time.monotonic()
        return self._is_stopped

    def _replace(self, partition: PartitionLog, part: CompactedSegment) -> list[int]:
        if self._is_stopped:
            raise CompactionStopped
        return partition.replace(part.segment, part.cleaned_path)

    def _on_loop(self, change: Callable[[], list[int]]) -> list[int]:
        """What `change` returns when it is called on the loop."""
        answer: Future[list[int]] = Future()

        def run() -> None:
            try:
                answer.set_result(change())
            except BaseException as error:
                answer.set_exception(error)

        self._post(run)
        return answer.result()

    def _post(self, callback: Callable[[], None]) -> None:
        if self._loop.is_closed():
            raise CompactionStopped
        self._loop.call_soon_threadsafe(callback)

    def _on_done(self) -> None:
        self._is_idle.set()
        if not self._is_stopped:
            self._timer = self._loop.call_later(self._backoff, self._look)


def _report(partition: PartitionLog, made: Compacted, took_ms: int) -> None:
    log.info(
        "event=compacted partition=%s-%d until=%d records=%d->%d bytes=%d->%d ms=%d",
        partition.topic,
        partition.partition,
        made.end_offset,
        made.records_before,
        made.records_after,
        made.bytes_before,
        made.bytes_after,
        took_ms,
    )
