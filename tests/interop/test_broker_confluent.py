"""confluent-kafka (librdkafka) against our broker: produce, consume, groups of both protocols, administration."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from confluent_kafka import KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, NewTopic

from kohort.broker.embedded import Broker
from support.peers.confluent_member import Lines, Member, settle
from support.ports import quiet_port
from support.waiting import until

pytestmark = pytest.mark.interop

CONFIG = {
    "group.consumer.session.timeout.ms": 2_000,
    "group.consumer.heartbeat.interval.ms": 200,
    "group.min.session.timeout.ms": 500,
}
PROTOCOLS = ("consumer", "classic")


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config=CONFIG) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> AdminClient:
    return AdminClient({"bootstrap.servers": broker.bootstrap_servers})


@pytest.fixture
def produce(broker: Broker) -> Callable[..., None]:
    """Produce values with a stock producer and see each acknowledged."""

    def produce(topic: str, values: list[bytes], **config: object) -> None:
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, **config})
        failed: list[object] = []
        done: list[Message] = []

        def on_delivery(error: KafkaError | None, message: Message) -> None:
            if error is None:
                done.append(message)
            else:
                failed.append(error)

        for number, value in enumerate(values):
            producer.produce(topic, value=value, key=b"key-%d" % number, on_delivery=on_delivery)
        assert producer.flush(30) == 0
        assert failed == []
        assert len(done) == len(values)

    return produce


def create(admin: AdminClient, name: str = "t", partitions: int = 4) -> None:
    admin.create_topics([NewTopic(name, partitions, 1)])[name].result(20)


# ---- produce and consume


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_what_is_produced_is_consumed(
    broker: Broker, admin: AdminClient, produce: Callable[..., None], codec: str, idempotent: bool
) -> None:
    create(admin, partitions=1)
    values = [b"value %d " % number + b"x" * 100 for number in range(2_000)]
    produce("t", values, **{"compression.type": codec, "enable.idempotence": idempotent})
    member = Member(broker, "classic")
    member.consumer.assign([TopicPartition("t", 0, 0)])
    until(lambda: len(member.values) >= len(values), what="every record", step=member.poll)
    assert member.values == values
    member.consumer.close()


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acks_is_served(broker: Broker, admin: AdminClient, produce: Callable[..., None], acks: str) -> None:
    create(admin)
    produce("t", [b"x"] * 500, acks=acks)
    with Member(broker, "classic") as member:
        until(lambda: len(member.values) >= 500, what="500 records", step=member.poll)
        assert len(member.values) == 500


def test_an_unknown_topic_is_created_for_a_producer(broker: Broker, produce: Callable[..., None]) -> None:
    produce("new", [b"x"])
    metadata = AdminClient({"bootstrap.servers": broker.bootstrap_servers}).list_topics("new", 10)
    assert len(metadata.topics["new"].partitions) == 1


def test_large_records_come_back_whole(broker: Broker, admin: AdminClient, produce: Callable[..., None]) -> None:
    create(admin, partitions=1)
    values = [os.urandom(900_000) for _ in range(10)]
    produce("t", values)
    with Member(broker, "consumer") as member:
        until(lambda: len(member.values) >= len(values), what="every record", step=member.poll)
        assert member.values == values


def test_offsets_by_time_and_watermarks(broker: Broker, admin: AdminClient, produce: Callable[..., None]) -> None:
    create(admin, partitions=1)
    produce("t", [b"a", b"b", b"c"])
    consumer = Member(broker, "classic").consumer
    assert consumer.get_watermark_offsets(TopicPartition("t", 0), timeout=10) == (0, 3)
    (found,) = consumer.offsets_for_times([TopicPartition("t", 0, 0)], timeout=10)
    assert found.offset == 0
    consumer.close()


# ---- groups


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_join_and_leave_and_every_partition_always_finds_an_owner(
    broker: Broker, admin: AdminClient, protocol: str
) -> None:
    create(admin)
    with ExitStack() as stack:
        first = stack.enter_context(Member(broker, protocol))
        settle(first, owned=[4])
        second = stack.enter_context(Member(broker, protocol))
        settle(first, second, owned=[2, 2])
        third = stack.enter_context(Member(broker, protocol))
        settle(first, second, third, owned=[1, 1, 2])
        second.consumer.unsubscribe()
        settle(first, third, owned=[2, 2])


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_records_are_read_once_while_members_come_and_go(
    broker: Broker, admin: AdminClient, produce: Callable[..., None], protocol: str
) -> None:
    """Each member commits what it read when it loses a partition or goes, so nobody reads it again."""
    create(admin)
    values = [b"%d" % number for number in range(3_000)]
    produce("t", values[:1_000])
    auto = {"enable.auto.commit": True, "auto.commit.interval.ms": 100}
    with Member(broker, protocol, **auto) as first:
        settle(first, owned=[4])
        until(lambda: len(first.values) >= 1_000, what="the first thousand", step=first.poll)
        with Member(broker, protocol, **auto) as second:

            def poll_both(other: Member = second) -> None:
                first.poll()
                other.poll()

            settle(first, second, owned=[2, 2])
            produce("t", values[1_000:2_000])
            until(
                lambda: len(first.values) + len(second.values) >= 2_000,
                what="the second thousand",
                step=poll_both,
            )
            seen = second.values
        settle(first, owned=[4])
        produce("t", values[2_000:])
        until(lambda: len(first.values) + len(seen) >= 3_000, what="the third thousand", step=first.poll)
        assert sorted(first.values + seen, key=lambda value: int(value or b"0")) == values


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_the_partitions_of_a_member_that_dies_go_to_the_others(
    broker: Broker, admin: AdminClient, protocol: str
) -> None:
    """SIGKILL: no leave request, so the session timeout gives its partitions away."""
    create(admin)
    code = (
        "import sys, confluent_kafka as c\n"
        "address, protocol = sys.argv[1:]\n"
        "settings = {'bootstrap.servers': address, 'group.id': 'g', 'group.protocol': protocol}\n"
        "if protocol == 'classic': settings |= {'session.timeout.ms': 2000, 'heartbeat.interval.ms': 200}\n"
        "consumer = c.Consumer(settings)\n"
        "consumer.subscribe(['t'])\n"
        "while True: consumer.poll(0.1)\n"
    )
    with Member(broker, protocol) as survivor:
        settle(survivor, owned=[4])
        child = subprocess.Popen([sys.executable, "-c", code, broker.bootstrap_servers, protocol])
        try:
            until(lambda: len(survivor.owned) == 2, what="the other member has joined", step=survivor.poll)
            child.send_signal(signal.SIGKILL)
            settle(survivor, owned=[4])
        finally:
            child.kill()
            child.wait()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_a_group_goes_on_where_it_has_committed(
    broker: Broker, admin: AdminClient, produce: Callable[..., None], protocol: str
) -> None:
    create(admin, partitions=1)
    produce("t", [b"%d" % number for number in range(10)])
    with Member(broker, protocol) as member:
        until(lambda: len(member.values) >= 10, what="ten records", step=member.poll)
        (committed,) = member.consumer.commit(offsets=[TopicPartition("t", 0, 6)], asynchronous=False)
        assert committed.error is None
    with Member(broker, protocol) as member:
        until(lambda: len(member.values) >= 4, what="the four that were not committed", step=member.poll)
        assert member.values == [b"6", b"7", b"8", b"9"]
        (found,) = member.consumer.committed([TopicPartition("t", 0)], timeout=10)
        assert found.offset == 6


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_learn_of_partitions_that_are_added(broker: Broker, admin: AdminClient, protocol: str) -> None:
    create(admin, partitions=2)
    with Member(broker, protocol, **{"topic.metadata.refresh.interval.ms": 500}) as member:
        settle(member, total=2)
        admin.create_partitions([NewPartitions("t", 5)])["t"].result(20)
        settle(member, total=5)


def test_the_new_protocol_takes_only_what_has_to_move(broker: Broker, admin: AdminClient) -> None:
    """KIP-848: a member that keeps a partition never stops reading it."""
    create(admin)
    with Member(broker, "consumer") as first:
        settle(first, owned=[4])
        kept_before = first.owned
        with Member(broker, "consumer") as second:
            settle(first, second, owned=[2, 2])
            assert first.owned < kept_before
            assert set(first.revoked) == second.owned


def test_classic_cooperative_members_share(broker: Broker, admin: AdminClient) -> None:
    create(admin)
    cooperative = {"partition.assignment.strategy": "cooperative-sticky"}
    with Member(broker, "classic", **cooperative) as first:
        settle(first, owned=[4])
        with Member(broker, "classic", **cooperative) as second:
            settle(first, second, owned=[2, 2])
            assert len(first.revoked) == 2
        settle(first, owned=[4])


# ---- restart and administration


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_members_outlive_a_kill_of_the_broker(tmp_path: object, protocol: str) -> None:
    """The group is read back from the log; members reconnect to the same port and go on."""
    port = quiet_port()
    with Broker(data_dir=str(tmp_path), port=port, process=True, config=CONFIG) as broker:
        create(AdminClient({"bootstrap.servers": broker.bootstrap_servers}))
        producer = Producer({"bootstrap.servers": broker.bootstrap_servers, "reconnect.backoff.max.ms": 200})
        member = Member(broker, protocol, **{"reconnect.backoff.max.ms": 200}).subscribe("t")
        settle(member, owned=[4])
        producer.produce("t", b"before")
        assert producer.flush(20) == 0
        until(lambda: member.values == [b"before"], what="the record before", step=member.poll)
        member.consumer.commit(asynchronous=False)
        broker.kill()
    with Broker(data_dir=str(tmp_path), port=port, process=True, config=CONFIG):
        producer.produce("t", b"after")
        assert producer.flush(20) == 0
        until(lambda: member.values[-1] == b"after", what="the record after", step=member.poll)
        assert member.values == [b"before", b"after"]
        member.consumer.close()


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_groups_are_listed_described_and_deleted(broker: Broker, admin: AdminClient, protocol: str) -> None:
    create(admin)
    with Member(broker, protocol) as member:
        settle(member, owned=[4])
        listed = admin.list_consumer_groups(request_timeout=10).result().valid
        assert [group.group_id for group in listed] == ["g"]
        described = admin.describe_consumer_groups(["g"], request_timeout=10)["g"].result()
        assert described.state.name == "STABLE"
        (only,) = described.members
        assert len(only.assignment.topic_partitions) == 4
        with pytest.raises(KafkaException) as raised:
            admin.delete_consumer_groups(["g"], request_timeout=10)["g"].result()
        assert raised.value.args[0].code() == KafkaError.NON_EMPTY_GROUP
    admin.delete_consumer_groups(["g"], request_timeout=10)["g"].result()
    assert admin.list_consumer_groups(request_timeout=10).result().valid == []


def test_topics_and_configs_are_administered(broker: Broker, admin: AdminClient) -> None:
    create(admin)
    with pytest.raises(KafkaException) as raised:
        create(admin)
    assert raised.value.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS
    resource = ConfigResource(ConfigResource.Type.TOPIC, "t")
    configs = admin.describe_configs([resource], request_timeout=10)[resource].result()
    assert configs["flush.messages"].value == "1"
    cluster = admin.describe_cluster(request_timeout=10).result()
    assert [(node.host, node.port) for node in cluster.nodes] == [("127.0.0.1", broker.port)]
    admin.delete_topics(["t"])["t"].result(20)
    assert "t" not in admin.list_topics(timeout=10).topics


@pytest.mark.parametrize("protocol", PROTOCOLS)
def test_commits_are_answered_before_the_heartbeat_that_is_held(protocol: str) -> None:
    """Its client finds requests by their numbers, and is told of the next rebalance by that very heartbeat."""
    lines = Lines()
    session = {"session.timeout.ms": 45_000} if protocol == "classic" else {}
    config = {"debug": "protocol", "logger": lines.logger, **session}
    with Broker() as broker:
        create(AdminClient({"bootstrap.servers": broker.bootstrap_servers}))
        with Member(broker, protocol, **config) as first:
            settle(first)
            until(
                lambda: lines.count("Received OffsetFetch") > 0, step=first.poll, what="it asks for what is committed"
            )
            until(lambda: lines.count("HeartbeatReq") > lines.count("HeartbeatRes"), step=first.poll, what="a held one")
            beats = lines.count("HeartbeatRes")
            for offset in range(5):
                first.consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
            assert lines.count("HeartbeatRes") == beats

            with Member(broker, protocol, **session) as second:
                settle(first, second)
            assert lines.count("timed out") == 0
