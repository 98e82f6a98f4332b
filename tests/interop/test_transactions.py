"""Transactional producers of other libraries, unchanged, against our broker: commit, abort, fence, offsets, restart."""

from __future__ import annotations

import asyncio
import gc
import itertools
import subprocess
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Protocol
from uuid import uuid4

import aiokafka
import confluent_kafka
import kafka
import pytest

import kohort
from kohort.ids import coordinator_partition
from kohort.testing import Broker as ClockedBroker
from kohort.testing import Cluster
from support.peers.kafka_tools import run_kafka_tool
from support.peers.other_languages import go_program

pytestmark = [
    pytest.mark.interop,
    # kafka-python leaves sockets behind whose connection was refused.
    pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning"),
]
TIMEOUT_S = 30
DUMP = "org.apache.kafka.tools.DumpLogSegments"


class Transactional(Protocol):
    """One producer, as a test drives it."""

    def begin(self) -> None: ...
    def send(self, value: bytes) -> None: ...
    def send_offset(self, group_id: str, offset: int) -> None: ...
    def end(self, *, commit: bool) -> None: ...
    def close(self) -> None: ...


class Confluent:
    def __init__(self, servers: str, transactional_id: str) -> None:
        self._producer = confluent_kafka.Producer({"bootstrap.servers": servers, "transactional.id": transactional_id})
        self._producer.init_transactions(TIMEOUT_S)
        self._servers = servers

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, value: bytes) -> None:
        self._producer.produce("t", value, partition=0)
        self._producer.flush(TIMEOUT_S)

    def send_offset(self, group_id: str, offset: int) -> None:
        reader = confluent_kafka.Consumer({"bootstrap.servers": self._servers, "group.id": group_id})
        offsets = [confluent_kafka.TopicPartition("t", 0, offset)]
        self._producer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), TIMEOUT_S)
        reader.close()

    def end(self, *, commit: bool) -> None:
        if commit:
            self._producer.commit_transaction(TIMEOUT_S)
        else:
            self._producer.abort_transaction(TIMEOUT_S)

    def close(self) -> None:
        self._producer.purge()
        del self._producer


class KafkaPython:
    def __init__(self, servers: str, transactional_id: str) -> None:
        self._producer = kafka.KafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, value: bytes) -> None:
        self._producer.send("t", value, partition=0).get(TIMEOUT_S)

    def send_offset(self, group_id: str, offset: int) -> None:
        offsets = {kafka.TopicPartition("t", 0): kafka.OffsetAndMetadata(offset, "", -1)}
        self._producer.send_offsets_to_transaction(offsets, group_id)

    def end(self, *, commit: bool) -> None:
        if commit:
            self._producer.commit_transaction()
        else:
            self._producer.abort_transaction()

    def close(self) -> None:
        self._producer.close(timeout=5)


class AioKafka:
    """Each call runs the producer's loop until it is done."""

    def __init__(self, servers: str, transactional_id: str) -> None:
        self._runner = asyncio.Runner()

        async def start() -> Any:
            producer = aiokafka.AIOKafkaProducer(bootstrap_servers=servers, transactional_id=transactional_id)
            await producer.start()
            return producer

        self._producer = self._runner.run(start())

    def begin(self) -> None:
        self._runner.run(self._producer.begin_transaction())

    def send(self, value: bytes) -> None:
        self._runner.run(self._producer.send_and_wait("t", value, partition=0))

    def send_offset(self, group_id: str, offset: int) -> None:
        offsets = {aiokafka.TopicPartition("t", 0): offset}
        self._runner.run(self._producer.send_offsets_to_transaction(offsets, group_id))

    def end(self, *, commit: bool) -> None:
        self._runner.run(self._producer.commit_transaction() if commit else self._producer.abort_transaction())

    def close(self) -> None:
        async def stop() -> None:
            # A producer that is fenced says so once more.
            with suppress(aiokafka.errors.KafkaError):
                await self._producer.stop()

        self._runner.run(stop())
        self._runner.close()


