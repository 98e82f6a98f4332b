"""What writing does in driver and executors, without a JVM: record batches in, records in topics, a message back."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest
from pyspark import TaskContext
from pyspark.sql.types import ArrayType, BinaryType, IntegerType, LongType, StringType, StructType

import kohort
from kohort import Consumer, TopicPartition
from kohort.errors import ConfigError, KohortError
from kohort.spark import sink, workers
from kohort.spark.options import SinkOptions, parse_sink_options
from kohort.spark.sink import (
    KohortBatchWriter,
    KohortStreamWriter,
    NoStreamSinkError,
    NullTopicError,
    RowsNotAcknowledgedError,
    Stored,
    Written,
    check_schema,
    require_stream_sink,
)
from kohort.spark.source import KohortDataSource

PAIRS = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
HEADERS = ArrayType(StructType().add("key", "string").add("value", "binary"))
VALUE = StructType().add("value", "binary")

Topic = Callable[[int], str]


@pytest.fixture(autouse=True)
def forget_producers() -> Iterator[None]:
    """Each test begins like a fresh worker process."""
    yield
    while workers._idle:
        workers._idle.popitem()[1].close(timeout=0)


def options(address: str, **given: object) -> SinkOptions:
    named = {name.replace("__", "."): str(value) for name, value in given.items()}
    return parse_sink_options({"kafka.bootstrap.servers": address, **named})


def values(*rows: bytes | None) -> pa.RecordBatch:
    return pa.record_batch({"value": pa.array(rows, pa.binary())})


def write(writer: KohortBatchWriter | KohortStreamWriter, *batches: pa.RecordBatch) -> Written:
    """One task, of a writer that has travelled."""
    message: Written = pickle.loads(pickle.dumps(pickle.loads(pickle.dumps(writer)).write(iter(batches))))
    return message


def read(address: str, topic: str, partition: int, count: int) -> list[kohort.ConsumerRecord]:
    """The first records of a partition."""
    rows: list[kohort.ConsumerRecord] = []
    with Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, partition)])
        while len(rows) < count:
            rows += consumer.poll(5.0)
    return rows


# -- what is written --------------------------------------------------------------------------------------------------


def test_columns_of_sparks_sink_are_written_and_all_others_left_out(address: str, topic: Topic) -> None:
    """Two topics, partitions of rows' own, missing keys and values, headers; `offset` and `timestamp` are not sent."""
    first, second = topic(2), topic(1)
    schema = (
        StructType()
        .add("offset", LongType())
        .add("key", StringType())
        .add("headers", HEADERS)
        .add("value", BinaryType())
        .add("partition", IntegerType())
        .add("topic", StringType())
    )
    batch = pa.record_batch(
        {
            "offset": pa.array([7, 8, 9]),
            "key": pa.array(["k", None, ""]),
            "headers": pa.array([[{"key": "h", "value": b"1"}], None, []], PAIRS),
            "value": pa.array([b"v", b"w", None], pa.binary()),
            "partition": pa.array([1, 0, None], pa.int32()),
            "topic": pa.array([first, second, second]),
        }
    )

    written = write(KohortBatchWriter(options(address), schema, False), batch)

    assert written == Written((Stored(first, 1, 0, 1, 1), Stored(second, 0, 0, 2, 2)))
    (row,) = read(address, first, 1, 1)
    assert (row.key, row.value, row.headers) == (b"k", b"v", (("h", b"1"),))
    rows = read(address, second, 0, 2)
    assert [(each.key, each.value, each.headers) for each in rows] == [(None, b"w", ()), (b"", None, ())]


def test_option_topic_wins_over_the_column(address: str, topic: Topic) -> None:
    """As in Spark, where a column of that name is not even looked at then, whatever is in it."""
    name = topic(1)
    schema = StructType().add("value", "string").add("topic", "long")
    batch = pa.record_batch({"value": pa.array(["v"]), "topic": pa.array([None], pa.int64())})
    written = write(KohortBatchWriter(options(address, topic=name), schema, False), batch)
    assert written.stored == (Stored(name, 0, 0, 1, 1),)


