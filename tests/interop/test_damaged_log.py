"""A broker with a damaged log: it starts, says so, serves the rest, and no consumer passes the hole unnoticed."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import confluent_kafka
import kafka
import pytest

import kohort
from kohort.broker.embedded import Broker
from kohort.ids import TopicId
from kohort.storage.store import Store
from support.builders.storage_logs import TOPIC_ID, batch
from support.peers.apache import java_command

DAMAGED_AT = 5


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Ten records, of which the sixth is damaged, and a topic that is well."""
    data_dir = tmp_path_factory.mktemp("damaged")
    store = Store.open(str(data_dir))
    logs = [
        store.create_topic(name, 1, topic_id=topic_id).partitions[0]
        for name, topic_id in (("hurt", TOPIC_ID), ("well", TopicId(b"w" * 16)))
    ]
    for number in range(10):
        for log in logs:
            log.append(batch(value=b"%d" % number), now_ms=5)
    store.close(clean=False)
    path = Path(logs[0].segments[0].path)
    content = bytearray(path.read_bytes())
    content[len(content) // 10 * DAMAGED_AT + 65] ^= 1
    path.write_bytes(content)
    with Broker(data_dir=data_dir) as broker:
        yield broker.bootstrap_servers


def test_kohort_stops_with_a_sentence_and_goes_on_behind_it(address: str) -> None:
    with kohort.Consumer(bootstrap_servers=address, group_id="g", auto_offset_reset="earliest") as consumer:
        consumer.assign([("hurt", 0), ("well", 0)])
        read = []
        with pytest.raises(kohort.errors.CorruptRecordError, match=r"cannot be read at offset 5: .* seek behind them"):
            while True:
                read += consumer.poll(1.0)
        # The error may come before records that are there already.
        while sum(record.topic == "hurt" for record in read) < DAMAGED_AT:
            read += consumer.poll(1.0)
        assert [record.offset for record in read if record.topic == "hurt"] == [*range(5)]
        consumer.seek(("hurt", 0), DAMAGED_AT + 1)
        while len(read) < 19:
            read += consumer.poll(1.0)
    assert sorted(record.offset for record in read if record.topic == "hurt") == [0, 1, 2, 3, 4, 6, 7, 8, 9]
    assert sorted(record.offset for record in read if record.topic == "well") == [*range(10)]


def test_librdkafka_tells_the_application(address: str) -> None:
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": address, "group.id": "g1", "auto.offset.reset": "earliest"}
    )
    consumer.assign([confluent_kafka.TopicPartition("hurt", 0, 0)])
    offsets = []
    while (message := consumer.poll(10.0)) is not None and message.error() is None:
        offsets.append(message.offset())
    consumer.close()
    assert offsets == [*range(5)]
    assert message is not None and "Fetch from broker 1 failed at offset 5" in message.error().str()


@pytest.mark.apache
def test_console_consumer_of_apache_kafka_says_where_and_ends(address: str) -> None:
    console = "org.apache.kafka.tools.consumer.ConsoleConsumer"
    words = ("--bootstrap-server", address, "--topic", "hurt", "--from-beginning", "--timeout-ms", "60000")
    ended = subprocess.run(java_command(console, *words), capture_output=True, text=True, timeout=90, check=False)
    assert "Encountered corrupt message when fetching offset 5 for topic-partition hurt-0" in ended.stderr
    assert (ended.stdout.split(), ended.returncode) == (["0", "1", "2", "3", "4"], 0)


def test_kafka_python_raises(address: str) -> None:
    consumer = kafka.KafkaConsumer(bootstrap_servers=address, auto_offset_reset="earliest", consumer_timeout_ms=10_000)
    consumer.assign([kafka.TopicPartition("hurt", 0)])
    offsets: list[int] = []
    with pytest.raises(kafka.errors.CorruptRecordError):
        offsets.extend(record.offset for record in consumer)
    consumer.close(autocommit=False)
    assert offsets == [*range(5)]
