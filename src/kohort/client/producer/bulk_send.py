"""Many records that are sent by one call: columns instead of objects, and one future for all.

Laws: the rows of a partition keep their order, and follow records that were sent before. The future is done when every
row is stored or has failed. It has the offsets of stored rows even if others failed.
Source: C9; Kafka's record batches.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future, InvalidStateError
from threading import Lock
from typing import Any, ClassVar, Final, Literal, Self, TypeVar

from kohort.client.core.own_threads import check_may_wait
from kohort.client.producer.record_future import BatchEnd, awaited
from kohort.client.records import OffsetRange, SentMany
from kohort.errors import KohortError, PartlySentError
from kohort.records.build_kernels import measure_rows, spread_rows, write_rows
from kohort.records.building import Writer

T = TypeVar("T")
#: Most bytes of a row in addition to key, value and headers.
_OVERHEAD_BYTES: Final = 24


class Columns(ABC):
    """The keys, values, times and headers of rows.

    Args:
        count: number of rows.
        keys: `None` if no row has one.
        values: of the rows.
        times: milliseconds; `None` means `time_ms` for all.
        time_ms: time of all rows, without `times`.
        tails: encoded headers of each row; `None` means `tail` for all.
        tail: encoded headers of all rows, without `tails`.
        partitions: the rows' own partitions; `None` if no row has one.
    """

    #: The kernels for columns of this form.
    _measured: ClassVar[Callable[..., tuple[int, int]]]
    _written: ClassVar[Callable[..., tuple[int, int]]]

    def __init__(
        self,
        count: int,
        keys: Any,
        values: Any,
        *,
        times: Any,
        time_ms: int,
        tails: Any = None,
        tail: bytes = b"\x00",
        partitions: Any = None,
    ) -> None:
        #: Number of rows.
        self.count = count
        self._keys = keys
        self._values = values
        self._times = times
        self._time_ms = time_ms
        self._tails = tails
        self._tail = tail
        self._partitions = partitions
        #: Bytes of every row in addition to its own key, value and headers.
        self.overhead_bytes = _OVERHEAD_BYTES + (len(tail) if tails is None else 0)
        #: Whether no row has a key or a partition of its own.
        self.is_free = keys is None and partitions is None

    def part(self, start: int, stop: int) -> Self:
        """Return the rows from `start` to `stop`."""
        keys, values, tails = (
            None if column is None else self._part_of(column, start, stop)
            for column in (self._keys, self._values, self._tails)
        )
        return type(self)(
            stop - start,
            keys,
            values,
            times=None if self._times is None else self._times[start:stop],
            time_ms=self._time_ms,
            tails=tails,
            tail=self._tail,
            partitions=None if self._partitions is None else self._partitions[start:stop],
        )

    @staticmethod
    @abstractmethod
    def _part_of(column: Any, start: int, stop: int) -> Any:
        """Return the rows from `start` to `stop` of a column."""

    @abstractmethod
    def spread(self, count: int, turn: int) -> Sequence[Sequence[int]]:
        """Return the rows of each partition; empty if a row names a partition that does not exist."""

    @abstractmethod
    def chosen(self, rows: list[int]) -> Sequence[int]:
        """Return row numbers in the form that `measure` and `writer` take."""

    def measure(self, rows: Sequence[int] | None, position: int, stop: int, limit_bytes: int) -> tuple[int, int]:
        """Return the end of the rows that fit into the limit, and their bytes."""
        return self._measured(
            self._keys, self._values, self._tails, rows, position, stop, self.overhead_bytes, limit_bytes
        )

    def writer(self, rows: Sequence[int] | None, position: int, stop: int) -> Writer:
        """Return a function that writes these rows as a batch."""
        return lambda out, at, base_time: self._written(
            self._keys, self._values, self._times, self._tails, self._tail, rows, position, stop, base_time, out, at
        )

    def time_of(self, row: int) -> int:
        """Return the time of a row, milliseconds since 1970."""
        return self._time_ms if self._times is None else int(self._times[row])

    @abstractmethod
    def key_of(self, row: int) -> bytes | None:
        """Return the key of a row, for partitioners without a kernel."""

    @abstractmethod
    def partition_of(self, row: int) -> int | None:
        """Return the partition that the row itself names; `None`: it names none."""


class ListColumns(Columns):
    """Columns that are lists."""

    _measured = staticmethod(measure_rows)
    _written = staticmethod(write_rows)

    @staticmethod
    def _part_of(column: list[Any], start: int, stop: int) -> list[Any]:
        return column[start:stop]

    def spread(self, count: int, turn: int) -> list[list[int]]:
        """See `Columns`."""
        return spread_rows(self._keys, self._partitions, self.count, count, turn)

    def chosen(self, rows: list[int]) -> list[int]:
        """See `Columns`."""
        return rows

    def key_of(self, row: int) -> bytes | None:
        """See `Columns`."""
        return None if self._keys is None else self._keys[row]

    def partition_of(self, row: int) -> int | None:
        """See `Columns`."""
        return None if self._partitions is None else self._partitions[row]


class _BulkFuture(Future[T]):
    """The future of the rows of one call; it counts as watched once a caller asks for its result."""

    def __await__(self) -> Generator[Any, None, T]:
        """Await the future, as a `RecordFuture`."""
        return awaited(self)

    def result(self, timeout: float | None = None) -> T:
        """Return the offsets of the records, once they are stored; see `concurrent.futures.Future.result`.

        Raises:
            PartlySentError: some records were not stored.
            StateError: called in a callback of a future, which would wait for itself.
        """
        self._watch()
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Return the error, `None` once all are stored; see `concurrent.futures.Future.exception`."""
        self._watch()
        return super().exception(timeout)

    def _watch(self) -> None:
        raise NotImplementedError

    def _settle(self, stored: T, failed_count: int, cause: BaseException | None) -> None:
        try:
            if cause is None:
                self.set_result(stored)
            else:
                is_retriable = isinstance(cause, KohortError) and cause.retriable
                error = PartlySentError(stored, failed_count, str(cause), is_retriable)
                error.__cause__ = cause
                self.set_exception(error)
        except InvalidStateError:
            return  # The application has cancelled it; what was sent is sent.


