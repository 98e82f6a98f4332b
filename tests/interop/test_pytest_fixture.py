"""The fixtures `kohort_broker` and `kohort_cluster`, as the tests of a user have them: with nothing to import."""

from __future__ import annotations

from importlib.metadata import entry_points

import confluent_kafka
import pytest

import kohort
from kohort.testing import Cluster, pytest_plugin


def test_pytest_finds_them_where_kohort_is_installed() -> None:
    """A user names no plugin; our own runs do, which keeps pytest from rewriting all of kohort."""
    assert [found.load() for found in entry_points(group="pytest11", name="kohort")] == [pytest_plugin]


def test_every_test_has_a_broker_of_its_own(kohort_broker: kohort.Broker) -> None:
    """Any Kafka client works against it."""
    producer = confluent_kafka.Producer({"bootstrap.servers": kohort_broker.bootstrap_servers})
    producer.produce("orders", b"one")
    assert producer.flush(10) == 0
    with kohort.Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
        ends = [row.end_offset for row in admin.describe_topics(["orders"])[0].partitions]
    assert ends == [1]


def test_nothing_is_left_of_the_test_before(kohort_broker: kohort.Broker) -> None:
    """Topics of another test are another broker's."""
    with kohort.Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
        assert not [topic for topic in admin.list_topics() if not topic.is_internal]


class TestWithConfig:
    """The fixture `kohort_broker_config` changes what the broker is told."""

    @pytest.fixture
    def kohort_broker_config(self) -> dict[str, object]:
        return {"num.partitions": 3}

    def test_config_is_in_force(self, kohort_broker: kohort.Broker) -> None:
        """Here: the partitions of a topic that is created by its first record."""
        with kohort.Producer(bootstrap_servers=kohort_broker.bootstrap_servers) as producer:
            producer.send("auto", b"x").result(10)
        with kohort.Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin:
            assert len(admin.describe_topics(["auto"])[0].partitions) == 3


def test_every_test_has_a_cluster_of_its_own(kohort_cluster: Cluster) -> None:
    """The fixture `kohort_cluster`."""
    with kohort.Admin(bootstrap_servers=kohort_cluster.bootstrap_servers) as admin:
        admin.create_topic("orders", 3)
    assert [kohort_cluster.leader("orders", number) for number in range(3)] == [1, 2, 3]


class TestWithAnotherSize:
    """The fixture `kohort_cluster_size` changes how many brokers there are."""

    @pytest.fixture
    def kohort_cluster_size(self) -> int:
        return 2

    def test_size_is_in_force(self, kohort_cluster: Cluster) -> None:
        assert kohort_cluster.brokers == (1, 2)


@pytest.mark.parametrize("kohort_security", ["SSL", "SASL_PLAINTEXT", "SASL_SSL"])
class TestSecured:
    """`kohort_security` gives brokers TLS and a login, `kohort_client_options` what their clients need for both."""

    def test_client_with_the_options_is_let_in(
        self, kohort_broker: kohort.Broker, kohort_client_options: dict[str, str]
    ) -> None:
        """Any Kafka client."""
        options = {"bootstrap.servers": kohort_broker.bootstrap_servers, **kohort_client_options}
        producer = confluent_kafka.Producer(options)
        producer.produce("orders", b"one")
        assert producer.flush(10) == 0
        with kohort.Consumer(options, auto_offset_reset="earliest") as consumer:
            consumer.assign([kohort.TopicPartition("orders", 0)])
            assert [record.value for record in consumer.poll(10.0)] == [b"one"]

    def test_client_without_them_is_not(self, kohort_broker: kohort.Broker) -> None:
        """It is told why."""
        with (
            kohort.Admin(bootstrap_servers=kohort_broker.bootstrap_servers) as admin,
            pytest.raises(kohort.errors.BrokersUnreachableError),
        ):
            admin.list_topics()

    def test_cluster_is_secured_as_well(self, kohort_cluster: Cluster, kohort_client_options: dict[str, str]) -> None:
        """Each broker of it."""
        with kohort.Admin({"bootstrap.servers": kohort_cluster.bootstrap_servers, **kohort_client_options}) as admin:
            admin.create_topic("orders", 3)
            assert len(admin.describe_cluster().brokers) == 3