class FranzGo:
    """A process that carries out one step for each line."""

    def __init__(self, servers: str, transactional_id: str) -> None:
        program = go_program("transactions")
        self._process = subprocess.Popen(
            [str(program), servers, transactional_id], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._do("init")

    def _do(self, *words: object) -> None:
        assert self._process.stdin is not None and self._process.stdout is not None
        print(*words, file=self._process.stdin, flush=True)
        answer = self._process.stdout.readline().strip()
        if answer != "ok":
            raise RuntimeError(answer)

    def begin(self) -> None:
        self._do("begin")

    def send(self, value: bytes) -> None:
        self._do("send", value.decode())

    def send_offset(self, group_id: str, offset: int) -> None:
        self._do("offset", group_id, offset)

    def end(self, *, commit: bool) -> None:
        self._do("commit" if commit else "abort")

    def close(self) -> None:
        self._process.communicate(timeout=TIMEOUT_S)


LIBRARIES: Any = [Confluent, KafkaPython, AioKafka, FranzGo]
Open = Callable[[str, str], Transactional]


@pytest.fixture(params=LIBRARIES, ids=lambda each: each.__name__)
def library(request: pytest.FixtureRequest) -> Iterator[Open]:
    """Opens producers of one library, which are closed when the test is over."""
    opened: list[Transactional] = []

    def open_one(servers: str, transactional_id: str) -> Transactional:
        opened.append(request.param(servers, transactional_id))
        return opened[-1]

    yield open_one
    for each in opened:
        each.close()
    opened.clear()
    # What it leaves behind is found here, and not in another test.
    gc.collect()


@pytest.fixture
def broker() -> Iterator[kohort.Broker]:
    with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
        yield broker


def committed(servers: str) -> list[bytes]:
    """The values that a reader of committed records sees, to the end of the partition."""
    reader = confluent_kafka.Consumer({
        "bootstrap.servers": servers, "group.id": uuid4().hex, "isolation.level": "read_committed",
        "enable.partition.eof": True,
    })  # fmt: skip
    reader.assign([confluent_kafka.TopicPartition("t", 0, 0)])
    found: list[bytes] = []
    while True:
        message = reader.poll(TIMEOUT_S)
        assert message is not None, "no end within the time"
        if message.error():
            error: Any = message.error()
            assert error.code() == confluent_kafka.KafkaError._PARTITION_EOF
            reader.close()
            return found
        found.append(message.value() or b"")


def committed_offset(servers: str, group_id: str) -> int | None:
    with kohort.Admin(bootstrap_servers=servers) as admin:
        (found,) = admin.group_offsets(group_id)
    return found.committed


def test_transactions_are_committed_aborted_and_carry_offsets(broker: kohort.Broker, library: Open) -> None:
    producer = library(broker.bootstrap_servers, "x")
    for number, commit in enumerate((True, False, True)):
        producer.begin()
        producer.send(b"%d" % number)
        producer.send_offset("g", number + 1)
        producer.end(commit=commit)
    assert committed(broker.bootstrap_servers) == [b"0", b"2"]
    assert committed_offset(broker.bootstrap_servers, "g") == 3


def test_second_producer_of_an_id_fences_the_first(broker: kohort.Broker, library: Open) -> None:
    first = library(broker.bootstrap_servers, "x")
    first.begin()
    first.send(b"a")
    second = library(broker.bootstrap_servers, "x")
    with pytest.raises(Exception, match=r"(?i)fence|epoch"):
        first.end(commit=True)
    second.begin()
    second.send(b"b")
    second.end(commit=True)
    assert committed(broker.bootstrap_servers) == [b"b"]


def test_transaction_that_takes_too_long_is_aborted_and_its_producer_told(library: Open) -> None:
    with ClockedBroker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
        late = library(broker.bootstrap_servers, "x")
        late.begin()
        late.send(b"late")
        # The default of each library is a minute.
        broker.clock.advance(61)
        # With KIP-890 the commit cannot be told from one that is repeated behind an abort: INVALID_TXN_STATE.
        with pytest.raises(Exception, match=r"(?i)fence|epoch|abort|invalid.*state"):
            late.end(commit=True)
        assert committed(broker.bootstrap_servers) == []


def test_restart_of_the_broker_in_the_middle_of_a_transaction(tmp_path: Path, library: Open) -> None:
    with kohort.Broker(data_dir=tmp_path) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
        port, producer = broker.port, library(broker.bootstrap_servers, "x")
        producer.begin()
        producer.send(b"a")
    with kohort.Broker(data_dir=tmp_path, port=port) as broker:
        assert committed(broker.bootstrap_servers) == []
        producer.send(b"b")
        producer.end(commit=True)
        assert committed(broker.bootstrap_servers) == [b"a", b"b"]


@pytest.mark.apache
def test_javas_producer_and_apaches_tools(tmp_path: Path) -> None:
    """Java's producer speaks the flow of KIP-890; the tools list what it did, and read our log of it."""
    with kohort.Broker(data_dir=tmp_path) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
        servers = ("--bootstrap-server", broker.bootstrap_servers)
        run_kafka_tool(
            "org.apache.kafka.tools.ProducerPerformance", "--topic", "t", "--num-records", "300", "--record-size", "10",
            "--throughput", "-1", "--transactional-id", "java", "--transaction-duration-ms", "5",
            "--producer-props", f"bootstrap.servers={broker.bootstrap_servers}", "linger.ms=0", "batch.size=200",
        )  # fmt: skip
        assert len(committed(broker.bootstrap_servers)) == 300
        transactions = "org.apache.kafka.tools.TransactionsCommand"
        listed = run_kafka_tool(transactions, *servers, "list")
        assert "java" in listed and "CompleteCommit" in listed
        (described,) = admin.describe_transactions(["java"])
        assert described.state == "CompleteCommit"
        # An epoch for each transaction (KIP-890).
        assert described.producer_epoch > 1
        hanging = run_kafka_tool(transactions, *servers, "find-hanging", "--broker-id", "1")
        assert "java" not in hanging
    logs = sorted(tmp_path.glob("__transaction_state-*/*.log"), key=lambda path: path.stat().st_size)
    dumped = run_kafka_tool(
        "org.apache.kafka.tools.DumpLogSegments", "--transaction-log-decoder", "--files", str(logs[-1])
    )
    # Kafka's number of CompleteCommit.
    assert "java" in dumped and '"transactionStatus":4' in dumped


def test_coordinator_and_leaders_that_move_lose_no_transaction() -> None:
    """Three brokers; between the steps of each transaction something moves to another of them."""
    with Cluster(3) as cluster, kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.create_topic("t", 1)
        producer = Confluent(cluster.bootstrap_servers, "x")
        partition = coordinator_partition("x", 4)
        turns = itertools.cycle(cluster.brokers)
        kept = []
        for number in range(12):
            producer.begin()
            producer.send(b"%d" % number)
            match number % 3:
                case 0:
                    cluster.move_leader("__transaction_state", partition, next(turns))
                case 1:
                    cluster.move_leader("t", 0, next(turns))
                case _:
                    cluster.move_coordinator("g", next(turns))
            producer.send_offset("g", number + 1)
            producer.end(commit=number % 4 != 3)
            if number % 4 != 3:
                kept.append(b"%d" % number)
        assert committed(cluster.bootstrap_servers) == kept
        assert committed_offset(cluster.bootstrap_servers, "g") == 11
        producer.close()
