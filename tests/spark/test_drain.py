"""Real queries of a group that end clean, by `drain_and_stop` or a plain stop: nobody waits, nothing is read twice."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import kohort
from kohort import TopicPartition
from kohort.spark import QueryListener, drain_and_stop, read_stream
from support.waiting import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQuery

pytestmark = pytest.mark.spark

#: Longer than any test: what happens meanwhile, happens between two triggers.
AN_HOUR = "1 hour"


def start(spark: SparkSession, broker: kohort.Broker, topic: str, checkpoint: str) -> StreamingQuery:
    """A query of a group of the topic's name."""
    servers = broker.bootstrap_servers
    stream = read_stream(spark, topic, group_id=topic, startingOffsets="earliest", bootstrap_servers=servers)
    writer = stream.writeStream.format("noop").option("checkpointLocation", checkpoint)
    return writer.trigger(processingTime=AN_HOUR).start()


def committed(admin: kohort.Admin, group: str) -> dict[int, int | None]:
    return {row.partition: row.committed for row in admin.group_offsets(group)}


def test_drained_query_has_said_how_far_it_is_and_left(
    spark: SparkSession, broker: kohort.Broker, admin: kohort.Admin, fill: Callable[..., None], checkpoint: str
) -> None:
    """Between two triggers, an hour apart, without a listener: its last batch is not in doubt."""
    fill("drained", partitions=2, records=100)
    query = start(spark, broker, "drained", checkpoint)
    # The first query of a session takes its time.
    until(
        lambda: query.lastProgress is not None,
        what="the first batch",
        step=lambda: query.awaitTermination(1),
        seconds=120,
    )
    stopped = drain_and_stop(query)
    assert stopped.ends == {TopicPartition("drained", 0): 50, TopicPartition("drained", 1): 50}
    assert (stopped.batch_id, len(stopped.drained)) == (0, 1)
    assert committed(admin, "drained") == {0: 50, 1: 50}
    assert admin.describe_group("drained").members == ()


def test_listener_has_the_end_of_a_batch_committed_before_the_next_trigger(
    spark: SparkSession, broker: kohort.Broker, admin: kohort.Admin, fill: Callable[..., None], checkpoint: str
) -> None:
    """P3: an hour before Spark asks for the next batch."""
    fill("told", partitions=2, records=100)
    listener = QueryListener()
    spark.streams.addListener(listener)
    try:
        query = start(spark, broker, "told", checkpoint)
        until(
            lambda: committed(admin, "told") == {0: 50, 1: 50},
            what="the end of the batch in the group",
            step=lambda: query.awaitTermination(1),
        )
        query.stop()
    finally:
        spark.streams.removeListener(listener)


def test_query_that_is_just_stopped_between_two_triggers_leaves_nothing_in_doubt(
    spark: SparkSession, broker: kohort.Broker, admin: kohort.Admin, fill: Callable[..., None], checkpoint: str
) -> None:
    """Nothing is installed and nothing set: the reader has found the checkpoint by itself, and looks into its log."""
    fill("stopped", partitions=2, records=100)
    query = start(spark, broker, "stopped", checkpoint)
    until(
        lambda: Path(checkpoint, "commits", "0").exists(),
        what="the first batch",
        step=lambda: query.awaitTermination(1),
        seconds=120,
    )
    query.stop()
    until(lambda: admin.describe_group("stopped").members == (), what="it has left for good")
    assert committed(admin, "stopped") == {0: 50, 1: 50}
