"""The same source on an Apache Kafka 4.3: how users outgrow one machine (P6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kohort
from support.apache_broker import ApacheKafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.apache]

RECORDS = 3_000


@pytest.fixture(scope="module")
def apache() -> Iterator[ApacheKafka]:
    """One broker with a topic of three partitions, filled by our producer."""
    with ApacheKafka({"group.consumer.heartbeat.interval.ms": 5000}, heap="512m") as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("flights", 3)
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers, compression_type="zstd") as producer:
            futures = [producer.send("flights", b"%d" % number, b"k%d" % number) for number in range(RECORDS)]
            for future in futures:
                future.result(30)
        yield broker


def test_batch_reads_every_record_once(spark: SparkSession, apache: ApacheKafka) -> None:
    """Nothing changes but the address."""
    reader = spark.read.format("kohort").option("kafka.bootstrap.servers", apache.bootstrap_servers)
    rows = reader.option("subscribe", "flights").option("columns", "value").load().collect()
    assert sorted(int(row.value) for row in rows) == list(range(RECORDS))


def test_stream_is_a_member_of_a_group_there(spark: SparkSession, apache: ApacheKafka, tmp_path: Path) -> None:
    """KIP-848 on Apache Kafka's coordinator; the group's offsets stand at the end when the query has ended."""
    query = (
        spark.readStream.format("kohort")
        .option("kafka.bootstrap.servers", apache.bootstrap_servers)
        .option("subscribe", "flights")
        .option("kafka.group.id", "departures")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", 1_000)
        .load()
        .writeStream.format("parquet")
        .option("path", str(tmp_path / "out"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination(120)
    rows = spark.read.parquet(str(tmp_path / "out")).select("value").collect()
    assert sorted(int(row.value) for row in rows) == list(range(RECORDS))
    with kohort.Admin(bootstrap_servers=apache.bootstrap_servers) as admin:
        offsets = admin.group_offsets("departures")
        assert sum(row.committed or 0 for row in offsets) == RECORDS
        assert all(row.lag == 0 for row in offsets)
        assert admin.describe_group("departures").group_type == "consumer"
