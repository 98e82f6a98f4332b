"""`kohort.testing.Cluster`: what clients see when there are several brokers."""

from __future__ import annotations

import asyncio
import doctest
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import aiokafka
import confluent_kafka
import kafka
import pytest

from kohort import Admin, Consumer, Producer
from kohort.errors import ConfigError, ErrorCode, KohortError, StateError, UnknownTopicError
from kohort.testing import Cluster
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.list_groups import ListGroupsRequest
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kohort.wire.schema import Message
from support.dialogues.raw_client import RawClient, request_frame
from support.waiting import until

CONFIG = {"group.initial.rebalance.delay.ms": 0}
PARTITIONS = 6
RECORDS = 300


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster(3, config=CONFIG) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topic("orders", PARTITIONS)
        yield running


def ask(cluster: Cluster, broker: int, message: Message, version: int) -> Message:
    with RawClient(cluster.address(broker)) as client:
        return client.ask(message, version)


def metadata(cluster: Cluster, broker: int) -> Message:
    return ask(cluster, broker, MetadataRequest(topics=[MetadataRequestTopic(name="orders")]), 9)


def fetch_request(partition: int, *, epoch: int = -1, offset: int = 0, max_wait_ms: int = 0) -> FetchRequest:
    row = FetchPartition(
        partition=partition, current_leader_epoch=epoch, fetch_offset=offset, partition_max_bytes=1 << 20
    )
    return FetchRequest(
        max_wait_ms=max_wait_ms, min_bytes=1, isolation_level=0, topics=[FetchTopic(topic="orders", partitions=[row])]
    )


def fetch_error(cluster: Cluster, broker: int, partition: int, *, epoch: int = -1) -> ErrorCode:
    answer = ask(cluster, broker, fetch_request(partition, epoch=epoch), 12)
    return ErrorCode(answer.responses[0].partitions[0].error_code)


def end_of_epoch(cluster: Cluster, broker: int, partition: int, epoch: int) -> tuple[int, int]:
    row = OffsetForLeaderPartition(partition=partition, leader_epoch=epoch)
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="orders", partitions=[row])])
    found = ask(cluster, broker, request, 4).topics[0].partitions[0]
    return found.leader_epoch, found.end_offset


def send(cluster: Cluster, count: int, partition: int | None = None) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(
                "orders", value=b"%d" % number, partition=number % PARTITIONS if partition is None else partition
            )
        producer.flush()