def test_message_tells_ranges_and_counts_by_partition(address: str, topic: Topic) -> None:
    """Over all batches of the task; a range that others have written into is told by its bounds."""
    name = topic(2)
    schema = StructType().add("value", "binary").add("partition", "integer")
    writer = KohortBatchWriter(options(address, topic=name), schema, False)

    def rows(count: int, partition: int) -> pa.RecordBatch:
        return pa.record_batch({"value": [b"v"] * count, "partition": pa.array([partition] * count, pa.int32())})

    assert write(writer, rows(5, 1)).stored == (Stored(name, 1, 0, 5, 5),)
    assert write(writer, rows(3, 0), rows(0, 0), rows(2, 1), rows(4, 0)).stored == (
        Stored(name, 0, 0, 7, 7),
        Stored(name, 1, 5, 7, 2),
    )
    assert write(writer).stored == ()


def test_without_acknowledgement_there_are_no_offsets(address: str, topic: Topic) -> None:
    """kafka.acks=0: what is counted is what was sent."""
    name = topic(1)
    writer = KohortBatchWriter(options(address, topic=name, kafka__acks="0"), VALUE, False)
    written = write(writer, values(b"a"), values(b"b"))
    assert written.stored == (Stored(name, 0, -1, -1, 2),)
    assert str(written.stored[0]) == f"2 to {name}-0"


def test_task_ends_when_its_last_record_is_acknowledged(address: str, topic: Topic) -> None:
    """However long the producer likes to wait for more; more rows than its memory holds."""
    name = topic(1)
    writer = KohortBatchWriter(
        options(address, topic=name, kafka__linger__ms=60_000, kafka__buffer__memory=100_000), VALUE, False
    )
    written = write(writer, *(values(*[b"%08d" % number] * 500) for number in range(20)))
    assert written.stored == (Stored(name, 0, 0, 10_000, 10_000),)
    assert [int(row.value or 0) for row in read(address, name, 0, 10_000)][::500] == list(range(20))


def test_missing_topic_is_created_where_the_broker_allows_it(address: str) -> None:
    """As by Spark's producer."""
    written = write(KohortBatchWriter(options(address, topic="made-by-the-sink"), VALUE, False), values(b"v"))
    assert [each.record_count for each in written.stored] == [1]


def test_batch_headers_name_query_and_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As Spark tells them to the task; one of no query has none, and is refused."""
    with pytest.raises(ConfigError, match=r"kohort\.batchHeaders=true is for streaming queries"):
        write(
            KohortStreamWriter(options("127.0.0.1:1", topic="orders", kohort__batchHeaders=True), VALUE), values(b"v")
        )

    monkeypatch.setattr(TaskContext, "_taskContext", None)
    task = TaskContext._getOrCreate()
    monkeypatch.setattr(task, "_localProperties", {"sql.streaming.queryId": "q-1", "streaming.sql.batchId": "42"})
    assert sink.batch_headers() == {"kohort.query": "q-1", "kohort.batch": "42"}


# -- producers --------------------------------------------------------------------------------------------------------


def test_producer_is_kept_between_tasks_of_one_configuration(address: str, topic: Topic) -> None:
    """A worker process connects once; another configuration has a producer of its own, and few are kept."""
    name = topic(1)
    writer = KohortBatchWriter(options(address, topic=name), VALUE, False)
    write(writer, values(b"a"))
    (kept,) = workers._idle.values()
    write(writer, values(b"b"))
    assert list(workers._idle.values()) == [kept]

    for linger_ms in range(1, 10):
        write(KohortBatchWriter(options(address, topic=name, kafka__linger__ms=linger_ms), VALUE, False), values(b"c"))
    assert len(workers._idle) == workers._IDLE_AT_MOST
    assert kept not in workers._idle.values()


def test_task_that_fails_half_way_leaves_nothing_on_its_way(address: str, topic: Topic) -> None:
    """What feeds it fails: that error is passed on, and what was not sent yet never is."""
    name = topic(1)
    writer = KohortBatchWriter(options(address, topic=name, kafka__linger__ms=60_000), VALUE, False)

    def feed() -> Iterator[pa.RecordBatch]:
        yield values(b"never sent")
        raise OSError("the JVM is gone")

    with pytest.raises(OSError, match="the JVM is gone"):
        writer.write(feed())
    assert not workers._idle

    write(KohortBatchWriter(options(address, topic=name), VALUE, False), values(b"sent"))
    assert [row.value for row in read(address, name, 0, 1)] == [b"sent"]


# -- what is refused --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("schema", "sentence"),
    [
        (StructType().add("key", "string"), "Required attribute 'value' not found"),
        (StructType().add("value", "long"), r"value attribute unsupported type bigint. value must be a\(n\) string or"),
        (StructType().add("value", "string").add("key", "double"), "key attribute unsupported type double. key must"),
        (StructType().add("value", "string").add("partition", "long"), "partition attribute unsupported type bigint"),
        (
            StructType().add("value", "string").add("headers", "string"),
            r"headers attribute unsupported type string. headers must be a\(n\) array<struct<key:string,value:binary>>",
        ),
    ],
)
def test_schema_is_checked_before_the_query_begins(schema: StructType, sentence: str) -> None:
    """In the words of Spark's sink."""
    with pytest.raises(ConfigError, match=sentence):
        check_schema(schema, "orders")


