"""`kohort log import` of Apache Kafka's directories with transactions in every state, compacted ones too.

What Kafka leaves at a crash between two steps is cut from what it wrote: each log ends with a whole batch of it. In
`make test` that is `tests/data/kafka-transactions`, the files of a run of Apache Kafka 4.3. In `make soak` Kafka runs.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

import kohort
from kohort.cli.main import main
from kohort.coordinator.transactions.records import TransactionStored, read_log_batch
from kohort.coordinator.transactions.states import TransactionState
from kohort.errors import ErrorCode
from kohort.ids import TopicPartition
from kohort.records.header import BatchHeader, split_batches
from kohort.wire.registry import ApiKey
from support.depth import IS_SOAK
from support.dialogues.broker_wire import RawClient, make
from support.dialogues.transactional_wire import WireProducer, committed
from support.peers.apache_broker import ApacheKafka
from support.peers.restarts import wait_until

pytestmark = pytest.mark.interop

STATES: Final = "__transaction_state-0"
OFFSETS: Final = "__consumer_offsets-0"
S = TransactionState


class Crash(NamedTuple):
    """The state of Kafka when it crashed; transaction "c" is committed by KIP-890, then "a" aborted by the older flow.

    `states`: the last record of each in the coordinator's log. `unmarked`: logs that had no marker of the one that was
    decided last. What was not decided has no marker, and a partition that was not added has no records.
    """

    states: dict[str, TransactionState]
    unmarked: tuple[str, ...] = ()


#: Directory by directory.
CRASHES: Final = {
    "empty": Crash({"c": S.EMPTY, "a": S.EMPTY}),
    "ongoing": Crash({"c": S.ONGOING, "a": S.EMPTY}),
    "both ongoing": Crash({"c": S.ONGOING, "a": S.ONGOING}),
    "commit decided": Crash({"c": S.PREPARE_COMMIT, "a": S.ONGOING}, ("c-0", "c-1", OFFSETS)),
    "commit in one partition": Crash({"c": S.PREPARE_COMMIT, "a": S.ONGOING}, ("c-1", OFFSETS)),
    "commit without offsets": Crash({"c": S.PREPARE_COMMIT, "a": S.ONGOING}, (OFFSETS,)),
    "commit everywhere": Crash({"c": S.PREPARE_COMMIT, "a": S.ONGOING}),
    "committed": Crash({"c": S.COMPLETE_COMMIT, "a": S.ONGOING}),
    "abort decided": Crash({"c": S.COMPLETE_COMMIT, "a": S.PREPARE_ABORT}, ("a-0",)),
    "abort everywhere": Crash({"c": S.COMPLETE_COMMIT, "a": S.PREPARE_ABORT}),
    "aborted": Crash({"c": S.COMPLETE_COMMIT, "a": S.COMPLETE_ABORT}),
}
#: Those that `make test` imports; the others are imported by `make soak`.
DAILY: Final = ("both ongoing", "commit in one partition", "abort decided")


@dataclass
class Left:
    """A copy of Kafka's directory while it ran, and the one that it left behind a compaction."""

    running: Path
    compacted: Path
    #: What Kafka shows of the compacted topic to readers of committed records, and to all: offset and value.
    committed: list[tuple[int, bytes | None]]
    everything: list[tuple[int, bytes | None]]


#: What Kafka holds while it runs, makes anew, or keeps of itself.
LEFT_OUT: Final = shutil.ignore_patterns(".lock", "*.index", "*.timeindex", "__cluster_metadata-0", "*checkpoint", "k*")
#: The directory that `transact` has left, but for the files of indexes, which Kafka makes anew.
WRITTEN: Final = Path(__file__).parents[1] / "data" / "kafka-transactions"


@pytest.fixture
def running(request: pytest.FixtureRequest) -> Path:
    return request.getfixturevalue("left").running if IS_SOAK else WRITTEN


