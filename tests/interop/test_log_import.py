"""`kohort log import` on a real directory of Apache Kafka 4.3: what was in it is served, offset by offset.

One run of Kafka serves all questions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest

import kohort
from kohort.cli.main import main
from kohort.ids import TopicPartition
from kohort.storage.files.fs import DiskFileSystem
from kohort.storage.tools.kafka_import import last_states
from support.peers.apache_broker import ApacheKafka
from support.peers.restarts import wait_until

pytestmark = [pytest.mark.interop, pytest.mark.apache]

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
#: A record as both sides have to show it.
Row = tuple[int, int, bytes | None, bytes | None, tuple[tuple[str, bytes | None], ...]]


@dataclass
class Former:
    """What Kafka had, and where."""

    directory: Path
    records: dict[TopicPartition, list[Row]]
    topic_ids: dict[str, str]
    refused_while_running: int
    #: What Kafka shows of the topic with transactions to readers of committed records.
    committed: list[bytes | None]


def records_of(address: str, partitions: list[TopicPartition]) -> dict[TopicPartition, list[Row]]:
    found: dict[TopicPartition, list[Row]] = {each: [] for each in partitions}
    with kohort.Consumer(bootstrap_servers=address, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)

        def is_read() -> bool:
            for each in consumer.poll(0.2):
                row = each.offset, each.timestamp, each.key, each.value, tuple(each.headers)
                found[TopicPartition(each.topic, each.partition)].append(row)
            return all(consumer.position(each) >= end for each, end in ends.items())

        wait_until(is_read, "everything is read")
    return found


PARTITIONS = [TopicPartition("orders", 0), TopicPartition("orders", 1), TopicPartition("keyed", 0)]


def fill(address: str) -> None:
    with kohort.Admin(bootstrap_servers=address) as admin:
        admin.create_topic("orders", 2)
        policy = {"cleanup.policy": "compact", "segment.ms": 50, "min.cleanable.dirty.ratio": 0.01}
        admin.create_topic("keyed", 1, configs=policy)
    for codec in CODECS:
        with kohort.Producer(bootstrap_servers=address, compression_type=codec, linger_ms=20) as producer:
            for number in range(20):
                headers = [("codec", codec.encode())]
                producer.send("orders", b"%d" % number, b"k", partition=number % 2, headers=headers)
    with kohort.Producer(bootstrap_servers=address) as producer:
        producer.send("keyed", b"the only one", b"first", partition=0).result(20)

        def is_compacted() -> bool:
            for number in range(3):
                producer.send("keyed", b"later", b"key %d" % number, partition=0).result(20)
            return len(records_of(address, [PARTITIONS[2]])[PARTITIONS[2]]) < ends(address, PARTITIONS[2]) - 5

        wait_until(is_compacted, "Kafka compacts", seconds=60)
    with kohort.Admin(bootstrap_servers=address) as admin:
        # What is read next is what Kafka stops with.
        admin.alter_configs(("topic", "keyed"), {"cleanup.policy": "delete"})
        admin.delete_records({PARTITIONS[1]: 4})
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "billing"})
    offsets = [confluent_kafka.TopicPartition("orders", number, 7 + number) for number in range(2)]
    consumer.commit(offsets=offsets, asynchronous=False)
    consumer.close()


def transact(address: str) -> confluent_kafka.Producer:
    """One transaction that is committed, one that is aborted, and one that is open, which has an offset, too."""
    with kohort.Admin(bootstrap_servers=address) as admin:
        admin.create_topic("payments", 1)
    consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "ledger"})
    consumer.commit(offsets=[confluent_kafka.TopicPartition("orders", 0, 3)], asynchronous=False)
    for outcome in ("committed", "aborted", "open"):
        producer = confluent_kafka.Producer({"bootstrap.servers": address, "transactional.id": outcome, "log_level": 0})
        producer.init_transactions(60)
        producer.begin_transaction()
        for number in range(5):
            producer.produce("payments", f"{outcome} {number}".encode())
        assert producer.flush(30) == 0
        if outcome == "committed":
            producer.commit_transaction(30)
        elif outcome == "aborted":
            producer.abort_transaction(30)
        else:
            offset = confluent_kafka.TopicPartition("orders", 0, 9)
            producer.send_offsets_to_transaction([offset], consumer.consumer_group_metadata(), 30)
    consumer.close()
    return producer


def committed_values(address: str) -> list[bytes | None]:
    """What a stock reader of committed records gets of the topic, until its end."""
    settings = {
        "bootstrap.servers": address,
        "group.id": "x",
        "enable.partition.eof": True,
        "enable.auto.commit": False,
    }
    consumer = confluent_kafka.Consumer({**settings, "isolation.level": "read_committed"})
    consumer.assign([confluent_kafka.TopicPartition("payments", 0, 0)])
    found: list[bytes | None] = []

    def is_at_end() -> bool:
        message = consumer.poll(0.2)
        if message is None:
            return False
        if message.error() is not None:
            return bool(message.error().code() == confluent_kafka.KafkaError._PARTITION_EOF)
        found.append(message.value())
        return False

    wait_until(is_at_end, "everything is read")
    consumer.close()
    return found


def records_that_stay(address: str) -> dict[TopicPartition, list[Row]]:
    """What is there once a compaction that was under way is over."""
    records = records_of(address, PARTITIONS)
    while records != (again := records_of(address, PARTITIONS)):
        records = again
    return records


def ends(address: str, partition: TopicPartition) -> int:
    with kohort.Admin(bootstrap_servers=address) as admin:
        return int(admin.list_offsets([partition])[partition].offset or 0)


@pytest.fixture(scope="module")
def former(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Former]:
    directory = tmp_path_factory.mktemp("apache")
    properties = {"log.cleaner.backoff.ms": 50, "offsets.topic.num.partitions": 5}
    with ApacheKafka(properties, directory=str(directory)) as kafka:
        fill(kafka.bootstrap_servers)
        records = records_that_stay(kafka.bootstrap_servers)
        with kohort.Admin(bootstrap_servers=kafka.bootstrap_servers) as admin:
            ids = {topic.name: str(topic.topic_id) for topic in admin.list_topics()}
        refused = main(["log", "import", str(directory / "logs"), "--into", str(directory / "early")])
        owner = transact(kafka.bootstrap_servers)
        committed = committed_values(kafka.bootstrap_servers)
        kafka.stop()
        del owner
        yield Former(directory / "logs", records, ids, refused, committed)


def files_of(directory: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()}


def test_directory_of_kafka_is_taken_over(former: Former, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = files_of(former.directory)
    target = tmp_path / "data"
    words = ["log", "import", str(former.directory), "--into", str(target), "--json", "--end-transactions"]
    assert main([*words, "--config", "keyed:cleanup.policy=compact"]) == 0
    document: dict[str, Any] = json.loads(capsys.readouterr().out)
    assert files_of(former.directory) == before
    told = {row["name"]: (row["partitions"], row["records"], row["damages"]) for row in document["topics"]}
    assert told["orders"] == (2, 100, [])
    assert told["keyed"] == (1, len(former.records[PARTITIONS[2]]), [])
    assert told["__consumer_offsets"][0] == 5
    assert "__cluster_metadata" in document["left"]
    assert main(["log", "check", str(target)]) == 0

    # Ours would compact the topic, too, as soon as it looks.
    with kohort.Broker(data_dir=target, config={"log.cleaner.min.compaction.lag.ms": 3_600_000}) as broker:
        address = broker.bootstrap_servers
        assert records_of(address, PARTITIONS) == former.records
        assert former.records[PARTITIONS[1]][0][0] == 4, "what was deleted by request stays away"
        offsets = [row[0] for row in former.records[PARTITIONS[2]]]
        assert offsets[0] == 0
        assert offsets[-1] >= len(offsets), "the compacted topic has gaps"
        with kohort.Admin(bootstrap_servers=address) as admin:
            ids = {topic.name: str(topic.topic_id) for topic in admin.list_topics() if topic.name in former.topic_ids}
            assert ids == {name: former.topic_ids[name] for name in ids}
            assert {"orders", "keyed"} <= ids.keys()
            committed = {row.partition: row.committed for row in admin.group_offsets("billing")}
            assert committed == {0: 7, 1: 8}
        with kohort.Producer(bootstrap_servers=address) as producer:
            assert producer.send("orders", b"on we go", partition=0).result(10).offset == 50


def test_what_cannot_be_taken_over_is_refused_in_one_sentence(
    former: Former, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert former.refused_while_running == 1
    used = tmp_path / "used"
    used.mkdir()
    (used / "mine.txt").write_text("mine")
    for source, into, sentence in (
        (tmp_path, tmp_path / "data", "is no log directory of Apache Kafka"),
        (former.directory, used, "is not ours"),
        (former.directory, former.directory, "is a data directory already"),
    ):
        assert main(["log", "import", str(source), "--into", str(into), "--end-transactions"]) == 1
        (line,) = capsys.readouterr().err.splitlines()
        assert sentence in line
    assert not (tmp_path / "data").exists()


def test_transaction_coordinator_is_taken_over_and_ends_what_is_open(
    former: Former, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    target = tmp_path / "data"
    words = ["log", "import", str(former.directory), "--into", str(target)]
    assert main([*words, "--config", "keyed:cleanup.policy=compact"]) == 0
    told = capsys.readouterr().err
    ends_later = "open transaction: the transaction coordinator ends it once the broker runs"
    assert f"payments-0 has 5 records of 1 {ends_later}" in told
    assert f"has offsets of ledger in 1 {ends_later}" in told
    assert main(["log", "check", str(target)]) == 0
    capsys.readouterr()
    for folder in target.glob("__transaction_state-*"):
        assert main(["log", "dump", str(folder), "--records"]) == 0
    dumped = capsys.readouterr().out
    assert "TransactionStored  transactional_id=open" in dumped
    assert "UNREADABLE" not in dumped
    with kohort.Broker(data_dir=target) as broker:
        address = broker.bootstrap_servers
        with kohort.Admin(bootstrap_servers=address) as admin:
            states = {row.transactional_id: row.state for row in admin.list_transactions()}
        assert {name: str(state) for name, state in states.items()}.keys() == {"committed", "aborted", "open"}
        # The next producer of the id ends what is open, as any that comes back does.
        settings = {"bootstrap.servers": address, "transactional.id": "open", "log_level": 0}
        producer = confluent_kafka.Producer(settings)
        producer.init_transactions(30)
        assert committed_values(address) == former.committed
        producer.begin_transaction()
        producer.produce("payments", b"on we go")
        producer.commit_transaction(30)
        assert committed_values(address) == [*former.committed, b"on we go"]
        consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "ledger"})
        (row,) = consumer.committed([confluent_kafka.TopicPartition("orders", 0)], timeout=20)
        assert row.offset == 3
        consumer.close()


def test_open_transactions_are_ended_where_the_coordinator_is_left(
    former: Former, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert former.committed == [b"committed %d" % number for number in range(5)]
    target = tmp_path / "data"
    words = ["log", "import", str(former.directory), "--into", str(target), "--end-transactions"]
    assert main([*words, "--config", "keyed:cleanup.policy=compact"]) == 0
    told = capsys.readouterr().err
    folders = [str(each) for each in former.directory.glob("__transaction_state-*")]
    # Complete with a commit, with an abort, and ongoing.
    states = last_states(DiskFileSystem(reads_only=True), folders)
    assert sorted(each.state for each in states.values()) == [1, 4, 5]
    assert "payments-0 has 5 records of 1 open transaction: aborted" in told
    assert "has offsets of ledger in 1 open transaction: aborted" in told
    assert main(["log", "check", str(target)]) == 0
    with kohort.Broker(data_dir=target) as broker:
        address = broker.bootstrap_servers
        assert committed_values(address) == former.committed
        # A stock client asks for stable offsets.
        consumer = confluent_kafka.Consumer({"bootstrap.servers": address, "group.id": "ledger"})
        (row,) = consumer.committed([confluent_kafka.TopicPartition("orders", 0)], timeout=20)
        assert row.offset == 3
        consumer.close()
        with kohort.Producer(bootstrap_servers=address) as producer:
            # Behind 5 committed, 5 aborted and 5 open records and three markers.
            assert producer.send("payments", b"on we go", partition=0).result(10).offset == 18
