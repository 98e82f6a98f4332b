"""Kill -9 under load: what was acknowledged is there afterwards, once and in order, and groups go on as if nothing was.

The broker is killed at moments that a seed chooses (by acknowledgements counted, so that load decides when) and
started again on the same port and directory.
Source: requirement B3 (durability); KIP-98 (idempotence over a restart); KIP-848 and the classic protocol.
"""

from __future__ import annotations

import random
import signal
import threading
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Protocol

import confluent_kafka
import pytest

import kohort
from kohort.ids import TopicPartition
from kohort.records.batch import build_batch
from support.peers.cli import started_python
from support.peers.restarts import MortalBroker, Worker, wait_until

pytestmark = pytest.mark.interop

TOPIC = "load"
PARTITIONS = 3
CYCLES = 4
#: Small, so that files are closed and begun under load.
SEGMENT_BYTES = 64 * 1024


class Load(Protocol):
    """A producer that counts; `acknowledged`: (partition, number) -> offset, numbers ascend in each partition."""

    acknowledged: dict[tuple[int, int], int]
    failed: list[object]

    def turn(self) -> None:
        """Send some more."""
        ...

    def finish(self) -> None:
        """Wait until every record has its end."""
        ...


class OurLoad:
    """kohort.Producer; idempotent by default."""

    def __init__(self, address: str) -> None:
        self.acknowledged: dict[tuple[int, int], int] = {}
        self.failed: list[object] = []
        self._next = 0
        self._producer = kohort.Producer(bootstrap_servers=address, linger_ms=2, reconnect_backoff_max_ms=200)
        self._window = threading.Semaphore(500)

    def turn(self) -> None:
        if not self._window.acquire(timeout=0.1):
            return
        number = self._next
        self._next += 1
        partition = number % PARTITIONS
        future = self._producer.send(TOPIC, b"%d" % number + bytes(50), partition=partition)

        def note(done: object) -> None:
            del done
            self._window.release()
            error = future.exception()
            if error is None:
                self.acknowledged[partition, number] = future.result().offset
            else:
                self.failed.append(error)

        future.add_done_callback(note)

    def finish(self) -> None:
        self._producer.close(30.0)


class TheirLoad:
    """librdkafka's idempotent producer."""

    def __init__(self, address: str) -> None:
        self.acknowledged: dict[tuple[int, int], int] = {}
        self.failed: list[object] = []
        self._next = 0
        self._producer = confluent_kafka.Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 2,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 200,
                "retry.backoff.ms": 20,
                "queue.buffering.max.messages": 500,
                "log_level": 0,
            }
        )

    def turn(self) -> None:
        number = self._next
        partition = number % PARTITIONS

        def note(error: object, message: confluent_kafka.Message) -> None:
            if error is None:
                offset = message.offset()
                assert offset is not None
                self.acknowledged[partition, number] = offset
            else:
                self.failed.append(error)

        try:
            self._producer.produce(TOPIC, b"%d" % number + bytes(50), partition=partition, on_delivery=note)
            self._next += 1
        except BufferError:
            self._producer.poll(0.05)
        self._producer.poll(0)

    def finish(self) -> None:
        assert self._producer.flush(30.0) == 0


class Committer:
    """A group of one that commits what it has read, and remembers which commits were answered.

    `answered` and `asked`: partition -> the highest offset.
    """

    def __init__(self, address: str) -> None:
        self.answered: dict[TopicPartition, int] = defaultdict(int)
        self.asked: dict[TopicPartition, int] = defaultdict(int)
        self.read: dict[int, list[int]] = defaultdict(list)
        self.rebalances: list[str] = []
        self.consumer = kohort.Consumer(
            bootstrap_servers=address,
            group_id="readers",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            reconnect_backoff_max_ms=200,
        )
        self.consumer.subscribe(
            [TOPIC],
            on_assigned=lambda _, partitions: self.rebalances.append(f"assigned {len(partitions)}"),
            on_revoked=lambda _, partitions: self.rebalances.append(f"revoked {len(partitions)}"),
            on_lost=lambda _, partitions: self.rebalances.append(f"lost {len(partitions)}"),
        )

    def turn(self) -> None:
        news = {}
        for record in self.consumer.poll(0.2):
            partition = TopicPartition(record.topic, record.partition)
            self.read[record.partition].append(record.offset)
            news[partition] = record.offset + 1
        if news:
            self.asked.update(news)
            self.consumer.commit(news, timeout=30.0)
            self.answered.update(news)

    def finish(self) -> None:
        self.consumer.close()


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[MortalBroker]:
    with MortalBroker(tmp_path / "data") as broker:
        with kohort.Admin(bootstrap_servers=broker.address) as admin:
            admin.create_topic(TOPIC, PARTITIONS, configs={"segment.bytes": SEGMENT_BYTES})
        yield broker


