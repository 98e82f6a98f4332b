"""What would keep the loop waiting, on threads of its own: the disk where data is cold, batches that unfold to much.

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
    """A few threads and what waits for them."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, threads: int, name: str) -> None:
        self._loop: Final = loop
        self._most: Final = threads
        self._name: Final = name
        self._jobs: Final[SimpleQueue[Callable[[], None] | None]] = SimpleQueue()
        self._threads: Final[list[threading.Thread]] = []
        #: Pieces of work that are not reported yet.
        self.pending = 0

    def submit(self, work: Callable[[], T], then: Callable[[T | Exception], None]) -> None:
        """Do `work` in a thread, and call `then` on the loop with what it returned or raised."""
        self.pending += 1
        self._jobs.put(lambda: self._run(work, then))
        if len(self._threads) < min(self._most, self.pending):
            thread = threading.Thread(target=self._work_forever, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """End the threads; what has not begun is not done any more."""
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
            # What the work had, such as a batch that was unfolded up to the limit, is not kept for where it failed.
            clear_frames(error.__traceback__)
            result = error
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._report, then, result)
        # An error keeps this place, which would keep the error, until somebody looks for such circles.
        del result

    def _report(self, then: Callable[[T | Exception], None], result: T | Exception) -> None:
        self.pending -= 1
        then(result)


def warm(cold: NotResidentError) -> None:
    """Wait for the disk, so that whoever met `cold` finds the bytes in memory; for a thread."""
    if isinstance(cold, WorkNeededError):
        cold.work()
        return
    buffer = bytearray(min(cold.size, WARMED_BYTES))
    position, end = cold.position, cold.position + cold.size
    while position < end:
        done = cold.file.read_into(buffer, position, wait=True)
        if not done:
            # The file was cut meanwhile: whoever tries again finds out.
            return
        position += done
