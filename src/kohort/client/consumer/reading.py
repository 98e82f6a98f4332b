"""The ways to hand out fetched records: lists, single records, columns.

Laws: a record counts as returned when it is handed out, and as processed when the application calls for more. Records
that cannot be handed out now, since an error is raised first or the call is broken off, are handed out by the next
call. Records of an assigned partition are handed out as long as the coordinator gives it to no other member. The clock
alone decides that: this thread may go on before the background does, after the process or the machine stood still.
Source: Kafka's consumer API.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final, TypeVar

from kohort.client.arguments import INT32_MAX, to_seconds, whole_number
from kohort.client.consumer.arrow_batches import choose_columns, take_batches
from kohort.client.consumer.publishing import PublishingSide
from kohort.client.consumer.steps import Pause, Steps
from kohort.client.records import ConsumerRecord
from kohort.errors import StateError

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")
#: Seconds of one step of an endless iteration.
ITERATION_S: Final = 60.0
#: A clock that goes on while the machine sleeps, as the coordinator's does; macOS has it under the other name.
_CLOCK: Final[int] = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)


class ReadingSide(PublishingSide):
    """The calls of a consumer that return records."""

    def _poll_steps(self, timeout: float, max_records: int | None) -> Steps[list[ConsumerRecord]]:
        limit = (
            self._settings.options["max_poll_records"] if max_records is None else to_count(max_records, "max_records")
        )
        return self._read_steps("poll", timeout, partial(self._handler.take, limit))

    def _arrow_steps(
        self,
        timeout: float,
        columns: Sequence[str] | None,
        *,
        include_headers: bool,
        max_records: int | None,
        max_bytes: int,
    ) -> Steps[list[pyarrow.RecordBatch]]:
        include = choose_columns(columns, include_headers=include_headers)
        most_records = INT32_MAX if max_records is None else to_count(max_records, "max_records")
        most_bytes = whole_number(max_bytes, "max_bytes", "a number of bytes, 1 or more,", INT32_MAX, minimum=1)
        take = partial(take_batches, self._handler, include, self._report_released)
        return self._read_steps("poll_arrow", timeout, partial(take, max_records=most_records, max_bytes=most_bytes))

    def _consume_steps(self, count: int, timeout: float) -> Steps[list[ConsumerRecord]]:
        count = to_count(count, "num_messages")
        until_s = time.monotonic() + to_seconds(timeout)
        found: list[ConsumerRecord] = []
        while True:
            remaining = max(0.0, until_s - time.monotonic())
            take = partial(self._handler.take, count - len(found))
            try:
                more = yield from self._read_steps("consume", remaining, take, goes_on=bool(found))
            except Exception as error:
                if not found:
                    raise
                # The records that were taken are handed out first; the next call meets the error.
                self._deliveries.raise_next(error)
                return found
            found += more
            if not more or len(found) >= count:
                return found

    def _read_steps(
        self, what: str, timeout: float, take: Callable[[], list[T]], *, goes_on: bool = False
    ) -> Steps[list[T]]:
        """Read once; `goes_on`: the same call has taken records before."""
        until_s = time.monotonic() + to_seconds(timeout)
        self._begin_long(what)
        found: list[T] = []
        try:
            if not goes_on:
                self._handler.begin()
            if not self._is_subscribed and not self._is_assigned_by_hand:
                raise StateError("nothing to read: subscribe to topics or assign partitions first")
            found = yield from self._await_steps(until_s, take)
        finally:
            yield from self._give_turn_back(with_progress=not found)
        return found

    def _await_steps(self, until_s: float, take: Callable[[], list[T]]) -> Steps[list[T]]:
        now_s = time.monotonic()
        self._poller = self._turn.owner
        self._note_poll(now_s)
        while True:
            self._deliveries.drain()
            if self._is_closed:
                return []
            yield from self._rebalancing.answer(self, with_progress=True)
            self._assigning.answer(self._deliveries.assigning)
            self._deliveries.raise_trouble()
            found = take() if self._handler.has_data and self._owned_for_s() > 0 else []
            self._report_released(now_s)
            if found or self._is_woken or now_s >= until_s or self._is_closed:
                self._is_woken = False
                return found
            self._host.check()
            # Before a wait, every processed offset is reported for the next automatic commit.
            if self._has_news:
                self._note_progress()
            yield Pause(min(until_s - now_s, self._note_every_s))
            now_s = time.monotonic()
            self._note_poll(now_s)

    def _take_one(self, what: str) -> ConsumerRecord | None:
        """Return a ready record if no other work is due: the fast path of `poll_one` and iteration."""
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
        if self._deliveries.is_quiet and self._handler.has_data and not self._is_woken and owned_for_s > 0:
            self._begin_long(what)
            try:
                now_s = time.monotonic()
                self._note_poll(now_s)
                # Until then the next records take the fast path above, as long as there is no delivery.
                self._quick_until_s = time.clock_gettime(_CLOCK) + min(self._progress_every_s, owned_for_s)
                self._report_released(now_s)
                return self._handler.take_one()
            finally:
                self._turn.give_back()
        return None

    def _owned_for_s(self) -> float:
        """Return for how many seconds records of assigned partitions may be handed out; 0 or less: not now."""
        until_ms = self._deliveries.owned_until_ms
        return inf if until_ms is None else (until_ms - self._host.now_ms()) / 1000

    def _one_steps(self, what: str, timeout: float) -> Steps[ConsumerRecord | None]:
        found = yield from self._read_steps(what, timeout, partial(self._handler.take, 1))
        return found[0] if found else None

    def _iteration_steps(self) -> Steps[ConsumerRecord | None]:
        """Return the next record; `None`: the consumer is closed, or consumer.timeout.ms has passed."""
        patience_ms = self._settings.options["consumer_timeout_ms"]
        record: ConsumerRecord | None = None
        while record is None and not self._is_closed:
            record = yield from self._one_steps("iteration", ITERATION_S if patience_ms < 0 else patience_ms / 1000)
            if patience_ms >= 0:
                break
        return record


def to_count(value: object, name: str) -> int:
    """Check a number of records: 1 or more."""
    return whole_number(value, name, "a number of records, 1 or more,", INT32_MAX, minimum=1)
