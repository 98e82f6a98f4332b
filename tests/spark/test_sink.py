"""`write.format("kohort")` and `writeStream.format("kohort")` against a real broker, in a real Spark."""

from __future__ import annotations

import runpy
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import kohort

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark


def save(frame: DataFrame, broker: kohort.Broker, mode: str = "append", **options: object) -> None:
    """With a broker."""
    writer = frame.write.format("kohort").option("kafka.bootstrap.servers", broker.bootstrap_servers).mode(mode)
    writer.options(**options).save()  # type: ignore[arg-type]  # text, numbers and truth


@pytest.fixture
def read(spark: SparkSession, broker: kohort.Broker) -> Callable[[str], list[Any]]:
    """`read("orders")`: its rows, headers included, by value."""

    def rows(topic: str) -> list[Any]:
        reader = spark.read.format("kohort").option("kafka.bootstrap.servers", broker.bootstrap_servers)
        return reader.option("subscribe", topic).option("includeHeaders", True).load().orderBy("value").collect()

    return rows


def test_batch_is_written_as_by_sparks_sink(
    spark: SparkSession, broker: kohort.Broker, admin: kohort.Admin, read: Callable[[str], list[Any]]
) -> None:
    """Text and binary, headers, topics and partitions of rows; a column that no record has is left out."""
    admin.create_topic("sink-even", 2)
    admin.create_topic("sink-odd", 2)
    frame = spark.range(1_000).selectExpr(
        "id",
        "if(id % 2 = 0, 'sink-even', 'sink-odd') topic",
        "format_string('%04d', id) value",
        "if(id % 3 = 0, null, cast('k' as binary)) key",
        "cast(id % 4 div 2 as int) partition",
        "array(struct('h' as key, cast('v' as binary) as value)) headers",
    )

    save(frame, broker)

    for topic, first in (("sink-even", 0), ("sink-odd", 1)):
        rows = read(topic)
        assert [int(row.value) for row in rows] == list(range(first, 1_000, 2))
        for row in rows:
            number = int(row.value)
            assert row.partition == number % 4 // 2
            assert row.key == (None if number % 3 == 0 else b"k")
            assert [(header.key, bytes(header.value)) for header in row.headers] == [("h", b"v")]


def test_wrong_write_is_refused_with_a_sentence(spark: SparkSession, broker: kohort.Broker) -> None:
    """While it is planned, and by the first row that is wrong; Spark's own default mode is not for Python sinks."""
    frame = spark.range(1).selectExpr("'v' value", "cast(null as string) topic")
    for mode, options, sentence in (
        ("overwrite", {"topic": "t"}, "Save mode Overwrite not allowed for Kafka"),
        ("append", {}, r"KAFKA_NULL_TOPIC_IN_DATA.* Use the .topic. option for setting a default topic"),
        ("errorifexists", {"topic": "t"}, 'cannot be written in the "ErrorIfExists" mode'),
    ):
        with pytest.raises(Exception, match=sentence):
            save(frame, broker, mode, **options)


def test_readers_drop_what_a_repeated_batch_has_doubled(
    spark: SparkSession, capsys: pytest.CaptureFixture[str]
) -> None:
    """By query, batch and origin in headers: the example as it is, in this session."""
    runpy.run_path(str(Path(__file__).parents[2] / "examples" / "spark_write.py"))
    assert capsys.readouterr().out.splitlines()[-1] == "2000 rows, 1000 of them different"
