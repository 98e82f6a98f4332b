"""Long work in short turns of the loop, so that other requests are answered in between.

Laws: however much of it there is, one slice of one piece of work is done in each turn; pieces take turns.
Source: architecture rule 18: 20 ms.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterator
from typing import Final


class Slices:
    """The long work of one loop."""

    __slots__ = ("_loop", "_under_way")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        #: Unfinished work, the longest waiting first.
        self._under_way: Final[deque[Iterator[None]]] = deque()

    def run(self, steps: Iterator[None]) -> None:
        """Take the first step now, and each further one when it is its turn.

        >>> loop = asyncio.new_event_loop()
        >>> Slices(loop).run(print(number) for number in range(1))
        0
        >>> loop.close()
        """
        if next(steps, steps) is None:
            self.add(steps)

    def add(self, steps: Iterator[None]) -> None:
        """Take every step when it is its turn."""
        if not self._under_way:
            self._loop.call_soon(self._turn)
        self._under_way.append(steps)

    def _turn(self) -> None:
        steps = self._under_way[0]
        try:
            is_open = next(steps, steps) is None
        finally:
            # Behind the others, also if it failed: then it is over.
            self._under_way.popleft()
            if self._under_way:
                self._loop.call_soon(self._turn)
        if is_open:
            self.add(steps)
