"""`QueryListener` and `follow` on real queries: what Spark says of them, in Spark's own words and times."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest

import kohort
from kohort import TopicPartition
from kohort.spark import BatchReport, QueryListener, follow, read_stream, read_topic, write_topic
from support.peers.spark_kafka import SparkKafkaUnavailableError, fetch_jars
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark


def test_typed_calls_write_and_read_a_topic(spark: SparkSession, broker: kohort.Broker, admin: kohort.Admin) -> None:
    admin.create_topic("typed", 2)
    servers = broker.bootstrap_servers
    frame = spark.range(100).selectExpr("string(id) AS value")
    write_topic(frame, "typed", bootstrap_servers=servers, compression_type="zstd")
    starts = {TopicPartition("typed", 0): -2, TopicPartition("typed", 1): -2}
    rows = read_topic(spark, "typed", startingOffsets=starts, columns=["value"], bootstrap_servers=servers).collect()
    assert sorted(int(row.value) for row in rows) == list(range(100))


def test_listener_reports_batches_and_what_is_left(
    spark: SparkSession, broker: kohort.Broker, fill: Callable[..., None], checkpoint: str
) -> None:
    """Lag is what the plan saw and the batch left."""
    fill("listened", partitions=2, records=100)
    reports: list[BatchReport] = []
    listener = QueryListener(reports.append)
    spark.streams.addListener(listener)
    try:
        stream = read_stream(
            spark,
            "listened",
            startingOffsets="earliest",
            maxOffsetsPerTrigger=60,
            bootstrap_servers=broker.bootstrap_servers,
        )
        writer = stream.writeStream.format("noop").queryName("listened").option("checkpointLocation", checkpoint)
        query = writer.trigger(availableNow=True).start()
        assert query.awaitTermination(90)
        until(lambda: sum(report.records for report in reports) == 100, what="Spark tells of the last batch")
    finally:
        spark.streams.removeListener(listener)
    assert {report.query for report in reports} == {"listened"}
    of_batches = [sum(report.lag.values()) for report in reports if report.records]
    assert of_batches == [40, 0]
    assert reports[-1].lag.keys() == {TopicPartition("listened", 0), TopicPartition("listened", 1)}


def test_query_of_sparks_own_source_is_seen_by_lag_tools(
    spark: SparkSession, broker: kohort.Broker, admin: kohort.Admin, fill: Callable[..., None], checkpoint: str
) -> None:
    """SPARK-27549, without a change to the query."""
    try:
        fetch_jars()
    except SparkKafkaUnavailableError as why:
        pytest.skip(str(why))
    fill("followed", partitions=3, records=90)
    servers = broker.bootstrap_servers
    stream = spark.readStream.format("kafka").option("kafka.bootstrap.servers", servers).option("subscribe", "followed")
    writer = stream.option("startingOffsets", "earliest").option("maxOffsetsPerTrigger", 45).load().writeStream
    with follow(spark, "followers", bootstrap_servers=servers) as follower:
        query = writer.format("noop").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
        assert query.awaitTermination(90)
    assert {row.partition: row.committed for row in admin.group_offsets("followers")} == {0: 30, 1: 30, 2: 30}
    assert all(row.lag == 0 for row in admin.group_offsets("followers"))
    assert follower.trouble == {}
