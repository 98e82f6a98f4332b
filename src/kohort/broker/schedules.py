"""Work by schedule: retention, removal of files, expiration of offsets, checkpoints, scrubbing.

Retention comes first, and the laws here are its own; each part behind it has others.

Laws: a file leaves its log on the loop, by a rename; it is removed later, on a thread, since the space of a long one
takes the system a while. One turn of the loop looks at so many partitions.
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

#: Partitions that one turn looks at.
PARTITIONS_AT_ONCE: Final = 200


class LogRetention:
    """Applies retention to the partitions of every topic, round after round; belongs to the loop."""

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
        """Begin the first round after one interval, when the start of the broker is over."""
        self._timer = self._loop.call_later(self._interval, self._begin)

    def stop(self) -> None:
        """Stop deleting files."""
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


# The removal of files that have left their logs, after the delay of their topics.
#
# Laws: nothing waits for a removal. A broker that stops before removes them when it starts. Of a topic that is deleted
# meanwhile nothing is removed here: its folder goes, and what has its name belongs to another.
# Source: Kafka's file.delete.delay.ms.

#: The longest timer; a file with a longer delay is removed then.
_LONGEST_TIMER_MS: Final = 30 * 86_400_000


class FileRemovals:
    """The files that wait for their removal; belongs to the loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop, fs: FileSystem) -> None:
        self._loop: Final = loop
        self._fs: Final = fs
        self._thread: Final = BlockingWork(loop, threads=1, name="kohort-files")
        self._timers: Final[dict[int, asyncio.TimerHandle]] = {}
        self._number = 0

    def later(self, partition: PartitionLog, paths: Sequence[str]) -> None:
        """Remove files after the delay of their topic; at once in memory, where no reader could open them."""
        delay_ms = partition.config.file_delete_delay_ms
        if not paths:
            return
        # In memory no reader opens a file by its name, so nothing has to wait.
        if self._fs.volatile or not delay_ms:
            self._remove(partition, paths)
            return
        self._number += 1
        seconds = min(delay_ms, _LONGEST_TIMER_MS) / 1000
        self._timers[self._number] = self._loop.call_later(seconds, self._on_time, self._number, partition, paths)

    def do(self, work: Callable[[], None], then: Callable[[Exception | None], None]) -> None:
        """Do other small work on files, on the same thread; in memory, before this returns."""
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
        """Stop removing, and end the thread."""
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
# Laws: one step looks at so many groups, and the next one waits until what it forgot is durable and the loop has served
# its sockets: a broker with a million offsets answers as ever meanwhile. What is forgotten the coordinator decides.
# Source: Kafka's offsets.retention.check.interval.ms; architecture rule 18.

#: Groups that one step looks at.
GROUPS_AT_ONCE: Final = 64


class OffsetRetention:
    """Expires offsets of the groups of every shard, round after round."""

    def __init__(self, loop: asyncio.AbstractEventLoop, runtime: Runtime, *, interval_ms: int) -> None:
        self._loop: Final = loop
        self._runtime: Final = runtime
        self._interval: Final = interval_ms / 1000
        #: (shard, groups) of the round that are still to be looked at.
        self._left: deque[tuple[int, list[str]]] = deque()
        #: The shard whose groups are being looked at.
        self._index = 0
        self._expired = 0
        self._removed = 0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin the first round after one interval, when the start of the broker is over."""
        self._timer = self._loop.call_later(self._interval, self._begin)

    def stop(self) -> None:
        """Take no further step."""
        self._left.clear()
        if self._timer is not None:
            self._timer.cancel()

    def look_now(self) -> None:
        """Begin a round at once, if none is under way; the next one is an interval later."""
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
            # The disk takes nothing: old offsets will still be old in the next round.
            self._left.clear()
            self._finish()
            return
        self._expired += reply.expired
        self._removed += reply.removed
        if self._left:
            self._left[0][1].extend(reply.unfinished)
            # The loop serves its sockets between two steps.
            self._timer = self._loop.call_later(0, self._step)

    def _finish(self) -> None:
        if self._expired or self._removed:
            log.info("event=offsets_expired offsets=%d groups=%d", self._expired, self._removed)
        self.start()


# Periodic checkpoints of logs, so that a start after a crash checks only later records.
#
# Laws: a log is looked at on the loop, and written and synced on a thread, one after the other. A log with a file that
# is closed and has its index in memory is written soon, any other that has changed once per interval. What is refused
# is tried again at the next turn, and told once until a round has written without; a failed sync ends the broker, as
# everywhere. Before each round the directory is looked at: a broker whose directory has gone, or is another's, ends.
# Source: Kafka's log.flush.offset.checkpoint.interval.ms, and its flush of a closed segment; architecture rule 18.

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


# The scrubbing of segments: reads them again at a low rate, and hides damaged records from readers.
#
# Laws: one segment at a time, on a thread that rests as its rate says; the loop only chooses, and takes the result.
# What is found damaged is an error in the log of the broker, and a hole for readers; the next start keeps the bytes.
# What is found of a segment whose place was taken meanwhile is dropped.
# Source: storage/scrubbing.py; architecture rule 18.

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
