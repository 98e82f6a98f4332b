"""Periodic work: retention, removal of files, expiration of offsets, checkpoints, scrubbing.

The laws below are those of retention; the laws of the other parts precede them.

Laws: a file is taken out of its log on the loop, by a rename. The file is removed later in a thread, because the system
takes a while to free the space of a long file. One turn of the loop examines `PARTITIONS_AT_ONCE` partitions.
Source: Kafka's log.retention.check.interval.ms; architecture rule 18.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import Final

from kohort.base.clock import Clock
from kohort.broker.groups.runtime import Runtime
from kohort.broker.scheduling import BlockingWork
from kohort.coordinator.commands import ExpireOffsets, ExpireOffsetsReply, Refusal
from kohort.errors import StorageError
from kohort.storage.data_directory import RECOVERY_POINT_NAME, save_offsets
from kohort.storage.files.descriptors import NotResidentError
from kohort.storage.files.fs import FileSystem
from kohort.storage.log_state import Captured, capture, is_outdated, settle, write
from kohort.storage.partitions.leader_epoch_runs import EpochRun, mend_epochs
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.scrubbing import Scrubbed, ScrubStoppedError, keep, scrub, scrub_newest
from kohort.storage.segments.indexes import SegmentFacts
from kohort.storage.segments.segment import DELETED_SUFFIX, Segment
from kohort.storage.store import Store

log = logging.getLogger("kohort.broker.storage")

#: Partitions that retention examines in one turn of the loop.
PARTITIONS_AT_ONCE: Final = 200


class LogRetention:
    """The periodic retention of the partitions of every topic; used on the loop only."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, store: Store, clock: Clock, removals: FileRemovals, *, interval_ms: int
    ) -> None:
        self._loop: Final = loop
        self._store: Final = store
        self._clock: Final = clock
        self._removals: Final = removals
        self._interval: Final = interval_ms / 1000
        self._left: Iterator[PartitionLog] = iter(())
        self._timer: asyncio.Handle | None = None

    def start(self) -> None:
        """Begin a round after one interval, so that the first does not slow the broker's start."""
        self._timer = self._loop.call_later(self._interval, self._begin)

    def stop(self) -> None:
        """Stop applying retention."""
        if self._timer is not None:
            self._timer.cancel()

    def look_now(self) -> None:
        """Begin a round at once; the next one is an interval later."""
        self.stop()
        self._begin()

    def _begin(self) -> None:
        # The coordinator's log is compacted, and the journal deletes its own old files.
        topics = [topic for topic in self._store.topics.values() if not topic.is_internal]
        self._left = iter([partition for topic in topics for partition in topic.partitions])
        self._step()

    def _step(self) -> None:
        now_ms = self._clock.now_ms()
        for _ in range(PARTITIONS_AT_ONCE):
            partition = next(self._left, None)
            if partition is None:
                self.start()
                return
            self._look_at(partition, now_ms)
        self._timer = self._loop.call_soon(self._step)

    def _look_at(self, partition: PartitionLog, now_ms: int) -> None:
        if not self._store.has(partition):
            # The partition was deleted meanwhile.
            return
        start = partition.log_start_offset
        try:
            gone = partition.drop_expired(now_ms)
        except StorageError as why:
            log.warning(
                "event=retention_failed partition=%s-%d error=%r", partition.topic, partition.partition, str(why)
            )
            return
        if gone:
            self._removals.later(partition, gone)
            # The paths include the index files of each segment.
            count = sum(path.endswith(DELETED_SUFFIX) for path in gone)
            log.info(
                "event=segments_expired partition=%s-%d segments=%d start_offset=%d->%d",
                *(partition.topic, partition.partition, count, start, partition.log_start_offset),
            )


# The removal of files that were taken out of their logs, after the delay of their topics.
#
# Laws: nothing waits for a removal. A broker that stops before removes the files at its next start. Files of a topic
# that was deleted meanwhile are not removed here: the whole folder is, and another topic may have its name.
# Source: Kafka's file.delete.delay.ms.

