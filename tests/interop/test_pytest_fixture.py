"""The fixture `kohort_broker`, as the tests of a user have it: by the package's entry point, nothing to import."""

from __future__ import annotations

import confluent_kafka
import pytest

import kohort


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
