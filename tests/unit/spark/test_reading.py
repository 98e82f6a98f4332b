"""What executors do: one span of one partition, exactly, with a connection that is kept between tasks."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import kohort
from kohort.errors import BrokersUnreachableError, KohortTimeoutError, UnknownTopicError
from kohort.spark import reading
from kohort.spark.offsets import RecordsLostError
from kohort.spark.options import EARLIEST, LATEST, SourceOptions, parse_options
from kohort.spark.reading import SpanToRead, cut, read_span, reading_config
from support.ports import quiet_port


@pytest.fixture(autouse=True)
def forget_connections() -> Iterator[None]:
    """Each test begins like a fresh worker process."""
    yield
    while reading._idle:
        reading._idle.popitem()[1].close(timeout=0)


def options(address: str, **given: object) -> SourceOptions:
    named = {name.replace("__", "."): str(value) for name, value in given.items()}
    return parse_options({"kafka.bootstrap.servers": address, "subscribe": "any", **named})


def offsets(batches: Iterator[pa.RecordBatch]) -> list[int]:
    return [offset for batch in batches for offset in batch.column("offset").to_pylist()]


@given(st.lists(st.integers(0, 1000), unique=True, max_size=50), st.integers(0, 1000))
def test_cut_keeps_what_is_below_the_end(found: list[int], end: int) -> None:
    """Offsets may have gaps, where a topic is compacted."""
    ascending = sorted(found)
    batch = pa.record_batch({"offset": pa.array(ascending, pa.int64())})
    assert cut(batch, end).column("offset").to_pylist() == [offset for offset in ascending if offset < end]


@pytest.mark.parametrize(("start", "end"), [(0, 100), (0, 1), (37, 61), (99, 100)])
def test_a_span_is_read_exactly(address: str, topic: Any, fill: Any, start: int, end: int) -> None:
    """It begins and ends inside batches of records."""
    name = topic(2)
    fill(name, {0: 100, 1: 10})
    assert offsets(read_span(options(address), SpanToRead(name, 0, start, end))) == list(range(start, end))


def test_a_span_that_takes_many_fetches(address: str, topic: Any, fill: Any) -> None:
    """In order, without a gap, where each answer carries a piece of it."""
    name = topic(1)
    fill(name, {0: 2_000})
    small = options(address, kafka__max__partition__fetch__bytes=700)
    assert offsets(read_span(small, SpanToRead(name, 0, 3, 1_990))) == list(range(3, 1_990))


def test_columns_without_the_offset(address: str, topic: Any, fill: Any) -> None:
    """It is fetched to find the end, but not handed to Spark."""
    name = topic(1)
    fill(name, {0: 20})
    batches = list(read_span(options(address, columns="value,partition"), SpanToRead(name, 0, 5, 8)))
    assert [batch.schema.names for batch in batches] == [["value", "partition"]] * len(batches)
    assert [value for batch in batches for value in batch.column("value").to_pylist()] == [b"5", b"6", b"7"]


def test_a_connection_is_kept_for_the_next_task(address: str, topic: Any, fill: Any) -> None:
    """Of another partition too, whatever was fetched ahead for the one before."""
    name = topic(2)
    fill(name, {0: 50, 1: 50})
    same = options(address)
    assert offsets(read_span(same, SpanToRead(name, 0, 0, 10))) == list(range(10))
    (kept,) = reading._idle.values()
    assert offsets(read_span(same, SpanToRead(name, 1, 20, 30))) == list(range(20, 30))
    assert offsets(read_span(same, SpanToRead(name, 0, 10, 20))) == list(range(10, 20))
    assert list(reading._idle.values()) == [kept]
    assert kept.assignment() == set()


def test_a_task_that_is_given_up_leaves_no_connection(address: str, topic: Any, fill: Any) -> None:
    """As when Spark has enough rows: the next task begins with a fresh one."""
    name = topic(1)
    fill(name, {0: 50})
    same = options(address)
    batches = read_span(same, SpanToRead(name, 0, 0, 50))
    next(batches)
    batches.close()  # type: ignore[attr-defined]
    assert not reading._idle
    assert len(offsets(read_span(same, SpanToRead(name, 0, 0, 50)))) == 50


def test_no_more_is_fetched_ahead_than_one_answer(address: str) -> None:
    """What is fetched behind the end of a span is fetched in vain."""
    assert reading_config(options(address))["fetch.buffer.bytes"] == 2 * 4 * 1024 * 1024
    assert reading_config(options(address, kafka__max__partition__fetch__bytes=1000))["fetch.buffer.bytes"] == 2000


def test_records_that_never_come_end_the_task(address: str, topic: Any, fill: Any) -> None:
    """A log that lost its end, say: not a hang."""
    name = topic(1)
    fill(name, {0: 5})
    impatient = options(address, kafka__default__api__timeout__ms=400)
    with pytest.raises(KohortTimeoutError, match=rf"{name}-0 gave nothing at offset 5 for 0\.4 s"):
        offsets(read_span(impatient, SpanToRead(name, 0, 0, 6)))
    assert not reading._idle


def test_open_bounds_are_those_of_the_log_when_the_task_runs(address: str, topic: Any, fill: Any) -> None:
    """A batch's end is bound late: what came between plan and task is read, too."""
    name = topic(2)
    fill(name, {0: 5})
    task, empty = SpanToRead(name, 0, EARLIEST, LATEST), SpanToRead(name, 1, EARLIEST, LATEST)
    assert offsets(read_span(options(address), empty)) == []
    fill(name, {0: 3, 1: 1})
    assert offsets(read_span(options(address), task)) == list(range(8))
    assert offsets(read_span(options(address), SpanToRead(name, 0, 6, LATEST))) == [6, 7]
    assert offsets(read_span(options(address), empty)) == [0]


