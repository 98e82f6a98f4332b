"""A record being sent, which is also the future that `send` returns: one object, cheap until it is watched.

Most applications send many records and look at few futures. A `concurrent.futures.Future` makes a condition, a lock and
lists at once: a dozen objects that the garbage collector walks over again and again while a record waits. That would
take more time than sending. For the same reason a record stores no outcome: it refers to the outcome of its batch, a
`BatchEnd`, and the value of `result` is made when the application asks for it.

Laws: a record that is not watched is finished without being touched: its batch is. Every caller may use it as a
`concurrent.futures.Future`: `wait`, `as_completed` and asyncio work, too. No notification is lost, whether the record
finishes first or is watched first.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from concurrent.futures import Future
from concurrent.futures._base import CANCELLED, FINISHED, PENDING
from threading import Condition, Lock
from typing import Any, Final, Literal, TypeVar

from kohort.client.core.own_threads import check_may_wait
from kohort.client.records import RecordMetadata
from kohort.errors import KohortError
from kohort.records.build_kernels import new_record, show_record

T = TypeVar("T")
#: Encoded headers: (name, value) pairs.
Headers = tuple[tuple[str, bytes | None], ...]
#: Called for a finished record: (`None`, its metadata) if it is stored, (error, metadata with offset -1) if it failed.
DeliveryCall = Callable[[KohortError | None, RecordMetadata], object]

#: Held for a moment only, while a future gets its condition.
_LOCK: Final = Lock()
#: Attributes of `Future.__init__` that this class makes when they are asked for.
_WHEN_WATCHED: Final = frozenset({"_condition", "_waiters", "_done_callbacks"})
_BOTH_ENDS: Final = "add_done_callback, or give send a function as on_delivery"
#: Names of kafka-python's futures, with the ones to use here.
_CALLED: Final = {
    "get": "result",
    "value": "result",
    "is_done": "done",
    "succeeded": "exception",
    "failed": "exception",
    "add_callback": _BOTH_ENDS,
    "add_errback": _BOTH_ENDS,
    "add_both": _BOTH_ENDS,
    # asyncio.wait calls this; it takes futures of the loop only.
    "remove_done_callback": "asyncio.ensure_future before asyncio.wait",
}


class BatchEnd:
    """The outcome that all records of one batch share: their base offset, or the error."""

    __slots__ = ("append_time_ms", "base_offset", "error", "is_over", "partition", "topic")

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        #: Offset of the first record; -1: the broker was not asked for it.
        self.base_offset = -1
        #: Append time of the broker, milliseconds; -1: each record keeps its own time.
        self.append_time_ms = -1
        #: Why the batch is not stored; `None` while under way, or if it is.
        self.error: KohortError | None = None
        #: Whether the outcome is known; set last, so that the other fields are complete then.
        self.is_over = False

    def fail(self, error: KohortError) -> None:
        """End the batch with an error."""
        self.error = error
        self.is_over = True


#: The outcome of a record that is not in a batch yet.
_NOT_YET: Final = BatchEnd("", -1)


def awaited(future: Future[T]) -> Generator[Any, None, T]:
    """Await a future on an event loop."""
    from asyncio import shield, wrap_future

    wrapped = wrap_future(future)
    # The error of a record whose task was cancelled is not asked for any more, and asyncio would log that.
    wrapped.add_done_callback(lambda done: done.cancelled() or done.exception())
    return shield(wrapped).__await__()


class RecordFuture(Future[RecordMetadata]):
    """A record with encoded key and value, and the future of its metadata; `size_bytes`: share of buffer.memory."""

    #: Attributes of every record. The others are rare, and cost nothing where they keep their default.
    __slots__ = (
        "end",
        "headers",
        "index",
        "is_noticed",
        "key",
        "on_delivery",
        "partition",
        "size_bytes",
        "timestamp_ms",
        "topic",
        "value",
    )

    #: A single record, unlike a `Bulk`.
    is_bulk: Literal[False] = False
    #: Whether an attribute of `Future` was asked for, so that a thread may be waiting.
    is_watched = False
    #: State of a record that was cancelled or is watched; that of all others follows from their `end`.
    _fate = PENDING

    def __init__(self, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int, size_bytes: int) -> None:
        # `Future.__init__` is not called, so that none of its objects are made.
        self.topic = topic
        self.key = key
        self.value = value
        self.timestamp_ms = timestamp_ms
        self.size_bytes = size_bytes
        #: The partition that was asked for; `None` leaves the choice to the partitioner.
        self.partition: int | None = None
        #: Encoded headers, their number in front; empty: none.
        self.headers = b""
        #: Called once the record is stored or has failed.
        self.on_delivery: DeliveryCall | None = None
        #: Whether `on_end` has to be called when the record finishes.
        self.is_noticed = False

    @classmethod
    def hidden(
        cls, topic: str, key: bytes | None, value: bytes | None, timestamp_ms: int, size_bytes: int
    ) -> RecordFuture:
        """Build a record hidden from the garbage collector until it is watched, or fails."""
        record: RecordFuture = new_record(cls, topic, key, value, timestamp_ms, size_bytes)
        record.partition, record.headers = None, b""
        record.on_delivery, record.is_noticed = None, False
        return record

    def tell(self, on_delivery: DeliveryCall) -> None:
        """Call `on_delivery` once the record is stored or has failed."""
        show_record(self)
        self.on_delivery = on_delivery
        self.is_noticed = True

    def join(self, end: BatchEnd, index: int) -> None:
        """Put the record into a batch: from now on it shares the outcome `end`, as the record number `index`."""
        self.end = end
        self.index = index

    def fail(self, error: KohortError) -> None:
        """Finish the record with an error of its own, outside of any batch."""
        self.on_failure()
        self.end = BatchEnd(self.topic, -1)
        self.end.fail(error)
        self.on_end()

    def on_failure(self) -> None:
        """Make the garbage collector track the record, before it gets an error."""
        # The traceback of its error may come to hold any object.
        show_record(self)

    def on_end(self) -> None:
        """Wake waiting threads and call the future's callbacks; called for finished records with `is_noticed`."""
        if not self.is_watched:
            return
        with self._condition:
            # It was cancelled, or the thread that watches it has seen the end.
            if self._fate != PENDING:
                return
            self._fate = FINISHED
            for waiter in self._waiters:
                (waiter.add_exception if self.end.error is not None else waiter.add_result)(self)
            self._condition.notify_all()
        self._invoke_callbacks()

    # -- attributes of Future -------------------------------------------------------------------------------------

    def __getattr__(self, name: str) -> Any:
        # Called for missing attributes only: once for a future that is watched, and before the record is in a batch.
        if name == "end":
            return _NOT_YET
        if name not in _WHEN_WATCHED:
            instead = f": call {_CALLED[name]}" if name in _CALLED else ""
            raise AttributeError(f"{type(self).__name__} has no attribute {name}{instead}")
        # Two threads may look at the future for the first time at once.
        with _LOCK:
            if not self.is_watched:
                show_record(self)
                self._condition = Condition()
                self._waiters: list[Any] = []
                self._done_callbacks: list[Any] = []
                self.is_watched = self.is_noticed = True
                # The thread that ends it either sees that it is watched, or has ended it before this line.
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

    # -- calls of the application ---------------------------------------------------------------------------------

    def metadata(self) -> RecordMetadata:
        """Return the partition, offset and timestamp of the stored record."""
        end = self.end
        offset = -1 if end.base_offset < 0 else end.base_offset + self.index
        timestamp = self.timestamp_ms if end.append_time_ms < 0 else end.append_time_ms
        return RecordMetadata(end.topic, end.partition, offset, timestamp)

    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Return the record's `RecordMetadata` once it is stored; see `concurrent.futures.Future.result`.

        Raises:
            StateError: called in a callback of a future, which would wait for itself.
        """
        end = self.end
        if end.is_over and end.error is None and self._fate != CANCELLED:
            return self.metadata()
        self._check_may_wait()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the record's error, or `None` once it is stored; see `concurrent.futures.Future.exception`."""
        end = self.end
        if end.is_over and end.error is None and self._fate != CANCELLED:
            return None
        self._check_may_wait()
        return super().exception(timeout)

    def __await__(self) -> Generator[Any, None, RecordMetadata]:
        """Await the record on an event loop; if the task is cancelled, the record is still sent."""
        return awaited(self)

    def done(self) -> bool:
        """Return whether the record is stored, has failed, or its future was cancelled."""
        return self._state != PENDING

    def cancelled(self) -> bool:
        """Return whether the future was cancelled; the record may be stored nevertheless."""
        return self._fate == CANCELLED

    def _check_may_wait(self) -> None:
        if not self.done():
            check_may_wait(self)
