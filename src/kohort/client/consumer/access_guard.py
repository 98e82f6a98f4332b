"""The turn of a call: a consumer belongs to one thread at a time.

Laws: taking and giving back never wait. A call that finds the consumer taken is refused, not queued: two threads that
poll would divide the records between them without knowing.
Source: Kafka's consumer, which is not safe for threads except for `wakeup`.
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
        #: The thread that has the turn; `None`: no thread has.
        self._owner: int | None = None
        #: Ends when the turn is given back; made for a `close` that waits.
        self._waiting: Future[object] | None = None

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread has the turn."""
        return self._owner == threading.get_ident()

    @property
    def is_free(self) -> bool:
        """Whether no thread has the turn."""
        return self._owner is None

    @property
    def owner(self) -> int | None:
        """The thread that has the turn; `None`: no thread has."""
        return self._owner

    def take(self, what: str) -> None:
        """Take the turn for the call `what`.

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
        """Take the turn if it is free; return whether it was."""
        if not self._lock.acquire(blocking=False):
            return False
        self._owner = threading.get_ident()
        return True

    def give_back(self) -> None:
        """Give the turn back, and wake a `close` that waits for it."""
        self._owner = None
        self._lock.release()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.set_result(None)

    def wait(self) -> Future[object]:
        """Return a future that ends with the next `give_back`; call `try_take` again after asking for it."""
        if self._waiting is None:
            self._waiting = Future()
        return self._waiting