class TestLeaders:
    def test_partitions_are_led_by_the_brokers_in_turn(self, cluster: Cluster) -> None:
        for broker in cluster.brokers:
            answer = metadata(cluster, broker)
            assert [node.node_id for node in answer.brokers] == [1, 2, 3]
            assert [f"{node.host}:{node.port}" for node in answer.brokers] == cluster.bootstrap_servers.split(",")
            assert [row.leader_id for row in answer.topics[0].partitions] == [1, 2, 3, 1, 2, 3]
            assert {row.leader_epoch for row in answer.topics[0].partitions} == {0}

    def test_leader_answers_and_the_others_refuse(self, cluster: Cluster) -> None:
        assert fetch_error(cluster, 2, 1) == ErrorCode.NONE
        assert fetch_error(cluster, 1, 1) == ErrorCode.NOT_LEADER_OR_FOLLOWER

    def test_moved_leader_has_an_epoch_of_its_own(self, cluster: Cluster) -> None:
        """KIP-320: who believes in an earlier epoch is fenced, and who knows of a later one has to wait."""
        cluster.move_leader("orders", 1, 3)
        assert (cluster.leader("orders", 1), cluster.leader_epoch("orders", 1)) == (3, 1)
        assert metadata(cluster, 1).topics[0].partitions[1].leader_epoch == 1
        assert fetch_error(cluster, 3, 1, epoch=1) == ErrorCode.NONE
        assert fetch_error(cluster, 2, 1, epoch=0) == ErrorCode.FENCED_LEADER_EPOCH
        assert fetch_error(cluster, 2, 1, epoch=1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert fetch_error(cluster, 3, 1, epoch=2) == ErrorCode.UNKNOWN_LEADER_EPOCH

    def test_fetch_that_waits_is_refused_when_the_leader_moves(self, cluster: Cluster) -> None:
        with RawClient(cluster.address(2)) as client:
            client.send(request_frame(fetch_request(1, max_wait_ms=100_000), 12))
            cluster.move_leader("orders", 1, 3)
            assert ErrorCode.NOT_LEADER_OR_FOLLOWER.to_bytes(2, "big") in client.receive()

    def test_each_epoch_ends_where_the_next_one_began(self, cluster: Cluster) -> None:
        """KIP-320: OffsetForLeaderEpoch, and records that carry the epoch in which they were written.

        Apache Kafka forgets an epoch in which nothing was written as soon as the next one begins.
        """
        send(cluster, 10, partition=1)
        cluster.move_leader("orders", 1, 3)
        cluster.move_leader("orders", 1, 1)
        send(cluster, 5, partition=1)
        assert [end_of_epoch(cluster, 1, 1, epoch) for epoch in (0, 1, 2, 3)] == [(0, 10), (0, 10), (2, 15), (-1, -1)]
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([("orders", 1)])
            epochs: list[int | None] = []
            until(
                lambda: len(epochs) == 15,
                what="all records",
                step=lambda: epochs.extend(record.leader_epoch for record in consumer.poll(1.0)),
            )
        assert epochs == [0] * 10 + [2] * 5


class TestCoordinators:
    def test_group_is_coordinated_where_find_coordinator_says(self, cluster: Cluster) -> None:
        found = ask(cluster, 1, FindCoordinatorRequest(key_type=0, coordinator_keys=["billing"]), 4).coordinators[0]
        assert found.node_id == cluster.coordinator("billing")
        assert f"{found.host}:{found.port}" == cluster.address(found.node_id)
        elsewhere = next(broker for broker in cluster.brokers if broker != found.node_id)
        assert self.join(cluster, found.node_id) == ErrorCode.NONE
        assert self.join(cluster, elsewhere) == ErrorCode.NOT_COORDINATOR

    def test_moved_group_is_known_to_its_new_coordinator_only(self, cluster: Cluster) -> None:
        before = cluster.coordinator("billing")
        assert before is not None and self.join(cluster, before) == ErrorCode.NONE
        to = before % 3 + 1
        cluster.move_coordinator("billing", to)
        assert cluster.coordinator("billing") == to
        assert self.join(cluster, before) == ErrorCode.NOT_COORDINATOR
        assert [bool(ask(cluster, each, ListGroupsRequest(), 4).groups) for each in (before, to)] == [False, True]

    @pytest.mark.parametrize("protocol", ["consumer", "classic"])
    def test_member_follows_its_coordinator_and_goes_on(self, cluster: Cluster, protocol: str) -> None:
        send(cluster, RECORDS)
        with Consumer(
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="billing",
            group_protocol=protocol,
            auto_offset_reset="earliest",
        ) as consumer:
            consumer.subscribe(["orders"])
            seen: list[tuple[int, int]] = []
            read = lambda: seen.extend((each.partition, each.offset) for each in consumer.poll(0.5))  # noqa: E731
            until(lambda: len(seen) == RECORDS, what="the records", step=read)
            consumer.commit()
            cluster.move_coordinator("billing", (cluster.coordinator("billing") or 0) % 3 + 1)
            send(cluster, RECORDS)
            until(lambda: len(seen) == 2 * RECORDS, what="the records after the move", step=read)
            consumer.commit()
        assert len(set(seen)) == 2 * RECORDS

    @pytest.mark.parametrize("protocol", ["consumer", "classic"])
    def test_close_commits_to_whoever_takes_the_group_over(self, cluster: Cluster, protocol: str) -> None:
        """The broker that coordinates has just died; nothing is read again, and the member has left."""
        send(cluster, RECORDS)
        # The first of its addresses, which it asks who coordinates now.
        cluster.move_coordinator("billing", 1)
        with Consumer(
            bootstrap_servers=cluster.bootstrap_servers,
            group_id="billing",
            group_protocol=protocol,
            auto_offset_reset="earliest",
            auto_commit_interval_ms=60_000,
        ) as consumer:
            consumer.subscribe(["orders"])
            seen = 0
            while seen < RECORDS:
                seen += len(consumer.poll(0.5))
            cluster.kill(1)
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            assert sum(each.lag or 0 for each in admin.group_offsets("billing")) == 0
            assert not admin.describe_group("billing").members

    @staticmethod
    def join(cluster: Cluster, broker: int) -> ErrorCode:
        request = ConsumerGroupHeartbeatRequest(
            group_id="billing",
            member_id="m1",
            member_epoch=0,
            rebalance_timeout_ms=60_000,
            subscribed_topic_names=["orders"],
            topic_partitions=[],
        )
        return ErrorCode(ask(cluster, broker, request, 1).error_code)


class TestBrokersThatComeAndGo:
    def test_what_a_stopped_broker_led_is_led_by_the_others(self, cluster: Cluster) -> None:
        cluster.stop(2)
        assert cluster.running == (1, 3)
        answer = metadata(cluster, 1)
        assert [node.node_id for node in answer.brokers] == [1, 3]
        assert [row.leader_id for row in answer.topics[0].partitions] == [1, 3, 3, 1, 3, 3]
        with pytest.raises(ConnectionRefusedError):
            metadata(cluster, 2)
        cluster.start(2)
        assert cluster.leader("orders", 1) == 3, "what others lead stays with them"

    def test_without_replicas_nobody_leads_until_the_broker_is_back(self, cluster: Cluster) -> None:
        cluster.kill(2, hand_over=False)
        row = metadata(cluster, 1).topics[0].partitions[1]
        assert (row.error_code, row.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)
        assert cluster.leader("orders", 1) is None
        cluster.start(2)
        assert (cluster.leader("orders", 1), cluster.leader_epoch("orders", 1)) == (2, 1)

    def test_broker_comes_back_at_another_port(self, cluster: Cluster) -> None:
        before = cluster.address(3)
        cluster.stop(3)
        cluster.start(3, port=0)
        assert cluster.address(3) != before
        assert f"{metadata(cluster, 1).brokers[2].host}:{metadata(cluster, 1).brokers[2].port}" == cluster.address(3)

    def test_clients_are_told_the_address_that_is_advertised(self, cluster: Cluster) -> None:
        cluster.advertise(2, "broker-2.example", 9092)
        told = metadata(cluster, 1).brokers[1]
        assert (told.host, told.port) == ("broker-2.example", 9092)
        cluster.advertise(2, None)
        assert metadata(cluster, 1).brokers[1].port != 9092

    def test_killed_broker_cuts_its_connections(self, cluster: Cluster) -> None:
        with RawClient(cluster.address(2)) as client:
            client.send(request_frame(fetch_request(1, max_wait_ms=100_000), 12))
            cluster.kill(2)
            # It may have been told before that another broker leads.
            with suppress(ConnectionResetError):
                client.receive_rest()
            assert cluster.running == (1, 3)

    def test_reading_and_writing_go_on_whatever_becomes_of_the_brokers(self, cluster: Cluster) -> None:
        """Each broker in turn stops, dies or comes back elsewhere, and no record is lost or doubled."""
        seen: list[tuple[int, int]] = []
        with (
            Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer,
            Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer,
        ):
            consumer.assign([("orders", number) for number in range(PARTITIONS)])
            for number, change in enumerate(
                (
                    lambda: cluster.move_leader("orders", 0, 2),
                    lambda: cluster.stop(2),
                    lambda: cluster.start(2, port=0),
                    lambda: cluster.kill(3),
                    lambda: cluster.start(3),
                ),
                start=1,
            ):
                for record in range(RECORDS):
                    producer.send("orders", value=b"%d" % record, partition=record % PARTITIONS)
                change()
                producer.flush()
                until(
                    lambda number=number: len(seen) >= number * RECORDS,
                    what=f"all records after change {number}",
                    step=lambda: seen.extend((each.partition, each.offset) for each in consumer.poll(0.5)),
                )
        assert len(seen) == len(set(seen)) == 5 * RECORDS


class TestForeignClients:
    """Their own code, unchanged, before and after leaders and coordinators have moved."""

    def test_confluent_kafka(self, cluster: Cluster) -> None:
        producer = confluent_kafka.Producer({"bootstrap.servers": cluster.bootstrap_servers})
        consumer = confluent_kafka.Consumer(
            {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["orders"])
        seen: list[tuple[int | None, int | None]] = []
        for _ in self.rounds(cluster):
            for number in range(RECORDS):
                producer.produce("orders", b"%d" % number, partition=number % PARTITIONS)
            assert producer.flush(30) == 0
            goal = len(seen) + RECORDS
            until(
                lambda goal=goal: len(seen) >= goal,
                what="all records",
                step=lambda: seen.extend((each.partition(), each.offset()) for each in consumer.consume(500, 0.5)),
            )
        consumer.close()
        assert len(set(seen)) == len(seen) == 3 * RECORDS

    def test_kafka_python(self, cluster: Cluster) -> None:
        producer = kafka.KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        consumer = kafka.KafkaConsumer(
            "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        )
        seen: list[tuple[int, int]] = []

        def read() -> None:
            for records in consumer.poll(500).values():
                seen.extend((each.partition, each.offset) for each in records)

        for _ in self.rounds(cluster):
            for number in range(RECORDS):
                producer.send("orders", b"%d" % number, partition=number % PARTITIONS)
            producer.flush(30)
            goal = len(seen) + RECORDS
            until(lambda goal=goal: len(seen) >= goal, what="all records", step=read)
        consumer.close()
        producer.close()
        assert len(set(seen)) == len(seen) == 3 * RECORDS

    def test_aiokafka(self, cluster: Cluster) -> None:
        asyncio.run(self.with_aiokafka(cluster))

    async def with_aiokafka(self, cluster: Cluster) -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        consumer = aiokafka.AIOKafkaConsumer(
            "orders", bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest"
        )
        await producer.start()
        await consumer.start()
        seen: list[tuple[int, int]] = []
        for _ in self.rounds(cluster):
            sent = [
                await producer.send("orders", b"%d" % number, partition=number % PARTITIONS)
                for number in range(RECORDS)
            ]
            await asyncio.gather(*sent)
            async with asyncio.timeout(40):
                for _ in range(RECORDS):
                    record = await consumer.getone()
                    seen.append((record.partition, record.offset))
                # aiokafka 0.14 never ends `stop` if it has yet to find a coordinator that moved; a commit does.
                await consumer.commit()
        await consumer.stop()
        await producer.stop()
        assert len(set(seen)) == len(seen) == 3 * RECORDS

    @staticmethod
    def rounds(cluster: Cluster) -> Iterator[str]:
        yield "as it began"
        for partition in range(PARTITIONS):
            cluster.move_leader("orders", partition, ((cluster.leader("orders", partition) or 0) % 3) + 1)
        yield "other leaders"
        cluster.move_coordinator("g", ((cluster.coordinator("g") or 0) % 3) + 1)
        yield "another coordinator"


class TestBadInput:
    @pytest.mark.parametrize("brokers", [0, -1, 101, True, "3", 2.0, None])
    def test_number_of_brokers(self, brokers: object) -> None:
        with pytest.raises(ConfigError, match="brokers cannot be"):
            Cluster(brokers)  # type: ignore[arg-type]

    @pytest.mark.parametrize("name", ["node.id", "listeners", "log_dirs", "advertised.listeners"])
    def test_config_that_each_broker_has_of_its_own(self, name: str) -> None:
        with pytest.raises(ConfigError, match=name):
            Cluster(2, config={name: "1"})

    def test_config_that_is_no_mapping(self) -> None:
        with pytest.raises(ConfigError, match="a mapping of names to values is expected"):
            Cluster(2, config=["a"])  # type: ignore[arg-type]

    def test_brokers_that_there_are_not(self, cluster: Cluster) -> None:
        with pytest.raises(ConfigError, match="there is no broker 4: 1 to 3 are expected"):
            cluster.stop(4)
        with pytest.raises(TypeError, match="by its number"):
            cluster.kill("1")  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="there is no broker 0"):
            cluster.move_leader("orders", 0, 0)

    def test_partitions_that_there_are_not(self, cluster: Cluster) -> None:
        with pytest.raises(UnknownTopicError, match="topic payments does not exist"):
            cluster.move_leader("payments", 0, 1)
        with pytest.raises(UnknownTopicError, match="no partition 6: it has 6"):
            cluster.leader("orders", PARTITIONS)
        with pytest.raises(TypeError, match="a partition is a number"):
            cluster.leader("orders", "0")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match="group must be text"):
            cluster.coordinator(None)  # type: ignore[arg-type]

    def test_brokers_in_the_wrong_state(self, cluster: Cluster) -> None:
        with pytest.raises(StateError, match="broker 1 is running already"):
            cluster.start(1)
        cluster.stop(1)
        with pytest.raises(StateError, match="broker 1 is not running"):
            cluster.stop(1)
        with pytest.raises(StateError, match="broker 1 is not running"):
            cluster.move_leader("orders", 0, 1)
        with pytest.raises(ConfigError, match="port cannot be"):
            cluster.start(1, port=70_000)
        with pytest.raises(ConfigError, match="together"):
            cluster.advertise(1, "elsewhere")
        cluster.start(1)
        assert cluster.running == (1, 2, 3)

    def test_port_that_is_taken(self, cluster: Cluster) -> None:
        cluster.stop(1)
        with pytest.raises(KohortError, match="the port is in use"):
            cluster.start(1, port=int(cluster.address(2).rpartition(":")[2]))
        assert cluster.running == (2, 3)
        cluster.start(1)

    def test_cluster_that_is_not_open(self) -> None:
        cluster = Cluster(2)
        with pytest.raises(StateError, match="not open"):
            cluster.stop(1)
        with cluster, pytest.raises(StateError, match="open already"):
            cluster.open()
        cluster.close()
        with pytest.raises(StateError, match="not open"):
            _ = cluster.bootstrap_servers
        with cluster:
            assert cluster.running == (1, 2)


def test_page_about_testing_runs() -> None:
    """What docs/tutorials/testing.md shows is what happens."""
    page = Path(__file__).parents[2] / "docs" / "tutorials" / "testing.md"
    assert doctest.testfile(str(page), module_relative=False).failed == 0
