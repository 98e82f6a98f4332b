"""The memory of answers with records until their clients have taken them, over all connections.

Laws: what all of them hold is bounded, but each may have one batch; a connection has a few of them at a time, and one
where memory is short, of which its transport has little more than the system takes. What is held no more goes back to
the system within seconds, whether anything is read or not.
Source: Kafka's brokers read no request of a connection before the answer to the one before has left.
"""

from __future__ import annotations

import asyncio
from typing import Final

from kohort.storage.files.descriptors import HeldBytes

#: Bytes that all answers may hold together; one answer may have one in `ONE_OF` of what is left.
HELD_BYTES: Final = 256 << 20
ONE_OF: Final = 16
#: Requests with long answers that one connection may have open: Kafka reads nothing ahead, and here all of the answers,
#: which are made in turns, would be there before their client takes the first.
MOST_LONG: Final = 4
#: The time between two checks of the held bytes, while there are any.
SETTLE_SECONDS: Final = 1.0


class AnswerMemory:
    """Shares out the memory for answers with records."""

    __slots__ = ("_held", "_loop", "_timer", "is_short")

    def __init__(self, loop: asyncio.AbstractEventLoop, held: HeldBytes) -> None:
        self._loop: Final = loop
        self._held: Final = held
        self._timer: asyncio.TimerHandle | None = None
        #: Whether half of `HELD_BYTES` is held.
        self.is_short = False

    def share(self) -> int:
        """Return the bytes that one more answer may hold; 0 means one batch."""
        left = HELD_BYTES - self._held.used
        self.is_short = left <= HELD_BYTES // 2
        if self._timer is None:
            self._timer = self._loop.call_later(SETTLE_SECONDS, self._settle)
        return max(left // ONE_OF, 0)

    @property
    def most_long(self) -> int:
        """Requests with long answers that a connection may have open now."""
        return 1 if self.is_short else MOST_LONG

    def stop(self) -> None:
        """Stop the timer."""
        if self._timer is not None:
            self._timer.cancel()

    def _settle(self) -> None:
        is_held = self._held.settle()
        self._timer = self._loop.call_later(SETTLE_SECONDS, self._settle) if is_held else None
