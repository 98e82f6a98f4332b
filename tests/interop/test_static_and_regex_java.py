"""Static members and patterns of the consumer protocol by Apache Kafka's own Java consumer, where Java is there."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort import Admin
from kohort.broker.embedded import Broker
from support.peers.java_member import JavaMember

pytestmark = [pytest.mark.interop, pytest.mark.apache]

CONFIG = {"group.consumer.session.timeout.ms": 20_000, "group.consumer.heartbeat.interval.ms": 200}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config=CONFIG) as broker:
        yield broker


@pytest.fixture
def admin(broker: Broker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin


def test_static_java_member_comes_back_to_its_partitions(broker: Broker, admin: Admin) -> None:
    """One after the other, so that one JVM runs at a time: a process in between does not get what is reserved."""
    admin.create_topic("t", partitions=2)
    with JavaMember(broker.bootstrap_servers, instance_id="one") as first:
        first.wait_for("held t-0 t-1")
    epoch = admin.describe_group("g").group_epoch
    with JavaMember(broker.bootstrap_servers, instance_id="one") as again:
        again.wait_for("held t-0 t-1")
        assert admin.describe_group("g").group_epoch == epoch
        with JavaMember(broker.bootstrap_servers, instance_id="one") as double:
            (said,) = [line for line in double.wait_for("error") if line.startswith("error")]
            assert "UnreleasedInstanceIdException" in said
        assert again.said() == []


def test_java_pattern_follows_topics(broker: Broker, admin: Admin) -> None:
    """A pattern that the broker resolves: `subscribe(SubscriptionPattern)`, which is new with the consumer protocol."""
    admin.create_topic("orders-eu", partitions=1)
    admin.create_topic("invoices", partitions=1)
    with JavaMember(broker.bootstrap_servers, topic="~orders-.*") as member:
        member.wait_for("held orders-eu-0")
        admin.create_topic("orders-us", partitions=2)
        member.wait_for("held orders-eu-0 orders-us-0 orders-us-1")
        admin.create_partitions("orders-us", 3)
        member.wait_for("held orders-eu-0 orders-us-0 orders-us-1 orders-us-2")
        admin.delete_topics(["orders-eu"])
        member.wait_for("held orders-us-0 orders-us-1 orders-us-2")
    with JavaMember(broker.bootstrap_servers, topic="~orders-[") as refused:
        (said,) = [line for line in refused.wait_for("error") if line.startswith("error")]
        assert "InvalidRegularExpression" in said and "does not compile" in said
