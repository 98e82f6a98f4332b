"""The compaction of logs while the broker runs: chosen on the loop, done in a process or thread.

Laws: one log at a time is compacted: first logs that have waited for too long, then the dirtiest. A log on disk is
compacted by a separate process, which runs while there is work, and for which a thread waits. A log in memory is
compacted by the thread, which pauses as long as it works, so that the loop gets its turns. Closed files are read and
new ones are written. A log changes only on the loop, by one rename per file. A failed compaction leaves its log
unchanged and delays no other. It is repeated after a growing pause, and its error is logged once. If retention has
deleted the files first, or the topic is not compacted any more, the result is dropped without an error.
Source: architecture rule 18; Apache Kafka's log cleaner and its options log.cleaner.*.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Final

from kohort.base.clock import Clock
from kohort.base.values import value
from kohort.errors import StorageError
from kohort.storage import compaction
from kohort.storage.compaction import Compacted, CompactionPlan, CompactionStopped
from kohort.storage.data_directory import CLEANED_NAME, load_offsets, save_offsets
from kohort.storage.files.fs import DiskFileSystem, SegmentsGoneError
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.segments.segment import Segment
from kohort.storage.store import Store

if TYPE_CHECKING:
    from kohort.broker.processes.compactorprocess import CompactorProcess


log = logging.getLogger("kohort.broker.storage")

#: The longest pause between two pieces of work.
REST_SECONDS: Final = 0.05
#: The longest time until a log that could not be compacted is tried again.
LONGEST_PAUSE_SECONDS: Final = 600.0
#: Time for which an idle process is kept.
IDLE_SECONDS: Final = 10.0
#: The time that a stop waits for the thread; a disk that hangs must not keep the broker from stopping.
STOP_TIMEOUT_SECONDS: Final = 2.0


@value(kw_only=False, frozen=False)
class _Failure:
    """The reason and number of a log's failed compactions in a row, and the time of the next try."""

    reason: str
    attempts: int
    pause: float
    again_at: float


