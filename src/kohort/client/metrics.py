"""The counters of clients: a flat dictionary of numbers; `kohort.metrics` makes pages of them.

Laws: names are those of Kafka's clients where the meaning is Kafka's. Times are milliseconds unless a name says
otherwise, sizes bytes. Totals are of the client's whole life, averages and maxima of the latest 30 to 60 s. Reading
them costs no request and no waiting.
Source: Kafka's client metrics (`metrics.sample.window.ms`, `metrics.num.samples`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kohort.base.clock import Clock
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


@dataclass(slots=True, eq=False)
class ApiCounters:
    """The counters of the answered requests of one API, in all or in one window; milliseconds."""

    count: int = 0
    latency_ms: int = 0
    latency_max_ms: int = 0
    throttle_ms: int = 0
    throttle_max_ms: int = 0
    #: Time of the latest answer; `None` before the first.
    answered_ms: int | None = None

    def note(self, took_ms: int, throttle_ms: int, now_ms: int) -> None:
        """Count an answer."""
        self.count += 1
        self.latency_ms += took_ms
        self.latency_max_ms = max(self.latency_max_ms, took_ms)
        self.throttle_ms += throttle_ms
        self.throttle_max_ms = max(self.throttle_max_ms, throttle_ms)
        self.answered_ms = now_ms

    def add(self, other: ApiCounters) -> None:
        """Add the counts of another API, or of another window."""
        self.count += other.count
        self.latency_ms += other.latency_ms
        self.latency_max_ms = max(self.latency_max_ms, other.latency_max_ms)
        self.throttle_ms += other.throttle_ms
        self.throttle_max_ms = max(self.throttle_max_ms, other.throttle_max_ms)
        if other.answered_ms is not None:
            self.answered_ms = max(self.answered_ms or 0, other.answered_ms)


class Calls:
    """The answered requests of one API: in all, and in the latest two windows."""

    __slots__ = ("_windows", "histogram", "total")

    def __init__(self) -> None:
        self.total: Final = ApiCounters()
        self.histogram: Final = Histogram()
        #: Number of a window -> its counts; two at most, replaced as a whole.
        self._windows: dict[int, ApiCounters] = {}

    def note(self, took_ms: int, throttle_ms: int, now_ms: int) -> None:
        """Count an answer."""
        number = now_ms // WINDOW_MS
        window = self._windows.get(number)
        if window is None:
            window = ApiCounters()
            self._windows = {**{key: self._windows[key] for key in self._windows if key == number - 1}, number: window}
        window.note(took_ms, throttle_ms, now_ms)
        self.total.note(took_ms, throttle_ms, now_ms)
        self.histogram.observe(took_ms / 1000)

    def latest(self, now_ms: int) -> ApiCounters:
        """Return the counts of the present window and the one before it."""
        found = ApiCounters()
        for number, window in self._windows.items():
            if number >= now_ms // WINDOW_MS - 1:
                found.add(window)
        return found


class Traffic:
    """The counters of one client's connections.

    Laws: they count requests, never records. They are written where the driver runs, and read from anywhere, each
    number by itself.
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
        """Return how much totals have grown since a reading that is a window old, or since the beginning."""
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
        total = self._sum(list(self._calls))
        latest = self._latest(list(self._calls))
        return {
            "connection-count": self._open,
            "connection-creation-total": self._opened,
            "incoming-byte-total": self._bytes_in,
            "outgoing-byte-total": self._bytes_out,
            "request-total": self._sent,
            "response-total": total.count,
            "requests-in-flight": self._in_flight,
            **latencies("request", latest),
        }

    def of(self, name: str, apis: Iterable[str]) -> dict[str, float]:
        """Return number and latencies of the requests of some APIs."""
        return {f"{name}-total": self._sum(apis).count, **latencies(name, self._latest(apis))}

    def throttling(self, name: str, apis: Iterable[str]) -> dict[str, float]:
        """Return for how long brokers have throttled this client after those APIs."""
        calls = self._latest(apis)
        average = calls.throttle_ms / calls.count if calls.count else 0.0
        return {f"{name}-throttle-time-avg": average, f"{name}-throttle-time-max": calls.throttle_max_ms}

    def seconds_since(self, apis: Iterable[str]) -> float:
        """Return the seconds since any of those APIs was answered last; -1: none was."""
        answered_ms = self._sum(apis).answered_ms
        return -1.0 if answered_ms is None else (self.now_ms() - answered_ms) / 1000

    def _sum(self, apis: Iterable[str]) -> ApiCounters:
        total = ApiCounters()
        for api in apis:
            if (found := self._calls.get(api)) is not None:
                total.add(found.total)
        return total

    def _latest(self, apis: Iterable[str]) -> ApiCounters:
        total, now_ms = ApiCounters(), self.now_ms()
        for api in apis:
            if (found := self._calls.get(api)) is not None:
                total.add(found.latest(now_ms))
        return total


def latencies(name: str, calls: ApiCounters) -> dict[str, float]:
    """Return average and maximum of the milliseconds from a request to its answer."""
    average = calls.latency_ms / calls.count if calls.count else 0.0
    return {f"{name}-latency-avg": average, f"{name}-latency-max": calls.latency_max_ms}
