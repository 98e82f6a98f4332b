"""The memory for incomplete requests, over all connections of a broker.

Laws: nothing is allocated before it is asked for here; what was granted is given back exactly once. Long requests
leave a part for short ones, whatever they hold; what is only kept for the next request goes first; one request that
has begun goes on without room, so that those which fill the budget together do not wait for each other; a short one
gets all it needs or nothing, for the same reason.
Source: Kafka's queued.max.request.bytes; requirement B4 (bounded memory under hostile input).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final, Protocol

#: A request up to this size is a short one.
SHORT_BYTES: Final = 1024 * 1024
#: One in so many bytes is reserved for short requests.
KEPT_PART: Final = 8


class Holder(Protocol):
    """A receive buffer, as the budget sees it."""

    #: Bytes that it has from the budget.
    granted: int

    def shrink(self) -> None:
        """Give back the bytes that are not in use."""
        ...


class ByteBudget:
    """The budget of receive buffers, beyond the small one that every connection has.

    A refused holder waits, and is called back when bytes come free.
    """

    __slots__ = ("_beyond", "_favoured", "_kept", "_waiting", "limit_bytes", "on_short", "used", "waited")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes: Final = limit_bytes
        self.used = 0
        #: How often a holder had to wait since the start.
        self.waited = 0
        #: Callbacks of refused holders, in order.
        self._waiting: deque[Callable[[], None]] = deque()
        #: Called when the first holder begins to wait.
        self.on_short: Callable[[], None] = lambda: None
        #: Empty buffers, which may be told to shrink.
        self._kept: dict[Holder, None] = {}
        #: The one holder that may grow without room, and its bytes beyond the limit.
        self._favoured: Holder | None = None
        self._beyond = 0

    @property
    def is_short(self) -> bool:
        """Whether a holder waits for bytes."""
        return bool(self._waiting)

    def grow(self, holder: Holder, size: int, *, is_short: bool) -> bool:
        """Take `size` bytes more for the short or long request of `holder`; `False` if none are taken."""
        has_room = self._has_room(size, is_short=is_short)
        while not has_room and self._kept:
            self._kept.popitem()[0].shrink()
            has_room = self._has_room(size, is_short=is_short)
        if not has_room:
            # One begun request may always go on: else requests that fill the budget would wait for each other.
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
        """Note an empty buffer, which may be told to shrink."""
        self._kept[holder] = None

    def give_back(self, holder: Holder, size: int) -> None:
        """Take back all `size` bytes of `holder`, and let waiting holders try again."""
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
