"""Periodic checkpoints of logs, so that a start after a crash checks only later records.

Laws: a log is looked at on the loop, and written and synced on a thread, one after the other. A log with a file that is
closed and has its index in memory is written soon, any other that has changed once per interval. What is refused is
tried again at the next turn, and told once until a round has written without; a failed sync ends the broker, as
everywhere. Before each round the directory is looked at: a broker whose directory has gone, or is another's, ends.
Source: Kafka's log.flush.offset.checkpoint.interval.ms, and its flush of a closed segment; architecture rule 18.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from kohort.broker.scheduling.blocking import BlockingWork
from kohort.storage.directory.checkpoints import RECOVERY_POINT_NAME, save_offsets
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.recovery.logstate import Captured, capture, is_outdated, settle, write
from kohort.storage.segments.indexfiles import SegmentFacts
from kohort.storage.segments.segment import Segment
from kohort.storage.store import Store

log = logging.getLogger("kohort.broker")

#: Logs that one turn of the loop looks at.
LOGS_AT_ONCE: Final = 200
#: Closed files are looked for so many times per interval.
LOOKS: Final = 10


class Checkpointer:
    """Checkpoints the logs of every topic, round after round; belongs to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: Store, *, interval_ms: int) -> None:
        self._loop: Final = loop
        self._store: Final = store
        self._pause: Final = interval_ms / 1000 / LOOKS
        self._thread: Final = BlockingWork(loop, threads=1, name="kohort-checkpoint")
        self._left: Iterator[PartitionLog] = iter(())
        self._looks = 0
        #: Whether this round has written, and whether it has failed.
        self._has_written = self._has_failed = False
        #: Whether a failure was logged since the last round that wrote without one.
        self._is_told = False
        self._timer: asyncio.Handle | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Begin the first round after a pause; do nothing for logs in memory."""
        if not self._store.fs.volatile:
            self._later(self._pause, self._begin)

    def stop(self) -> None:
        """Stop writing; a clean stop of the broker writes everything anyway."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        self._thread.stop()

    def _begin(self) -> None:
        self._looks += 1
        self._has_written = self._has_failed = False
        self._thread.submit(self._store.check_place, self._on_checked)

    def _on_checked(self, failure: Exception | None) -> None:
        if failure is not None:
            # The failure ends the broker; the directory may be another broker's, so nothing more is written into it.
            self._is_stopped = True
            return
        self._left = iter([each for topic in self._store.topics.values() for each in topic.partitions])
        self._step()

    def _step(self) -> None:
        for _ in range(LOGS_AT_ONCE):
            partition = next(self._left, None)
            if partition is None:
                self._finish()
                return
            if self._store.has(partition) and self._is_due(partition):
                self._write(partition)
                return
        self._later(0.0, self._step)

    def _is_due(self, partition: PartitionLog) -> bool:
        if self._looks % LOOKS == 0:
            return is_outdated(partition)
        return any(segment.needs_filing for segment in partition.segments[:-1])

    def _write(self, partition: PartitionLog) -> None:
        captured = capture(partition)
        partition.filing.begin()
        work = partial(partition.filing.do, partial(write, self._store.fs, captured))
        self._thread.submit(work, partial(self._on_written, captured))

    def _on_written(self, captured: Captured, filed: list[tuple[Segment, SegmentFacts]] | Exception | None) -> None:
        captured.log.filing.end()
        if filed is not None and self._store.has(captured.log):
            # Otherwise the log was deleted meanwhile, with its files.
            if isinstance(filed, Exception):
                self._has_failed = True
                self._tell("event=checkpoint_failed partition=%s error=%r", captured.log.name, str(filed))
            else:
                settle(captured, filed)
                self._has_written = True
        self._later(0.0, self._step)

    def _finish(self) -> None:
        if self._has_written:
            points = self._store.recovery_points()
            work = partial(save_offsets, self._store.fs, self._store.directory, RECOVERY_POINT_NAME, points)
            self._thread.submit(work, self._on_saved)
        else:
            self._on_saved(None)

    def _on_saved(self, failure: Exception | None) -> None:
        if failure is not None:
            self._has_failed = True
            self._tell("event=checkpoint_failed error=%r", str(failure))
        if self._has_written and not self._has_failed:
            self._is_told = False
        self._later(self._pause, self._begin)

    def _tell(self, words: str, *values: str) -> None:
        if not self._is_told:
            self._is_told = True
            log.warning(words, *values)

    def _later(self, seconds: float, step: Callable[[], None]) -> None:
        if not self._is_stopped:
            self._timer = self._loop.call_later(seconds, step)
