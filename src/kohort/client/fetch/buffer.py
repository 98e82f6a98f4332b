"""How many bytes are fetched ahead of the application.

Laws: what is held and what is asked for together stay within the limit, but for the one batch per fetch that a broker
sends in any case, however large. Counted in bytes, never in records.
Source: KIP-81 (bounded memory of the consumer); the consumer threading refactor (CTR): FetchBuffer.
"""

from __future__ import annotations


class FetchBuffer:
    """Counts the bytes of fetched data until the application has taken them.

    >>> buffer = FetchBuffer(limit_bytes=100)
    >>> buffer.reserve(60)
    >>> buffer.room
    40
    >>> buffer.settle(reserved=60, held=10)
    >>> buffer.room
    90
    """

    __slots__ = ("held", "limit_bytes", "reserved")

    def __init__(self, *, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        #: Bytes that have arrived and are not taken.
        self.held = 0
        #: Bytes that fetches under way may bring.
        self.reserved = 0

    @property
    def room(self) -> int:
        """Bytes that may still be asked for."""
        return max(0, self.limit_bytes - self.held - self.reserved)

    def reserve(self, size_bytes: int) -> None:
        """A fetch for so many bytes goes out."""
        self.reserved += size_bytes

    def settle(self, *, reserved: int, held: int) -> None:
        """That fetch has ended and brought `held` bytes."""
        self.reserved -= reserved
        self.held += held
        assert self.reserved >= 0, "settled more than was reserved"

    def release(self, size_bytes: int) -> None:
        """So many bytes are not held any more."""
        self.held -= size_bytes
        assert self.held >= 0, "released more than was held"
