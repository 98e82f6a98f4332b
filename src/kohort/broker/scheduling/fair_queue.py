"""The work of connections in one pass of the loop: turns, long requests, and reads of records.

Laws: connections that ask for a turn go on in the order in which they asked, as many of them in a pass as have time;
and those whose request is long carry out a few in a pass, all together. Short requests wait for none of that.
Records are no long request: what they cost is to be copied. Of those that are read for answers a pass has its share.
Source: architecture rule 18: 20 ms.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

from kohort.wire.registry import ApiKey

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
        ...


class Passes:
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
