"""What hostile or greedy clients may take: connections, bytes of requests that are not complete, rows of one request.

Laws: nothing is allocated before it is asked for here; what was granted is given back exactly once. A request of more
rows than any client needs closes its connection, as one of too many bytes does: all others would have to wait for it.
Source: Kafka's max.connections and queued.max.request.bytes; requirement B4 (bounded memory under hostile input).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kohort.errors import RemoteProtocolError
from kohort.wire.codec import bounded_decoder
from kohort.wire.private import PrivateApiKey
from kohort.wire.registry import AnyApiKey, ApiKey, request_class

#: (buffer, position) -> (request, position behind it).
Decoder = Callable[[Any, int], tuple[Any, int]]

#: Longest request, in bytes, that carries neither records nor what a leader gives to a whole group; a byte of other
#: requests becomes up to fifty in memory.
MOST_ORDINARY_BYTES: Final = 16 * 1024 * 1024
#: Longest request of an API whose rows are many small ones, in bytes.
MOST_BYTES_OF: Final[dict[AnyApiKey, int]] = {PrivateApiKey.SUBMIT_MOVES: 8 * 1024 * 1024}
#: Rows of all arrays of one request together, where nothing else is said: partitions of a commit, members of a group.
MOST_ROWS: Final = 250_000
#: Those of APIs whose rows are more work than to read them.
MOST_ROWS_OF: Final[dict[AnyApiKey, int]] = {
    ApiKey.PRODUCE: 20_000,
    ApiKey.METADATA: 50_000,
    ApiKey.LIST_OFFSETS: 50_000,
}
_LONG_REQUESTS: Final = frozenset({ApiKey.PRODUCE, ApiKey.SYNC_GROUP})
#: Groups or members that one request may name.
MOST_NAMED: Final = 100_000
#: Partitions that one request about offsets may name.
MOST_PARTITIONS: Final = 200_000


def check_length(api_key: int, size: int) -> None:
    """Let a request of an API pass that has `size` bytes: `RemoteProtocolError` if those are too many.

    >>> check_length(ApiKey.PRODUCE, 50 << 20)
    >>> check_length(ApiKey.LIST_GROUPS, 50 << 20)
    Traceback (most recent call last):
    kohort.errors.RemoteProtocolError: 52428800 bytes of a request of API 16; 16777216 are allowed
    """
    if size > MOST_ORDINARY_BYTES and api_key not in _LONG_REQUESTS:
        raise RemoteProtocolError(f"{size} bytes of a request of API {api_key}; {MOST_ORDINARY_BYTES} are allowed")


def bounded_decode(api_key: AnyApiKey, version: int) -> Decoder:
    """Reads the requests of an API, within the limits that it has for rows and bytes."""
    decode = bounded_decoder(request_class(api_key), version, MOST_ROWS_OF.get(api_key, MOST_ROWS))
    most = MOST_BYTES_OF.get(api_key)
    if most is None:
        return decode

    def decode_bounded(frame: memoryview, position: int) -> tuple[Any, int]:
        if len(frame) > most:
            raise RemoteProtocolError(f"{len(frame)} bytes of a request of API {api_key:d}; {most} are allowed")
        return decode(frame, position)

    return decode_bounded


def check_rows(count: int, most: int, what: str) -> None:
    """Let a request pass that names so many of `what`: `RemoteProtocolError` if those are too many."""
    if count > most:
        raise RemoteProtocolError(f"a request with {count} {what}; {most} are allowed")


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
