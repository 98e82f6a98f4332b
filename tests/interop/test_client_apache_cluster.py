"""Our client on three brokers of Apache Kafka 4.3: leaders that move, logs that are cut, a busy broker among others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import kohort
from kohort import TopicPartition
from kohort.errors import LogTruncationError
from support.apache_broker import ApacheKafka
from support.apache_cluster import ApacheCluster
from support.client_scenarios import new_topic, poll_until, send_values, wait_until
from support.matrix import ApacheBrokers, Case, cases, members_go_on, opened

pytestmark = [pytest.mark.interop, pytest.mark.apache]

RECORDS = 100_000


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
    send_values(cluster.bootstrap_servers, topic, [b"x" * 100] * RECORDS, partition=0)
    with kohort.Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, partition) for partition in range(3)])
        assert len(poll_until(consumer, RECORDS)) == RECORDS
        send_values(cluster.bootstrap_servers, topic, [b"y"] * 10, partition=2)
        found = poll_until(consumer, 10)

    assert [record.partition for record in found] == [2] * 10


def test_paused_partition_with_a_long_backlog_starves_nobody(cluster: ApacheCluster, topic: str) -> None:
    """C5, KIP-81: what was fetched of it gives way, and is read again without a gap."""
    send_values(cluster.bootstrap_servers, topic, [b"x" * 100] * RECORDS, partition=0)
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


@pytest.mark.timeout(180)
@pytest.mark.parametrize("case", cases(ApacheBrokers), ids=str)
def test_members_go_on_at_several_brokers_of_apache_kafka(place: ApacheBrokers, case: Case) -> None:
    """The matrix of what may happen to brokers and topics: see `test_client_matrix`."""
    members_go_on(place, case)
