"""The metrics of any number of clients as one page, and as a collector of `prometheus_client`.

Laws: a page has each family once. Two series never have the same labels: a client whose labels another one has already
gets the label `client` with a number. A client that is no longer used anywhere else leaves the page.
Source: `metrics()` of the clients, whose names are Kafka's.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeVar
from weakref import ref

from kohort.errors import ConfigError
from kohort.metrics.exposition import (
    OPEN_TYPE,
    TEXT_TYPE,
    Family,
    Histogram,
    is_open,
    read_labels,
    write,
    write_labels,
)

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

Numbers = Mapping[str, float]
#: Some numbers and the labels of all of them.
Labelled = tuple[Numbers, Mapping[str, object]]
_NAME: Final = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")
#: The family of the requests' latencies, seconds, behind the prefix.
_LATENCY: Final = "request_latency_seconds"


class Metered(Protocol):
    """A client, or another object that counts."""

    def metrics(self) -> dict[str, float]:
        """Return numbers by name, some with labels: `records-lag{topic="orders",partition="0"}`."""


C = TypeVar("C", bound=Metered)


class Registry:
    """The metrics of several clients.

    >>> import kohort
    >>> registry = Registry(service="billing")
    >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
    ...     _ = registry.add(admin)
    ...     _ = admin.list_topics()
    ...     page = registry.text()
    >>> 'kohort_admin_connection_creation_total{service="billing"} 1' in page.splitlines()
    True

    It may be registered with `prometheus_client`, too: `prometheus_client.REGISTRY.register(registry)`.

    `labels`: of every series.
    """

    def __init__(self, **labels: object) -> None:
        _check_names(labels)
        self._labels: Final = labels
        self._lock: Final = threading.Lock()
        #: Number -> a client, the prefix of its names, and its labels.
        self._clients: Final[dict[int, tuple[ref[Any], str, dict[str, object]]]] = {}
        self._last = 0

    def add(self, client: C, *, prefix: str | None = None, **labels: object) -> C:
        """Add a client, and return it; it is not kept alive.

        `client`: a consumer, a producer, an admin client, or another object with `metrics()`. `prefix`: of the names,
        by default `kohort_` and the kind of the client. `labels`: of its series, such as `client_id="billing-1"`.

        Raises:
            TypeError: it has no `metrics()`.
            ConfigError: a prefix or a label has an impossible name.
        """
        if not callable(getattr(client, "metrics", None)):
            raise TypeError(f"{client!r} has no metrics(): a consumer, a producer or an admin client is expected")
        prefix = f"kohort_{type(client).__name__.lower()}" if prefix is None else prefix
        _check_names([prefix, *labels])
        with self._lock:
            self._last += 1
            number = self._last
            self._clients[number] = ref(client, lambda _: self._clients.pop(number, None)), prefix, labels
        return client

    def remove(self, client: Metered) -> None:
        """Leave a client out from now on; harmless if it was not added."""
        with self._lock:
            for number, (each, _, _) in list(self._clients.items()):
                if each() is client:
                    del self._clients[number]

    def families(self) -> list[Family]:
        """Return the metrics of all clients, by the names of the families."""
        taken: dict[str, set[str]] = {}
        found: dict[str, Family] = {}
        with self._lock:
            clients = [(each(), prefix, labels) for each, prefix, labels in self._clients.values()]
        for client, prefix, labels in clients:
            if client is None:
                continue
            merged = {**self._labels, **labels}
            others, number = taken.setdefault(prefix, set()), 1
            while (written := write_labels(merged)) in others:
                number += 1
                merged["client"] = number
            others.add(written)
            _gather(found, client.metrics(), prefix, written)
            _gather_latencies(found, client, prefix, written)
        return [found[name] for name in sorted(found)]

    def text(self) -> str:
        """Write the page in Prometheus' own text format."""
        return write(self.families())

    def answer(self, accept: str = "") -> tuple[str, bytes]:
        """Return content type and body for a scraper, in the format that its header `Accept` prefers."""
        as_open = is_open(accept)
        return (OPEN_TYPE if as_open else TEXT_TYPE), write(self.families(), as_open=as_open).encode()

    def collect(self) -> Iterator[Metric]:
        """Return the metrics as `prometheus_client` takes them from a collector."""
        from prometheus_client.metrics_core import Metric

        for family in self.families():
            metric = Metric(family.name, family.doc or family.name, family.kind)
            total = "_total" if family.kind == "counter" else ""
            for labels, value, suffix in family.rows:
                metric.add_sample(f"{family.name}{total}{suffix}", dict(read_labels(labels)), value)
            yield metric

    def describe(self) -> list[Metric]:
        """Return nothing: the clients to come, and their families, are not known when a collector is registered."""
        return []


def to_prometheus(
    metrics: Numbers | Iterable[Labelled], prefix: str, *, openmetrics: bool = False, **labels: str
) -> str:
    """Write metrics in the text format of Prometheus.

    Args:
        metrics: the return value of `metrics()` of a client, or of several: pairs of that and its labels.
        prefix: before each name, e.g. "kohort_consumer".
        openmetrics: write OpenMetrics instead.
        labels: added to each, e.g. client_id="billing-1".

    >>> print(to_prometheus({"request-total": 3, 'records-lag{topic="t",partition="0"}': 5}, "kohort", app="a"), end="")
    # TYPE kohort_records_lag gauge
    kohort_records_lag{topic="t",partition="0",app="a"} 5
    # TYPE kohort_request_total counter
    kohort_request_total{app="a"} 3
    >>> print(to_prometheus([({"request-total": 3}, {"app": "a"}), ({"request-total": 4}, {"app": "b"})], "k"), end="")
    # TYPE k_request_total counter
    k_request_total{app="a"} 3
    k_request_total{app="b"} 4
    """
    found: dict[str, Family] = {}
    for numbers, own in [(metrics, {})] if isinstance(metrics, Mapping) else metrics:
        _gather(found, numbers, prefix, write_labels({**own, **labels}))
    return write((found[name] for name in sorted(found)), as_open=openmetrics)


def _gather(found: dict[str, Family], numbers: Numbers, prefix: str, labels: str) -> None:
    """Add the numbers of one client to the families."""
    for key in sorted(numbers):
        name, _, own = key.partition("{")
        pairs = ",".join(filter(None, (own.removesuffix("}"), labels)))
        name = f"{prefix}_{name}".replace("-", "_")
        named = name.removesuffix("_total")
        family = found.get(named)
        if family is None:
            family = found[named] = Family(named, "gauge" if named == name else "counter", "")
        value = numbers[key]
        family.rows.append((pairs, value if isinstance(value, int) else float(f"{value:.15g}"), ""))


def _gather_latencies(found: dict[str, Family], client: object, prefix: str, labels: str) -> None:
    """Add the histograms of a client of ours: the latencies of its requests, by API."""
    host = getattr(client, "_io", None) or getattr(getattr(client, "_context", None), "host", None)
    latencies: Mapping[str, Histogram] = getattr(getattr(host, "traffic", None), "histograms", {})
    name = f"{prefix}_{_LATENCY}"
    for api, histogram in sorted(latencies.items()):
        if name not in found:
            found[name] = Family(name, "histogram", "Time from a request to its answer, by API.")
        found[name].rows += histogram.rows(",".join(filter(None, (write_labels({"api": api}), labels))))


def _check_names(names: Iterable[str]) -> None:
    for name in names:
        if not _NAME.fullmatch(name):
            raise ConfigError(f"{name!r} is no name of a metric or a label: letters, digits and _ are expected")
