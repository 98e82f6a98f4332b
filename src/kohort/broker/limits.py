"""What hostile or greedy clients may take: connections, and bytes of requests that are not complete yet.

Laws: nothing is allocated before it is asked for here; what was granted is given back exactly once.
Source: Kafka's max.connections and queued.max.request.bytes; requirement B4 (bounded memory under hostile input).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final


class ConnectionLimit:
    """Counts connections.

    >>> limit = ConnectionLimit(1)
    >>> limit.enter(), limit.enter()
    (True, False)
    >>> limit.leave()
    >>> limit.enter()
    True
    """

    __slots__ = ("limit", "open")

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        self.open = 0

    def enter(self) -> bool:
        """Count one more; `False` leaves the count and means that the connection must be closed."""
        if self.open >= self.limit:
            return False
        self.open += 1
        return True

    def leave(self) -> None:
        """One that had entered is closed."""
        assert self.open > 0
        self.open -= 1


class ByteBudget:
    """Bytes of receive buffers beyond the small one that every connection has.

    A connection that is refused waits its turn; it is called back when bytes come free. One connection is always
    served, so that a single request as long as the longest allowed makes progress.

    >>> budget = ByteBudget(100)
    >>> budget.grow(60), budget.grow(60), budget.used
    (True, False, 60)
    >>> budget.shrink(60)
    >>> budget.grow(400)
    True
    """

    __slots__ = ("_waiting", "limit_bytes", "used")

    def __init__(self, limit_bytes: int) -> None:
        self.limit_bytes: Final = limit_bytes
        self.used = 0
        #: Callbacks of those that were refused, in order.
        self._waiting: deque[Callable[[], None]] = deque()

    def grow(self, size: int) -> bool:
        """Take `size` bytes; `False` takes nothing."""
        if self.used and self.used + size > self.limit_bytes:
            return False
        self.used += size
        return True

    def shrink(self, size: int) -> None:
        """Give `size` bytes back and let the waiting try again."""
        assert 0 <= size <= self.used
        self.used -= size
        waiting, self._waiting = self._waiting, deque()
        for retry in waiting:
            retry()

    def wait(self, retry: Callable[[], None]) -> None:
        """Call `retry` once bytes are given back."""
        self._waiting.append(retry)
