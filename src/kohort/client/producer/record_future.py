"""The future of a record that was sent: cheap until somebody looks at it.

Most applications send many records and look at few futures. What a `concurrent.futures.Future` makes at once (a
condition, a lock, lists) is a dozen objects that the garbage collector walks over again and again while a record waits;
with them it, and not the sending, sets the pace.

Laws: one that has ended well is looked at without a lock. Everybody else sees a `concurrent.futures.Future`: `wait`,
`as_completed` and asyncio, too; whoever comes first, the one who settles it or the one who waits, the other one learns
of it.
"""

from __future__ import annotations

from concurrent.futures import Future
from concurrent.futures._base import FINISHED, PENDING
from threading import Condition, Lock
from typing import Any, Final, TypeVar, cast

from kohort.client.own_threads import check_may_wait

T = TypeVar("T")
#: Held for a moment only: while a future gets its condition, or its end.
_LOCK: Final = Lock()
#: What `Future.__init__` makes, and this class when it is asked for.
_WHEN_WATCHED: Final = frozenset({"_condition", "_waiters", "_done_callbacks"})


class RecordFuture(Future[T]):
    """A future that gets its condition and its lists when they are first used."""

    _state = PENDING
    _result: T | None = None
    _exception: BaseException | None = None
    #: Somebody has looked at it, so somebody may be waiting.
    _is_watched = False

    def __init__(self) -> None:
        """Nothing is made here, on purpose."""

    @property
    def is_watched(self) -> bool:
        """Whether anybody has ever asked for its end."""
        return self._is_watched

    def __getattr__(self, name: str) -> Any:
        # Called only for what is missing, so once in the life of a future that is watched.
        if name not in _WHEN_WATCHED:
            raise AttributeError(f"{type(self).__name__} has no attribute {name}")
        with _LOCK:
            if not self._is_watched:
                self._condition = Condition()
                self._waiters: list[Any] = []
                self._done_callbacks: list[Any] = []
                self._is_watched = True
        return object.__getattribute__(self, name)

    def result(self, timeout: float | None = None) -> T:
        """Where the record is stored, once it is; see `concurrent.futures.Future.result`.

        Raises:
            StateError: called in a callback, where that would wait for itself.
        """
        if self._is_good():
            return cast(T, self._result)
        self._check_may_wait()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Why the record is not stored, `None` once it is; see `concurrent.futures.Future.exception`."""
        if self._is_good():
            return None
        self._check_may_wait()
        return super().exception(timeout)

    def _check_may_wait(self) -> None:
        if self._state == PENDING:
            check_may_wait(self)

    def _is_good(self) -> bool:
        # What it ended with is there before its state says so: no lock is needed, and none is made for it.
        return self._state == FINISHED and self._exception is None

    def set_result(self, result: T) -> None:
        """The record is stored there."""
        if not self._settle(result, None):
            super().set_result(result)

    def set_exception(self, exception: BaseException | None) -> None:
        """The record could not be stored."""
        if not self._settle(None, exception):
            super().set_exception(exception)

    def _settle(self, result: T | None, exception: BaseException | None) -> bool:
        """End it without waking anybody, if nobody can be waiting."""
        with _LOCK:
            if self._is_watched or self._state != PENDING:
                return False
            self._result, self._exception = result, exception
            self._state = FINISHED
            return True
