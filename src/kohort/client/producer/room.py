"""How much a producer may hold that is not acknowledged, and waiting for some of it to get its end.

Laws: whoever sends waits here, whoever settles never does; the room knows nobody, so that a producer that is forgotten
can go although its thread still works.
Source: Kafka's `buffer.memory` and `max.block.ms`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from kohort.errors import BufferFullError


class AnyRoom(ABC):
    """Counts bytes of what is not acknowledged; how one waits for some of it to go is the door's business.

    Args:
        limit_bytes: so much is held at most, or one record that is larger.
        max_block_s: how long `reserve` waits, in seconds; 0 means not at all.
    """

    def __init__(self, limit_bytes: int, max_block_s: float) -> None:
        self.limit_bytes: Final = limit_bytes
        self._max_block_s: Final = max_block_s
        #: Bytes of records without an end.
        self.held_bytes = 0
        #: Nothing more is taken: the producer is closed, has failed, or was left behind by a fork.
        self.is_shut = False

    @abstractmethod
    def is_wanted(self) -> bool:
        """Whether somebody waits for it."""

    @abstractmethod
    def release(self, size: int) -> None:
        """Records of so many bytes have their end."""

    @abstractmethod
    def shut(self) -> None:
        """Nobody waits any more."""

    def _has_room(self, size: int) -> bool:
        return self.is_shut or self.held_bytes == 0 or self.held_bytes + size <= self.limit_bytes

    def _full(self) -> BufferFullError:
        return BufferFullError(self.limit_bytes, self._max_block_s)


class Room(AnyRoom):
    """May be shared by threads."""

    def __init__(self, limit_bytes: int, max_block_s: float) -> None:
        super().__init__(limit_bytes, max_block_s)
        #: Guards what is held.
        self._lock = threading.Lock()
        #: Some records have got their end.
        self._freed = threading.Condition(self._lock)
        #: How many wait for room; guarded by `_lock`.
        self._waiting = 0

    def reserve(self, size: int, wake: Callable[[], None]) -> None:
        """Take room for a record; `wake` is called before a wait, so that what is held is sent.

        Raises:
            BufferFullError: there was none for too long. One that was shut meanwhile has room for everybody.
            StateError: what `wake` raises where nobody may wait.
        """
        # Entering the lock itself costs half of entering the condition.
        with self._lock:
            if self.held_bytes + size > self.limit_bytes and not self._has_room(size):
                self._waiting += 1
                try:
                    wake()
                    if not self._freed.wait_for(lambda: self._has_room(size), self._max_block_s):
                        raise self._full()
                finally:
                    self._waiting -= 1
            self.held_bytes += size

    def is_wanted(self) -> bool:
        """Whether somebody waits for it."""
        return self._waiting > 0

    def release(self, size: int) -> None:
        """A record has its end."""
        with self._freed:
            self.held_bytes -= size
            self._freed.notify_all()

    def shut(self) -> None:
        """Nobody waits any more."""
        self.is_shut = True
        with self._freed:
            self._freed.notify_all()