@pytest.fixture(scope="module")
def left(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Left]:
    directory = tmp_path_factory.mktemp("apache")
    logs, copy = directory / "logs", directory / "copy"
    properties = {
        "log.cleaner.backoff.ms": 50, "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1,
    }  # fmt: skip
    eager = {"segment.ms": "50", "min.cleanable.dirty.ratio": "0.01"}
    with ApacheKafka(properties, directory=str(directory)) as kafka:
        address = kafka.bootstrap_servers
        with kohort.Admin(bootstrap_servers=address) as admin, RawClient(kafka.port) as client:
            # The times of the requests are those of 1970, upon which a marker would begin a segment.
            appended = {"message.timestamp.type": "LogAppendTime"}
            admin.create_topic("c", 2, configs=appended)
            admin.create_topic("a", 1, configs=appended)
            admin.create_topic("keyed", 1, configs={"cleanup.policy": "compact", **eager})
            transact(client)
            shutil.copytree(logs, copy, ignore=LEFT_OUT)
            admin.alter_configs(("topic", "__transaction_state"), eager)
            compact(address, logs)
            # What is read next is what Kafka stops with.
            admin.alter_configs(("topic", "keyed"), {"cleanup.policy": "delete"})
            admin.alter_configs(("topic", "__transaction_state"), {"min.cleanable.dirty.ratio": "1"})
            with kohort.Producer(bootstrap_servers=address, transactional_id="k") as producer:
                for is_commit in (True, False):
                    producer.begin_transaction()
                    producer.send("keyed", b"late", b"key 0", partition=0)
                    producer.flush()
                    producer.commit_transaction() if is_commit else producer.abort_transaction()
            seen = (read(address, "read_committed"), read(address, "read_uncommitted"))
        kafka.stop()
        yield Left(copy, logs, *seen)


def transact(client: RawClient) -> None:
    """Two transactions; each request that Kafka answers with an error that passes is sent again."""

    def done(step: Callable[..., int], *given: object, **named: object) -> None:
        wait_until(lambda: step(*given, **named) == ErrorCode.NONE, f"{step.__name__} is done")

    committing, aborting = WireProducer(client, "c", flow=2), WireProducer(client, "a", flow=1)
    for kind, key in ((0, "g"), (1, "c")):
        find = make(ApiKey.FIND_COORDINATOR, key_type=kind, coordinator_keys=[key])
        wait_until(
            lambda find=find: client.ask(ApiKey.FIND_COORDINATOR, 4, find).coordinators[0].error_code == 0,
            "the coordinators are there",
        )
    done(committing.init)
    done(aborting.init)
    for number in range(2):
        done(committing.send_batch, "c", committing.batch("c", b"c%d" % number, partition=number), number)
    done(committing.commit_offset, "g", "c", 5)
    done(aborting.add, "a", 0)
    done(aborting.send_batch, "a", aborting.batch("a", b"a"))
    for producer, is_commit in ((committing, True), (aborting, False)):
        done(producer.end, commit=is_commit)
        named = make(ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=[producer.transactional_id])

        def is_over(named: Any = named) -> bool:
            (row,) = client.ask(ApiKey.DESCRIBE_TRANSACTIONS, 0, named).transaction_states
            return str(row.transaction_state).startswith("Complete")

        wait_until(is_over, "its markers are written")


def compact(address: str, logs: Path) -> None:
    """Transactions until Kafka has compacted their topic and their coordinator's log."""
    with kohort.Producer(bootstrap_servers=address, transactional_id="k") as producer:
        count = 0

        def is_compacted() -> bool:
            nonlocal count
            for _ in range(4):
                count += 1
                producer.begin_transaction()
                producer.send("keyed", b"%d" % count, b"key %d" % (count % 2), partition=0)
                producer.flush()
                if count % 4:
                    producer.commit_transaction()
                else:
                    producer.abort_transaction()
            # Of each transaction the coordinator writes three records at least.
            written = len(list(batches_of(logs / STATES)))
            return written < count and len(read(address, "read_uncommitted")) < count // 2

        wait_until(is_compacted, "Kafka compacts", seconds=60)


def read(address: str, isolation: str) -> list[tuple[int, bytes | None]]:
    """The records of the compacted topic."""
    place, found = TopicPartition("keyed", 0), []
    with kohort.Consumer(bootstrap_servers=address, isolation_level=isolation) as consumer:
        consumer.assign([place])
        consumer.seek_to_beginning(place)
        end = consumer.end_offsets([place])[place]
        while consumer.position(place) < end:
            found += [(record.offset, record.value) for record in consumer.poll(0.2)]
    return found


