"""The removal of files that have left their logs, after the delay of their topics.

Laws: nothing waits for a removal. A broker that stops before removes them when it starts. Of a topic that is deleted
meanwhile nothing is removed here: its folder goes, and what has its name belongs to another.
Source: Kafka's file.delete.delay.ms.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final

from kohort.broker.scheduling.blocking import BlockingWork
from kohort.errors import StorageError
from kohort.storage.files.fs import FileSystem
from kohort.storage.partitions.partition import PartitionLog

log = logging.getLogger("kohort.broker")

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
