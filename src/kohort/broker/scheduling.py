"""Short turns of the loop: long work in slices, fair turns of connections, blocking work in threads.

The longest turn is measured. The laws of each class precede it.
Source: architecture rule 18: 20 ms."""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from queue import SimpleQueue
from selectors import DefaultSelector, SelectorKey
from traceback import clear_frames
from typing import Final, Protocol, TypeVar

from kohort.base.clock import Clock, SystemClock
from kohort.storage.files.descriptors import NotResidentError, WorkNeededError
from kohort.wire.registry import ApiKey

# Long work in short turns of the loop, so that other requests are handled in between.
#
# Laws: in each turn one slice of one piece of work is done, however much work there is. Pieces of work take turns.
# Source: architecture rule 18: 20 ms.


class CooperativeWork:
    """The long work of one loop."""

    __slots__ = ("_loop", "_under_way")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        #: Unfinished work, the longest waiting first.
        self._under_way: Final[deque[Iterator[None]]] = deque()

    def run(self, steps: Iterator[None]) -> None:
        """Run the first slice of `steps` now, and each further slice in its turn.

        >>> loop = asyncio.new_event_loop()
        >>> CooperativeWork(loop).run(print(number) for number in range(1))
        0
        >>> loop.close()
        """
        if next(steps, steps) is None:
            self.add(steps)

    def add(self, steps: Iterator[None]) -> None:
        """Run every slice of `steps` in its turn."""
        if not self._under_way:
            self._loop.call_soon(self._turn)
        self._under_way.append(steps)

    def _turn(self) -> None:
        steps = self._under_way[0]
        try:
            is_open = next(steps, steps) is None
        finally:
            # The work goes to the end of the queue; if it has failed, it is finished.
            self._under_way.popleft()
            if self._under_way:
                self._loop.call_soon(self._turn)
        if is_open:
            self.add(steps)


# The work of connections in one pass (a turn of the loop): turns, long requests, and reads of records.
#
# Laws: connections that request a turn get it in that order, as many in a pass as its time allows. In a pass a limited
# number of bytes of long requests is handled, of all connections together. Short requests wait for neither. A Produce
# request is not a long request, because its records are only copied. The bytes of records that are read for responses
# in a pass are limited.
# Source: architecture rule 18: 20 ms.

#: Requests with more bytes are long; a pass handles so many bytes of them, or the first one.
SHORT_BYTES: Final = 2 * 1024
LONG_BYTES_PER_PASS: Final = 64 * 1024
#: Bytes of records that are read for responses in a pass, and a slice more.
READ_BYTES_PER_PASS: Final = 4 << 20
#: The time after which the remaining connections get their turn in the next pass.
PASS_SECONDS: Final = 0.005


class TakesTurns(Protocol):
    """A connection that takes turns."""

    def take_turn(self) -> None:
        """Continue with buffered requests and ready responses."""


