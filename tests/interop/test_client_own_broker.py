"""Our consumer against our broker: groups whose members are processes that come, go and die."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from kohort import Admin, Broker, Consumer, Producer, TopicPartition
from kohort.errors import BrokerError, ErrorCode, UnknownTopicError
from support.peers.lossy_proxy import LossyProxy
from support.peers.sharing_member import SharingMember, sharing
from support.ports import quiet_port
from support.scenarios import transaction_scenarios
from support.waiting import until

CONFIG = {
    "group.consumer.min.session.timeout.ms": 1_000,
    "group.consumer.session.timeout.ms": 1_500,
    "group.consumer.min.heartbeat.interval.ms": 50,
    "group.consumer.heartbeat.interval.ms": 100,
    "group.min.session.timeout.ms": 1_000,
    "group.initial.rebalance.delay.ms": 0,
}
PARTITIONS = 6
PROTOCOLS = ["consumer", "classic"]


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config=CONFIG) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topic("orders", PARTITIONS)
        yield running


class Load:
    """Sends a record to each partition in turn, all the time, from a thread of its own."""

    def __init__(self, bootstrap: str) -> None:
        self.sent: list[tuple[int, int]] = []
        self._stopping = threading.Event()
        self._producer = Producer(bootstrap_servers=bootstrap, linger_ms=0)
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        turn = 0
        while not self._stopping.wait(0.005):
            future = self._producer.send("orders", value=b"%d" % turn, partition=turn % PARTITIONS)
            metadata = future.result(20)
            self.sent.append((metadata.partition, metadata.offset))
            turn += 1

    def stop(self) -> list[tuple[int, int]]:
        self._stopping.set()
        self._thread.join(20)
        self._producer.close()
        return self.sent


def read_by(members: list[SharingMember]) -> list[tuple[int, int]]:
    """What they have read between them, twice what was read twice."""
    return [pair for member in members for pair in member.read]


def settled(members: list[SharingMember]) -> Callable[[], bool]:
    """All partitions are owned, each once, by members that all have some."""

    def test() -> bool:
        owned = [member.owned for member in members]
        return all(owned) and sorted(each for held in owned for each in held) == list(range(PARTITIONS))

    return test


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_three_members_share_one_leaves_one_is_killed(broker: Broker, protocol: str) -> None:
    """Every record is read; twice at most where the kill allows it, and in order per partition and owner."""
    load = Load(broker.bootstrap_servers)
    with ExitStack() as stack:
        first, second, third = (
            stack.enter_context(sharing(broker.bootstrap_servers, protocol, f"shared-{protocol}", "orders"))
            for _ in range(3)
        )
        third.wait_for(settled([first, second, third]), "three members never shared the topic")

        second.leave()
        third.wait_for(settled([first, third]), "nobody took over from the member that left")
        third.wait_for(lambda: bool(first.read), "the member that is to be killed has read nothing")
        at_kill = len(first.read)
        owned_at_kill = first.owned
        first.kill()
        third.wait_for(lambda: third.owned == set(range(PARTITIONS)), "nobody took over from the dead member")

        sent = load.stop()
        third.wait_for(lambda: {*first.read, *second.read, *third.read} >= set(sent), "not every record was read")
        third.leave()

    times = Counter([*first.read, *second.read, *third.read])
    twice = {pair for pair, count in times.items() if count > 1}
    assert max(times.values()) <= 2
    assert {partition for partition, _ in twice} <= owned_at_kill, "only what the dead member had not committed"
    assert at_kill > 0
    for member in (first, second, third):
        by_partition: dict[int, list[int]] = {}
        for partition, offset in member.read:
            by_partition.setdefault(partition, []).append(offset)
        assert all(offsets == sorted(offsets) for offsets in by_partition.values())


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_clean_hand_over_reads_each_record_once(broker: Broker, protocol: str) -> None:
    """P4 in small: members join and leave in peace; nothing is read twice, nothing is missed."""
    load = Load(broker.bootstrap_servers)
    with ExitStack() as stack:
        members = [stack.enter_context(sharing(broker.bootstrap_servers, protocol, f"clean-{protocol}", "orders"))]
        members[0].wait_for(settled(members), "the first member never had everything")
        for _ in range(2):
            members.append(
                stack.enter_context(sharing(broker.bootstrap_servers, protocol, f"clean-{protocol}", "orders"))
            )
            members[-1].wait_for(settled(members), "the newcomer never had its share")
        members[1].leave()
        members[2].wait_for(settled([members[0], members[2]]), "nobody took over")
        sent = load.stop()
        members[2].wait_for(lambda: len(read_by(members)) >= len(sent), "not every record was read")
        for member in (members[0], members[2]):
            member.leave()

    assert sorted(read_by(members)) == sorted(sent)


def test_members_of_both_protocols_agree_on_progress(broker: Broker) -> None:
    """Offsets belong to the group, whichever protocol its members speak."""
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(100):
            producer.send("orders", value=b"%d" % number, partition=0)
        producer.flush(10)
    for protocol, start, stop in (("consumer", 0, 40), ("classic", 40, 100)):
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers,
            group_id="both",
            group_protocol=protocol,
            auto_offset_reset="earliest",
            session_timeout_ms=1_500,
            heartbeat_interval_ms=100,
        ) as consumer:
            consumer.subscribe(["orders"])
            read: list[int] = []
            until = time.monotonic() + 20
            while len(read) < stop - start and time.monotonic() < until:
                read += [record.offset for record in consumer.poll(0.2, max_records=stop - start - len(read))]
            assert read == list(range(start, stop))


def test_consumer_survives_a_broker_that_restarts(tmp_path: object) -> None:
    """kill -9 of the broker's process: members come back by themselves, and go on where they were."""
    broker = Broker(data_dir=str(tmp_path), process=True, port=quiet_port(), config=CONFIG)
    with broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 1)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(20):
                producer.send("orders", value=b"%d" % number).result(10)
        with Consumer(
            bootstrap_servers=broker.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["orders"])
            read: list[int] = []
            until = time.monotonic() + 20
            while len(read) < 20 and time.monotonic() < until:
                read += [record.offset for record in consumer.poll(0.2)]
            consumer.commit()
            port = broker.port
            broker.kill()
            assert consumer.poll(0.3) == []

            with Broker(data_dir=str(tmp_path), process=True, port=port, config=CONFIG) as again:
                with Producer(bootstrap_servers=again.bootstrap_servers) as producer:
                    for number in range(20, 40):
                        producer.send("orders", value=b"%d" % number).result(10)
                while len(read) < 40 and time.monotonic() < until + 20:
                    read += [record.offset for record in consumer.poll(0.2)]
                consumer.commit()
                assert consumer.committed([TopicPartition("orders", 0)]) == {TopicPartition("orders", 0): 40}

    assert read == list(range(40))


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_broker_that_is_gone_and_back_is_two_lines(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    """Not one for each of the connections that a consumer has."""

    def lines() -> list[str]:
        return [record.getMessage() for record in caplog.records]

    def poll_until(happened: Callable[[], bool]) -> None:
        until(happened, what="a line or a state of the client", step=lambda: consumer.poll(0.1))

    with Broker(process=True, port=quiet_port(), config=CONFIG) as broker:
        address = broker.bootstrap_servers
        with Admin(bootstrap_servers=address) as admin:
            admin.create_topic("orders", 1)
        with Consumer(
            bootstrap_servers=address, group_id="g", group_protocol=protocol, auto_offset_reset="earliest"
        ) as consumer:
            consumer.subscribe(["orders"])
            poll_until(lambda: consumer.assignment() == {TopicPartition("orders", 0)})
            broker.kill()
            gone = f"broker {address} cannot be reached (Connection refused); retrying"
            poll_until(lambda: gone in lines())
            with Broker(process=True, port=int(address.rpartition(":")[2]), config=CONFIG):
                back = f"broker {address}: connected again"
                poll_until(lambda: back in lines())
                # All its connections come back, and so does its membership.
                poll_until(lambda: consumer.group_epoch > 0)
                assert [line for line in lines() if line.startswith("broker ")] == [gone, back]


def test_topic_that_appears_later_is_read(broker: Broker) -> None:
    """A subscription may be ahead of its topic."""
    with Consumer(
        bootstrap_servers=broker.bootstrap_servers,
        group_id="early",
        auto_offset_reset="earliest",
        allow_auto_create_topics=False,
        metadata_max_age_ms=500,
    ) as consumer:
        consumer.subscribe(["later"])
        assert consumer.poll(0.5) == []
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("later", 1)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            producer.send("later", value=b"here").result(10)

        records: list[bytes | None] = []
        until = time.monotonic() + 20
        while not records and time.monotonic() < until:
            records = [record.value for record in consumer.poll(0.2)]

    assert records == [b"here"]


def test_missing_topic_and_missing_offset_are_errors_by_hand(broker: Broker) -> None:
    """One clear sentence each."""
    with Consumer(bootstrap_servers=broker.bootstrap_servers) as consumer:
        consumer.assign([TopicPartition("nosuch", 0)])
        with pytest.raises(UnknownTopicError, match="nosuch"):
            consumer.poll(10)
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="none") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        with pytest.raises(BrokerError) as raised:
            consumer.poll(10)
    assert raised.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_arrow_batches_carry_every_record(broker: Broker) -> None:
    """C8: the same records as `poll`."""
    pytest.importorskip("pyarrow")
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(600):
            producer.send("orders", key=b"k%d" % number, value=b"%d" % number, headers=[("n", b"%d" % number)])
        producer.flush(10)
    partitions = [TopicPartition("orders", number) for number in range(PARTITIONS)]
    with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        values: list[bytes] = []
        until = time.monotonic() + 20
        while len(values) < 600 and time.monotonic() < until:
            for found in consumer.poll_arrow(0.5, include_headers=True):
                values += found.column("value").to_pylist()
                assert found.schema.names[-1] == "headers"
                assert set(found.column("topic").to_pylist()) == {"orders"}

    assert sorted(values, key=int) == [b"%d" % number for number in range(600)]


def test_transactions(broker: Broker) -> None:
    """As at Apache Kafka: all or nothing, one producer of an id at a time, offsets together with records."""
    transaction_scenarios.whole(broker.bootstrap_servers)


def test_transactions_whose_answers_are_lost() -> None:
    """A request that is sent again, since its answer was lost, is carried out once."""
    port = quiet_port()
    with LossyProxy(target_port=port) as proxy:
        config = {**CONFIG, "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}
        with Broker(port=port, config=config):
            with Admin(bootstrap_servers=f"127.0.0.1:{proxy.port}") as admin:
                admin.create_topic("orders", 3)
            transaction_scenarios.lost_answers(proxy, "orders", turns=25)