#: The longest timer; a longer delay is cut to it.
_LONGEST_TIMER_MS: Final = 30 * 86_400_000


class FileRemovals:
    """The files that wait for their removal; used on the loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fs: FileSystem) -> None:
        self._loop: Final = loop
        self._fs: Final = fs
        self._thread: Final = BlockingWork(loop, threads=1, name="kohort-files")
        self._timers: Final[dict[int, asyncio.TimerHandle]] = {}
        self._number = 0

    def later(self, partition: PartitionLog, paths: Sequence[str]) -> None:
        """Remove files after the delay of their topic, `file.delete.delay.ms`; at once in memory."""
        delay_ms = partition.config.file_delete_delay_ms
        if not paths:
            return
        # In memory no reader opens a file by its name, so no delay is needed.
        if self._fs.volatile or not delay_ms:
            self._remove(partition, paths)
            return
        self._number += 1
        seconds = min(delay_ms, _LONGEST_TIMER_MS) / 1000
        self._timers[self._number] = self._loop.call_later(seconds, self._on_time, self._number, partition, paths)

    def do(self, work: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
        """Run other small work on files in the same thread; in memory before this returns."""
        if not self._fs.volatile:
            self._thread.submit(work, then)
            return
        failure = None
        try:
            work()
        except StorageError as why:
            failure = why
        then(failure)

    def stop(self) -> None:
        """Stop removing files, and stop the thread."""
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._thread.stop()

    def _on_time(self, number: int, partition: PartitionLog, paths: Sequence[str]) -> None:
        del self._timers[number]
        self._remove(partition, paths)

    def _remove(self, partition: PartitionLog, paths: Sequence[str]) -> None:
        for path in paths:
            self.do(partial(partition.filing.do, partial(self._fs.remove, path)), partial(_tell, path))


def _tell(path: str, failure: Exception | None) -> None:
    if failure is not None:
        log.warning("event=removal_failed file=%s error=%r", path, str(failure))


# The periodic expiration of offsets that groups no longer need, a few groups at a time.
#
# Laws: one command examines `GROUPS_AT_ONCE` groups. The next one waits until the expirations are durable and the loop
# has served its sockets, so that a broker with a million offsets responds as usual meanwhile. The coordinator decides
# which offsets expire.
# Source: Kafka's offsets.retention.check.interval.ms; architecture rule 18.

#: Groups that one command examines.
GROUPS_AT_ONCE: Final = 64


class OffsetRetention:
    """The periodic expiration of offsets, one partition of `__consumer_offsets` after the other."""

    def __init__(self, loop: asyncio.AbstractEventLoop, runtime: Runtime, *, interval_ms: int) -> None:
        self._loop: Final = loop
        self._runtime: Final = runtime
        self._interval: Final = interval_ms / 1000
        #: (shard, groups) that the round has still to examine; a shard is a partition of `__consumer_offsets`.
        self._left: deque[tuple[int, list[str]]] = deque()
        #: The shard whose groups are being examined.
        self._index = 0
        self._expired = 0
        self._removed = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin a round after one interval, so that the first does not slow the broker's start."""
        self._timer = self._loop.call_later(self._interval, self._begin)

    def stop(self) -> None:
        """Send no further command."""
        self._left.clear()
        if self._timer is not None:
            self._timer.cancel()

    def look_now(self) -> None:
        """Begin a round at once unless one is in progress; the next one is an interval later."""
        if not self._left:
            self.stop()
            self._begin()

    def _begin(self) -> None:
        self._expired = self._removed = 0
        self._left.extend((index, self._runtime.group_ids(index)) for index in range(self._runtime.shard_count))
        self._step()

    def _step(self) -> None:
        while self._left and not self._left[0][1]:
            self._left.popleft()
        if not self._left:
            self._finish()
            return
        self._index, group_ids = self._left[0]
        step = tuple(group_ids[-GROUPS_AT_ONCE:])
        del group_ids[-GROUPS_AT_ONCE:]
        token = self._runtime.next_token()
        command = ExpireOffsets(cause=token, request=token, group_ids=step)
        self._runtime.ask_shard(self._index, token, command, self._on_reply)

    def _on_reply(self, reply: ExpireOffsetsReply | Refusal) -> None:
        if isinstance(reply, Refusal):
            # The disk refuses writes. The offsets expire in a later round.
            self._left.clear()
            self._finish()
            return
        self._expired += reply.expired
        self._removed += reply.removed
        if self._left:
            self._left[0][1].extend(reply.unfinished)
            # The loop serves its sockets between two commands.
            self._timer = self._loop.call_later(0, self._step)

    def _finish(self) -> None:
        if self._expired or self._removed:
            log.info("event=offsets_expired offsets=%d groups=%d", self._expired, self._removed)
        self.start()


