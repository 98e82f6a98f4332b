"""Short turns of the loop: long work in slices, fair turns of connections, blocking work on threads.

The longest turn is measured. Each part below has its laws.
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

# Long work in short turns of the loop, so that other requests are answered in between.
#
# Laws: however much of it there is, one slice of one piece of work is done in each turn; pieces take turns.
# Source: architecture rule 18: 20 ms.


class CooperativeWork:
    """The long work of one loop."""

    __slots__ = ("_loop", "_under_way")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        #: Unfinished work, the longest waiting first.
        self._under_way: Final[deque[Iterator[None]]] = deque()

    def run(self, steps: Iterator[None]) -> None:
        """Take the first step now, and each further one when it is its turn.

        >>> loop = asyncio.new_event_loop()
        >>> CooperativeWork(loop).run(print(number) for number in range(1))
        0
        >>> loop.close()
        """
        if next(steps, steps) is None:
            self.add(steps)

    def add(self, steps: Iterator[None]) -> None:
        """Take every step when it is its turn."""
        if not self._under_way:
            self._loop.call_soon(self._turn)
        self._under_way.append(steps)

    def _turn(self) -> None:
        steps = self._under_way[0]
        try:
            is_open = next(steps, steps) is None
        finally:
            # Behind the others, also if it failed: then it is over.
            self._under_way.popleft()
            if self._under_way:
                self._loop.call_soon(self._turn)
        if is_open:
            self.add(steps)


# The work of connections in one pass of the loop: turns, long requests, and reads of records.
#
# Laws: connections that ask for a turn go on in the order in which they asked, as many of them in a pass as have time;
# and those whose request is long carry out a few in a pass, all together. Short requests wait for none of that.
# Records are no long request: what they cost is to be copied. Of those that are read for answers a pass has its share.
# Source: architecture rule 18: 20 ms.

#: Requests with more bytes are long; a pass carries out so many bytes of them, or the first one.
SHORT_BYTES: Final = 2 * 1024
LONG_BYTES_PER_PASS: Final = 64 * 1024
#: So many bytes of records are read for answers in a pass, and a slice more.
READ_BYTES_PER_PASS: Final = 4 << 20
#: The time after which the remaining connections get their turn in the next pass.
PASS_SECONDS: Final = 0.005


class TakesTurns(Protocol):
    """A connection, as the passes see it."""

    def take_turn(self) -> None:
        """Continue with buffered requests and ready answers."""


class FairQueue:
    """The passes of one loop."""

    __slots__ = ("_is_due", "_left", "_loop", "_readable", "_readers", "_waiting")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        self._waiting: Final[deque[TakesTurns]] = deque()
        self._is_due = False
        #: Bytes of long requests that may still begin in this pass.
        self._left = LONG_BYTES_PER_PASS
        #: Bytes of records that may still be read before a pass has had its share.
        self._readable = READ_BYTES_PER_PASS
        #: Readers that wait for a later pass; empty while this pass has a share left.
        self._readers: Final[deque[Callable[[], None]]] = deque()

    def ask(self, connection: TakesTurns) -> None:
        """Queue a turn for `connection` in a later pass."""
        self._waiting.append(connection)
        self._arm()

    def may_begin(self, api_key: int, size: int) -> bool:
        """Whether a long request may be carried out in this pass; else its connection asks for a turn."""
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
        """Begin to read records for an answer: now, or in a later pass after earlier readers."""
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
                # One has failed: the others go on.
                self._loop.call_soon(self._begin_reading)

    def _begin(self) -> None:
        self._left = LONG_BYTES_PER_PASS

    def _arm(self) -> None:
        if not self._is_due:
            self._is_due = True
            self._loop.call_soon(self._take_turns)

    def _take_turns(self) -> None:
        self._is_due = False
        # The loop's own time may be that at which the pass began.
        until = time.monotonic() + PASS_SECONDS
        for _ in range(len(self._waiting)):
            self._waiting.popleft().take_turn()
            if time.monotonic() >= until:
                break
        if self._waiting:
            self._arm()


# The measurement of the loop's longest turn: its length, and the API during it.
#
# Laws: every turn of a broker's own loop is measured, from the moment the sockets were looked at to the moment they are
# looked at again; it costs two looks at the clock. Where no turns are seen, on uvloop or on the loop of another
# program, it is the time that the requests take that one connection has sent together.
# Source: architecture rule 18: 20 ms.


class LoopWatch:
    """The measurement of a loop's turns."""

    def __init__(self, clock: Clock | None = None) -> None:
        self._clock: Final = clock or SystemClock()
        self._began = 0.0
        #: Whether the loop itself tells of its turns.
        self.sees_turns = False
        #: The API of the last request that was handled in this turn, if any.
        self.during = ""
        self.turns = 0
        self.longest_seconds = 0.0
        self.longest_during = ""
        #: When it ended, milliseconds since 1970; 0 while there was none.
        self.longest_at_ms = 0

    def begin(self, now: float) -> None:
        """Begin a turn; `now` is in seconds of any clock that never goes back."""
        self._began = now
        self.during = ""

    def end(self, now: float) -> None:
        """End the turn."""
        # No turn was begun: the loop's first call of `select` has none before it.
        if not self._began:
            return
        self.turns += 1
        seconds = now - self._began
        if seconds > self.longest_seconds:
            self.longest_seconds, self.longest_during = seconds, self.during
            self.longest_at_ms = self._clock.now_ms()

    def enter(self) -> None:
        """Begin work that may be long, where turns are not measured."""
        if not self.sees_turns:
            self.begin(time.perf_counter())

    def leave(self) -> None:
        """End that work."""
        if not self.sees_turns:
            self.end(time.perf_counter())


class WatchedSelector(DefaultSelector):
    """The selector of a loop, which sees where turns begin and end."""

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
# Laws: what is to be done next is decided on the loop; a thread gets files and bytes, no log. Each piece of work is
# reported once, on the loop, unless that has ended. As many pieces are under way as there are threads, so what they
# hold is bounded; the others wait in the order of their coming. A thread begins with the first piece of work.
# Source: architecture rule 18.

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
