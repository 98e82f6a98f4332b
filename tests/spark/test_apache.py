"""The same source on an Apache Kafka 4.3: how users outgrow one machine (P6)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import TopicPartition as Partition
from confluent_kafka.admin import AdminClient

import kohort
from kohort.spark.batch import KohortBatchReader
from kohort.spark.offsets import RecordsLostError
from kohort.spark.options import parse_options
from kohort.spark.reading import SpansToRead
from support.dialogues.spark_query import Query
from support.peers.apache_broker import ApacheKafka

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


def test_records_that_retention_has_taken(apache: ApacheKafka, caplog: pytest.LogCaptureFixture) -> None:
    """Before a plan and between plan and task: the query ends, or goes on at the first record and says so."""
    name, address = "aged", apache.bootstrap_servers
    with kohort.Admin(bootstrap_servers=address) as admin:
        admin.create_topic(name, 2)
    with kohort.Producer(bootstrap_servers=address) as producer:
        for number in range(200):
            producer.send(name, b"v", partition=number % 2)
    batch = KohortBatchReader(parse_options({"kafka.bootstrap.servers": address, "subscribe": name}))
    planned = list(batch.partitions())
    query = Query(address, subscribe=name, startingOffsets="earliest", maxOffsetsPerTrigger=40)
    assert len(query.trigger()) == 40
    query.stop()
    delete_before(address, name, 30)

    strict = Query(address, checkpoint=query.checkpoint, subscribe=name)
    with pytest.raises(RecordsLostError, match=r"aged-0 cannot be read at offset 20: it begins at 30.*failOnDataLoss"):
        strict.trigger()
    strict.stop()
    lenient = Query(
        address, checkpoint=query.checkpoint, subscribe=name, failOnDataLoss="false", maxOffsetsPerTrigger=40
    )
    assert lenient.plan()
    delete_before(address, name, 45)
    lenient.finish(lenient.execute())
    lenient.run()
    lenient.stop()

    assert lenient.checkpoint.places() == sorted(
        (name, partition, offset)
        for partition, offsets in ((0, (*range(20), *range(45, 100))), (1, range(100)))
        for offset in offsets
    )
    assert "aged-0 goes on at offset 30 and not at 20: it begins at 30 (failOnDataLoss=false)" in caplog.text
    assert "aged-0 goes on at offset 45 and not at 30: its log begins at 45 (failOnDataLoss=false)" in caplog.text
    assert sum(rows.num_rows for task in planned for rows in batch.read(task)) == 155, (
        "a batch begins as late as it can"
    )
    gone = {"subscribe": name, "endingOffsets": '{"aged": {"0": 20, "1": 20}}', "kafka.bootstrap.servers": address}
    with pytest.raises(RecordsLostError, match="aged-0 cannot be read at offset 20: it begins at 45"):
        KohortBatchReader(parse_options(gone)).partitions()
    left = KohortBatchReader(parse_options({**gone, "failOnDataLoss": "false"})).partitions()
    assert [(each.partition, each.end) for task in left if isinstance(task, SpansToRead) for each in task.spans] == [
        (1, 20)
    ]


def delete_before(address: str, topic: str, offset: int) -> None:
    """As retention does, of the first partition."""
    client = AdminClient({"bootstrap.servers": address})
    for deleted in client.delete_records([Partition(topic, 0, offset)]).values():
        deleted.result(30)


def test_a_query_goes_where_its_group_was_set(apache: ApacheKafka, caplog: pytest.LogCaptureFixture) -> None:
    """Back and on, as at our own broker: an offset that was committed without the metadata of a query is an order."""
    address, name = apache.bootstrap_servers, "ordered"
    options = {"subscribe": name, "kafka.group.id": "ordered-g", "startingOffsets": "earliest"}
    with kohort.Admin(bootstrap_servers=address) as admin, kohort.Producer(bootstrap_servers=address) as producer:
        admin.create_topic(name, 1)
        for _ in range(100):
            producer.send(name, b"v")
        producer.flush(30)
        query = Query(address, **options)
        query.read(100)
        for offset, count in ((10, 190), (150, 240)):
            query.run()
            query.stop()
            if offset > 100:
                for _ in range(100):
                    producer.send(name, b"v")
                producer.flush(30)
            admin.alter_group_offsets("ordered-g", {kohort.TopicPartition(name, 0): offset})
            query = Query(address, checkpoint=query.checkpoint, **options)
            query.read(count)
        query.stop()
    assert [each for _, _, each in query.checkpoint.sink[100:]] == [*range(10, 100), *range(150, 200)]
    assert [line.partition(": ")[2] for line in caplog.messages if "from outside" in line] == [
        f"{name}-0 goes on at offset {offset} and not at 100: its group's offset was set from outside"
        for offset in (10, 150)
    ]