class LogCleaner:
    """The compaction of the logs of compacted topics; used on the loop only."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, store: Store, clock: Clock, *, backoff_ms: int, dedupe_buffer_bytes: int
    ) -> None:
        self._loop: Final = loop
        self._store: Final = store
        self._clock: Final = clock
        self._backoff: Final = backoff_ms / 1000
        self._dedupe_buffer_bytes: Final = dedupe_buffer_bytes
        #: Log -> the offset before which it is compacted.
        self._cleaned: dict[PartitionLog, int] = {}
        #: Log -> its latest failure.
        self._failures: dict[PartitionLog, _Failure] = {}
        self._timer: asyncio.Handle | None = None
        self._is_idle: Final = asyncio.Event()
        self._is_idle.set()
        self._is_stopped = False
        self._rested_at = 0.0
        #: The process that compacts logs on disk; `None` in memory.
        self._process: CompactorProcess | None = None
        if isinstance(store.fs, DiskFileSystem):
            # This import loads pickle, which a broker in memory does not need.
            from kohort.broker.processes.compactorprocess import CompactorProcess

            self._process = CompactorProcess(store.fs.health)
        self._needed_at = 0.0

    def start(self) -> None:
        """Begin to look for logs that need compaction."""
        cleaned = load_offsets(self._store.fs, self._store.directory, CLEANED_NAME)
        self._cleaned = {
            log: min(cleaned.get((log.topic, log.partition), 0), log.log_end_offset) for log in self._logs()
        }
        self._timer = self._loop.call_soon(self._look)

    async def stop(self) -> None:
        """Stop compacting; return when the thread has finished, or after `STOP_TIMEOUT_SECONDS`."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._process is not None:
            self._process.stop()
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._is_idle.wait(), STOP_TIMEOUT_SECONDS)
            if self._process is not None:
                self._process.end()

    def failed_attempts(self, partition: PartitionLog) -> int:
        """Return how many compactions of a partition have failed in a row."""
        failure = self._failures.get(partition)
        return 0 if failure is None else failure.attempts

    def _look(self) -> None:
        logs = self._logs()
        has_lost = self._cleaned.keys() - logs
        self._cleaned = {log: self._cleaned.get(log, 0) for log in logs}
        self._failures = {log: failure for log, failure in self._failures.items() if log in self._cleaned}
        chosen = self._choose()
        now = self._loop.time()
        if chosen is not None:
            self._needed_at = now
            self._begin(partial(self._work, *chosen))
        elif has_lost:
            # A topic was deleted, and a new one may get its name, so the offsets are saved without it.
            self._begin(self._forget)
        elif self.process_id is not None and now - self._needed_at >= IDLE_SECONDS:
            self._begin(self._end_process)
        else:
            self._timer = self._loop.call_later(self._backoff, self._look)

    @property
    def process_id(self) -> int | None:
        """The id of the compacting process, `None` if none runs."""
        return None if self._process is None else self._process.process_id

    def _begin(self, work: Callable[[], None]) -> None:
        self._is_idle.clear()
        # The thread is a daemon: if it hangs in a disk operation, the broker can still exit.
        threading.Thread(target=work, name="kohort-compaction", daemon=True).start()

    def _logs(self) -> list[PartitionLog]:
        """Return the logs that are to be compacted and have not failed."""
        logs = [log for topic in self._store.topics.values() for log in topic.partitions]
        return [log for log in logs if log.config.is_compacted and not log.is_failed]

    def _choose(self) -> tuple[PartitionLog, CompactionPlan] | None:
        """Choose the dirtiest log that is dirty enough, with its plan."""
        now_ms = self._clock.now_ms()
        best: tuple[float, PartitionLog, CompactionPlan] | None = None
        for log in self._cleaned:
            failure = self._failures.get(log)
            if failure is not None and failure.again_at > self._loop.time():
                continue
            # A full disk is reported to the producers that append.
            with contextlib.suppress(StorageError):
                log.roll_overdue(now_ms)
            found = compaction.plan_compaction(
                log,
                self._cleaned[log],
                now_ms=now_ms,
                dedupe_buffer_bytes=self._dedupe_buffer_bytes,
                # A log with little to gain waits.
                least_share=log.config.min_cleanable_dirty_ratio,
            )
            if found is not None and (best is None or found[1] > best[0]):
                best = found[1], log, found[0]
        return None if best is None else best[1:]

    def _work(self, partition: PartitionLog, plan: CompactionPlan) -> None:
        """Carry out one compaction; called in a thread."""
        began_ms = self._clock.now_ms()
        fs = self._store.fs
        has_changed = False
        try:
            made = self._compact(plan, began_ms)
            for part in made.segments:
                segment = part.segment(fs, plan.directory)
                # The log changes on the loop only, by one rename per file.
                replaced = self._on_loop(partition, partial(self._replace, partition, segment, part.cleaned_path))
                has_changed = True
                partition.filing.do(partial(compaction.finish_replacement, fs, plan.directory, replaced))
            self._save({**self._cleaned, partition: made.end_offset})
            _report(partition, made, self._clock.now_ms() - began_ms)
        except CompactionStopped:
            self._post(self._on_done, partition, None)
        except Exception as error:  # after any error the log is readable as before
            with contextlib.suppress(StorageError):
                compaction.discard_cleaned(fs, plan.directory)
            self._post(self._on_failure, partition, error, None if has_changed else plan)
        else:
            self._post(self._on_done, partition, made.end_offset)

    def _compact(self, plan: CompactionPlan, now_ms: int) -> Compacted:
        if self._process is not None:
            return self._process.compact(plan, now_ms=now_ms)
        self._rested_at = time.monotonic()
        return compaction.compact(self._store.fs, plan, now_ms=now_ms, is_stopped=self._rest)

    def _end_process(self) -> None:
        assert self._process is not None
        self._process.end()
        self._post(self._go_on)

    def _forget(self) -> None:
        with contextlib.suppress(StorageError):
            self._save(self._cleaned)
        self._post(self._go_on)

    def _save(self, cleaned: Mapping[PartitionLog, int]) -> None:
        rows = {(log.topic, log.partition): offset for log, offset in cleaned.items()}
        save_offsets(self._store.fs, self._store.directory, CLEANED_NAME, rows)

    def _rest(self) -> bool:
        """Pause for as long as the last piece of work took; return whether to stop."""
        if self._is_stopped:
            return True
        time.sleep(min(time.monotonic() - self._rested_at, REST_SECONDS))
        self._rested_at = time.monotonic()
        return self._is_stopped

    def _replace(self, partition: PartitionLog, segment: Segment, cleaned_path: str) -> list[int]:
        if self._is_stopped:
            raise CompactionStopped
        if not partition.config.is_compacted:
            raise SegmentsGoneError(f"{partition.name} is not to be compacted any more")
        return partition.replace(segment, cleaned_path)

    def _on_loop(self, partition: PartitionLog, change: Callable[[], list[int]]) -> list[int]:
        """Call `change` on the loop, when no index of the partition is being written; return its result."""
        answer: Future[list[int]] = Future()

        def run() -> None:
            try:
                answer.set_result(change())
            except BaseException as error:
                answer.set_exception(error)

        self._post(partition.filing.when_over, run)
        return answer.result()

    def _post(self, callback: Callable[..., None], *arguments: object) -> None:
        if self._loop.is_closed():
            raise CompactionStopped
        self._loop.call_soon_threadsafe(callback, *arguments)

    def _on_failure(self, partition: PartitionLog, error: Exception, unchanged: CompactionPlan | None) -> None:
        """Record a failed compaction; `unchanged` is its plan if no file was replaced."""
        is_overtaken = unchanged is not None and _is_overtaken(partition, unchanged)
        if is_overtaken or isinstance(error, SegmentsGoneError):
            self._go_on()
            return
        before, reason = self._failures.get(partition), str(error)
        pause = self._backoff if before is None else min(2 * before.pause, LONGEST_PAUSE_SECONDS)
        self._failures[partition] = _Failure(
            reason, 1 if before is None else before.attempts + 1, pause, self._loop.time() + pause
        )
        if (before is None or before.reason != reason) and partition in self._logs():
            log.warning(
                "event=compaction_failed partition=%s-%d error=%r", partition.topic, partition.partition, reason
            )
        self._go_on()

    def _on_done(self, partition: PartitionLog, end_offset: int | None) -> None:
        if end_offset is not None:
            self._cleaned[partition] = end_offset
            self._failures.pop(partition, None)
        self._go_on()

    def _go_on(self) -> None:
        self._is_idle.set()
        if not self._is_stopped:
            self._timer = self._loop.call_later(self._backoff, self._look)


def _is_overtaken(partition: PartitionLog, plan: CompactionPlan) -> bool:
    """Return whether a plan is outdated: segments have expired, or the topic is not compacted any more."""
    there = {segment.base_offset for segment in partition.segments}
    return not partition.config.is_compacted or not there.issuperset(plan.bases)


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
