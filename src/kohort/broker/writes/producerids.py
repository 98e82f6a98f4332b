"""Producer ids, taken from the store in blocks so that most of them cost no write."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from kohort.broker.topics.topic_operations import Outcome

#: Asks for a block; the callbacks get the ids when they are written, and then the outcome.
NextBlock = Callable[[Callable[[range], None], Callable[[Outcome], None]], None]
#: Takes an id, or the reason why there is none.
OnId = Callable[[int, Outcome], None]


class ProducerIds:
    """Gives out each id once, across restarts too.

    >>> blocks = iter([range(0, 2), range(2, 4)])
    >>> ids = ProducerIds(lambda then, done: (then(next(blocks)), done(None)))
    >>> for _ in range(3):
    ...     ids.take(lambda number, why: print(number))
    0
    1
    2
    """

    __slots__ = ("_block", "_next_block", "_waiting")

    def __init__(self, next_block: NextBlock) -> None:
        """Create the source; `next_block` gets unused ids, which the store keeps."""
        self._next_block: Final = next_block
        self._block: Iterator[int] = iter(())
        #: Callbacks that wait for the next block.
        self._waiting: Final[deque[OnId]] = deque()

    def take(self, on_id: OnId) -> None:
        """Hand `on_id` an unused id: at once, or when the next block is written."""
        if not self._waiting:
            for producer_id in self._block:
                on_id(producer_id, None)
                return
        self._waiting.append(on_id)
        # One request for a block at a time serves all that wait.
        if len(self._waiting) == 1:
            self._next_block(self._keep, self._serve)

    def _keep(self, block: range) -> None:
        self._block = iter(block)

    def _serve(self, why: Outcome) -> None:
        if why is not None:
            while self._waiting:
                self._waiting.popleft()(-1, why)
            return
        while self._waiting:
            producer_id = next(self._block, None)
            if producer_id is None:
                self._next_block(self._keep, self._serve)
                return
            self._waiting.popleft()(producer_id, None)
