"""The scrubbing of segments: reads them again at a low rate, and hides damaged records from readers.

Laws: one segment at a time, on a thread that rests as its rate says; the loop only chooses, and takes the result. What
is found damaged is an error in the log of the broker, and a hole for readers; the next start keeps the bytes. What is
found of a segment whose place was taken meanwhile is dropped.
Source: storage/maintenance/scrubbing.py; architecture rule 18.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from kohort.broker.scheduling.blocking import BlockingWork
from kohort.errors import StorageError
from kohort.storage.files.descriptors import NotResidentError
from kohort.storage.maintenance.scrubbing import Scrubbed, ScrubStoppedError, keep, scrub, scrub_newest
from kohort.storage.partitions.leader_epoch_runs import EpochRun, mend_epochs
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.segments.segment import Segment
from kohort.storage.store import Store

log = logging.getLogger("kohort.broker")

#: The pause between two rounds through all segments.
PAUSE_SECONDS: Final = 3600.0


class Scrubber:
    """Scrubs the segments of every topic, round after round; belongs to the loop."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, store: Store, *, bytes_per_second: int, pause: float = PAUSE_SECONDS
    ) -> None:
        self._loop: Final = loop
        self._store: Final = store
        self._rate: Final = bytes_per_second
        self._pause: Final = pause
        self._thread: Final = BlockingWork(loop, threads=1, name="kohort-scrubber")
        self._is_stopped: Final = threading.Event()
        self._left: Iterator[tuple[PartitionLog, int]] = iter(())
        self._timer: asyncio.Handle | None = None
        self._bytes = self._segments = self._damaged = 0

    def start(self) -> None:
        """Begin the first round after a pause; do nothing at a rate of 0, or for logs in memory."""
        if self._rate and not self._store.fs.volatile:
            self._later(self._pause, self._begin)

    def stop(self) -> None:
        """Stop reading."""
        self._is_stopped.set()
        if self._timer is not None:
            self._timer.cancel()
        self._thread.stop()

    def _begin(self) -> None:
        self._bytes = self._segments = self._damaged = 0
        logs = [each for topic in self._store.topics.values() for each in topic.partitions]
        # Only these segments have their indexes in files, or are the newest.
        self._left = (
            (each, part.base_offset)
            for each in logs
            for part in list(each.segments)
            if part.index is None or part is each.segments[-1]
        )
        self._step()

    def _step(self) -> None:
        chosen = next(self._left, None)
        if chosen is None:
            if self._segments:
                log.info("event=scrubbed segments=%d bytes=%d damaged=%d", self._segments, self._bytes, self._damaged)
            self._later(self._pause, self._begin)
            return
        partition, base_offset = chosen
        there = partition.segments if self._store.has(partition) else []
        segment = next((part for part in there if part.base_offset == base_offset), None)
        work = None if segment is None else self._work_at(partition, segment)
        if segment is None or work is None:
            self._later(0.0, self._step)
            return
        self._thread.submit(work, partial(self._on_scrubbed, partition, segment))

    def _work_at(self, partition: PartitionLog, segment: Segment) -> Callable[[], Scrubbed | None] | None:
        place, epochs = (self._store.fs, partition.directory, segment.base_offset), partition.epochs.starts
        newest = partition.segments[-1]
        if segment is not newest:
            return partial(scrub, *place, pause=self._rest, epochs=epochs)
        end_offset = min(partition.high_watermark, newest.next_offset)
        try:
            size = newest.position_of(end_offset, wait=False)
        except (NotResidentError, StorageError):
            size = 0
        if not size:
            return None
        look = partial(scrub_newest, *place, pause=self._rest, epochs=epochs)
        return partial(look, end_offset=end_offset, size_bytes=size, has_gaps=newest.has_gaps)

    def _rest(self, count: int) -> None:
        if self._is_stopped.wait(count / self._rate):
            raise ScrubStoppedError

    def _on_scrubbed(self, partition: PartitionLog, segment: Segment, result: Scrubbed | Exception | None) -> None:
        if self._is_stopped.is_set():
            return
        if segment not in partition.segments or not self._store.has(partition):
            # The result may be about a file that was replaced meanwhile, in part or as a whole.
            result = None
        if isinstance(result, Exception):
            log.warning("event=scrub_failed partition=%s error=%r", partition.name, str(result))
        elif result is not None:
            self._tell(partition, segment, result)
            if result.is_news:
                partition.filing.begin()
                place = self._store.fs, partition.directory, segment.base_offset
                work = partial(partition.filing.do, partial(keep, *place, result))
                self._thread.submit(work, partial(self._on_kept, partition))
                return
        self._later(0.0, self._step)

    def _on_kept(self, partition: PartitionLog, failure: Exception | None) -> None:
        partition.filing.end()
        if failure is not None:
            log.warning("event=scrub_failed partition=%s error=%r", partition.name, str(failure))
        self._later(0.0, self._step)

    def _tell(self, partition: PartitionLog, segment: Segment, result: Scrubbed) -> None:
        self._segments += 1
        self._bytes += result.size_bytes
        self._mend_epochs(partition, result.epochs)
        if not result.reason:
            return
        self._damaged += 1
        partition.refuse(result.damages)
        place = partition.name, segment.base_offset
        log.error("event=segment_damaged partition=%s segment=%d reason=%r", *place, result.reason)
        for hole in result.damages:
            offsets = hole.first_offset, hole.next_offset - 1
            log.error("event=records_missing partition=%s offsets=%d-%d", partition.name, *offsets)

    def _mend_epochs(self, partition: PartitionLog, wrong: Sequence[EpochRun]) -> None:
        """Correct wrong leader epochs in a segment that was just read."""
        try:
            # Each is a few bytes of a segment that is in memory: this writes no more than an append does.
            mend_epochs(partition.segments, wrong)
        except StorageError as why:
            log.warning("event=scrub_failed partition=%s error=%r", partition.name, str(why))
        for run in wrong:
            log.error("event=epochs_mended partition=%s %s; their batches said something else", partition.name, run)

    def _later(self, seconds: float, step: Callable[[], None]) -> None:
        if not self._is_stopped.is_set():
            self._timer = self._loop.call_later(seconds, step)
