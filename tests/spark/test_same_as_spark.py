"""`format("kohort")` beside `format("kafka")`: the same options give the same frames and the same refusals.

Each row of docs/reference/spark.md's table has its cases here; `make soak ONLY=same-as-spark` runs them all,
`make test` those of `FEW`, because each frame of ours costs a second. Spark's own source is a jar: where it cannot be
had these tests skip with the reason.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Any, Final

import pytest

import kohort
from kohort.errors import KohortError
from kohort.spark.batch import KohortBatchReader
from kohort.spark.options import for_batch, for_stream, parse_options
from support.depth import IS_SOAK
from support.peers.spark_kafka import SparkKafkaUnavailableError, fetch_jars

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

pytestmark = pytest.mark.spark

_SAME: Final = {"subscribe": "same"}

#: What a batch reads; `includeHeaders` is added to each.
BATCHES: Final[dict[str, dict[str, str]]] = {
    "subscribe": {"subscribe": "same, same-too,same"},
    "subscribePattern": {"subscribePattern": "sam[a-f]-?(too)?"},
    "assign": {"assign": '{"same": [2, 0], "same-too": [0]}'},
    "words": {**_SAME, "startingOffsets": "EARLIEST", "endingOffsets": "latest"},
    "offsets": {
        **_SAME,
        "startingOffsets": '{"same": {"0": 3, "1": -2, "2": -2}}',
        "endingOffsets": '{"same": {"0": 8, "1": -1, "2": 0}}',
    },
    "nothing": {
        **_SAME,
        "startingOffsets": '{"same": {"0": 3, "1": 5, "2": 0}}',
        "endingOffsets": '{"same": {"0": 3, "1": 5, "2": 0}}',
    },
    "startingTimestamp": {
        "assign": '{"same": [0, 1]}',
        "startingTimestamp": "3500",
        "startingOffsets": "earliest",
    },
    "startingOffsetsByTimestamp": {
        "assign": '{"same": [0, 1]}',
        "startingOffsetsByTimestamp": '{"same": {"0": 9000, "1": 2000}}',
    },
    "startingOffsetsByTimestampStrategy": {
        **_SAME,
        "startingTimestamp": "7000",
        "startingOffsetsByTimestampStrategy": "latest",
        "endingTimestamp": "9000",
    },
    "endingTimestamp": {**_SAME, "endingTimestamp": "4000"},
    "endingOffsetsByTimestamp": {**_SAME, "endingOffsetsByTimestamp": '{"same": {"0": 1, "1": 3001, "2": 5}}'},
    "minPartitions": {**_SAME, "minPartitions": "7"},
    "maxRecordsPerPartition": {**_SAME, "maxRecordsPerPartition": "4", "minPartitions": "2"},
    "failOnDataLoss": {**_SAME, "failOnDataLoss": "false"},
    "what changes nothing": {
        **_SAME,
        "groupIdPrefix": "etl",
        "fetchOffset.numRetries": "5",
        "fetchOffset.retryIntervalMs": "20",
        "kafkaConsumer.pollTimeoutMs": "30000",
        "maxOffsetsPerTrigger": "2",
        "minOffsetsPerTrigger": "2",
        "kafka.group.id": "a-label",
        "kafka.security.protocol": "PLAINTEXT",
        "kafka.max.poll.records": "10000",
        "kafka.receive.buffer.bytes": "4194304",
        "kafka.max.partition.fetch.bytes": "4194304",
        "kafka.check.crcs": "false",
        "kafka.isolation.level": "read_committed",
    },
}
FEW: Final = ("offsets", "startingOffsetsByTimestampStrategy", "what changes nothing", "timestamp")
IS_WHOLE: Final = IS_SOAK
#: What a stream reads until now.
STREAMS: Final[dict[str, dict[str, str]]] = {
    "latest": _SAME,
    "earliest": {"subscribePattern": "same.*", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "6"},
    "offsets": {**_SAME, "startingOffsets": '{"same": {"0": 3, "1": -1, "2": -2}}', "minPartitions": "5"},
    "timestamp": {
        **_SAME,
        "startingTimestamp": "3500",
        "startingOffsetsByTimestampStrategy": "latest",
        "maxRecordsPerPartition": "2",
    },
}
#: What both refuse in a batch; without an address, where it says so.
REFUSED_BATCHES: Final[list[dict[str, str]]] = [
    {},
    {"subscribe": "same", "assign": '{"same": [0]}'},
    {"subscribe": " , "},
    {"subscribePattern": " "},
    {"assign": "same"},
    {**_SAME, "kafka.bootstrap.servers": ""},
    {**_SAME, "startingOffsets": "newest"},
    {**_SAME, "startingOffsets": "latest"},
    {**_SAME, "startingOffsets": '{"same": {"0": -1, "1": 0, "2": 0}}'},
    {**_SAME, "startingOffsets": '{"same": {"0": 1}}'},
    {**_SAME, "endingOffsets": "earliest"},
    {**_SAME, "endingOffsets": '{"same": {"0": -2, "1": -1, "2": -1}}'},
    {**_SAME, "startingTimestamp": "today"},
    {**_SAME, "startingTimestamp": "7000"},
    {**_SAME, "startingOffsetsByTimestamp": '{"same": {"0": 1}}'},
    {**_SAME, "startingTimestamp": "1", "startingOffsetsByTimestampStrategy": "earliest"},
    {**_SAME, "minPartitions": "0"},
    {**_SAME, "maxRecordsPerPartition": "0"},
    {**_SAME, "includeHeaders": "perhaps"},
    {**_SAME, "kafka.auto.offset.reset": "latest"},
    {**_SAME, "kafka.enable.auto.commit": "true"},
    {**_SAME, "kafka.key.deserializer": "a.B"},
    {**_SAME, "kafka.value.deserializer": "a.B"},
    {**_SAME, "kafka.interceptor.classes": "a.B"},
    {**_SAME, "kafka.security.protocol": "SASL_SOMETHING"},
]
#: Likewise in a stream.
REFUSED_STREAMS: Final[list[dict[str, str]]] = [
    {**_SAME, "endingOffsets": "latest"},
    {**_SAME, "kafka.auto.offset.reset": "latest"},
]


@pytest.fixture(scope="module")
def both(spark: SparkSession, broker: kohort.Broker, admin: kohort.Admin) -> Mapping[str, str]:
    """The address of topics with keys, timestamps and headers, the last partition of `same` empty."""
    try:
        fetch_jars()
    except SparkKafkaUnavailableError as why:
        pytest.skip(str(why))
    admin.create_topic("same", 3)
    admin.create_topic("same-too", 1)
    with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(10):
            headers = [("a", b"%d" % number), ("a", None)] if number % 3 else None
            key = None if number % 2 else b"key"
            producer.send("same", b"v%d" % number, key, partition=0, timestamp_ms=1_000 * number, headers=headers)
        for number in range(5):
            producer.send("same", None, b"k%d" % number, partition=1, timestamp_ms=1_000 * number + 1)
        producer.send("same-too", b"", b"", partition=0, timestamp_ms=5)
    return {"kafka.bootstrap.servers": broker.bootstrap_servers}


def chosen(cases: Mapping[str, dict[str, str]]) -> dict[str, dict[str, str]]:
    """Those of this run."""
    return {case: options for case, options in cases.items() if IS_WHOLE or case in FEW}


def columns(row: Row) -> tuple[Any, ...]:
    return (row.case, row.topic, row.partition, row.offset, row.key, row.value, row.timestamp, row.timestampType)


def union(frames: Mapping[str, DataFrame]) -> DataFrame:
    """One frame, each row with the name of its case."""
    from pyspark.sql import DataFrame
    from pyspark.sql.functions import lit

    return reduce(DataFrame.union, [frame.withColumn("case", lit(case)) for case, frame in frames.items()])


def comparable(rows: list[Row]) -> list[tuple[Any, ...]]:
    # Spark's source gives null where a record has no headers, ours an empty list; both are none.
    return sorted(
        ((*columns(row), [tuple(pair) for pair in row.headers or ()]) for row in rows), key=lambda row: row[:4]
    )


def test_batches_are_the_same(spark: SparkSession, both: Mapping[str, str]) -> None:
    """Every option that says what a batch reads; types of columns included."""
    cases = chosen(BATCHES)
    found, types = {}, {}
    for source in ("kafka", "kohort"):
        frames = {
            case: spark.read.format(source).options(**both, **options, includeHeaders="true").load()
            for case, options in cases.items()
        }
        types[source] = [(field.name, field.dataType) for field in frames["offsets"].schema]
        found[source] = comparable(union(frames).collect())
    assert types["kohort"] == types["kafka"]
    assert found["kohort"] == found["kafka"]
    assert {row[0] for row in found["kohort"]} == cases.keys() - {"nothing"}


def test_streams_are_the_same(spark: SparkSession, both: Mapping[str, str], tmp_path: Any) -> None:
    """Where a query without a checkpoint begins, and that nothing is read twice or left out over several batches."""
    cases, found = chosen(STREAMS), {}
    for source in ("kafka", "kohort"):
        frames = {
            case: spark.readStream.format(source).options(**both, **options, includeHeaders="true").load()
            for case, options in cases.items()
        }
        query = (
            union(frames)
            .writeStream.format("memory")
            .queryName(f"same_{source}")
            .option("checkpointLocation", str(tmp_path / source))
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(120)
        found[source] = comparable(spark.table(f"same_{source}").collect())
    assert found["kohort"] == found["kafka"]
    assert {row[0] for row in found["kohort"]} == cases.keys() - {"latest"}


def test_a_checkpoint_of_sparks_source_goes_on(
    spark: SparkSession, both: Mapping[str, str], admin: kohort.Admin, tmp_path: Any
) -> None:
    """Changing the name of the format is the migration: the query goes on where it stood, each record once."""
    admin.create_topic("migrated", 2)
    for number, source in enumerate(("kafka", "kohort")):
        with kohort.Producer(bootstrap_servers=both["kafka.bootstrap.servers"]) as producer:
            for each in range(10):
                producer.send("migrated", b"%d" % (10 * number + each), partition=each % 2)
        query = (
            spark.readStream.format(source)
            .options(**both, subscribe="migrated", startingOffsets="earliest")
            .load()
            .selectExpr("CAST(value AS STRING)")
            .writeStream.format("parquet")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start(str(tmp_path / "out"))
        )
        assert query.awaitTermination(120)
    rows = spark.read.parquet(str(tmp_path / "out")).collect()
    assert sorted(int(row.value) for row in rows) == list(range(20))


@pytest.mark.parametrize("options", REFUSED_BATCHES, ids=str)
def test_both_refuse_a_batch(spark: SparkSession, both: Mapping[str, str], options: dict[str, str]) -> None:
    """At `load()` or when it is planned; ours with an exception of its own, which `test_batch.py` sees arrive."""
    # Spark asks again for what will not be otherwise.
    given = {**both, "fetchOffset.numRetries": "1", "fetchOffset.retryIntervalMs": "1", **options}
    if given["kafka.bootstrap.servers"] == "":
        del given["kafka.bootstrap.servers"]
    with pytest.raises(Exception, match=r".+"):
        spark.read.format("kafka").options(**given).load().collect()
    with pytest.raises(KohortError):
        KohortBatchReader(for_batch(parse_options(given))).partitions()


@pytest.mark.parametrize("options", REFUSED_STREAMS, ids=str)
def test_both_refuse_a_stream(spark: SparkSession, both: Mapping[str, str], options: dict[str, str]) -> None:
    """At `load()`."""
    with pytest.raises(Exception, match=r".+"):
        spark.readStream.format("kafka").options(**both, **options).load()
    with pytest.raises(KohortError):
        for_stream(parse_options({**both, **options}))
