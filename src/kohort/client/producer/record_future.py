"""A record on its way, which is also the future that `send` returns: one object, cheap until somebody looks at it.

Most applications send many records and look at few futures. What a `concurrent.futures.Future` makes at once (a
condition, a lock, lists) is a dozen objects that the garbage collector walks over again and again while a record waits;
with them it, and not the sending, sets the pace. For the same reason a record gets no end of its own: it shares that of
its batch, and what `result` returns is made when it is asked for.

Laws: one that nobody looks at ends without being touched. Everybody else sees a `concurrent.futures.Future`: `wait`,
`as_completed` and asyncio, too; whoever comes first, the one who settles it or the one who waits, the other one learns
of it.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from concurrent.futures._base import CANCELLED, FINISHED, PENDING
from threading import Condition, Lock
from typing import Any, Final, Literal, TypeVar

from kohort.client.own_threads import check_may_wait
from kohort.client.records import RecordMetadata
from kohort.errors import KohortError
from kohort.records.build_kernels import new_record, show_record

T = TypeVar("T")
#: Headers as they travel: (name, value) pairs.
Headers = tuple[tuple[str, bytes | None], ...]
#: What is told of a record that has its end: the error, or where it is stored.
DeliveryCall = Callable[[KohortError | None, RecordMetadata | None], object]

#: Held for a moment only: while a future gets its condition.
_LOCK: Final = Lock()
#: What `Future.__init__` makes, and this class when it is asked for.
_WHEN_WATCHED: Final = frozenset({"_condition", "_waiters", "_done_callbacks"})
_BOTH_ENDS: Final = "add_done_callback, or give send a function as on_delivery"
#: What kafka-python's futures have, in words of ours.
_CALLED: Final = {
    "get": "result",
    "value": "result",
    "is_done": "done",
    "succeeded": "exception",
    "failed": "exception",
    "add_callback": _BOTH_ENDS,
    "add_errback": _BOTH_ENDS,
    "add_both": _BOTH_ENDS,
    # What asyncio.wait calls, which takes futures of the loop alone.
    "remove_done_callback": "asyncio.ensure_future before asyncio.wait",
}


class BatchEnd:
    """What becomes of the records of one batch, which all refer to it."""

    __slots__ = ("append_time_ms", "base_offset", "error", "is_over", "partition", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        #: Offset of the first record; -1 where the broker was not asked to tell.
        self.base_offset = -1
        #: When the broker appended it, in milliseconds; -1 where each record keeps its own time.
        self.append_time_ms = -1
        #: Why it is not stored.
        self.error: KohortError | None = None
        #: Set last.
        self.is_over = False


#: Of what waits for a batch.
_NOT_YET: Final = BatchEnd("", -1)


def awaited(future: Future[T]) -> Generator[Any, None, T]:
    """What `await` goes through."""
    from asyncio import shield, wrap_future

    return shield(wrap_future(future)).__await__()


class RecordFuture(Future[RecordMetadata]):
    """A record, and the future of where it is stored.

    Args:
        timestamp_ms: milliseconds since 1970.
        size_bytes: what it takes of `buffer.memory`.
    """

    #: What every record has. The rest are exceptions and cost nothing where they are not made.
    __slots__ = ("end", "index", "key", "size_bytes", "timestamp_ms", "topic", "value")

    #: Where it is to go; `None` leaves the choice to the partitioner.
    partition: int | None = None
    headers: Headers = ()
    #: Called once it has its end.
    on_delivery: DeliveryCall | None = None
    #: Its end is to be told to somebody.
    is_noticed = False
    #: It is one record, not many.
    is_bulk: Literal[False] = False
    #: Somebody has looked at it, so somebody may be waiting.
    is_watched = False
    #: State of one that was cancelled, or that is watched; of all others their end says what is so.
    _fate = PENDING

    def __init__(self, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int, size_bytes: int) -> None:
        # What `Future.__init__` makes is not made here, on purpose.
        self.topic = topic
        self.key = key
        self.value = value
        self.timestamp_ms = timestamp_ms
        self.size_bytes = size_bytes

    @classmethod
    def hidden(
        cls, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int, size_bytes: int
    ) -> RecordFuture:
        """The same, kept from the garbage collector until somebody looks at it, or it fails."""
        record: RecordFuture = new_record(cls, topic, key, value, timestamp_ms, size_bytes)
        return record

    def tell(self, on_delivery: DeliveryCall) -> None:
        """Somebody is to be called once it has its end."""
        show_record(self)
        self.on_delivery = on_delivery
        self.is_noticed = True

    def join(self, end: BatchEnd, index: int) -> None:
        """From now on it shares the end of that batch, in which it has that place."""
        self.end = end
        self.index = index

    def fail(self, error: KohortError) -> None:
        """It ends by itself, outside of any batch."""
        self.on_failure()
        self.end = BatchEnd(self.topic, -1)
        self.end.error = error
        self.end.is_over = True
        self.on_end()

    def on_failure(self) -> None:
        """It gets an error, whose traceback may come to hold whatever there is."""
        show_record(self)

    def on_end(self) -> None:
        """Its end has come: tell whoever waits. To be called where `is_noticed` says so."""
        if not self.is_watched:
            return
        with self._condition:
            if self._fate != PENDING:
                return
            self._fate = FINISHED
            for waiter in self._waiters:
                (waiter.add_exception if self.end.error is not None else waiter.add_result)(self)
            self._condition.notify_all()
        self._invoke_callbacks()

    # -- what Future has as attributes ----------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        # Called only for what is missing: once in the life of a future that is watched, and before it is in a batch.
        if name == "end":
            return _NOT_YET
        if name not in _WHEN_WATCHED:
            instead = f": call {_CALLED[name]}" if name in _CALLED else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name}{instead}")
        with _LOCK:
            if not self.is_watched:
                show_record(self)
                self._condition = Condition()
                self._waiters: list[Any] = []
                self._done_callbacks: list[Any] = []
                self.is_watched = self.is_noticed = True
                # Whoever ends it sees that it is watched, or has ended it before this line.
                if self.end.is_over and self._fate == PENDING:
                    self._fate = FINISHED
        return object.__getattribute__(self, name)

    @property
    def _state(self) -> str:
        if self._fate == PENDING and not self.is_watched and self.end.is_over:
            return FINISHED
        return self._fate

    @_state.setter
    def _state(self, state: str) -> None:
        self._fate = state

    @property
    def _exception(self) -> KohortError | None:  # type: ignore[override]  # a record is ended by its batch alone
        return self.end.error

    @property
    def _result(self) -> RecordMetadata:  # type: ignore[override]
        return self.metadata()

    # -- what is asked most ---------------------------------------------------------------------------------------

    def metadata(self) -> RecordMetadata:
        """Where it is stored, once it is."""
        end = self.end
        offset = -1 if end.base_offset < 0 else end.base_offset + self.index
        timestamp = self.timestamp_ms if end.append_time_ms < 0 else end.append_time_ms
        return RecordMetadata(end.topic, end.partition, offset, timestamp)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Where the record is stored, once it is; see `concurrent.futures.Future.result`.

        Raises:
            StateError: called in a callback of a future, where that would wait for itself.
        """
        end = self.end
        if end.is_over and end.error is None and self._fate != CANCELLED:
            return self.metadata()
        self._check_may_wait()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Why the record is not stored, `None` once it is; see `concurrent.futures.Future.exception`."""
        end = self.end
        if end.is_over and end.error is None and self._fate != CANCELLED:
            return None
        self._check_may_wait()
        return super().exception(timeout)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Await it on an event loop; a task that is cancelled meanwhile leaves the record on its way."""
        return awaited(self)

    def done(self) -> bool:
        """Whether it has its end, or was cancelled."""
        return self._state != PENDING

    def cancelled(self) -> bool:
        """Whether nobody wants to know its end any more."""
        return self._fate == CANCELLED

    def _check_may_wait(self) -> None:
        if not self.done():
            check_may_wait(self)
