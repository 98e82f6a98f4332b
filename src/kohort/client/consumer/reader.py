"""Reading of fetched records: as lists, one by one, or as Arrow columns.

Laws: a record counts as returned when it is handed out, and as processed when the application calls for more. Records
that cannot be handed out now, because an error is raised first or the call is cancelled, are returned by the next
call. Records of an assigned partition are handed out only until the time up to which the coordinator leaves it to this
member. The clock is read for that: after the machine slept, this thread may run before the background thread does.
Arrow is imported at the first call that needs it.
Source: Kafka's consumer API.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

from kohort.client.arguments import INT32_MAX, to_seconds, whole_number
from kohort.client.consumer.context import ConsumerContext
from kohort.client.consumer.fetch.fetch_handler import FetchHandler
from kohort.client.consumer.subscriptions import Subscriptions
from kohort.client.records import ConsumerRecord
from kohort.client.steps import Pause
from kohort.errors import CorruptRecordError, MissingDependencyError, StateError, UnknownOptionError

if TYPE_CHECKING:
    import pyarrow


_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
_HEADERS: Final = "headers"
#: Bytes of records in one batch: enough to be quick, and within a processor's cache; a single record may be larger.
_BATCH_BYTES: Final = 1024 * 1024
#: Bytes of records that one call returns by default.
DEFAULT_MAX_BYTES: Final = 8 * 1024 * 1024


def choose_columns(columns: Sequence[str] | None, *, include_headers: bool) -> tuple[str, ...]:
    """Check the names of the columns to build, and return them; `None` means every column but headers.

    Raises:
        MissingDependencyError: pyarrow is not installed.
        UnknownOptionError: a name is not that of a column.
    """
    try:
        import pyarrow  # noqa: F401
    except ImportError:
        raise MissingDependencyError("pyarrow", "arrow") from None
    chosen = tuple(_COLUMNS if columns is None else columns)
    for name in chosen:
        if name not in (*_COLUMNS, _HEADERS):
            raise UnknownOptionError(name, (*_COLUMNS, _HEADERS), what="column")
    return (*chosen, _HEADERS) if include_headers and _HEADERS not in chosen else chosen


def take_batches(
    handler: FetchHandler,
    include: tuple[str, ...],
    on_decoded: Callable[[], None],
    *,
    max_records: int,
    max_bytes: int,
) -> list[pyarrow.RecordBatch]:
    """Build Arrow record batches from the fetched data.

    Args:
        handler: holds the fetched data.
        include: the columns, as `choose_columns` returns them.
        on_decoded: called after each batch is decoded; the fetched bytes behind the batch are free by then.
        max_records: most rows of all batches together; further rows stay for the next call.
        max_bytes: most bytes of the records in all batches; the first record is included however large it is.
    """
    from kohort.columnar import to_record_batch
    from kohort.records.columns import gather_columns

    batches: list[pyarrow.RecordBatch] = []
    try:
        while slices := handler.take_slices(
            max_records=max_records, max_bytes=min(max_bytes, _BATCH_BYTES), at_least_one=not batches
        ):
            columns = gather_columns(
                [(taken.scanned, taken.start, taken.stop) for taken in slices],
                with_keys="key" in include,
                with_values="value" in include,
                with_headers=_HEADERS in include,
                allocate=handler.allocate,
            )
            runs = [(*taken.partition, taken.stop - taken.start) for taken in slices]
            max_records -= len(columns)
            max_bytes -= sum(taken.size_bytes for taken in slices)
            del slices
            # The next fetch need not wait for the last batch.
            on_decoded()
            batches.append(to_record_batch(columns, runs=runs, include=include))
    except CorruptRecordError:
        # The records before the damage are returned; the next call raises.
        if not batches:
            raise
    return batches


T = TypeVar("T")
#: Seconds of one step of an endless iteration.
ITERATION_S: Final = 60.0
#: A clock that goes on while the machine sleeps, as the coordinator's does; macOS has it under the other name.
_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class Reader:
    """The calls of a consumer that return records."""

    def __init__(self, context: ConsumerContext, subscriptions: Subscriptions) -> None:
        self._context = context
        self._subscriptions = subscriptions
        # Looked at for each record: these are reached in one step.
        self._handler: Final = context.handler
        self._deliveries: Final = context.deliveries
        self._turn: Final = context.turn
        #: Until then records that are ready need no look at anything else.
        self._quick_until_s = 0.0

    async def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return the records that have been fetched; wait up to `timeout` seconds for the first.

        The next call marks the records of this one as processed, so that auto-commit commits them. Rebalance callbacks
        run inside this call. `max_records` replaces max.poll.records for one call.

        Raises:
            BrokersUnreachableError: no bootstrap address accepts a connection, and none ever has.
            BrokerError: the group refuses this member, or a partition cannot be read.
            UnknownTopicError: a partition assigned by hand does not exist.
            StateError: the consumer is closed, neither subscribed nor assigned, or in use by another thread.
        """
        limit = (
            self._context.settings.options["max_poll_records"]
            if max_records is None
            else to_count(max_records, "max_records")
        )
        return await self._read("poll", timeout, partial(self._handler.take, limit))

    async def poll_arrow(
        self,
        timeout: float = 1.0,
        *,
        columns: Sequence[str] | None = None,
        include_headers: bool = False,
        max_records: int | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> list[pyarrow.RecordBatch]:
        """Return fetched records as Arrow record batches of one schema, about 1 MiB each; otherwise like `poll`.

        A batch may contain records of several partitions; the records of one partition are in order of their offsets.

        Args:
            timeout: seconds to wait for the first record.
            columns: any of key, value, topic, partition, offset, timestamp, timestampType, headers; `None` means all
                but headers. Columns that are left out are not decoded.
            include_headers: add the column headers.
            max_records: most rows of all batches together; `None` is no limit. Further rows stay for the next call.
            max_bytes: most bytes of the records in all batches; the first record is returned however large it is.

        Raises:
            MissingDependencyError: pyarrow is not installed.
        """
        include = choose_columns(columns, include_headers=include_headers)
        most_records = INT32_MAX if max_records is None else to_count(max_records, "max_records")
        most_bytes = whole_number(max_bytes, "max_bytes", "a number of bytes, 1 or more,", INT32_MAX, minimum=1)
        take = partial(take_batches, self._handler, include, self._context.report_released)
        return await self._read("poll_arrow", timeout, partial(take, max_records=most_records, max_bytes=most_bytes))

    async def consume(self, num_messages: int = 1, timeout: float = 1.0) -> list[ConsumerRecord]:
        """Return `num_messages` records, or fewer after `timeout` seconds; otherwise like `poll`.

        If an error occurs when some records are ready, this call returns them and the next call raises the error.
        """
        count = to_count(num_messages, "num_messages")
        until_s = time.monotonic() + to_seconds(timeout)
        found: list[ConsumerRecord] = []
        while True:
            remaining = max(0.0, until_s - time.monotonic())
            take = partial(self._handler.take, count - len(found))
            try:
                more = await self._read("consume", remaining, take, goes_on=bool(found))
            except Exception as error:
                if not found:
                    raise
                # The records that were taken are handed out first; the next call meets the error.
                self._deliveries.raise_next(error)
                return found
            found += more
            if not more or len(found) >= count:
                return found

    async def _read(self, what: str, timeout: float, take: Callable[[], list[T]], *, goes_on: bool = False) -> list[T]:
        """Wait for records once; `goes_on`: the same call of the application has already got some."""
        until_s = time.monotonic() + to_seconds(timeout)
        self._context.begin_long(what)
        found: list[T] = []
        try:
            if not goes_on:
                self._handler.begin()
            if not self._subscriptions.is_reading:
                raise StateError("nothing to read: subscribe to topics or assign partitions first")
            found = await self._await(until_s, take)
        finally:
            await self._context.give_turn_back(with_progress=not found)
        return found

    async def _await(self, until_s: float, take: Callable[[], list[T]]) -> list[T]:
        now_s = time.monotonic()
        self._context.poller = self._turn.owner
        self._context.note_poll(now_s)
        while True:
            self._deliveries.drain()
            if self._context.is_closed:
                return []
            await self._context.rebalancing.answer(self._context.door(), with_progress=True)
            self._subscriptions.assigning.answer(self._deliveries.assigning)
            self._deliveries.raise_trouble()
            found = take() if self._handler.has_data and self._owned_for_s() > 0 else []
            self._context.report_released(now_s)
            if found or self._context.is_woken or now_s >= until_s or self._context.is_closed:
                self._context.is_woken = False
                return found
            self._context.host.check()
            # Before a wait, every processed offset is reported for the next automatic commit.
            if self._context.has_news:
                self._context.note_progress()
            await Pause(min(until_s - now_s, self._context.note_every_s))
            now_s = time.monotonic()
            self._context.note_poll(now_s)

    def take_one(self, what: str) -> ConsumerRecord | None:
        """Return a record that is ready if no other work is due; the fast path of `poll_one` and iteration."""
        ready = self._handler.ready
        if (
            ready
            and self._deliveries.is_still
            and self._turn.is_free
            and time.clock_gettime(_CLOCK) < self._quick_until_s
        ):
            try:
                return ready.pop()
            except IndexError:
                pass
        owned_for_s = self._owned_for_s()
        if self._deliveries.is_quiet and self._handler.has_data and not self._context.is_woken and owned_for_s > 0:
            self._context.begin_long(what)
            try:
                now_s = time.monotonic()
                self._context.note_poll(now_s)
                # Until then the next records take the fast path above, as long as there is no delivery.
                self._quick_until_s = time.clock_gettime(_CLOCK) + min(self._context.progress_every_s, owned_for_s)
                self._context.report_released(now_s)
                return self._handler.take_one()
            finally:
                self._turn.give_back()
        return None

    def _owned_for_s(self) -> float:
        """Return for how many seconds records may still be handed out: 0 or less means not now."""
        until_ms = self._deliveries.owned_until_ms
        return inf if until_ms is None else (until_ms - self._context.host.now_ms()) / 1000

    async def one(self, what: str, timeout: float) -> ConsumerRecord | None:
        """Return the next record, or `None` after `timeout` seconds without one."""
        found = await self._read(what, timeout, partial(self._handler.take, 1))
        return found[0] if found else None

    async def next(self) -> ConsumerRecord | None:
        """Return the next record, or `None` if the consumer is closed or consumer.timeout.ms has passed."""
        patience_ms = self._context.settings.options["consumer_timeout_ms"]
        record: ConsumerRecord | None = None
        while record is None and not self._context.is_closed:
            record = await self.one("iteration", ITERATION_S if patience_ms < 0 else patience_ms / 1000)
            if patience_ms >= 0:
                break
        return record


def to_count(value: object, name: str) -> int:
    """Check a number of records: 1 or more."""
    return whole_number(value, name, "a number of records, 1 or more,", INT32_MAX, minimum=1)
