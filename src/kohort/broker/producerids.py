"""Producer ids, taken from the store in blocks so that most of them cost no write."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final


class ProducerIds:
    """Gives out each id once, across restarts too.

    >>> blocks = iter([range(0, 2), range(2, 4)])
    >>> ids = ProducerIds(lambda: next(blocks))
    >>> ids.take(), ids.take(), ids.take()
    (0, 1, 2)
    """

    __slots__ = ("_block", "_next_block")

    def __init__(self, next_block: Callable[[], range]) -> None:
        """`next_block`: ids that were never given out, kept by the store."""
        self._next_block: Final = next_block
        self._block: Iterator[int] = iter(())

    def take(self) -> int:
        """An id of its own."""
        for producer_id in self._block:
            return producer_id
        self._block = iter(self._next_block())
        return next(self._block)
