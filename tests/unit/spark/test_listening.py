"""What a listener makes of the progress of queries; a real Spark's: tests/spark/test_listener.py."""

from __future__ import annotations

import json
import logging
import tempfile
from collections.abc import Iterator

import pytest

from kohort import TopicPartition, to_prometheus
from kohort.spark import BatchReport, QueryListener
from kohort.spark.driver_channel import BatchDone, DriverChannel, fingerprint
from kohort.spark.offsets import read_sources
from support.builders.spark_progress import (
    KAFKA,
    KOHORT,
    ORDERS,
    ours,
    progress,
    progressed,
    source,
    sparks,
    terminated,
)


@pytest.fixture(autouse=True)
def folder(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Mailboxes of these tests alone."""
    with tempfile.TemporaryDirectory(prefix="kohort-") as made:
        monkeypatch.setattr(tempfile, "tempdir", made)
        yield


def test_lag_is_what_was_there_less_what_was_read() -> None:
    (state,) = read_sources(progress(ours({0: 7, 1: 5}, {0: 10, 1: 5}, name="q-1", records=12)))
    assert state.lag == {ORDERS: 3, TopicPartition("orders", 1): 0}
    assert (state.name, state.records) == ("q-1", 12)
    (state,) = read_sources(progress(sparks({0: 7}, {0: 10})))
    assert (state.lag, state.ends, state.name) == ({ORDERS: 3}, {ORDERS: 7}, None)


@pytest.mark.parametrize(
    "other",
    [
        source("RateStreamV2[rowsPerSecond=1]", 7, 9),
        source("FileStreamSource[file:/in]", {"logOffset": 3}, None),
        source("MySource", {"orders": {"0": 7}}, None),
        source(KAFKA, None, None),
        source(KOHORT, {}, None),
        source(KOHORT, {"kohort": 99, "topics": {}}, None),
        source(KAFKA, {"orders": {"0": -7}}, None),
        source(KAFKA, "no JSON", [1]),
    ],
    ids=["number", "files", "alike", "not yet", "empty", "newer", "wrong", "text"],
)
def test_other_sources_are_passed_over(other: dict[str, object]) -> None:
    """A query may join Kafka with anything; a listener ends no query."""
    (state,) = read_sources(progress(other, sparks({0: 7})))
    assert state.ends == {ORDERS: 7}


def test_reader_hears_of_the_end_of_its_batch() -> None:
    """By the offset's own text as Spark has it, which the reader has made."""
    mailbox = DriverChannel.open("q-1")
    made = ours({0: 7}, {0: 7}, name="q-1")
    listener = QueryListener()
    listener.onQueryProgress(progressed(made, ours({0: 3}, {0: 3}), sparks({0: 9})))
    assert mailbox.take() == [BatchDone(fingerprint(made["endOffset"]))]
    assert fingerprint(json.dumps(made["endOffset"], indent=1)) == fingerprint(made["endOffset"])
    mailbox.close()
    listener.onQueryProgress(progressed(made))


def test_hand_overs_are_reported_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    """What a plan owned and the one before did not, and the reverse; the first report moves nothing."""
    reports: list[BatchReport] = []
    listener = QueryListener(reports.append)
    with caplog.at_level(logging.INFO, logger="kohort.spark"):
        listener.onQueryProgress(progressed(ours({0: 1, 1: 1}, {0: 1, 1: 3}, records=2)))
        listener.onQueryProgress(progressed(ours({0: 1, 1: 3}, {1: 3}, records=2), batch=1))
        listener.onQueryProgress(progressed(ours({0: 1, 1: 3, 2: 5}, {1: 9, 2: 5}), batch=None))
    moved = [(sorted(map(str, report.gained)), sorted(map(str, report.lost))) for report in reports]
    assert moved == [([], []), ([], ["orders-0"]), (["orders-2"], [])]
    assert [record.getMessage() for record in caplog.records] == [
        "query=departures batch=1 partitions moved: gained=- lost=orders-0",
        "query=departures batch=0 partitions moved: gained=orders-2 lost=-",
    ]
    assert [sum(report.lag.values()) for report in reports] == [2, 0, 6]


def test_metrics_are_those_of_running_queries() -> None:
    """Two queries with one name, or none, are two; what has ended is gone."""
    listener = QueryListener()
    listener.onQueryProgress(progressed(ours({0: 7}, {0: 10}, records=7)))
    listener.onQueryProgress(progressed(ours({0: 9}, {0: 10}, records=2), batch=1))
    listener.onQueryProgress(progressed(ours({0: 9}, {0: 10}), batch=None))
    listener.onQueryProgress(progressed(sparks({0: 1}, {0: 2}), query=2, run=2, name='a "b"\\'))
    metrics = listener.metrics()
    assert {name: value for name, value in metrics.items() if "departures" in name} == {
        'batches-total{query="departures"}': 2,
        'records-consumed-total{query="departures"}': 9,
        'batch-duration-ms{query="departures"}': 1792,
        'assigned-partitions{query="departures"}': 1,
        'partitions-gained-total{query="departures"}': 0,
        'partitions-lost-total{query="departures"}': 0,
        'records-lag-max{query="departures"}': 1,
        'records-lag{query="departures",topic="orders",partition="0"}': 1,
    }
    shown = to_prometheus(metrics, "kohort_spark")
    assert 'kohort_spark_records_lag{query="departures",topic="orders",partition="0"} 1\n' in shown
    assert 'kohort_spark_records_lag_max{query="a \\"b\\"\\\\"} 1\n' in shown
    listener.onQueryTerminated(terminated())
    listener.onQueryTerminated(terminated(run=77))
    assert not [name for name in listener.metrics() if "departures" in name]
    assert listener.metrics()


@pytest.mark.parametrize("said", ["java.io.EOFException", "java.net.SocketException: Broken pipe"])
def test_killed_reader_has_a_sentence(caplog: pytest.LogCaptureFixture, said: str) -> None:
    """Spark ends the query with an empty message; what other ends say is left to Spark."""
    listener = QueryListener()
    where = "\n\tat org.apache.spark.sql.execution.python.streaming.PythonStreamingSourceRunner.latestOffset(...)"
    for exception in (None, f"org.apache.spark.api.python.PythonException: TypeError{where}", f"{said}\n\tat else"):
        listener.onQueryProgress(progressed(ours({0: 7}, {0: 7})))
        listener.onQueryTerminated(terminated(exception=exception))
    assert caplog.text == ""
    listener.onQueryTerminated(terminated(exception=said + where))
    assert caplog.text == "", "of a query that reads no Kafka nothing is said"
    listener.onQueryProgress(progressed(ours({0: 7}, {0: 7})))
    listener.onQueryTerminated(terminated(exception=said + where))
    assert "query=departures its reader's process was killed" in caplog.text
    assert "start it again" in caplog.text


def test_partition_that_is_read_twice_lags_by_its_slower_side() -> None:
    """A join of a topic with itself."""
    reports: list[BatchReport] = []
    QueryListener(reports.append).onQueryProgress(progressed(sparks({0: 7}, {0: 9}), sparks({0: 3}, {0: 9})))
    assert reports[0].lag == {ORDERS: 6}


@pytest.mark.logs_bugs
def test_fault_of_the_users_function_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Spark would print a stack of Java's, and go on."""

    def fail(report: BatchReport) -> None:
        raise ValueError("oops")

    listener = QueryListener(fail)
    listener.onQueryProgress(progressed(ours({0: 7}, {0: 7})))
    assert "query=departures on_report has failed" in caplog.text
    assert "oops" in caplog.text
    assert listener.metrics()
    with pytest.raises(TypeError, match="on_report cannot be 7: a function of a BatchReport is expected"):
        QueryListener(7)  # type: ignore[arg-type]
