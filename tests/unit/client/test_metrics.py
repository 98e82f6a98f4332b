"""What clients count, against a real broker: flat dictionaries by Kafka's names, and Prometheus's text."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future

import pytest

import kohort
from kohort import TopicPartition
from kohort.client.metrics import Traffic
from kohort.errors import KohortError
from support.waiting import until

WAIT_S = 20.0


class HandClock:
    """Stands still until it is told."""

    def __init__(self) -> None:
        self.ms = 1_000

    def now_ms(self) -> int:
        return self.ms


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with kohort.Broker() as broker:
        yield broker.bootstrap_servers


def test_latency_and_throttling_are_averaged_per_api() -> None:
    clock = HandClock()
    traffic = Traffic(clock)
    traffic.on_opened()
    for took_ms, throttle_ms in ((10, 0), (30, 8)):
        traffic.on_sent(100)
        clock.ms += took_ms
        traffic.on_answered("FETCH", sent_ms=clock.ms - took_ms, size=500, throttle_ms=throttle_ms)
    traffic.on_sent(7, is_answered=False)
    traffic.on_sent(7)
    clock.ms += 250

    assert traffic.of("fetch", ["FETCH"]) == {"fetch-total": 2, "fetch-latency-avg": 20, "fetch-latency-max": 30}
    assert traffic.throttling("fetch", ["FETCH"]) == {"fetch-throttle-time-avg": 4, "fetch-throttle-time-max": 8}
    assert traffic.seconds_since(["FETCH", "PRODUCE"]) == 0.25
    assert traffic.seconds_since(["PRODUCE"]) == -1
    assert traffic.metrics() == {
        "connection-count": 1,
        "connection-creation-total": 1,
        "incoming-byte-total": 1_000,
        "outgoing-byte-total": 214,
        "request-total": 4,
        "response-total": 2,
        "requests-in-flight": 1,
        "request-latency-avg": 20,
        "request-latency-max": 30,
    }
    traffic.on_closed(1)
    assert (traffic.metrics()["connection-count"], traffic.metrics()["requests-in-flight"]) == (0, 0)


def test_producer_counts_records_batches_and_room(address: str) -> None:
    with kohort.Producer(bootstrap_servers=address, buffer_memory=1 << 20, linger_ms=3_600_000) as producer:
        assert set(producer.metrics().values()) <= {0, 1 << 20}
        futures: list[Future[kohort.RecordMetadata]] = [producer.send("counted", b"%d" % n) for n in range(10)]
        waiting = producer.metrics()
        assert waiting["buffer-available-bytes"] < waiting["buffer-total-bytes"] == 1 << 20
        producer.flush(WAIT_S)
        futures[-1].result(WAIT_S)
        metrics = producer.metrics()

    assert (metrics["record-send-total"], metrics["record-error-total"], metrics["record-retry-total"]) == (10, 0, 0)
    assert (metrics["records-per-batch-avg"], metrics["produce-total"]) == (10, 1)
    assert metrics["batch-size-avg"] > 10
    assert metrics["buffer-available-bytes"] == 1 << 20
    assert metrics["connection-count"] >= 1
    assert metrics["requests-in-flight"] == 0
    assert metrics["outgoing-byte-total"] > metrics["batch-size-avg"]
    assert producer.metrics()["connection-count"] == 0, "closed, and what was counted stays"
    assert producer.metrics()["record-send-total"] == 10


def test_records_that_fail_are_counted(address: str) -> None:
    nowhere = "127.0.0.1:1"
    with kohort.Producer(bootstrap_servers=nowhere, delivery_timeout_ms=20, request_timeout_ms=10) as producer:
        with pytest.raises(KohortError):
            producer.send("counted", b"lost").result(WAIT_S)
        assert (producer.metrics()["record-send-total"], producer.metrics()["record-error-total"]) == (0, 1)


@pytest.mark.parametrize("way", ["poll", "poll_one", "poll_arrow"])
def test_consumer_counts_records_lag_and_commits(address: str, way: str) -> None:
    topic, group = f"read-by-{way}", f"group-{way}"
    with kohort.Producer(bootstrap_servers=address) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
    with kohort.Consumer(
        bootstrap_servers=address, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        assert consumer.metrics()["last-heartbeat-seconds-ago"] == -1
        consumer.subscribe([topic])
        seen = 0
        while seen < 4:
            seen += take(consumer, way)
        # The record that was taken last is counted when the next call settles it.
        consumer.position(TopicPartition(topic, 0))
        metrics = consumer.metrics()
        assert metrics["records-consumed-total"] == seen
        assert metrics["records-lag-max"] == metrics[f'records-lag{{topic="{topic}",partition="0"}}'] == 10 - seen
        assert metrics["buffer-bytes"] > 0 or seen == 10
        assert metrics["bytes-fetched-total"] > 0
        assert (metrics["assigned-partitions"], metrics["rebalance-total"]) == (1, 1)
        assert metrics["heartbeat-total"] > 0
        assert metrics["last-heartbeat-seconds-ago"] >= 0
        assert (metrics["commit-total"], metrics["commit-latency-max"]) == (0, 0)
        assert metrics["fetch-total"] > 0
        consumer.commit()
        assert consumer.metrics()["commit-total"] == 1
    assert consumer.metrics()["assigned-partitions"] == 0


def take(consumer: kohort.Consumer, way: str) -> int:
    if way == "poll":
        return len(consumer.poll(1.0, max_records=4))
    if way == "poll_one":
        return consumer.poll_one(1.0) is not None
    return sum(batch.num_rows for batch in consumer.poll_arrow(1.0))


def test_metrics_may_be_asked_from_another_thread_while_the_consumer_polls(address: str) -> None:
    """An exporter has a thread of its own."""
    found: list[dict[str, float]] = []
    over = threading.Event()

    def export() -> None:
        while not over.wait(0.001):
            found.append(consumer.metrics())

    with kohort.Consumer(bootstrap_servers=address, group_id="exported") as consumer:
        consumer.subscribe(["counted"])
        thread = threading.Thread(target=export)
        thread.start()
        until(lambda: len(found) > 20 and consumer.assignment(), what="asked", step=lambda: consumer.poll(0.05))
        over.set()
        thread.join(WAIT_S)
    assert found[-1]["request-total"] > 0


def test_admin_counts_its_requests(address: str) -> None:
    with kohort.Admin(bootstrap_servers=address) as admin:
        admin.list_topics()
        metrics = admin.metrics()
    assert metrics["response-total"] >= 2
    assert metrics["request-latency-max"] >= metrics["request-latency-avg"] >= 0


#: A line of the text format: a name, labels, a number.
LINE = re.compile(r'[a-zA-Z_][a-zA-Z0-9_]*(\{([a-z_]+="([^"\\]|\\.)*",?)+\})? -?[0-9.e+-]+')


def test_prometheus_reads_every_line(address: str) -> None:
    with kohort.Consumer(bootstrap_servers=address) as consumer:
        consumer.assign([TopicPartition("counted", 0)])
        consumer.seek(TopicPartition("counted", 0), 0)
        until(lambda: any("{" in name for name in consumer.metrics()), what="lag", step=lambda: consumer.poll(0.1))
        text = kohort.to_prometheus(consumer.metrics(), "kohort_consumer", client_id='a "quoted" \\ name\n')
    lines = text.splitlines()
    types = [line for line in lines if line.startswith("# TYPE ")]
    values = [line for line in lines if not line.startswith("#")]
    assert "# TYPE kohort_consumer_request_total counter" in types
    assert "# TYPE kohort_consumer_connection_count gauge" in types
    assert all(LINE.fullmatch(line) for line in values)
    assert all('client_id="a \\"quoted\\" \\\\ name\\n"' in line for line in values)
