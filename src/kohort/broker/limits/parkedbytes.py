"""The memory of JoinGroup and SyncGroup requests that wait for their groups, over all connections.

They wait with all that they say, and as long as a rebalance takes. Other requests that wait, such as fetches, keep a
note of theirs and have limits of their own.

Laws: what a request takes is counted from its reading until its answer leaves or its connection goes, once. A
connection that holds its part is read again when answers have left it; beyond what all may hold, the next member is
told to come again later, but for a leader's assignment, which ends the waiting of the others.
Source: requirement B4 (bounded memory under hostile input).
"""

from __future__ import annotations

from typing import Final

#: One connection may hold one part in so many of the limit.
PART_OF_CONNECTION: Final = 16


class ParkedBytes:
    """The counter of parked bytes of one broker."""

    __slots__ = ("limit", "limit_of_connection", "refused", "used")

    def __init__(self, limit: int) -> None:
        """Create the counter; `limit` is in bytes of all connections, and one request may begin below it."""
        self.limit: Final = limit
        self.limit_of_connection: Final = max(1, limit // PART_OF_CONNECTION)
        self.used = 0
        #: Requests that were told to come again later, since the start.
        self.refused = 0

    def refuses(self) -> bool:
        """Whether one more request has to come again later.

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
