"""Pages of several clients, as both parsers of `prometheus_client` read them."""

from __future__ import annotations

import gc
import math

import pytest

import kohort
from kohort.client.metrics import WINDOW_MS, Traffic
from kohort.errors import ConfigError
from kohort.metrics import Family, Histogram, Registry, to_prometheus
from kohort.metrics.exposition import read_labels, write, write_labels

parser = pytest.importorskip("prometheus_client.parser")
openmetrics = pytest.importorskip("prometheus_client.openmetrics.parser")
#: Texts that names of topics, groups and clients may have.
HOSTILE = ('a"b', "new\nline", "back\\slash\\n", "</script>", "x" * 249, "日本", "{le=}", "\udcff", "")


class Counting:
    """An object with numbers."""

    def __init__(self, **numbers: float) -> None:
        self.numbers = {name.replace("_", "-"): value for name, value in numbers.items()}

    def metrics(self) -> dict[str, float]:
        return self.numbers


def samples(families: object) -> dict[tuple[str, tuple[tuple[str, str], ...]], float]:
    return {
        (row.name, tuple(sorted(row.labels.items()))): row.value
        for family in families  # type: ignore[attr-defined]
        for row in family.samples
    }


def test_two_clients_have_each_family_once_and_both_parsers_read_them() -> None:
    registry = Registry(service="billing")
    with kohort.Broker() as broker:
        address = {"bootstrap_servers": broker.bootstrap_servers}
        with kohort.Admin(**address) as first, kohort.Admin(**address) as second, kohort.Consumer(**address) as reader:
            for client in (first, second, reader):
                registry.add(client)
            first.list_topics()
            text, opened = registry.text(), registry.answer("application/openmetrics-text")[1].decode()
    types = [line for line in text.splitlines() if line.startswith("# TYPE")]
    assert len(types) == len(set(types))
    assert "# TYPE kohort_admin_request_total counter" in types
    read = samples(parser.text_string_to_metric_families(text))
    assert read == samples(openmetrics.text_string_to_metric_families(opened))
    assert read["kohort_admin_response_total", (("service", "billing"),)] >= 1
    assert ("kohort_admin_response_total", (("client", "2"), ("service", "billing"))) in read
    metadata = (("api", "METADATA"), ("le", "+Inf"), ("service", "billing"))
    assert read["kohort_admin_request_latency_seconds_bucket", metadata] >= 1


def test_counter_is_named_as_each_format_has_it() -> None:
    numbers = {"bytes-fetched-total": 3.0, "lag": 2.5}
    text = to_prometheus([(numbers, {"client_id": "a"}), (numbers, {"client_id": "b"})], "k", openmetrics=True)
    assert "# TYPE k_bytes_fetched counter\n" in text
    (counter, gauge) = openmetrics.text_string_to_metric_families(text)
    assert [row.name for row in counter.samples] == ["k_bytes_fetched_total"] * 2
    assert [row.value for row in gauge.samples] == [2.5, 2.5]


@pytest.mark.parametrize("name", HOSTILE)
def test_label_may_have_any_text(name: str) -> None:
    family = Family("lag", "gauge", "What\nis \\ behind.")
    family.add(1, topic=name, group=name)
    shown = name.encode("utf-8", "backslashreplace").decode()
    for found in (
        parser.text_string_to_metric_families(write([family])),
        openmetrics.text_string_to_metric_families(write([family], as_open=True)),
    ):
        assert samples(found) == {("lag", (("group", shown), ("topic", shown))): 1}
    assert read_labels(write_labels({"topic": name})) == {"topic": shown}


def test_histogram_counts_values_up_to_each_bound() -> None:
    histogram = Histogram((0.1, 1.0))
    for value in (0.1, 0.2, 5.0, 0.0):
        histogram.observe(value)
    family = Family("took_seconds", "histogram", "", list(histogram.rows(write_labels({"phase": "join"}))))
    read = samples(openmetrics.text_string_to_metric_families(write([family], as_open=True)))
    assert {dict(labels)["le"]: value for (_, labels), value in read.items() if "le" in dict(labels)} == {
        "0.1": 2,
        "1.0": 3,
        "+Inf": 4,
    }
    assert read["took_seconds_sum", (("phase", "join"),)] == pytest.approx(5.3)


def test_values_that_are_no_numbers_are_written_as_prometheus_does() -> None:
    family = Family("odd", "gauge", "")
    for number, value in enumerate((math.inf, -math.inf, math.nan)):
        family.add(value, number=number)
    read = list(samples(parser.text_string_to_metric_families(write([family]))).values())
    assert read[:2] == [math.inf, -math.inf]
    assert math.isnan(read[2])


def test_client_that_is_gone_leaves_the_page() -> None:
    registry = Registry()
    kept, gone, removed = Counting(jobs_total=1), Counting(jobs_total=2), Counting(jobs_total=3)
    for each in (kept, gone, removed):
        assert registry.add(each, prefix="worker", name=each.numbers["jobs-total"]) is each
    registry.remove(removed)
    del gone, each
    gc.collect()
    assert registry.text() == '# TYPE worker_jobs_total counter\nworker_jobs_total{name="1"} 1\n'


def test_prometheus_client_takes_it_as_a_collector() -> None:
    prometheus_client = pytest.importorskip("prometheus_client")
    collectors = prometheus_client.CollectorRegistry()
    registry, worker = Registry(), Counting(jobs_total=7)
    collectors.register(registry)
    registry.add(worker, prefix="worker", queue='a"b')
    assert collectors.get_sample_value("worker_jobs_total", {"queue": 'a"b'}) == 7
    assert 'worker_jobs_total{queue="a\\"b"} 7.0' in prometheus_client.generate_latest(collectors).decode()


def test_names_that_no_metric_may_have_are_refused() -> None:
    with pytest.raises(TypeError, match="no metrics"):
        Registry().add(object())  # type: ignore[type-var]
    with pytest.raises(ConfigError, match="no name of a metric"):
        Registry().add(Counting(), prefix="a b")
    with pytest.raises(ConfigError, match="no name of a metric"):
        Registry(**{"a-b": 1})


class HandClock:
    """Stands still until it is told."""

    ms = 10 * WINDOW_MS

    def now_ms(self) -> int:
        return self.ms


def test_averages_and_maxima_are_those_of_the_latest_windows() -> None:
    """Kafka's clients: two samples of 30 s. Those of a whole life stay flat after an hour."""
    clock = HandClock()
    traffic = Traffic(clock)
    for took_ms, after_ms in ((900, 0), (100, WINDOW_MS), (300, 0)):
        clock.ms += after_ms
        traffic.on_answered("FETCH", sent_ms=clock.ms - took_ms, size=1, throttle_ms=took_ms)
    assert traffic.of("fetch", ["FETCH"])["fetch-latency-max"] == 900
    assert traffic.of_window(10, 5) == (10, 5)
    clock.ms += WINDOW_MS
    assert traffic.of("fetch", ["FETCH"]) == {"fetch-total": 3, "fetch-latency-avg": 200, "fetch-latency-max": 300}
    assert traffic.throttling("fetch", ["FETCH"])["fetch-throttle-time-max"] == 300
    assert traffic.of_window(14, 5) == (14, 5), "since the beginning, which is a window ago"
    clock.ms += WINDOW_MS
    assert traffic.of("fetch", ["FETCH"]) == {"fetch-total": 3, "fetch-latency-avg": 0, "fetch-latency-max": 0}
    assert traffic.of_window(15, 5) == (1, 0)
    assert traffic.histograms["FETCH"].total == pytest.approx(1.3)
