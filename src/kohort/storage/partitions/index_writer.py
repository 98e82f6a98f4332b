"""The coordination of threads that write index files and checkpoints beside the segments of a log.

Laws: while a thread writes, no file takes the place of a segment's: the written files would be taken for those of the
new one. Once the folder has left its name, which another topic may have by then, no thread writes there. All methods
except `do` and `give_up` are called on the loop.
Source: of ours; Apache Kafka takes a lock of the log for both.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


class Filing:
    """Work that is under way for one log, and callbacks that wait for its end."""

    __slots__ = ("_is_given_up", "_lock", "_pending", "_waiting")

    def __init__(self) -> None:
        #: Held by a thread that changes files of the folder by their names.
        self._lock = threading.Lock()
        self._is_given_up = False
        self._pending = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_awaited(self) -> bool:
        """Whether a callback waits for the end of the work."""
        return bool(self._waiting)

    def begin(self) -> None:
        """Note that a thread is about to write about present segments."""
        self._pending += 1

    def end(self) -> None:
        """Note that it has written, or failed; call the waiting callbacks after the last one."""
        self._pending -= 1
        while self._waiting and not self._pending:
            self._waiting.pop(0)()

    def when_over(self, then: Callable[[], None]) -> None:
        """Call `then` while no thread writes: now, or as soon as that is so."""
        if self._pending:
            self._waiting.append(then)
        else:
            then()

    def do(self, work: Callable[[], T]) -> T | None:
        """Run `work`, which changes files of the folder, and return its result; `None` after `give_up`."""
        with self._lock:
            # After `give_up` the folder's name may belong to another topic.
            return None if self._is_given_up else work()

    def give_up(self) -> None:
        """Forbid further work, since the topic's folder is to be moved; wait until no thread works there."""
        with self._lock:
            self._is_given_up = True
