"""Threads for blocking work: reads of cold data, decompression of long batches.

Laws: what is to be done next is decided on the loop; a thread gets files and bytes, no log. Each piece of work is
reported once, on the loop, unless that has ended. As many pieces are under way as there are threads, so what they hold
is bounded; the others wait in the order of their coming. A thread begins with the first piece of work.
Source: architecture rule 18.
"""

from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable
from queue import SimpleQueue
from traceback import clear_frames
from typing import Final, TypeVar

from kohort.storage.files.descriptors import NotResidentError, WorkNeededError

log = logging.getLogger("kohort.broker")

T = TypeVar("T")

#: Reads from the disk at once.
COLD_READERS: Final = 4
#: Bytes that a thread reads at a time, only to have them in memory.
WARMED_BYTES: Final = 256 * 1024
#: How long a stop waits for a read that is under way.
STOP_TIMEOUT_SECONDS: Final = 2.0


class BlockingWork:
    """A few threads and the queue of their work."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, threads: int, name: str) -> None:
        self._loop: Final = loop
        self._most: Final = threads
        self._name: Final = name
        self._jobs: Final[SimpleQueue[Callable[[], None] | None]] = SimpleQueue()
        self._threads: Final[list[threading.Thread]] = []
        #: Pieces of work that are not reported yet.
        self.pending = 0

    def submit(self, work: Callable[[], T], then: Callable[[T | Exception], None]) -> None:
        """Do `work` on a thread, and call `then` on the loop with its result or exception."""
        self.pending += 1
        self._jobs.put(lambda: self._run(work, then))
        if len(self._threads) < min(self._most, self.pending):
            thread = threading.Thread(target=self._work_forever, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End the threads; drop work that has not begun."""
        while not self._jobs.empty():
            self._jobs.get()
        for _ in self._threads:
            self._jobs.put(None)
        for thread in self._threads:
            # A disk that hangs must not keep the broker from ending; the threads are daemons.
            thread.join(STOP_TIMEOUT_SECONDS)
        self._threads.clear()

    def _work_forever(self) -> None:
        while (job := self._jobs.get()) is not None:
            job()

    def _run(self, work: Callable[[], T], then: Callable[[T | Exception], None]) -> None:
        result: T | Exception
        try:
            result = work()
        except Exception as error:  # it is the asker's, on the loop
            # Drop the frames' variables, such as a batch that was decompressed up to the limit.
            clear_frames(error.__traceback__)
            result = error
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._report, then, result)
        # The error references this frame: without `del` the circle would stay until a garbage collection.
        del result

    def _report(self, then: Callable[[T | Exception], None], result: T | Exception) -> None:
        self.pending -= 1
        then(result)


def warm(cold: NotResidentError) -> None:
    """Read the bytes that `cold` names into memory, on a thread."""
    if isinstance(cold, WorkNeededError):
        cold.work()
        return
    buffer = bytearray(min(cold.size, WARMED_BYTES))
    position, end = cold.position, cold.position + cold.size
    while position < end:
        done = cold.file.read_into(buffer, position, wait=True)
        if not done:
            # The file was truncated meanwhile; the next try finds out.
            return
        position += done