def test_patience_of_a_task_is_an_option(address: str, topic: Any, fill: Any) -> None:
    """Spark's, by default what a call of the client may take."""
    name = topic(1)
    fill(name, {0: 5})
    with pytest.raises(KohortTimeoutError, match=r"nothing at offset 5 for 0\.3 s \(kafkaConsumer\.pollTimeoutMs"):
        offsets(read_span(options(address, kafkaConsumer__pollTimeoutMs=300), SpanToRead(name, 0, 0, 6)))


def test_an_offset_behind_the_end_may_be_skipped(
    address: str, topic: Any, fill: Any, caplog: pytest.LogCaptureFixture
) -> None:
    """`failOnDataLoss=false`: the task ends, a line says what it did not read, and the next one reads."""
    name = topic(1)
    fill(name, {0: 5})
    lenient = options(address, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, logger="kohort.spark"):
        assert offsets(read_span(lenient, SpanToRead(name, 0, 7, 9))) == []
    assert f"{name}-0 goes on at offset 9 and not at 7: its log ends at 5" in caplog.text
    assert offsets(read_span(lenient, SpanToRead(name, 0, 2, 5))) == [2, 3, 4]


def test_an_offset_behind_the_end_is_a_loss(address: str, topic: Any, fill: Any) -> None:
    """The log was cut, or is another one."""
    name = topic(1)
    fill(name, {0: 5})
    with pytest.raises(RecordsLostError, match=f"{name}-0 cannot be read at offset 7"):
        offsets(read_span(options(address), SpanToRead(name, 0, 7, 9)))


def test_a_topic_that_is_gone_is_named(address: str) -> None:
    """Deleted between plan and task."""
    with pytest.raises(UnknownTopicError, match="gone does not exist"):
        offsets(read_span(options(address), SpanToRead("gone", 0, 0, 1)))


@pytest.mark.parametrize("fails", [True, False])
def test_a_topic_that_is_made_anew_while_it_is_read_ends_the_task(
    address: str, topic: Any, fill: Any, admin: kohort.Admin, fails: bool
) -> None:
    """Its offsets are those of other records. What is tried again is skipped where losses are."""
    name = topic(1)
    fill(name, {0: 2_000})
    small = options(address, kafka__max__partition__fetch__bytes=700, failOnDataLoss=str(fails))
    with kohort.Consumer(bootstrap_servers=address) as consumer:
        task = SpanToRead(name, 0, 0, 2_000, consumer.describe_topics([name])[name].topic_id)
    batches = read_span(small, task)
    next(batches)
    admin.delete_topics([name])
    admin.create_topic(name, 1)
    fill(name, {0: 2_000})
    with pytest.raises(RecordsLostError, match=f"{name}-0 cannot be read at offset 0: its topic was deleted and made"):
        offsets(batches)
    if fails:
        with pytest.raises(RecordsLostError):
            offsets(read_span(small, task))
    else:
        assert offsets(read_span(small, task)) == []


def test_a_broker_that_is_away_is_waited_for(tmp_path: Any) -> None:
    """Spark's local mode does not try a task again: one that begins while the broker restarts must not fail."""
    with kohort.Broker(data_dir=tmp_path, port=quiet_port()) as broker:
        address, port = broker.bootstrap_servers, broker.port
        with kohort.Producer(bootstrap_servers=address) as producer:
            producer.send("kept", b"v", partition=0).result(10)
    impatient = options(address, kafka__default__api__timeout__ms=700)
    with pytest.raises(KohortTimeoutError) as raised:
        offsets(read_span(impatient, SpanToRead("kept", 0, 0, 1)))
    assert isinstance(raised.value.__cause__, BrokersUnreachableError)
    batches = read_span(options(address), SpanToRead("kept", 0, 0, 1))
    with kohort.Broker(data_dir=tmp_path, port=port):
        assert offsets(batches) == [0]
