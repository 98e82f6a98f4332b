"""The memory limits over all connections: incomplete requests, waiting requests, and responses.

Laws: memory is granted here before it is allocated, and each grant is given back exactly once. Long requests leave a
part of the budget for short ones. Buffers that are only kept for the next request are shrunk first. One request that
has begun may always grow beyond the limit, so that requests that fill the budget together do not wait for each other.
For the same reason a short request gets all the memory it needs or none.
Source: Kafka's queued.max.request.bytes; requirement B4 (bounded memory under hostile input).
"""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from kohort.storage.files.descriptors import HeldBytes

#: A request up to this size is a short one.
SHORT_BYTES: Final = 1024 * 1024
#: One in so many bytes is reserved for short requests.
KEPT_PART: Final = 8


class Holder(Protocol):
    """The part of a receive buffer that the budget uses."""

    #: Bytes that the budget has granted to the buffer.
    granted: int

    def shrink(self) -> None:
        """Give back the bytes that are not in use."""


class ByteBudget:
    """The budget for receive buffers beyond the small one that every connection has.

    A buffer that is refused more bytes waits, and is called back when bytes become free.
    """

    __slots__ = ("_beyond", "_favoured", "_kept", "_waiting", "limit_bytes", "on_short", "used", "waited")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes: Final = limit_bytes
        self.used = 0
        #: The number of waits of holders since the start.
        self.waited = 0
        #: Callbacks of refused holders, in order.
        self._waiting: deque[Callable[[], None]] = deque()
        #: Called when the first holder begins to wait.
        self.on_short: Callable[[], None] = lambda: None
        #: Empty buffers, which may be told to shrink.
        self._kept: dict[Holder, None] = {}
        #: The one holder that may grow beyond the limit, and its bytes beyond the limit.
        self._favoured: Holder | None = None
        self._beyond = 0

    @property
    def is_short(self) -> bool:
        """Whether a receive buffer waits for bytes."""
        return bool(self._waiting)

    def grow(self, holder: Holder, size: int, *, is_short: bool) -> bool:
        """Grant `size` more bytes for the request that `holder` receives; return `False` if none are granted."""
        has_room = self._has_room(size, is_short=is_short)
        while not has_room and self._kept:
            self._kept.popitem()[0].shrink()
            has_room = self._has_room(size, is_short=is_short)
        if not has_room:
            # One request that has begun may always grow. Otherwise requests that fill the budget would wait for each
            # other.
            if self._favoured not in (None, holder) or not holder.granted:
                return False
            self._favoured = holder
            self._beyond += size
            return True
        self.used += size
        return True

    def _has_room(self, size: int, *, is_short: bool) -> bool:
        # Long requests leave a part of the budget for short ones.
        limit = self.limit_bytes if is_short else self.limit_bytes - self.limit_bytes // KEPT_PART
        return self.used + size <= limit

    def keep(self, holder: Holder) -> None:
        """Record that a buffer is empty and may be shrunk for the sake of others."""
        self._kept[holder] = None

    def give_back(self, holder: Holder, size: int) -> None:
        """Take back all `size` bytes of `holder`, and let the waiting buffers try again."""
        if self._favoured is holder:
            size -= self._beyond
            self._favoured, self._beyond = None, 0
        assert 0 <= size <= self.used
        self.used -= size
        self._kept.pop(holder, None)
        waiting, self._waiting = self._waiting, deque()
        for retry in waiting:
            retry()

    def wait(self, retry: Callable[[], None]) -> None:
        """Call `retry` once bytes are given back."""
        self._waiting.append(retry)
        self.waited += 1
        if len(self._waiting) == 1:
            self.on_short()


# The memory of JoinGroup and SyncGroup requests that wait for their groups, over all connections.
#
# They wait with all of their bytes, for as long as a rebalance takes. Other waiting requests, such as fetches, keep
# only a part and have other limits.
#
# Laws: the bytes of a request are counted once, from its reading until its response is sent or its connection closed.
# A connection that has used its part is read again once responses were sent. Beyond the limit of all connections the
# next member has to retry later. An assignment of a group's leader is accepted beyond the limit, for it ends the wait
# of the other members.
# Source: requirement B4 (bounded memory under hostile input).

