"""The memory that requests may take which have not come whole, over all connections of a broker.

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
#: Of so many bytes one is kept for short requests.
KEPT_PART: Final = 8


class Holder(Protocol):
    """A buffer."""

    #: Bytes that it has from the budget.
    granted: int

    def shrink(self) -> None:
        """Give back what is not in use."""
        ...


class ByteBudget:
    """Bytes of receive buffers beyond the small one that every connection has.

    Who is refused waits its turn, and is called back when bytes come free.
    """

    __slots__ = ("_beyond", "_favoured", "_kept", "_waiting", "limit_bytes", "on_short", "used", "waited")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes: Final = limit_bytes
        self.used = 0
        #: How often somebody had to wait since the start.
        self.waited = 0
        #: Callbacks of those that were refused, in order.
        self._waiting: deque[Callable[[], None]] = deque()
        #: Called when somebody waits, and nobody did.
        self.on_short: Callable[[], None] = lambda: None
        #: Buffers that were empty when they were last heard of.
        self._kept: dict[Holder, None] = {}
        #: The one that goes on without room, and what it has beyond the limit, in which nobody else has to make room.
        self._favoured: Holder | None = None
        self._beyond = 0

    @property
    def is_short(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiting)

    def grow(self, holder: Holder, size: int, *, is_short: bool) -> bool:
        """Take `size` bytes more for `holder`, whose request is short or long as a whole; `False` takes nothing."""
        has_room = self._has_room(size, is_short=is_short)
        while not has_room and self._kept:
            self._kept.popitem()[0].shrink()
            has_room = self._has_room(size, is_short=is_short)
        if not has_room:
            if self._favoured not in (None, holder) or not holder.granted:
                return False
            self._favoured = holder
            self._beyond += size
            return True
        self.used += size
        return True

    def _has_room(self, size: int, *, is_short: bool) -> bool:
        limit = self.limit_bytes if is_short else self.limit_bytes - self.limit_bytes // KEPT_PART
        return self.used + size <= limit

    def keep(self, holder: Holder) -> None:
        """`holder` is empty; it may be told to shrink, used again or not."""
        self._kept[holder] = None

    def give_back(self, holder: Holder, size: int) -> None:
        """`holder` has no bytes any more, of `size` that it had; the waiting try again."""
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
