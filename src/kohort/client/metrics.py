"""The counters of clients: a flat dictionary of numbers, which `kohort.metrics` renders as pages.

Laws: names are those of Kafka's clients where the meaning is Kafka's. Times are milliseconds unless a name says
otherwise, sizes bytes. Totals are of the client's whole life, averages and maxima of the latest 30 to 60 s. Reading
them costs no request and no waiting.
Source: Kafka's client metrics (`metrics.sample.window.ms`, `metrics.num.samples`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from kohort.base.clock import Clock
from kohort.base.values import value
from kohort.metrics.exposition import Histogram

if TYPE_CHECKING:
    from kohort.client.producer.buffer_pool import AnyBufferPool
    from kohort.client.producer.core.sender import ProducerCounters


def producer_metrics(traffic: Traffic, counters: ProducerCounters, pool: AnyBufferPool) -> dict[str, float]:
    """Return the counters of a producer."""
    batches, size_bytes, records = traffic.of_window(counters.sent_batches, counters.sent_bytes, counters.sent_records)
    return {
        **traffic.metrics(),
        **traffic.of("produce", ["PRODUCE"]),
        **traffic.throttling("produce", ["PRODUCE"]),
        "record-send-total": counters.sent_records,
        "record-error-total": counters.failed_records,
        "record-retry-total": counters.retried_records,
        "batch-total": counters.sent_batches,
        "batch-size-avg": size_bytes / max(1, batches),
        "records-per-batch-avg": records / max(1, batches),
        "buffer-total-bytes": pool.limit_bytes,
        "buffer-available-bytes": max(0, pool.limit_bytes - pool.held_bytes),
    }


#: Averages and maxima are of the present window of this length and the one before it, as Kafka's (two samples of 30 s).
WINDOW_MS: Final = 30_000


@value(kw_only=False, frozen=False, eq=False)
class ApiCounters:
    """The counters of the answered requests of one API, or of several, in one window; milliseconds."""

    count: int = 0
    latency_ms: int = 0
    latency_max_ms: int = 0
    throttle_ms: int = 0
    throttle_max_ms: int = 0

    def add(self, other: ApiCounters) -> None:
        """Add the counts of another API, or of another window."""
        self.count += other.count
        self.latency_ms += other.latency_ms
        self.latency_max_ms = max(self.latency_max_ms, other.latency_max_ms)
        self.throttle_ms += other.throttle_ms
        self.throttle_max_ms = max(self.throttle_max_ms, other.throttle_max_ms)


class Calls:
    """The answered requests of one API: in total, and in the latest two windows."""

    __slots__ = ("_before", "_number", "_window", "answered_ms", "count", "histogram")

    def __init__(self) -> None:
        self.count = 0
        #: Time of the latest answer.
        self.answered_ms = 0
        self.histogram: Final = Histogram()
        #: The number of the latest window with an answer, its counts, and those of the window before it.
        self._number, self._window, self._before = 0, ApiCounters(), ApiCounters()

    def note(self, took_ms: int, throttle_ms: int, now_ms: int) -> None:
        """Count an answer."""
        # Every answer comes by here: what could be calls, `max` and `Histogram.observe` among them, is written out.
        number = now_ms // WINDOW_MS
        if number != self._number:
            self._before = self._window if number == self._number + 1 else ApiCounters()
            self._number, self._window = number, ApiCounters()
        window = self._window
        self.count += 1
        self.answered_ms = now_ms
        window.count += 1
        window.latency_ms += took_ms
        if took_ms > window.latency_max_ms:  # noqa: PLR1730
            window.latency_max_ms = took_ms
        if throttle_ms:
            window.throttle_ms += throttle_ms
            window.throttle_max_ms = max(window.throttle_max_ms, throttle_ms)
        histogram, seconds = self.histogram, took_ms / 1000
        histogram.counts[bisect_left(histogram.bounds, seconds)] += 1
        histogram.total += seconds

    def latest(self, now_ms: int) -> ApiCounters:
        """Return the counts of the present window and the one before it."""
        found = ApiCounters()
        age = now_ms // WINDOW_MS - self._number
        if age <= 1:
            found.add(self._window)
        if age <= 0:
            found.add(self._before)
        return found


class Traffic:
    """The counters of one client's connections.

    Laws: they count requests, not records. They are written where the driver runs, and may be read from any thread;
    numbers that are read together need not belong to the same moment.
    """

    def __init__(self, clock: Clock) -> None:
        #: Returns the time by which latencies are measured.
        self.now_ms: Final = clock.now_ms
        self._open = 0
        self._opened = 0
        self._bytes_in = 0
        self._bytes_out = 0
        self._sent = 0
        self._in_flight = 0
        #: API -> its answered requests.
        self._calls: dict[str, Calls] = {}
        #: Earlier totals of `of_window`, and when they were read; the first is a window old, or of the beginning.
        self._marks: list[tuple[int, tuple[int, ...]]] = []

    def on_opened(self) -> None:
        """Count an opened connection."""
        self._open += 1
        self._opened += 1

    def on_closed(self, lost: int) -> None:
        """Count a closed connection, and the requests on it that were not answered."""
        self._open -= 1
        self._in_flight -= lost

    def on_sent(self, size: int, *, is_answered: bool = True) -> None:
        """Count a request of so many bytes."""
        self._sent += 1
        self._bytes_out += size
        self._in_flight += is_answered

    def on_answered(self, api: str, *, sent_ms: int, size: int, throttle_ms: int) -> None:
        """Count an answer, its latency and its throttling."""
        self._in_flight -= 1
        self._bytes_in += size
        calls = self._calls.get(api)
        if calls is None:
            calls = self._calls[api] = Calls()
        now_ms = self.now_ms()
        calls.note(now_ms - sent_ms, throttle_ms, now_ms)

    @property
    def histograms(self) -> dict[str, Histogram]:
        """The latencies of answered requests by API, seconds."""
        return {api: calls.histogram for api, calls in list(self._calls.items())}

    def of_window(self, *totals: int) -> tuple[int, ...]:
        """Return by how much totals have grown since a reading at least a window old, or since the beginning."""
        now_ms = self.now_ms()
        marks = self._marks or [(now_ms, (0,) * len(totals))]
        if now_ms - marks[-1][0] >= WINDOW_MS:
            marks = [*marks, (now_ms, totals)]
        late = [mark for mark in marks if now_ms - mark[0] >= WINDOW_MS]
        # Of the marks that are old enough the latest counts.
        self._marks = marks = marks[len(late) - 1 :] if late else marks
        return tuple(total - before for total, before in zip(totals, marks[0][1], strict=True))

    def metrics(self) -> dict[str, float]:
        """Return the metrics that every client has."""
        latest = self._latest(list(self._calls))
        return {
            "connection-count": self._open,
            "connection-creation-total": self._opened,
            "incoming-byte-total": self._bytes_in,
            "outgoing-byte-total": self._bytes_out,
            "request-total": self._sent,
            "response-total": self._count(list(self._calls)),
            "requests-in-flight": self._in_flight,
            **latencies("request", latest),
        }

    def of(self, name: str, apis: Iterable[str]) -> dict[str, float]:
        """Return the number and the latencies of answered requests of some APIs."""
        return {f"{name}-total": self._count(apis), **latencies(name, self._latest(apis))}

    def throttling(self, name: str, apis: Iterable[str]) -> dict[str, float]:
        """Return for how long brokers have throttled this client for requests of these APIs, ms."""
        calls = self._latest(apis)
        average = calls.throttle_ms / calls.count if calls.count else 0.0
        return {f"{name}-throttle-time-avg": average, f"{name}-throttle-time-max": calls.throttle_max_ms}

    def seconds_since(self, apis: Iterable[str]) -> float:
        """Return the seconds since the latest response of these APIs; -1 without one."""
        answered_ms = max((calls.answered_ms for calls in self._of(apis)), default=None)
        return -1.0 if answered_ms is None else (self.now_ms() - answered_ms) / 1000

    def _of(self, apis: Iterable[str]) -> Iterator[Calls]:
        """Return the counters of those APIs that have had a response."""
        return filter(None, map(self._calls.get, apis))

    def _count(self, apis: Iterable[str]) -> int:
        return sum(calls.count for calls in self._of(apis))

    def _latest(self, apis: Iterable[str]) -> ApiCounters:
        total, now_ms = ApiCounters(), self.now_ms()
        for calls in self._of(apis):
            total.add(calls.latest(now_ms))
        return total


def latencies(name: str, calls: ApiCounters) -> dict[str, float]:
    """Return average and maximum latency, milliseconds from a request to its response."""
    average = calls.latency_ms / calls.count if calls.count else 0.0
    return {f"{name}-latency-avg": average, f"{name}-latency-max": calls.latency_max_ms}