class FairQueue:
    """The queue of connections and readers that wait for a pass of the loop."""

    __slots__ = ("_is_due", "_left", "_loop", "_readable", "_readers", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._waiting: Final[deque[TakesTurns]] = deque()
        self._is_due = False
        #: Bytes of long requests that may still begin in this pass.
        self._left = LONG_BYTES_PER_PASS
        #: Bytes of records that may still be read in this pass.
        self._readable = READ_BYTES_PER_PASS
        #: Readers that wait for a later pass; empty while bytes of this pass are left.
        self._readers: Final[deque[Callable[[], None]]] = deque()

    def ask(self, connection: TakesTurns) -> None:
        """Queue a turn for `connection` in a later pass."""
        self._waiting.append(connection)
        self._arm()

    def may_begin(self, api_key: int, size: int) -> bool:
        """Return whether a long request may be handled in this pass, and count its bytes."""
        # The cost of records is copying them, not handling many rows.
        if api_key == ApiKey.PRODUCE:
            return True
        if self._left <= 0:
            return False
        if self._left == LONG_BYTES_PER_PASS:
            self._loop.call_soon(self._begin)
        self._left -= size
        return True

    def read(self, begin: Callable[[], None]) -> None:
        """Begin to read records for a response: now, or in a later pass after earlier readers."""
        if self._readable > 0 and not self._readers:
            begin()
        else:
            self._readers.append(begin)

    def note_read(self, size: int) -> None:
        """Count `size` bytes as read in this pass."""
        was_readable = self._readable > 0
        self._readable -= size
        if was_readable and self._readable <= 0:
            self._loop.call_soon(self._begin_reading)

    def _begin_reading(self) -> None:
        self._readable = READ_BYTES_PER_PASS
        try:
            while self._readers and self._readable > 0:
                self._readers.popleft()()
        finally:
            if self._readers and self._readable > 0:
                # A reader has raised an error; the others go on.
                self._loop.call_soon(self._begin_reading)

    def _begin(self) -> None:
        self._left = LONG_BYTES_PER_PASS

    def _arm(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._take_turns)

    def _take_turns(self) -> None:
        self._is_due = False
        # The loop's time may be cached from the beginning of the pass, so the real clock is read.
        until = time.monotonic() + PASS_SECONDS
        for _ in range(len(self._waiting)):
            self._waiting.popleft().take_turn()
            if time.monotonic() >= until:
                break
        if self._waiting:
            self._arm()


# The measurement of the loop's longest turn: its length, and the API during it.
#
# Laws: every turn of a broker's own loop is measured, from one poll of the sockets to the next; this takes two readings
# of the clock. On uvloop or on the loop of another program turns cannot be measured. There the time is measured that
# the requests take that one connection has sent together.
# Source: architecture rule 18: 20 ms.


class LoopWatch:
    """The measurement of a loop's turns."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Final = clock or SystemClock()
        self._began = 0.0
        #: Whether the loop's selector reports its turns.
        self.sees_turns = False
        #: The API of the last request that was handled in this turn, if any.
        self.during = ""
        self.turns = 0
        self.longest_seconds = 0.0
        self.longest_during = ""
        #: The end of the longest turn, milliseconds since 1970; 0 before the first turn.
        self.longest_at_ms = 0

    def begin(self, now: float) -> None:
        """Begin a turn; `now` is in seconds of any clock that never goes back."""
        self._began = now
        self.during = ""

    def end(self, now: float) -> None:
        """End the turn."""
        # Before the loop's first call of `select` no turn has begun.
        if not self._began:
            return
        self.turns += 1
        seconds = now - self._began
        if seconds > self.longest_seconds:
            self.longest_seconds, self.longest_during = seconds, self.during
            self.longest_at_ms = self._clock.now_ms()

    def enter(self) -> None:
        """Begin to measure work that may be long, if turns are not measured."""
        if not self.sees_turns:
            self.begin(time.perf_counter())

    def leave(self) -> None:
        """Finish the measurement that `enter` has begun."""
        if not self.sees_turns:
            self.end(time.perf_counter())


class WatchedSelector(DefaultSelector):
    """The selector of a loop, which reports the beginning and the end of each turn."""

    def __init__(self, watch: LoopWatch) -> None:
        super().__init__()
        self._watch: Final = watch
        watch.sees_turns = True

    def select(self, timeout: float | None = None) -> list[tuple[SelectorKey, int]]:
        """End the measured turn, wait for events, and begin the next turn (asyncio)."""
        self._watch.end(time.perf_counter())
        found = super().select(timeout)
        self._watch.begin(time.perf_counter())
        return found


# Threads for blocking work: reads of cold data, decompression of long batches.
#
# Laws: decisions are made on the loop; a thread gets files and bytes, and no log. Each piece of work is reported once,
# on the loop, unless the loop is closed. At most one piece per thread is in progress, so memory is bounded; the others
# wait in the order of arrival. Threads are started with the first pieces of work.
# Source: architecture rule 18.

log = logging.getLogger("kohort.broker")

T = TypeVar("T")

#: Threads that read from the disk.
COLD_READERS: Final = 4
#: Bytes that a thread reads at a time, only to have them in the page cache.
WARMED_BYTES: Final = 256 * 1024
#: The time that a stop waits for a read in progress.
STOP_TIMEOUT_SECONDS: Final = 2.0


class BlockingWork:
    """A few threads and the queue of their work."""

    def __init__(self, loop: asyncio.AbstractEventLoop, *, threads: int, name: str) -> None:
        self._loop: Final = loop
        self._most: Final = threads
        self._name: Final = name
        self._jobs: Final[SimpleQueue[Callable[[], None] | None]] = SimpleQueue()
        self._threads: Final[list[threading.Thread]] = []
        #: Pieces of work that are not finished.
        self.pending = 0

    def submit(self, work: Callable[[], T], then: Callable[[T | Exception], None]) -> None:
        """Run `work` in a thread, then call `then` on the loop with its result or exception."""
        self.pending += 1
        self._jobs.put(lambda: self._run(work, then))
        if len(self._threads) < min(self._most, self.pending):
            thread = threading.Thread(target=self._work_forever, name=f"{self._name}-{len(self._threads)}", daemon=True)
            self._threads.append(thread)
            thread.start()

    def stop(self) -> None:
        """Stop the threads, and drop work that has not begun."""
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
        except Exception as error:  # passed to `then` on the loop
            # Drop the frames' variables, such as a batch that was decompressed up to the limit.
            clear_frames(error.__traceback__)
            result = error
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._report, then, result)
        # The error references this frame. Without `del` the reference cycle would stay until a garbage collection.
        del result

    def _report(self, then: Callable[[T | Exception], None], result: T | Exception) -> None:
        self.pending -= 1
        then(result)


def warm(cold: NotResidentError) -> None:
    """Read the bytes that `cold` names into the page cache; called in a thread."""
    if isinstance(cold, WorkNeededError):
        cold.work()
        return
    buffer = bytearray(min(cold.size, WARMED_BYTES))
    position, end = cold.position, cold.position + cold.size
    while position < end:
        done = cold.file.read_into(buffer, position, wait=True)
        if not done:
            # The file was truncated meanwhile; the next read detects that.
            return
        position += done
