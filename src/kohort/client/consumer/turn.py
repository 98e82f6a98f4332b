"""Whose turn it is: a consumer belongs to one thread at a time.

Laws: taking and giving back never wait; a call that finds the consumer taken is refused, not queued, for two threads
that poll would divide the records between them without knowing.
Source: Kafka's consumer, which is not safe for threads but for `wakeup`.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future
from typing import Final

from kohort.errors import StateError


class Turn:
    """The right to use the consumer."""

    __slots__ = ("_lock", "_owner", "_waiting")

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        #: The thread whose turn it is.
        self._owner: int | None = None
        #: Whoever wants to close it, until it is free.
        self._waiting: Future[object] | None = None

    @property
    def is_mine(self) -> bool:
        """Whether it is the calling thread's."""
        return self._owner == threading.get_ident()

    @property
    def is_free(self) -> bool:
        """Whether it is nobody's."""
        return self._owner is None

    @property
    def owner(self) -> int | None:
        """The thread whose turn it is."""
        return self._owner

    def take(self, what: str) -> None:
        """Take it for the call `what`.

        Raises:
            StateError: another call has it.
        """
        if not self.try_take():
            raise StateError(
                f"{what} was called while another call of this consumer is under way, in another thread or task, or "
                "around this one: a consumer belongs to one, though wakeup and close may come from any; an assignor "
                "computes from what it is handed"
            )

    def try_take(self) -> bool:
        """Take it if it is free; whether it was."""
        if not self._lock.acquire(blocking=False):
            return False
        self._owner = threading.get_ident()
        return True

    def give_back(self) -> None:
        """It is free again."""
        self._owner = None
        self._lock.release()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.set_result(None)

    def wait(self) -> Future[object]:
        """Ends with the next `give_back`; look again at `try_take` after asking for it."""
        if self._waiting is None:
            self._waiting = Future()
        return self._waiting