def committed(broker: MortalBroker, group: str) -> dict[TopicPartition, int]:
    with kohort.Admin(bootstrap_servers=broker.address) as admin:
        rows = admin.group_offsets(group)
    return {TopicPartition(row.topic, row.partition): row.committed for row in rows if row.committed is not None}


def stored(broker: MortalBroker) -> dict[int, list[int]]:
    """The number in every record of each partition, in order; offsets have no gaps."""
    partitions = [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]
    numbers: dict[int, list[int]] = {number: [] for number in range(PARTITIONS)}
    with kohort.Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)

        def read() -> bool:
            for record in consumer.poll(0.5, max_records=10_000):
                assert record.value is not None
                assert record.offset == len(numbers[record.partition])
                numbers[record.partition].append(int(record.value.rstrip(b"\x00")))
            return all(len(numbers[each.partition]) >= end for each, end in ends.items())

        wait_until(read, "everything that is stored is read")
    return numbers


@pytest.mark.parametrize(("load_of", "seed"), [(OurLoad, 1), (OurLoad, 2), (TheirLoad, 3)])
def test_nothing_acknowledged_is_lost_doubled_or_out_of_order(
    broker: MortalBroker, load_of: Callable[[str], Load], seed: int
) -> None:
    chance = random.Random(seed)
    load, committer = load_of(broker.address), Committer(broker.address)
    with Worker(load.turn) as producing, Worker(committer.turn) as consuming:
        for _ in range(CYCLES):
            acknowledged, asked = len(load.acknowledged), sum(committer.asked.values())
            wanted = chance.randrange(50, 1500)

            def has_worked(acknowledged: int = acknowledged, asked: int = asked, wanted: int = wanted) -> bool:
                producing.check()
                consuming.check()
                return (
                    len(load.acknowledged) >= acknowledged + wanted
                    and sum(committer.asked.values()) >= asked + wanted // 4
                )

            wait_until(has_worked, "producing and consuming go on after a restart")
            broker.kill()
            # Read after the kill: whatever was answered until then must be there.
            answered = dict(committer.answered)
            broker.revive()
            now = committed(broker, "readers")
            assert {each: offset for each, offset in answered.items() if now.get(each, -1) < offset} == {}
        producing.stop()
        load.finish()
        wait_until(lambda: not consuming.is_alive or caught_up(load, committer), "the group reads everything")
        consuming.stop()
    epoch, rebalances = committer.consumer.group_epoch, list(committer.rebalances)
    committer.finish()

    assert load.failed == []
    numbers = stored(broker)
    for partition, there in numbers.items():
        assert there == sorted(set(there)), f"partition {partition} has records twice or out of order"
    lost = {key: offset for key, offset in load.acknowledged.items() if numbers[key[0]][offset] != key[1]}
    assert lost == {}, "acknowledged records are not where the answer said"
    assert sum(map(len, numbers.values())) == len(load.acknowledged), "there are records that nobody was told of"
    for partition, offsets in committer.read.items():
        assert offsets == list(range(len(numbers[partition]))), "the group read each record once, in order"
    assert committed(broker, "readers") == committer.answered == committer.asked
    assert rebalances == ["assigned 3"], "no restart made the member lose or regain anything"
    assert epoch == 2, "its one member raised the epoch when it joined, and no restart did"


