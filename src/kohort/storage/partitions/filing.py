"""Who writes, beside the loop, what lies beside the segments of a log: their indexes and what is known of them.

Laws: as long as somebody does, no file takes the place of a segment's: what is written would be taken for what is known
of the new one. Once the folder has left its name, which another topic may have by then, nobody writes there. All of it
is called on the loop, but for `do` and `give_up`.
Source: of ours; Apache Kafka takes a lock of the log for both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Filing:
    """Pieces of work that are under way for one log, and what waits for their end."""

    __slots__ = ("_is_given_up", "_lock", "_pending", "_waiting")

    def __init__(self) -> None:
        #: Held by a thread that changes files of the folder by their names.
        self._lock = threading.Lock()
        self._is_given_up = False
        self._pending = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_awaited(self) -> bool:
        """Whether something waits for the end."""
        return bool(self._waiting)

    def begin(self) -> None:
        """A thread is about to write; what it writes of a segment is of one that is there now."""
        self._pending += 1

    def end(self) -> None:
        """It has written, or failed."""
        self._pending -= 1
        while self._waiting and not self._pending:
            self._waiting.pop(0)()

    def when_over(self, then: Callable[[], None]) -> None:
        """Call `then` while nobody writes: now, or as soon as that is so."""
        if self._pending:
            self._waiting.append(then)
        else:
            then()

    def do(self, work: Callable[[], T]) -> T | None:
        """What `work` returns, which changes files of the folder; it is not called, and `None`, if that is given up."""
        with self._lock:
            return None if self._is_given_up else work()

    def give_up(self) -> None:
        """The topic is deleted, and its folder is to be moved: returns as soon as nobody is at work there."""
        with self._lock:
            self._is_given_up = True
