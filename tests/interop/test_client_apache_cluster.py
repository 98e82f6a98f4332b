"""Our clients on three brokers of Apache Kafka 4.3: leaders that move, logs that are cut, brokers that are busy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import ConsumerGroupTopicPartitions
from confluent_kafka.admin import AdminClient, NewTopic

import kohort
from kohort import TopicPartition
from kohort.errors import BrokerError, ErrorCode, KohortError, LogTruncationError, PartlyDoneError
from support.peers.apache_broker import ApacheKafka
from support.peers.apache_cluster import ApacheCluster
from support.peers.kafka_tools import run_kafka_tool
from support.scenarios import admin_calls, cluster_day
from support.scenarios.client_scenarios import new_topic, poll_until, send_values, wait_until
from support.scenarios.many_groups import play_many_groups
from support.scenarios.matrix import ApacheBrokers, Case, cases, members_go_on, opened
from support.scenarios.topics_day import play_configs, play_offsets, play_topics

pytestmark = [pytest.mark.interop, pytest.mark.apache]

#: Ten megabytes, in records that do not take long to be sent one by one.
RECORDS = 10_000
LARGE = b"x" * 1_000


@pytest.fixture(scope="module")
def place() -> Iterator[ApacheBrokers]:
    with opened(ApacheBrokers) as made:
        yield made


@pytest.fixture
def cluster(place: ApacheBrokers) -> Iterator[ApacheCluster]:
    """All of them run, also afterwards."""
    yield place.cluster
    for broker in place.cluster.brokers:
        broker.start()


@pytest.fixture
def topic(cluster: ApacheCluster) -> Iterator[str]:
    """A topic with a partition on each broker."""
    with (
        new_topic(cluster.bootstrap_servers, "spread", 3) as made,
        kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin,
    ):
        assert {row.leader for row in admin.describe_topics([made])[0].partitions} == {1, 2, 3}
        yield made


def test_one_busy_broker_keeps_nobody_from_the_others(cluster: ApacheCluster, topic: str) -> None:
    """C5: one fetch reserved nearly all of the buffer, and its broker was asked again and again."""
    send_values(cluster.bootstrap_servers, topic, [LARGE] * RECORDS, partition=0)
    with kohort.Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
        assert len(poll_until(consumer, RECORDS)) == RECORDS
        send_values(cluster.bootstrap_servers, topic, [b"y"] * 10, partition=2)
        found = poll_until(consumer, 10)

    assert [record.partition for record in found] == [2] * 10


def test_paused_partition_with_a_long_backlog_starves_nobody(cluster: ApacheCluster, topic: str) -> None:
    """C5, KIP-81: what was fetched of it gives way, and is read again without a gap."""
    send_values(cluster.bootstrap_servers, topic, [LARGE] * RECORDS, partition=0)
    send_values(cluster.bootstrap_servers, topic, [b"y"] * 10, partition=1)
    busy, quiet = TopicPartition(topic, 0), TopicPartition(topic, 1)
    with kohort.Consumer(
        bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", fetch_buffer_bytes=1 << 20
    ) as consumer:
        consumer.assign([busy])
        first = consumer.poll(30.0, max_records=1)
        consumer.pause([busy])
        consumer.assign([busy, quiet])
        assert {record.partition for record in poll_until(consumer, 10)} == {1}
        consumer.resume([busy])
        rest = poll_until(consumer, RECORDS - len(first))

    assert [record.offset for record in (*first, *rest)] == list(range(RECORDS))


@pytest.fixture
def cut(cluster: ApacheCluster) -> TopicPartition:
    """A partition on brokers 2 and 3; either may become its leader, whatever it lacks."""
    admin = AdminClient({"bootstrap.servers": cluster.brokers[0].bootstrap_servers})
    config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
    topic = NewTopic("cut", 1, replica_assignment=[[2, 3]], config=config)
    admin.create_topics([topic])[topic.topic].result(30)
    return TopicPartition(topic.topic, 0)


def replicas_in_sync(broker: ApacheKafka, partition: TopicPartition) -> tuple[int, set[int]]:
    """The leader of the partition and its replicas in sync."""
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        (row,) = admin.describe_topics([partition.topic])[0].partitions
    return row.leader, set(row.in_sync)


def test_log_that_was_cut_is_read_on_from_the_cut(cluster: ApacheCluster, cut: TopicPartition) -> None:
    """KIP-320: by offsets alone the consumer would go on at 20, and never see what stands at 10 to 19 now."""
    first, second, third = cluster.brokers
    send_values(first.bootstrap_servers, cut.topic, [b"both"] * 10)
    wait_until(lambda: replicas_in_sync(first, cut) == (2, {2, 3}), "both have it")
    third.stop()
    wait_until(lambda: replicas_in_sync(first, cut) == (2, {2}), "one of them lags behind")
    send_values(first.bootstrap_servers, cut.topic, [b"lost"] * 10)

    options = {"bootstrap_servers": first.bootstrap_servers}
    with (
        kohort.Consumer(**options, auto_offset_reset="earliest") as going_on,
        kohort.Consumer(**options, auto_offset_reset="none") as told,
    ):
        for consumer in (going_on, told):
            consumer.assign([cut])
        told.seek(cut, 0)
        assert [record.value for record in poll_until(told, 20)] == [b"both"] * 10 + [b"lost"] * 10
        poll_until(going_on, 20)
        second.stop(kill=True)
        third.start()
        wait_until(lambda: replicas_in_sync(first, cut)[0] == 3, "the one that lacks records leads")
        send_values(first.bootstrap_servers, cut.topic, [b"new"] * 15)

        found = poll_until(going_on, 15)
        with pytest.raises(LogTruncationError) as caught:
            poll_until(told, 1)
        told.seek(cut, caught.value.diverging_offset)
        again = poll_until(told, 15)

    assert [(record.offset, record.value) for record in found] == [(10 + index, b"new") for index in range(15)]
    assert (caught.value.offset, caught.value.diverging_offset) == (20, 10)
    assert found == again


@pytest.fixture
def admin(cluster: ApacheCluster) -> Iterator[kohort.Admin]:
    with kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        yield admin


def test_cluster_is_described_as_by_kafkas_own_tools(cluster: ApacheCluster, admin: kohort.Admin) -> None:
    """kafka-features, kafka-metadata-quorum, kafka-log-dirs."""
    cluster_day.describe_everything(cluster, admin)


def test_partitions_are_moved_and_led_by_whom_an_administrator_wants(
    cluster: ApacheCluster, admin: kohort.Admin
) -> None:
    """KIP-455, KIP-183; kafka-reassign-partitions agrees."""
    cluster_day.move_partitions(cluster, admin)


def test_transactions_are_found_and_ended(cluster: ApacheCluster, admin: kohort.Admin) -> None:
    """KIP-664; kafka-transactions agrees."""
    cluster_day.end_transactions(cluster, admin)


def test_calls_that_apache_kafka_has_are_those_of_the_text(admin: kohort.Admin, topic: str) -> None:
    """docs/reference/admin.md."""
    table = admin_calls.table()
    found = {call: admin_calls.has(admin, call, topic, "Apache Kafka 4.3") for call in table}
    assert found == {call: row["Apache Kafka 4.3"] for call, row in table.items()}


@pytest.mark.timeout(180)
@pytest.mark.parametrize("case", cases(ApacheBrokers), ids=str)
def test_members_go_on_at_several_brokers_of_apache_kafka(place: ApacheBrokers, case: Case) -> None:
    """The matrix of what may happen to brokers and topics: see `test_client_matrix`."""
    members_go_on(place, case)


@pytest.mark.parametrize("play", [play_topics, play_configs, play_offsets])
def test_a_day_with_topics_at_three_brokers_of_apache_kafka(
    cluster: ApacheCluster, play: Callable[[dict[str, Any], str], None]
) -> None:
    play({"bootstrap_servers": cluster.bootstrap_servers}, f"day-{play.__name__}")


def test_kafkas_tools_see_what_the_admin_client_says(cluster: ApacheCluster) -> None:
    """kafka-get-offsets and kafka-configs, beside the calls that ask the same."""
    servers = cluster.bootstrap_servers

    def tool(name: str, *words: str) -> list[str]:
        said = run_kafka_tool(name, "--bootstrap-server", servers, *words)
        return [line.strip() for line in said.splitlines() if line.strip()]

    with new_topic(servers, "tools", 3) as topic, kohort.Admin(bootstrap_servers=servers) as admin:
        for partition in range(3):
            send_values(servers, topic, [b"x"] * 5, partition=partition)
        first, second, _ = (TopicPartition(topic, number) for number in range(3))
        assert admin.delete_records({first: 2, second: "latest"}) == {first: 2, second: 5}
        with pytest.raises(PartlyDoneError) as partly:
            admin.delete_records({first: 3, second: 99, TopicPartition(topic, 9): 0})
        assert partly.value.done == {first: 3}
        assert "OFFSET_OUT_OF_RANGE while deleting records before offset 99" in str(partly.value.failed[second])
        ours = {
            f"{topic}:{each.partition}:{row.offset}" for each, row in admin.list_offsets([topic], "earliest").items()
        }
        assert ours == {f"{topic}:0:3", f"{topic}:1:5", f"{topic}:2:0"}
        assert set(tool("org.apache.kafka.tools.GetOffsetShell", "--topic", topic, "--time", "earliest")) == ours

        admin.alter_configs(("topic", topic), {"retention.ms": 77_000})
        admin.alter_configs([("topic", topic)], append={"cleanup.policy": "compact"})
        shown = tool(
            "kafka.admin.ConfigCommand", "--entity-type", "topics", "--entity-name", topic, "--describe", "--all"
        )
        theirs_by_name = {
            line.partition("=")[0]: line.partition("=")[2].partition(" sensitive=")[0] for line in shown if "=" in line
        }
        rows = admin.describe_configs(("topic", topic))["topic", topic]
        assert {row.name: row.value or "" for row in rows} == theirs_by_name
        assert (theirs_by_name["retention.ms"], theirs_by_name["cleanup.policy"]) == ("77000", "delete,compact")


def test_many_groups_are_known_while_a_coordinator_is_away(cluster: ApacheCluster) -> None:
    """KIP-709: the others take its groups over; what is told is what librdkafka is told."""

    def stop_one() -> None:
        cluster.brokers[2].stop()

    servers = {"bootstrap_servers": cluster.bootstrap_servers}
    topic = f"many-{uuid4().hex[:8]}"
    play_many_groups(servers, topic, count=30, disturb=stop_one)
    with kohort.Admin(**servers) as admin:
        names = [f"{topic}-{number}" for number in range(3)]
        kept = {TopicPartition(topic, number): kohort.OffsetAndMetadata(number, f"{number}") for number in range(3)}
        for name in names:
            admin.alter_group_offsets(name, kept)
        theirs = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        for name, found in admin.list_group_offsets(names).items():
            told = theirs.list_consumer_group_offsets([ConsumerGroupTopicPartitions(name)])[name].result(30)
            assert not isinstance(found, KohortError)
            # The metadata that it gives is followed by bytes of its buffer.
            assert {each: offset for each, (offset, *_) in found.items()} == {
                TopicPartition(row.topic, row.partition): row.offset for row in told.topic_partitions
            }
            assert {each.metadata for each in found.values()} == {"0", "1", "2"}


def test_users_and_limits_are_heard_of_by_every_broker(cluster: ApacheCluster) -> None:
    """Whoever is asked; thousands by one call. Without an authorizer there are no access lists."""
    user = f"user-{uuid4().hex}"
    many = [
        kohort.ClientQuota(entity={"user": f"{user}-{n}"}, values={"producer_byte_rate": 1e6}) for n in range(3_000)
    ]
    taken = [kohort.ClientQuota(entity=row.entity, values={"producer_byte_rate": None}) for row in many]
    with kohort.Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.alter_client_quotas(many)
        admin.alter_user_scram_credentials([kohort.ScramCredential(user=user, password="open-sesame")])
        for broker in cluster.brokers:
            with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as other:
                wait_until(
                    lambda: (
                        user in {row.user for row in other.describe_user_scram_credentials()}
                        and sum(str(row.entity["user"]).startswith(user) for row in other.describe_client_quotas())
                        == 3_000
                    ),
                    "all is known everywhere",
                )
        with pytest.raises(BrokerError, match=r"set authorizer\.class\.name") as none:
            admin.describe_acls()
        assert none.value.code is ErrorCode.SECURITY_DISABLED
        admin.alter_client_quotas(taken)
        admin.alter_user_scram_credentials(deletions=[(user, "SCRAM-SHA-512")])
