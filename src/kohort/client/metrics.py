"""The counters of clients: a flat dictionary of numbers, and the same as text for Prometheus.

Laws: names are those of Kafka's clients where the meaning is Kafka's. Times are milliseconds unless a name says
otherwise, sizes bytes. Totals and averages are of the client's whole life. Reading them costs no request and no
waiting.
Source: Kafka's client metrics; the text format of Prometheus.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from kohort.client.io.traffic import Traffic

if TYPE_CHECKING:
    # Each client has its own modules; none loads those of the others.
    from kohort.client.fetch.fetch_handler import FetchHandler
    from kohort.client.producer.buffer_pool import AnyRoom
    from kohort.client.producer.core.tally import Tally

_HEARTBEATS: Final = ("CONSUMER_GROUP_HEARTBEAT", "HEARTBEAT", "JOIN_GROUP", "SYNC_GROUP")


def consumer_metrics(traffic: Traffic, handler: FetchHandler, rebalances: int) -> dict[str, float]:
    """Return the counters of a consumer; `rebalances`: number of changes of its assignment."""
    lags = handler.lags()
    return {
        **traffic.metrics(),
        **traffic.of("fetch", ["FETCH"]),
        **traffic.throttling("fetch", ["FETCH"]),
        "bytes-fetched-total": handler.fetched_bytes,
        "records-consumed-total": handler.handed_out,
        "buffer-bytes": handler.held_bytes,
        "records-lag-max": max(lags.values(), default=0),
        **{
            f'records-lag{{topic="{topic}",partition="{number}"}}': lag for (topic, number), lag in sorted(lags.items())
        },
        **traffic.of("commit", ["OFFSET_COMMIT"]),
        "assigned-partitions": len(handler.assignment),
        "rebalance-total": rebalances,
        "heartbeat-total": traffic.of("heartbeat", _HEARTBEATS[:2])["heartbeat-total"],
        "last-heartbeat-seconds-ago": traffic.seconds_since(_HEARTBEATS),
    }


def producer_metrics(traffic: Traffic, tally: Tally, room: AnyRoom) -> dict[str, float]:
    """Return the counters of a producer."""
    batches = max(1, tally.sent_batches)
    return {
        **traffic.metrics(),
        **traffic.of("produce", ["PRODUCE"]),
        **traffic.throttling("produce", ["PRODUCE"]),
        "record-send-total": tally.sent_records,
        "record-error-total": tally.failed_records,
        "record-retry-total": tally.retried_records,
        "batch-size-avg": tally.sent_bytes / batches,
        "records-per-batch-avg": tally.sent_records / batches,
        "buffer-total-bytes": room.limit_bytes,
        "buffer-available-bytes": max(0, room.limit_bytes - room.held_bytes),
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