def caught_up(load: Load, committer: Committer) -> bool:
    return sum(map(len, committer.read.values())) >= len(load.acknowledged)


# ---- members of other clients


class Member:
    """A consumer of librdkafka that counts its rebalances."""

    def __init__(self, address: str, group: str, protocol: str) -> None:
        options: dict[str, object] = {
            "bootstrap.servers": address,
            "group.id": group,
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "reconnect.backoff.ms": 20,
            "reconnect.backoff.max.ms": 200,
            "fetch.wait.max.ms": 100,
            "log_level": 0,
        }
        if protocol == "classic":
            # Longer than a broker is away on a busy machine: its client gives a membership up by itself.
            options |= {"session.timeout.ms": 60_000, "heartbeat.interval.ms": 200}
        self.rebalances: list[str] = []
        self.values: list[bytes] = []
        self._consumer = confluent_kafka.Consumer(options)
        self._consumer.subscribe(
            [TOPIC],
            on_assign=lambda *_: self.rebalances.append("assign"),
            on_revoke=lambda *_: self.rebalances.append("revoke"),
            on_lost=lambda *_: self.rebalances.append("lost"),
        )

    def poll(self) -> None:
        """Read what is there and commit it."""
        for message in self._consumer.consume(100, 0.1):
            error, value = message.error(), message.value()
            if error is None and value is not None:
                self.values.append(value)
                self._consumer.commit(message=message, asynchronous=False)

    @property
    def partitions(self) -> set[int]:
        """What it owns."""
        return {each.partition for each in self._consumer.assignment()}

    def close(self) -> None:
        """Leave."""
        self._consumer.close()


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_members_go_on_after_a_crash(broker: MortalBroker, protocol: str) -> None:
    """Epochs, generations and member ids are records; sessions start anew. Nobody joins again."""
    with ExitStack() as stack:
        members = [Member(broker.address, "going-on", protocol) for _ in range(2)]
        for member in members:
            stack.callback(member.close)
        admin = stack.enter_context(kohort.Admin(bootstrap_servers=broker.address, reconnect_backoff_max_ms=200))
        producer = stack.enter_context(kohort.Producer(bootstrap_servers=broker.address))

        def poll_all() -> list[set[int]]:
            for member in members:
                member.poll()
            return [member.partitions for member in members]

        def is_shared() -> bool:
            owned = poll_all()
            return all(owned) and set().union(*owned) == set(range(PARTITIONS))

        wait_until(is_shared, "the members share the partitions")
        wait_until(lambda: poll_all() and admin.describe_group("going-on").state == "Stable", "the group is stable")
        before = admin.describe_group("going-on")
        counts = [len(member.rebalances) for member in members]
        for turn in range(2):
            broker.kill()
            poll_all()
            broker.revive()
            values = [b"%d-%d" % (turn, partition) for partition in range(PARTITIONS)]
            for partition, value in enumerate(values):
                producer.send(TOPIC, value, partition=partition).result(20)

            def have_all(values: list[bytes] = values) -> bool:
                poll_all()
                return {value for member in members for value in member.values} >= set(values)

            wait_until(have_all, "the members read on")
            after = admin.describe_group("going-on")
            assert after == before
            assert committed(broker, "going-on") == {
                TopicPartition(TOPIC, partition): turn + 1 for partition in range(PARTITIONS)
            }
        assert [len(member.rebalances) for member in members] == counts, "a member had to join again"


#: A member of group g that says when it owns something.
MEMBER = f"""
import sys, kohort
with kohort.Consumer(bootstrap_servers=sys.argv[1], group_id="g") as consumer:
    consumer.subscribe(["{TOPIC}"], on_assigned=lambda *_: print("assigned"))
    while True:
        consumer.poll(1.0)
"""