def test_topic_is_needed() -> None:
    """As an option or as a column of text."""
    with pytest.raises(ConfigError, match="topic option required when no 'topic' attribute is present"):
        check_schema(VALUE, None)
    with pytest.raises(ConfigError, match=r"topic attribute unsupported type int. topic must be a\(n\) string"):
        check_schema(StructType().add("value", "binary").add("topic", "integer"), None)


def test_row_without_topic_fails_its_task(address: str, topic: Topic) -> None:
    """With Spark's own sentence; nothing of that batch is written."""
    name = topic(1)
    schema = StructType().add("value", "string").add("topic", "string")
    batch = pa.record_batch({"value": ["a", "b"], "topic": pa.array([name, None], pa.string())})
    with pytest.raises(NullTopicError, match=r"KAFKA_NULL_TOPIC_IN_DATA.* a null topic\. Use the `topic`"):
        KohortBatchWriter(options(address), schema, False).write(iter([batch]))
    with Consumer(bootstrap_servers=address) as consumer:
        assert consumer.end_offsets([TopicPartition(name, 0)]) == {TopicPartition(name, 0): 0}


def test_topics_are_never_overwritten() -> None:
    """`mode("overwrite")` is refused while the query is planned; a stream in complete mode appends whole results."""
    source = KohortDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "orders"})
    with pytest.raises(ConfigError, match="Save mode Overwrite not allowed for Kafka"):
        source.writer(VALUE, overwrite=True)
    assert isinstance(source.writer(VALUE, overwrite=False), KohortBatchWriter)
    assert isinstance(source.streamWriter(VALUE, overwrite=True), KohortStreamWriter)


def test_stream_sink_says_which_pyspark_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    """PySpark 4.0 has a sink for batches only."""
    monkeypatch.setattr(sink, "_SPARK_IS_TOO_OLD", True)
    with pytest.raises(NoStreamSinkError, match=r"needs PySpark 4\.1 or newer, this is 4\..*foreachBatch"):
        require_stream_sink()


@pytest.mark.parametrize(
    ("request_bytes", "stored_at_least", "sentence"),
    [
        (1_000_000, 0, r"MESSAGE_TOO_LARGE .*value\[0\] of 2000000 bytes is above max\.request\.size"),
        (
            3_000_000,
            1,
            r"MESSAGE_TOO_LARGE while producing to topic-\d+-0: .*; stored: 1 to topic-\d+-0 in \[0, 1\)",
        ),
    ],
    ids=["for the producer", "for the broker"],
)
def test_record_that_is_too_large_fails_its_task(
    address: str, topic: Topic, request_bytes: int, stored_at_least: int, sentence: str
) -> None:
    """Above `max.request.size` it is not even sent, and the row before it may have been; what is stored is said."""
    given = options(address, topic=topic(1), kafka__max__request__size=request_bytes, kafka__linger__ms=60_000)
    with pytest.raises(RowsNotAcknowledgedError, match=sentence) as failure:
        KohortBatchWriter(given, VALUE, False).write(iter([values(b"before"), values(bytes(2_000_000))]))
    assert failure.value.failed_count + sum(each.record_count for each in failure.value.stored) == 2
    assert stored_at_least <= sum(each.record_count for each in failure.value.stored) <= 1
    assert isinstance(failure.value.__cause__, KohortError)
    assert not failure.value.retriable