#: One connection may use the limit divided by this number.
PART_OF_CONNECTION: Final = 16


class ParkedBytes:
    """The bytes of one broker's JoinGroup and SyncGroup requests that wait for their groups."""

    __slots__ = ("limit", "limit_of_connection", "refused", "used")

    def __init__(self, limit: int) -> None:
        """Create the counter; `limit` is in bytes, and one more request is accepted while fewer are used."""
        self.limit: Final = limit
        self.limit_of_connection: Final = max(1, limit // PART_OF_CONNECTION)
        self.used = 0
        #: Requests whose clients had to retry later, since the start.
        self.refused = 0

    def refuses(self) -> bool:
        """Return whether the client of one more request has to retry later, and count such a refusal.

        >>> parked = ParkedBytes(100)
        >>> parked.used = 99
        >>> parked.refuses()
        False
        >>> parked.used = 100
        >>> parked.refuses()
        True
        """
        is_full = self.used >= self.limit
        self.refused += is_full
        return is_full


# The memory of responses with records until they are sent to their clients, over all connections.
#
# Laws: the memory of all responses together is bounded, but each may have one batch. A connection has a few such
# responses at a time, and only one if memory is short. Its transport buffers little more of a response than the system
# accepts. Unused memory is returned to the system within seconds, whether clients fetch or not.
# Source: Kafka's brokers read no request of a connection before the response to the previous one was sent.

#: Bytes that all responses may use together; one response may use the remaining bytes divided by `ONE_OF`.
HELD_BYTES: Final = 256 << 20
ONE_OF: Final = 16
#: Requests with long responses that one connection may have in progress. Kafka reads no request ahead. Here responses
#: are built in turns, so without this limit all of them would be in memory before the client reads the first.
MOST_LONG: Final = 4
#: The time between two checks of the held bytes, while there are any.
SETTLE_SECONDS: Final = 1.0


class AnswerMemory:
    """The memory for responses with records, shared by all connections."""

    __slots__ = ("_held", "_loop", "_timer", "is_short", "most_long")

    def __init__(self, loop: asyncio.AbstractEventLoop, held: HeldBytes) -> None:
        self._loop: Final = loop
        self._held: Final = held
        self._timer: asyncio.TimerHandle | None = None
        #: Whether half of `HELD_BYTES` is used.
        self.is_short = False
        #: Requests with long responses that a connection may have in progress now.
        self.most_long = MOST_LONG

    def share(self) -> int:
        """Return the bytes that one more response may hold; 0 allows one batch."""
        left = HELD_BYTES - self._held.used
        self.is_short = left <= HELD_BYTES // 2
        self.most_long = 1 if self.is_short else MOST_LONG
        if self._timer is None:
            self._timer = self._loop.call_later(SETTLE_SECONDS, self._settle)
        return max(left // ONE_OF, 0)

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _settle(self) -> None:
        is_held = self._held.settle()
        self._timer = self._loop.call_later(SETTLE_SECONDS, self._settle) if is_held else None


# The memory limit of records in a broker without a data directory.
#
# Source: requirement G1; control groups of Linux, by which containers have less memory than their machine.

#: Files with the memory limit of a container: of control groups version 2, and of version 1.
_LIMIT_FILES: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_PART: Final = 4


def memory_limit_bytes(asked: int | None) -> int:
    """Return the configured limit, or a quarter of the memory of this machine or container, bytes."""
    return asked if asked is not None else machine_bytes() // _PART


def machine_bytes() -> int:
    """Return the memory of this machine or container, bytes."""
    found = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _LIMIT_FILES:
        # "max", or no such file: no limit.
        with contextlib.suppress(OSError, ValueError):
            found.append(int(Path(path).read_text()))
    return min(found)