# Periodic checkpoints of logs, so that a start after a crash checks only later records.
#
# Laws: a log is examined on the loop, and its checkpoint is written and synced in a thread, one log after the other. A
# log with a closed file whose index is in memory is written soon, any other changed log once per interval. A refused
# write is tried again in the next round, and logged once until a round without a failure. A failed sync stops the
# broker, as everywhere. Before each round the directory is checked: if it was removed, or is another broker's, the
# broker stops.
# Source: Kafka's log.flush.offset.checkpoint.interval.ms, and its flush of a closed segment; architecture rule 18.

#: Logs that one turn of the loop examines.
LOGS_AT_ONCE: Final = 200
#: Rounds per interval; each looks for closed files, the last one also for other changed logs.
LOOKS: Final = 10


class Checkpointer:
    """The periodic checkpoints of the logs of every topic; used on the loop only."""

    def __init__(self, loop: asyncio.AbstractEventLoop, store: Store, *, interval_ms: int) -> None:
        self._loop: Final = loop
        self._store: Final = store
        self._pause: Final = interval_ms / 1000 / LOOKS
        self._thread: Final = BlockingWork(loop, threads=1, name="kohort-checkpoint")
        self._left: Iterator[PartitionLog] = iter(())
        self._looks = 0
        #: Whether this round has written a checkpoint, and whether one has failed.
        self._has_written = self._has_failed = False
        #: Whether a failure was logged since the last round that wrote without a failure.
        self._is_told = False
        self._timer: asyncio.Handle | None = None
        self._is_stopped = False

    def start(self) -> None:
        """Begin the first round after a pause; do nothing for logs in memory."""
        if not self._store.fs.volatile:
            self._later(self._pause, self._begin)

    def stop(self) -> None:
        """Stop writing checkpoints; a clean stop of the broker writes all logs anyway."""
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
            # The failure stops the broker. The directory may be another broker's, so nothing is written to it any more.
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
            # If not, the log was deleted meanwhile with its files.
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


# The scrubbing of segments: they are read again at a low rate, and damaged records are hidden from readers.
#
# Laws: one segment at a time is read in a thread that pauses to keep its rate. The loop only chooses segments and uses
# results. Damaged records are an error in the broker's log, and a hole for readers; the next start keeps their bytes.
# The result for a segment that was replaced meanwhile is dropped.
# Source: storage/scrubbing.py; architecture rule 18.

#: The pause between two rounds through all segments.
PAUSE_SECONDS: Final = 3600.0


class Scrubber:
    """The periodic scrubbing of the segments of every topic; used on the loop only."""

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
        # Segments whose indexes are in files, and the newest one of each log.
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
            # Each correction is a few bytes of a segment in the page cache, so this writes no more than an append.
            mend_epochs(partition.segments, wrong)
        except StorageError as why:
            log.warning("event=scrub_failed partition=%s error=%r", partition.name, str(why))
        for run in wrong:
            log.error("event=epochs_mended partition=%s %s; their batches said something else", partition.name, run)

    def _later(self, seconds: float, step: Callable[[], None]) -> None:
        if not self._is_stopped.is_set():
            self._timer = self._loop.call_later(seconds, step)
