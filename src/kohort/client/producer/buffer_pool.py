"""The limit of unacknowledged bytes in a producer, and the wait for some of them to be acknowledged.

Laws: a sending thread waits here, the thread that ends records never does. This object refers to no other part, so that
a producer that was dropped can be collected although its thread still works.
Source: Kafka's `buffer.memory` and `max.block.ms`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from kohort.errors import BufferFullError


class AnyBufferPool(ABC):
    """Counts the bytes of unacknowledged records; each door has its own way to wait.

    Args:
        limit_bytes: so much is held at most, or one record that is larger.
        max_block_s: how long `reserve` waits, in seconds; 0 means not at all.
    """

    def __init__(self, limit_bytes: int, max_block_s: float) -> None:
        self.limit_bytes: Final = limit_bytes
        self._max_block_s: Final = max_block_s
        #: Bytes of records without an end.
        self.held_bytes = 0
        #: Whether no record is taken any more: the producer is closed, has failed, or was left behind by a fork.
        self.is_shut = False

    @abstractmethod
    def is_wanted(self) -> bool:
        """Return whether a call waits for room."""

    @abstractmethod
    def release(self, size: int) -> None:
        """Give back the bytes of records that have their end."""

    @abstractmethod
    def shut(self) -> None:
        """End every wait, because no record is taken any more."""

    def _has_room(self, size: int) -> bool:
        return self.is_shut or self.held_bytes == 0 or self.held_bytes + size <= self.limit_bytes

    def _full(self) -> BufferFullError:
        return BufferFullError(self.limit_bytes, self._max_block_s)


class BufferPool(AnyBufferPool):
    """The limit for threads."""

    def __init__(self, limit_bytes: int, max_block_s: float) -> None:
        super().__init__(limit_bytes, max_block_s)
        #: Guards `held_bytes`.
        self._lock = threading.Lock()
        #: Notified when records have their end.
        self._freed = threading.Condition(self._lock)
        #: Number of waiting calls; guarded by `_lock`.
        self._waiting = 0

    def reserve(self, size: int, wake: Callable[[], None]) -> None:
        """Take room for a record; call `wake` before a wait, so that held records are sent.

        Raises:
            BufferFullError: there was none for too long. A limit that was shut meanwhile has room for every record.
            StateError: `wake` raises it on a thread that must not wait.
        """
        # To enter the lock itself costs half of entering the condition.
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
        """Return whether a call waits for room."""
        return self._waiting > 0

    def release(self, size: int) -> None:
        """Give back the bytes of records that have their end."""
        with self._freed:
            self.held_bytes -= size
            self._freed.notify_all()

    def shut(self) -> None:
        """End every wait, because no record is taken any more."""
        self.is_shut = True
        with self._freed:
            self._freed.notify_all()
