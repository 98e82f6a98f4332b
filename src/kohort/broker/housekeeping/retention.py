"""The periodic retention of logs: deletes files by the age or size of their topics' records.

Laws: a file leaves its log on the loop, by a rename; it is removed later, on a thread, since the space of a long one
takes the system a while. One turn of the loop looks at so many partitions.
Source: Kafka's log.retention.check.interval.ms; architecture rule 18.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Final

from kohort.broker.housekeeping.fileremovals import FileRemovals
from kohort.clock import Clock
from kohort.errors import StorageError
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.segments.segment import DELETED_SUFFIX
from kohort.storage.store import Store

log = logging.getLogger("kohort.broker")

#: Partitions that one turn looks at.
PARTITIONS_AT_ONCE: Final = 200


class LogRetention:
    """Applies retention to the partitions of every topic, round after round; belongs to the loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        store: Store,
        clock: Clock,
        removals: FileRemovals,
        *,
        interval_ms: int,
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
