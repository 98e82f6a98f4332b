"""The counters of clients: a flat dictionary of numbers, and the same as text for Prometheus.

Laws: names are those of Kafka's clients where the meaning is Kafka's. Times are milliseconds unless a name says
otherwise, sizes bytes. Totals and averages are of the client's whole life. Reading them costs no request and no
waiting.
Source: Kafka's client metrics; the text format of Prometheus.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from kohort.base.clock import Clock

if TYPE_CHECKING:
    from kohort.client.producer.buffer_pool import AnyBufferPool
    from kohort.client.producer.core.sender import ProducerCounters


def producer_metrics(traffic: Traffic, counters: ProducerCounters, pool: AnyBufferPool) -> dict[str, float]:
    """Return the counters of a producer."""
    batches = max(1, counters.sent_batches)
    return {
        **traffic.metrics(),
        **traffic.of("produce", ["PRODUCE"]),
        **traffic.throttling("produce", ["PRODUCE"]),
        "record-send-total": counters.sent_records,
        "record-error-total": counters.failed_records,
        "record-retry-total": counters.retried_records,
        "batch-size-avg": counters.sent_bytes / batches,
        "records-per-batch-avg": counters.sent_records / batches,
        "buffer-total-bytes": pool.limit_bytes,
        "buffer-available-bytes": max(0, pool.limit_bytes - pool.held_bytes),
    }


def to_prometheus(metrics: Mapping[str, float], prefix: str, **labels: str) -> str:
    """Write metrics in the text format of Prometheus.

    Args:
        metrics: what `metrics()` of a client returns.
        prefix: before each name, e.g. "kohort_consumer".
        labels: added to each, e.g. client_id="billing-1".

    >>> print(to_prometheus({"request-total": 3, 'records-lag{topic="t",partition="0"}': 5}, "kohort", app="a"), end="")
    # TYPE kohort_records_lag gauge
    kohort_records_lag{topic="t",partition="0",app="a"} 5
    # TYPE kohort_request_total counter
    kohort_request_total{app="a"} 3
    """
    families: dict[str, list[str]] = {}
    added = [f'{name}="{_escaped(value)}"' for name, value in labels.items()]
    for key in sorted(metrics):
        name, _, own = key.partition("{")
        pairs = ",".join([*([own.removesuffix("}")] if own else []), *added])
        family = f"{prefix}_{name}".replace("-", "_")
        labelled = f"{family}{{{pairs}}}" if pairs else family
        families.setdefault(family, []).append(f"{labelled} {metrics[key]:.15g}")
    lines: list[str] = []
    for family, rows in families.items():
        lines += [f"# TYPE {family} {'counter' if family.endswith('_total') else 'gauge'}", *rows]
    return "".join(f"{line}\n" for line in lines)


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


@dataclass(slots=True, eq=False)
class ApiCounters:
    """The counters of the answered requests of one API; milliseconds."""

    count: int = 0
    latency_ms: int = 0
    latency_max_ms: int = 0
    throttle_ms: int = 0
    throttle_max_ms: int = 0
    #: Time of the latest answer; `None` before the first.
    answered_ms: int | None = None

    def add(self, other: ApiCounters) -> None:
        """Add the counts of another API."""
        self.count += other.count
        self.latency_ms += other.latency_ms
        self.latency_max_ms = max(self.latency_max_ms, other.latency_max_ms)
        self.throttle_ms += other.throttle_ms
        self.throttle_max_ms = max(self.throttle_max_ms, other.throttle_max_ms)
        if other.answered_ms is not None:
            self.answered_ms = max(self.answered_ms or 0, other.answered_ms)


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
        self._calls: dict[str, ApiCounters] = {}

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
            calls = self._calls[api] = ApiCounters()
        now_ms = self.now_ms()
        took_ms = now_ms - sent_ms
        calls.count += 1
        calls.latency_ms += took_ms
        calls.latency_max_ms = max(calls.latency_max_ms, took_ms)
        calls.throttle_ms += throttle_ms
        calls.throttle_max_ms = max(calls.throttle_max_ms, throttle_ms)
        calls.answered_ms = now_ms

    def metrics(self) -> dict[str, float]:
        """Return the metrics that every client has."""
        total = self._sum(list(self._calls))
        return {
            "connection-count": self._open,
            "connection-creation-total": self._opened,
            "incoming-byte-total": self._bytes_in,
            "outgoing-byte-total": self._bytes_out,
            "request-total": self._sent,
            "response-total": total.count,
            "requests-in-flight": self._in_flight,
            **latencies("request", total),
        }

    def of(self, name: str, apis: Iterable[str]) -> dict[str, float]:
        """Return number and latencies of the requests of some APIs."""
        calls = self._sum(apis)
        return {f"{name}-total": calls.count, **latencies(name, calls)}

    def throttling(self, name: str, apis: Iterable[str]) -> dict[str, float]:
        """Return for how long brokers have throttled this client after those APIs."""
        calls = self._sum(apis)
        average = calls.throttle_ms / calls.count if calls.count else 0.0
        return {f"{name}-throttle-time-avg": average, f"{name}-throttle-time-max": calls.throttle_max_ms}

    def seconds_since(self, apis: Iterable[str]) -> float:
        """Return the seconds since any of those APIs was answered last; -1: none was."""
        answered_ms = self._sum(apis).answered_ms
        return -1.0 if answered_ms is None else (self.now_ms() - answered_ms) / 1000

    def _sum(self, apis: Iterable[str]) -> ApiCounters:
        total = ApiCounters()
        for api in apis:
            found = self._calls.get(api)
            if found is not None:
                total.add(found)
        return total


def latencies(name: str, calls: ApiCounters) -> dict[str, float]:
    """Return average and maximum of the milliseconds from a request to its answer."""
    average = calls.latency_ms / calls.count if calls.count else 0.0
    return {f"{name}-latency-avg": average, f"{name}-latency-max": calls.latency_max_ms}
