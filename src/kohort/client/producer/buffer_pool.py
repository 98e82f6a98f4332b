"""The producer's limit of unacknowledged bytes (`buffer.memory`), and the wait of `send` for space.

Laws: sending threads wait here; the I/O thread, which frees space, never does. A pool refers to no other part, so that
a producer that was dropped can be garbage-collected while its thread still works.
Source: Kafka's `buffer.memory` and `max.block.ms`.
"""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Final

from kohort.client.producer.core.submission_kernels import IS_PLAIN, BufferSpace
from kohort.errors import BufferFullError, KohortError


class AnyBufferPool(BufferSpace, ABC):
    """Counts the bytes of unacknowledged records; subclasses wait for space in a thread or on a loop.

    Args:
        limit_bytes: most bytes of unacknowledged records; a single larger record is accepted while there is no other.
        max_block_s: seconds that `reserve` waits; 0 means not at all.
        is_shared: whether more than one thread uses it.
    """

    def __init__(self, limit_bytes: int, max_block_s: float, *, is_shared: bool) -> None:
        super().__init__(limit_bytes, threading.Lock() if is_shared and IS_PLAIN else None)
        self._max_block_s: Final = max_block_s
        #: Why the transaction, or the producer, accepts no more records; `None` without such a reason.
        self.why: KohortError | None = None

    @abstractmethod
    def is_wanted(self) -> bool:
        """Return whether a call waits for space."""

    @abstractmethod
    def release(self, size: int) -> None:
        """Free the bytes of records that are stored or have failed."""

    @abstractmethod
    def shut(self) -> None:
        """End every wait, because the producer accepts no more records."""

    def break_off(self, error: KohortError) -> None:
        """Accept no more records, for that error, until the next transaction."""
        self.why = error
        self.shut()

    def reopen(self) -> None:
        """Accept records: a transaction has begun."""
        self.why, self.is_shut = None, False

    def _has_room(self, size: int) -> bool:
        return self.is_shut or self.held_bytes == 0 or self.held_bytes + size <= self.limit_bytes

    def _full(self) -> BufferFullError:
        return BufferFullError(self.limit_bytes, self._max_block_s)


class BufferPool(AnyBufferPool):
    """The `buffer.memory` limit for threads."""

    def __init__(self, limit_bytes: int, max_block_s: float) -> None:
        super().__init__(limit_bytes, max_block_s, is_shared=True)
        #: Notified when space is freed, if a call waits for it.
        self._freed = threading.Condition(threading.Lock())
        #: Number of waiting calls; guarded by `_freed`.
        self._waiting = 0

    def reserve(self, size: int, wake: Callable[[], None]) -> None:
        """Reserve space for a record; call `wake` before a wait, so that records held by linger are sent.

        Raises:
            BufferFullError: the buffer stayed full for max.block.ms. A pool that has been shut accepts every record.
            StateError: `wake` raises it on a thread that must not wait.
        """
        if self._take(size):
            return
        with self._freed:
            self._waiting += 1
            try:
                wake()
                if not self._freed.wait_for(lambda: self._take(size), self._max_block_s):
                    raise self._full()
            finally:
                self._waiting -= 1

    def _take(self, size: int) -> bool:
        if self.is_shut:
            self.hold(size)
            return True
        return self.try_reserve(size)

    def is_wanted(self) -> bool:
        """Return whether a call waits for space."""
        return self._waiting > 0

    def release(self, size: int) -> None:
        """Free the bytes of records that are stored or have failed."""
        self.hold(-size)
        # A call that begins to wait after this look finds the space.
        if self._waiting:
            with self._freed:
                self._freed.notify_all()

    def shut(self) -> None:
        """End every wait, because the producer accepts no more records."""
        self.is_shut = True
        with self._freed:
            self._freed.notify_all()
