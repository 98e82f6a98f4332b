"""`spark.read.format("kohort")` against a real broker, in a real Spark."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import kohort
from support.depth import at_depth

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


@pytest.fixture
def load(spark: SparkSession, broker: kohort.Broker) -> Callable[..., DataFrame]:
    """`load(subscribe="orders")`."""

    def build(**options: object) -> DataFrame:
        reader = spark.read.format("kohort").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        for name, value in options.items():
            reader = reader.option(name, str(value))
        return reader.load()

    return build


def test_schema_is_that_of_sparks_kafka_source(load: Callable[..., DataFrame], fill: Callable[..., None]) -> None:
    """P1: changing the format name is the migration."""
    fill("schema", partitions=1, records=1)
    types = [(field.name, field.dataType.simpleString()) for field in load(subscribe="schema").schema]
    assert types == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
    ]


def test_every_record_is_read_once(load: Callable[..., DataFrame], fill: Callable[..., None]) -> None:
    """By default from the earliest to the latest offset, without a register call or a jar."""
    fill("all-of-it", partitions=3, records=1_000)
    rows = load(subscribe="all-of-it").collect()
    assert sorted(int(row.value) for row in rows) == list(range(1_000))
    assert {(row.topic, row.timestampType) for row in rows} == {("all-of-it", 0)}
    assert all(bytes(row.key) == b"k" + bytes(row.value) for row in rows)
    assert {(row.partition, row.offset) for row in rows} == {(n % 3, n // 3) for n in range(1_000)}


def test_many_partitions_are_few_tasks(
    spark: SparkSession, load: Callable[..., DataFrame], admin: kohort.Admin, broker: kohort.Broker, checkpoint: str
) -> None:
    """A batch and a stream, in which one partition has 99 of 100 records; each task reads hundreds of partitions."""
    partitions = at_depth(300, 10_000)
    admin.create_topic("many", partitions)
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in [*range(partitions), *[7] * (99 * partitions)]:
            producer.send("many", b"%d" % number, partition=number)
    rows = load(subscribe="many", columns="value,partition,offset").selectExpr("*", "spark_partition_id() task")
    found = rows.selectExpr(
        "count(*)", "count(distinct partition, offset)", "sum(int(string(value)) - partition)", "max(task) < 4"
    )
    assert found.collect()[0][:] == (100 * partitions, 100 * partitions, 0, True)
    options = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "many", "startingOffsets": "earliest"}
    stream = spark.readStream.format("kohort").options(**options, maxOffsetsPerTrigger=str(60 * partitions)).load()
    writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
    query = writer.trigger(availableNow=True).start()
    query.awaitTermination()
    read = [batch.numInputRows for batch in query.recentProgress]
    assert (len(read), sum(read)) == (2, 100 * partitions)


def test_offsets_bound_what_is_read(load: Callable[..., DataFrame], fill: Callable[..., None]) -> None:
    """`startingOffsets` and `endingOffsets` as JSON, -2 for the earliest and -1 for the latest."""
    fill("bounded", partitions=2, records=100)
    rows = load(
        subscribe="bounded",
        startingOffsets='{"bounded": {"0": 10, "1": -2}}',
        endingOffsets='{"bounded": {"0": 20, "1": -1}}',
    ).collect()
    by_partition = {number: sorted(row.offset for row in rows if row.partition == number) for number in (0, 1)}
    assert by_partition == {0: list(range(10, 20)), 1: list(range(50))}


def test_an_empty_topic_is_an_empty_frame(load: Callable[..., DataFrame], fill: Callable[..., None]) -> None:
    """Also where a batch has no task at all."""
    fill("empty", partitions=2, records=0)
    assert load(subscribe="empty").collect() == []
    bounds = '{"empty": {"0": 0, "1": 0}}'
    assert load(subscribe="empty", startingOffsets=bounds, endingOffsets=bounds).collect() == []


def test_assign_reads_some_partitions(load: Callable[..., DataFrame], fill: Callable[..., None]) -> None:
    """`assign` instead of `subscribe`."""
    fill("some", partitions=3, records=30)
    rows = load(assign='{"some": [0, 2]}').collect()
    assert {row.partition for row in rows} == {0, 2}
    assert len(rows) == 20


def test_columns_are_chosen_and_ordered(load: Callable[..., DataFrame], fill: Callable[..., None]) -> None:
    """The option `columns` saves what is not needed."""
    fill("narrow", partitions=1, records=5)
    frame = load(subscribe="narrow", columns="offset,value")
    assert frame.columns == ["offset", "value"]
    assert [(row.offset, bytes(row.value)) for row in frame.collect()] == [(n, b"%d" % n) for n in range(5)]
    assert load(subscribe="narrow", columns="value").count() == 5


def test_headers_come_with_include_headers(
    load: Callable[..., DataFrame], broker: kohort.Broker, admin: kohort.Admin
) -> None:
    """Names may repeat, values may be null."""
    admin.create_topic("headed")
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        producer.send("headed", b"v", headers=[("a", b"1"), ("a", None)]).result(10)
        producer.send("headed", None, b"key-of-a-tombstone").result(10)
    rows = load(subscribe="headed", includeHeaders="true").orderBy("offset").collect()
    assert [(pair.key, pair.value) for pair in rows[0].headers] == [("a", bytearray(b"1")), ("a", None)]
    assert rows[1].value is None
    assert not rows[1].headers


def test_compressed_batches_are_read(
    load: Callable[..., DataFrame], broker: kohort.Broker, admin: kohort.Admin
) -> None:
    """Every codec that a producer may have used."""
    admin.create_topic("packed")
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers, compression_type=codec) as producer:
            producer.send("packed", codec.encode() * 100)
    values = {bytes(row.value) for row in load(subscribe="packed").collect()}
    assert values == {codec * 100 for codec in (b"gzip", b"snappy", b"lz4", b"zstd")}


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"subscribe": "no-such-topic"}, "topic no-such-topic does not exist"),
        ({"subscribe": "a", "subscrib": "b"}, "unknown kohort source option subscrib; did you mean subscribe?"),
        ({}, "exactly one of the options subscribe, subscribePattern and assign is needed"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "startingOffsets cannot be latest in a batch"),
        ({"subscribe": "a", "startingOffsets": "{oops"}, "startingOffsets is not valid JSON"),
        ({"subscribe": "a", "columns": "valeu"}, "unknown column valeu; did you mean value?"),
        ({"subscribe": "a", "kafka.auto.offset.reset": "latest"}, "use startingOffsets"),
        ({"subscribe": "a", "kafka.ssl.keystore.location": "/x"}, "ssl.certificate.location would change nothing"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_bad_option_is_said_in_one_sentence(
    load: Callable[..., DataFrame], options: dict[str, str], sentence: str
) -> None:
    """Whoever mistypes an option reads what to do, somewhere in Spark's error."""
    with pytest.raises(Exception, match=sentence.replace("?", r"\?")):
        load(**options).collect()


def test_temporary_view_is_the_topic_as_it_is_then(
    spark: SparkSession, broker: kohort.Broker, fill: Callable[..., None]
) -> None:
    """SQL; a table of the catalog, whose options Spark forgets, is refused with the view as the way out."""
    from pyspark.errors import AnalysisException

    fill("sold", partitions=2, records=10)
    using = f"sold USING kohort OPTIONS ('kafka.bootstrap.servers' '{broker.bootstrap_servers}', subscribe 'sold')"
    spark.sql(f"CREATE TEMPORARY VIEW {using}")
    assert [tuple(row) for row in spark.sql("SELECT count(*), max(offset) FROM sold").collect()] == [(10, 4)]
    fill.add("sold", partitions=2, first=10, records=10)  # type: ignore[attr-defined]
    assert [tuple(row) for row in spark.sql("SELECT count(*), max(offset) FROM sold").collect()] == [(20, 9)]
    spark.catalog.dropTempView("sold")
    with pytest.raises(AnalysisException, match=r"CREATE TEMPORARY VIEW \.\.\. USING kohort"):
        spark.sql(f"CREATE TABLE {using}")