def batches_of(folder: Path) -> Iterator[tuple[Path, BatchHeader, bytes]]:
    for path in sorted(folder.glob("*.log")):
        content = path.read_bytes()
        for at, header in split_batches(memoryview(content)):
            yield path, header, content[at : at + header.size_bytes]


def keep(folder: Path, kept: list[bytes]) -> None:
    """Keep only these batches of a log, as a crash would; its index files stay as they are."""
    (path,) = folder.glob("*.log")
    path.write_bytes(b"".join(kept))


def crash(running: Path, directory: Path, name: str) -> None:
    """Make a directory as Kafka would have left it."""
    shutil.copytree(running, directory)
    states, unmarked = CRASHES[name]
    last: dict[str, TransactionStored] = {}
    kept: list[bytes] = []
    for _, _, batch in batches_of(directory / STATES):
        if {each: stored.state for each, stored in last.items()} == states:
            break
        kept.append(batch)
        last |= {each.transactional_id: each for each in read_log_batch(batch) if isinstance(each, TransactionStored)}
    assert {each: stored.state for each, stored in last.items()} == states, "Kafka has written each of them"
    keep(directory / STATES, kept)
    for log, owner in (("c-0", "c"), ("c-1", "c"), (OFFSETS, "c"), ("a-0", "a")):
        stored, (topic, _, number) = last[owner], log.rpartition("-")
        is_decided = stored.state not in (S.EMPTY, S.ONGOING)
        has_records = is_decided or (topic, int(number)) in stored.partitions
        has_marker = is_decided and log not in unmarked
        found = [(header.is_control, batch) for _, header, batch in batches_of(directory / log)]
        assert [is_control for is_control, _ in found] == [False, True]
        keep(directory / log, [batch for is_control, batch in found if (has_marker if is_control else has_records)])


@pytest.mark.parametrize("name", CRASHES if IS_SOAK else DAILY)
def test_transactions_end_as_kafka_had_decided(running: Path, tmp_path: Path, name: str) -> None:
    crash(running, tmp_path / "kafka", name)
    target = tmp_path / "data"
    assert main(["log", "import", str(tmp_path / "kafka"), "--into", str(target)]) == 0
    assert main(["log", "check", str(target)]) == 0
    is_committed = CRASHES[name].states["c"] in (S.PREPARE_COMMIT, S.COMPLETE_COMMIT)
    with kohort.Broker(data_dir=target) as broker, RawClient(broker.port) as client:
        for transactional_id in ("c", "a"):
            # A producer that comes back ends what is open.
            assert WireProducer(client, transactional_id).init() == ErrorCode.NONE
        values = [committed(client, topic, partition=number) for topic, number in (("c", 0), ("c", 1), ("a", 0))]
        assert values == ([[b"c0"], [b"c1"], []] if is_committed else [[], [], []])
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            assert [row.committed for row in admin.group_offsets("g")] == ([5] if is_committed else [])
            assert {row.state for row in admin.list_transactions()} == {"Empty"}
            assert admin.describe_broker()["transactions.hanging"] == "0"


@pytest.mark.skipif(not IS_SOAK, reason="make soak ONLY=imports")
@pytest.mark.apache
def test_compacted_logs_of_transactions_are_read_as_kafka_shows_them(left: Left, tmp_path: Path) -> None:
    assert len(left.everything) > len(left.committed) > 0
    target = tmp_path / "data"
    words = ["log", "import", str(left.compacted), "--into", str(target)]
    assert main([*words, "--config", "keyed:cleanup.policy=compact"]) == 0
    assert main(["log", "check", str(target)]) == 0
    with kohort.Broker(data_dir=target, config={"log.cleaner.min.compaction.lag.ms": 3_600_000}) as broker:
        address = broker.bootstrap_servers
        assert read(address, "read_committed") == left.committed
        assert read(address, "read_uncommitted") == left.everything
        with kohort.Admin(bootstrap_servers=address) as admin:
            states = {row.transactional_id: row.state for row in admin.list_transactions()}
        assert states.keys() == {"c", "a", "k"}
        with (
            kohort.Producer(bootstrap_servers=address, transactional_id="k") as producer,
            producer.transaction() as transaction,
        ):
            transaction.send("keyed", b"on we go", b"key 0", partition=0)
        # The answer comes before the markers.
        wait_until(lambda: read(address, "read_committed")[-1][1] == b"on we go", "it is shown")
