"""How much a producer may hold that is not acknowledged, and waiting for some of it to get its end.

Laws: whoever sends waits here, whoever settles never does; the room knows nobody, so that a producer that is forgotten
can go although its thread still works.
Source: Kafka's `buffer.memory` and `max.block.ms`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

from kohort.errors import KohortTimeoutError


class Room:
    """Counts bytes. May be shared by threads.

    Args:
        limit_bytes: so much is held at most, or one record that is larger.
        max_block_s: how long `reserve` waits, in seconds.
    """

    def __init__(self, *, limit_bytes: int, max_block_s: float) -> None:
        self._limit_bytes = limit_bytes
        self._max_block_s = max_block_s
        self._lock = threading.Lock()
        #: Some records have got their end.
        self._freed = threading.Condition(self._lock)
        #: Bytes of records without an end; guarded by `_lock`.
        self._held_bytes = 0
        self._is_closed = False

    def reserve(self, size: int, wake: Callable[[], None]) -> None:
        """Take room for a record; `wake` is called before a wait, so that what is held is sent.

        Raises:
            KohortTimeoutError: there was none for too long.
            StateError: what `wake` raises where nobody may wait, and when the producer has ended.
        """
        # Entering the lock itself costs half of entering the condition.
        with self._lock:
            if self._held_bytes + size > self._limit_bytes and self._held_bytes > 0:
                wake()
                fits = self._freed.wait_for(
                    lambda: self._held_bytes + size <= self._limit_bytes or self._is_closed, self._max_block_s
                )
                if self._is_closed:
                    wake()
                if not fits:
                    raise KohortTimeoutError(
                        f"buffer.memory ({self._limit_bytes} bytes) stayed full for {self._max_block_s:g} s: "
                        "the broker takes records more slowly than they are sent"
                    )
            self._held_bytes += size

    def release(self, size: int) -> None:
        """A record has its end."""
        with self._freed:
            self._held_bytes -= size
            self._freed.notify_all()

    def close(self) -> None:
        """Nothing is sent any more: whoever waits, or comes later, wakes the machine and learns why."""
        with self._freed:
            self._is_closed = True
            self._held_bytes = self._limit_bytes = 1
            self._freed.notify_all()