def test_a_member_that_died_with_the_broker_is_missed_later(tmp_path: Path) -> None:
    """A session starts anew with the broker, in full, and ends as ever."""
    config = {
        "group.consumer.session.timeout.ms": 1500,
        "group.consumer.min.session.timeout.ms": 1000,
    }
    with MortalBroker(tmp_path, config) as broker, ExitStack() as stack:
        admin = stack.enter_context(kohort.Admin(bootstrap_servers=broker.address))
        admin.create_topic(TOPIC, PARTITIONS)
        dying = stack.enter_context(started_python("-c", MEMBER, broker.address))
        dying.wait_for_lines(1)
        living = stack.enter_context(kohort.Consumer(bootstrap_servers=broker.address, group_id="g"))
        living.subscribe([TOPIC])
        wait_until(lambda: living.poll(0.05) or living.assignment(), "the second member has something")
        assert len(living.assignment()) < PARTITIONS
        broker.kill()
        dying.end(signal.SIGKILL)
        broker.revive()
        wait_until(lambda: living.poll(0.05) or len(living.assignment()) == PARTITIONS, "the partitions move")
        assert [member.member_id for member in admin.describe_group("g").members] == [living.member_id]


# ---- torn tails

RECORD = (b"key", b"value", 1_000, ())
TAILS: dict[str, bytes] = {
    "one byte": b"\x01",
    "noise": random.Random(5).randbytes(1000),
    "zeros": bytes(4096),
    "half a batch": bytes(build_batch([RECORD] * 5, base_offset=3))[:100],
    "a batch without its last byte": bytes(build_batch([RECORD], base_offset=3))[:-1],
    "a batch with a wrong CRC": bytes(build_batch([RECORD], base_offset=3))[:-1] + b"\xff",
    "a batch of elsewhere": bytes(build_batch([RECORD], base_offset=0)),
}


def test_a_torn_tail_is_cut_at_the_start(broker: MortalBroker) -> None:
    """What a crash leaves of an append that nobody was told of; after records of users as after those of groups."""
    partition = TopicPartition(TOPIC, 0)
    log = broker.data_dir / f"{TOPIC}-0" / f"{0:020}.log"
    with kohort.Producer(bootstrap_servers=broker.address) as producer:
        for number in range(3):
            producer.send(TOPIC, b"%d" % number, partition=0).result(10)
    expected = [b"0", b"1", b"2"]
    with kohort.Consumer(bootstrap_servers=broker.address, group_id="g") as consumer:
        consumer.commit({partition: 1})
    (group_log,) = [path for path in broker.data_dir.glob("__consumer_offsets-*/*.log") if path.stat().st_size]
    for turn, tail in enumerate(TAILS.values()):
        broker.kill()
        sizes = [path.stat().st_size for path in (log, group_log)]
        for path in (log, group_log):
            with path.open("ab") as file:
                file.write(tail)
        broker.revive()
        assert [path.stat().st_size for path in (log, group_log)] == sizes
        assert committed(broker, "g") == {partition: 1 + turn}
        with kohort.Producer(bootstrap_servers=broker.address) as producer:
            assert producer.send(TOPIC, b"turn %d" % turn, partition=0).result(10).offset == len(expected)
        expected.append(b"turn %d" % turn)
        with kohort.Consumer(bootstrap_servers=broker.address, group_id="g") as consumer:
            consumer.commit({partition: 2 + turn})
    assert values_of(broker, partition) == expected


def values_of(broker: MortalBroker, partition: TopicPartition) -> list[bytes | None]:
    found: list[bytes | None] = []
    with kohort.Consumer(bootstrap_servers=broker.address, auto_offset_reset="earliest") as consumer:
        consumer.assign([partition])
        end = consumer.end_offsets([partition])[partition]

        def read() -> bool:
            found.extend(record.value for record in consumer.poll(0.2))
            return len(found) >= end

        wait_until(read, "all is read")
    return found


def test_a_clean_stop_keeps_everything_too(tmp_path: Path) -> None:
    data_dir = tmp_path / "data"
    for turn in range(2):
        with MortalBroker(data_dir) as broker, kohort.Producer(bootstrap_servers=broker.address) as producer:
            producer.send(TOPIC, b"%d" % turn).result(10)
            assert values_of(broker, TopicPartition(TOPIC, 0)) == [b"0", b"1"][: turn + 1]