class ManyFuture(_BulkFuture[SentMany]):
    """The future of one `send_many`: done when each of its rows is stored or has failed."""

    def __init__(self, topic: str, count: int) -> None:
        super().__init__()
        self.topic = topic
        #: Whether a caller has asked for the result.
        self.is_watched = False
        self._left = count
        self._failed = 0
        self._error: KohortError | None = None
        self._ranges: list[OffsetRange] = []
        if count == 0:
            self._finish()

    def on_part_end(self, end: BatchEnd, index: int, count: int) -> None:
        """Count rows whose batch is stored or has failed; the first of them is number `index` in the batch."""
        self._left -= count
        if end.error is not None:
            self._failed += count
            # The first error stands for all.
            self._error = self._error or end.error
        else:
            base = -1 if end.base_offset < 0 else end.base_offset + index
            self._ranges.append(OffsetRange(end.partition, base, count))
        if self._left == 0:
            self._finish()

    def give_up(self, count: int, error: KohortError) -> None:
        """Count rows that are not sent at all."""
        end = BatchEnd(self.topic, -1)
        end.fail(error)
        self.on_part_end(end, 0, count)

    def _finish(self) -> None:
        ranges = tuple(sorted(self._ranges))
        stored = SentMany(self.topic, sum(each.record_count for each in ranges), ranges)
        self._settle(stored, self._failed, self._error)

    def add_done_callback(self, fn: Callable[[Future[SentMany]], object]) -> None:
        """See `concurrent.futures.Future.add_done_callback`."""
        self.is_watched = True
        super().add_done_callback(fn)

    def _watch(self) -> None:
        self.is_watched = True
        if not self.done():
            check_may_wait(self)


class TablesFuture(_BulkFuture[tuple[SentMany, ...]]):
    """The future of one `send_arrow`: done when the futures of all topics are.

    Args:
        parts: one for each topic, in the order of the result.
    """

    def __init__(self, parts: list[Future[SentMany]]) -> None:
        super().__init__()
        self._parts = parts
        self._left = len(parts)
        self._lock = Lock()
        for part in parts:
            part.add_done_callback(self._on_part_end)
        if not parts:
            self.set_result(())

    def _on_part_end(self, _: Future[SentMany]) -> None:
        with self._lock:
            self._left -= 1
            if self._left:
                return
        failures = [error for part in self._parts if isinstance(error := part.exception(), PartlySentError)]
        stored = tuple(_stored_of(part) for part in self._parts)
        failed_count = sum(failure.failed_count for failure in failures)
        self._settle(stored, failed_count, failures[0].__cause__ if failures else None)

    def _watch(self) -> None:
        for part in self._parts:
            if not part.done():
                check_may_wait(part)


def _stored_of(part: Future[SentMany]) -> SentMany:
    error = part.exception()
    if not isinstance(error, PartlySentError):
        return part.result()
    assert isinstance(error.stored, SentMany), "of one topic"
    return error.stored


class Bulk:
    """The rows of one call, as they are handed to the machine; with the attributes of a record."""

    is_bulk: Literal[True] = True
    #: Empty, so that no run of records of one topic includes it.
    topic: Final = ""
    is_noticed: Final = True
    on_delivery: Final = None

    def __init__(self, name: str, partition: int | None, columns: Columns, size_bytes: int, future: ManyFuture) -> None:
        self.name = name
        self.partition = partition
        self.columns = columns
        self.count = columns.count
        self.size_bytes = size_bytes
        self.future = future
        self.end = BatchEnd(name, -1)

    def fail(self, error: KohortError) -> None:
        """Finish all rows with an error; none of them was sent."""
        self.end.fail(error)
        self.future.on_part_end(self.end, 0, self.columns.count)

    def on_end(self) -> None:
        """Do nothing: `fail` has notified the future."""


class Slice:
    """The rows of one batch, with the attributes of a record."""

    is_bulk: Literal[True] = True
    is_noticed: Final = True
    on_delivery: Final = None

    def __init__(self, bulk: Bulk, end: BatchEnd, rows: Sequence[int] | None, start: int, stop: int) -> None:
        self._bulk = bulk
        self._rows = rows
        self._start = start
        self._stop = stop
        self.end = end
        self.future = bulk.future
        self.count = stop - start
        self.timestamp_ms = bulk.columns.time_of(start if rows is None else rows[start])

    def writer(self) -> Writer:
        """Return a function that writes these rows as a batch."""
        return self._bulk.columns.writer(self._rows, self._start, self._stop)

    def part(self, end: BatchEnd, start: int, stop: int) -> tuple[Slice, int]:
        """Return some of these rows as a batch of their own, and their bytes."""
        begin, behind = self._start + start, self._start + stop
        _, size_bytes = self._bulk.columns.measure(self._rows, begin, behind, 1 << 62)
        return Slice(self._bulk, end, self._rows, begin, behind), size_bytes

    def fail(self, error: KohortError) -> None:
        """Finish the rows with an error, because the machine has failed."""
        self.end.fail(error)
        self.on_end()

    def on_failure(self) -> None:
        """Do nothing: `on_end` notifies the future of the error."""

    def on_end(self) -> None:
        """Notify the future that the batch is stored or has failed."""
        self.future.on_part_end(self.end, 0, self.count)
