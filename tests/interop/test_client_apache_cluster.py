"""Our client on three brokers of Apache Kafka 4.3, one partition on each, with default options."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kohort
from kohort import TopicPartition
from support.apache_cluster import ApacheCluster
from support.client_scenarios import new_topic, poll_until, send_values

pytestmark = [pytest.mark.interop, pytest.mark.apache]

RECORDS = 100_000


@pytest.fixture(scope="module")
def cluster() -> Iterator[ApacheCluster]:
    with ApacheCluster(3) as made:
        yield made


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