def test_partition_that_is_not_there_fails_its_task(address: str, topic: Topic) -> None:
    """It names topic and partitions; the rows of others are told to be stored."""
    name, other = topic(2), topic(1)
    schema = StructType().add("value", "string").add("topic", "string").add("partition", "integer")
    batch = pa.record_batch(
        {"value": ["a", "b"], "topic": [name, other], "partition": pa.array([7, 0], pa.int32())},
    )
    with pytest.raises(
        RowsNotAcknowledgedError, match=f"1 row was not acknowledged: {name} has partitions 0 to 1"
    ) as failure:
        KohortBatchWriter(options(address), schema, False).write(iter([batch]))
    assert failure.value.stored == (Stored(other, 0, 0, 1, 1),)


def test_broker_that_is_away_ends_the_task_in_its_time() -> None:
    """`kafka.delivery.timeout.ms` bounds it, whether or not the producer can hold the rows; it names the address."""
    given = {"kafka__delivery__timeout__ms": 300, "kafka__request__timeout__ms": 200, "kafka__linger__ms": 0}
    few = options("127.0.0.1:1", topic="orders", **given)
    with pytest.raises(RowsNotAcknowledgedError, match=r"2 rows were not acknowledged: .*127\.0\.0\.1:1") as failure:
        KohortBatchWriter(few, VALUE, False).write(iter([values(b"a", b"b")]))
    assert (failure.value.stored, failure.value.retriable) == ((), True)

    many = options("127.0.0.1:1", topic="orders", kafka__buffer__memory=100_000, **given)
    with pytest.raises(RowsNotAcknowledgedError, match=r"topic orders could not be looked up .*127\.0\.0\.1:1"):
        KohortBatchWriter(many, VALUE, False).write(values(bytes(1_000)) for _ in range(1_000))


# -- what the driver is told ------------------------------------------------------------------------------------------


def test_option_that_changes_nothing_is_said_once_a_process(caplog: pytest.LogCaptureFixture) -> None:
    """Spark makes two writers for every micro-batch."""
    given = options("127.0.0.1:1", topic="orders", includeHeaders="false")
    sink._told.clear()
    for _ in range(3):
        KohortStreamWriter(given, VALUE)
    assert [record.getMessage().split(":")[0] for record in caplog.records] == ["option includeHeaders changes nothing"]


def test_driver_says_what_a_batch_has_stored(caplog: pytest.LogCaptureFixture) -> None:
    """Adjoining tasks add up; a failed batch names what a repetition stores again."""
    given = options("127.0.0.1:1", topic="orders")
    messages = [
        Written((Stored("orders", 0, 5, 9, 4),)),
        None,
        Written((Stored("orders", 0, 0, 5, 5), Stored("orders", 1, 2, 4, 2))),
    ]
    caplog.set_level(logging.INFO, "kohort.spark.sink")
    KohortBatchWriter(given, VALUE, False).commit([each for each in messages if each])
    stream = KohortStreamWriter(given, VALUE)
    stream.commit([each for each in messages if each], 7)
    stream.abort(messages, 8)
    stream.abort([None, None], 9)
    KohortBatchWriter(given, VALUE, False).abort(messages)
    stored = "9 to orders-0 in [0, 9), 2 to orders-1 in [2, 4)"
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", f"the batch is written: {stored}"),
        ("INFO", f"batch 7 is written: {stored}"),
        ("WARNING", f"batch 8 has failed; other tasks have stored {stored}: a repetition stores that again"),
        ("WARNING", f"the batch has failed; other tasks have stored {stored}: a repetition stores that again"),
    ]
