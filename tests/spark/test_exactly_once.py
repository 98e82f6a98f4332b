"""`writeStream.format("kohort")` in transactions, in a real Spark: a query that ends where it hurts, and comes back."""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import confluent_kafka
import pytest
from pyspark import cloudpickle

import kohort
from kohort.spark import register, write_stream
from kohort.spark.options import parse_sink_options
from kohort.spark.sink import KohortStreamWriter
from kohort.spark.source import KohortDataSource

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.spark

RECORDS, PARTITIONS, A_BATCH = 900, 4, 300


class EndingWriter(KohortStreamWriter):
    """Ends the query before the transaction is committed, or between that and Spark's commit log."""

    ends: dict[int, str]

    def commit(self, messages: list[Any], batchId: int) -> None:
        if self.ends.get(batchId) == "before":
            raise OSError("the JVM is gone before EndTxn")
        super().commit(messages, batchId)
        if self.ends.get(batchId) == "behind":
            raise OSError("the JVM is gone behind EndTxn")


def ending(ends: dict[int, str]) -> type[KohortDataSource]:
    """A source whose writer ends its query at these batches."""

    class Ending(KohortDataSource):
        def streamWriter(self, schema: Any, overwrite: bool) -> KohortStreamWriter:
            writer = EndingWriter(parse_sink_options(dict(self.options)), schema)
            writer.ends = ends
            return writer

    return Ending


def committed_values(address: str, topic: str) -> Counter[bytes]:
    """Count the values that a confluent-kafka consumer with `read_committed` reads."""
    reader = confluent_kafka.Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "readers",
            "isolation.level": "read_committed",
            "enable.partition.eof": True,
        }
    )
    reader.assign([confluent_kafka.TopicPartition(topic, each, 0) for each in range(PARTITIONS)])
    found, ended = Counter[bytes](), 0
    while ended < PARTITIONS:
        message = reader.poll(20)
        assert message is not None, "a transaction is open"
        error = message.error()
        if error is None:
            found[message.value() or b""] += 1
        else:
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF, error
            ended += 1
    reader.close()
    return found


def play(spark: SparkSession, address: str, folder: Path) -> None:
    """Copy a topic, with an end before and behind EndTxn of batches 0 and 1."""
    with kohort.Admin(bootstrap_servers=address) as admin:
        admin.create_topic("copied", PARTITIONS)
        admin.create_topic("copies", PARTITIONS)
    with kohort.Producer(bootstrap_servers=address) as producer:
        numbers = [b"%d" % number for number in range(RECORDS)]
        producer.send_many("copied", numbers, keys=[b"%d" % (number % 50) for number in range(RECORDS)]).result(30)
    reader = spark.readStream.format("kohort").options(
        **{
            "kafka.bootstrap.servers": address,
            "subscribe": "copied",
            "startingOffsets": "earliest",
            "maxOffsetsPerTrigger": A_BATCH,
        }
    )
    # Spark's workers do not import tests.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    try:
        for ends in ({0: "before"}, {0: "behind"}, {}):
            spark.dataSource.register(ending(ends))
            rows = reader.load().selectExpr("key", "value")
            query = (
                write_stream(rows, "copies", exactly_once=True, bootstrap_servers=address)
                .option("checkpointLocation", str(folder / "checkpoint"))
                .trigger(availableNow=True)
                .start()
            )
            if ends:
                with pytest.raises(Exception, match="the JVM is gone"):
                    query.awaitTermination(120)
            else:
                query.awaitTermination(120)
    finally:
        register(spark)
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert committed_values(address, "copies") == Counter(numbers)


def test_each_row_is_committed_once(spark: SparkSession, broker: kohort.Broker, tmp_path: Path) -> None:
    """Whether Spark repeats a batch that is in the topic, or one that was aborted."""
    play(spark, broker.bootstrap_servers, tmp_path)


@pytest.mark.apache
def test_each_row_is_committed_once_at_an_apache_kafka(spark: SparkSession, tmp_path: Path) -> None:
    """Its coordinator, and its flow, are the same to the query."""
    from support.peers.apache_broker import ApacheKafka

    with ApacheKafka(heap="512m") as broker:
        play(spark, broker.bootstrap_servers, tmp_path)
