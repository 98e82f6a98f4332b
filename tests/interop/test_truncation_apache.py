"""A log of Apache Kafka 4.3 that is cut: a replica that lags behind becomes the leader while the other one is dead."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

import kohort
from kohort import TopicPartition
from kohort.errors import LogTruncationError
from support.apache_broker import ApacheKafka
from support.apache_cluster import ApacheCluster
from support.client_scenarios import poll_until, send_values, wait_until

pytestmark = [pytest.mark.interop, pytest.mark.apache]

CUT = TopicPartition("cut", 0)


@pytest.fixture
def cluster() -> Iterator[ApacheCluster]:
    """A topic on brokers 2 and 3; either may become its leader, whatever it lacks."""
    options = {"unclean.leader.election.interval.ms": 1_000, "replica.lag.time.max.ms": 2_000}
    with ApacheCluster(3, options) as made:
        admin = AdminClient({"bootstrap.servers": made.brokers[0].bootstrap_servers})
        config = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
        topic = NewTopic(CUT.topic, 1, replica_assignment=[[2, 3]], config=config)
        admin.create_topics([topic])[CUT.topic].result(30)
        yield made


def replicas_in_sync(broker: ApacheKafka) -> tuple[int, set[int]]:
    """The leader of the partition and its replicas in sync."""
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        (row,) = admin.describe_topics([CUT.topic])[0].partitions
    return row.leader, set(row.in_sync)


def test_log_that_was_cut_is_read_on_from_the_cut(cluster: ApacheCluster) -> None:
    """KIP-320: by offsets alone the consumer would go on at 20, and never see what stands at 10 to 19 now."""
    first, second, third = cluster.brokers
    send_values(first.bootstrap_servers, CUT.topic, [b"both"] * 10)
    wait_until(lambda: replicas_in_sync(first) == (2, {2, 3}), "both have it")
    third.stop()
    wait_until(lambda: replicas_in_sync(first) == (2, {2}), "one of them lags behind")
    send_values(first.bootstrap_servers, CUT.topic, [b"lost"] * 10)

    options = {"bootstrap_servers": first.bootstrap_servers}
    with (
        kohort.Consumer(**options, auto_offset_reset="earliest") as going_on,
        kohort.Consumer(**options, auto_offset_reset="none") as told,
    ):
        for consumer in (going_on, told):
            consumer.assign([CUT])
        told.seek(CUT, 0)
        assert [record.value for record in poll_until(told, 20)] == [b"both"] * 10 + [b"lost"] * 10
        poll_until(going_on, 20)
        second.stop(kill=True)
        third.start()
        wait_until(lambda: replicas_in_sync(first)[0] == 3, "the one that lacks records leads")
        send_values(first.bootstrap_servers, CUT.topic, [b"new"] * 15)

        found = poll_until(going_on, 15)
        with pytest.raises(LogTruncationError) as caught:
            poll_until(told, 1)
        told.seek(CUT, caught.value.diverging_offset)
        again = poll_until(told, 15)

    assert [(record.offset, record.value) for record in found] == [(10 + index, b"new") for index in range(15)]
    assert (caught.value.offset, caught.value.diverging_offset) == (20, 10)
    assert found == again
