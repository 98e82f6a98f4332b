"""A broker says how often each of its limits was met."""

from __future__ import annotations

import socket

import pytest

import kohort
from kohort.broker.apis.describe_broker import COUNTED
from kohort.broker.embedded import Broker
from kohort.errors import ErrorCode
from kohort.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient
from support.waiting import until


@pytest.fixture
def broker_config() -> dict[str, object]:
    return {
        "auto.create.topics.per.minute": 1,
        "connections.max.idle.ms": 300_000,
        "group.initial.rebalance.delay.ms": 60_000,
        "max.connections": 100,
        "max.groups": 2,
        "max.partitions": 8,
        "max.topics": 5,
        "queued.max.requests": 2,
    }


def reached(broker: Broker) -> dict[str, int]:
    """Those that were met, by name."""
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        facts = admin.describe_broker()
    found = {name: int(facts[f"limits.reached.{name}"]) for name in COUNTED}
    return {name: count for name, count in found.items() if count}


def join(group: str) -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def test_each_that_was_met_is_counted_and_no_other(broker: Broker, client: RawClient) -> None:
    assert reached(broker) == {}
    # The coordinator's log has 4 partitions.
    rows = [CreatableTopic(name=f"t{size}", num_partitions=size, replication_factor=1) for size in (5, 1, 1)]
    client.ask(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=rows[:2]))
    assert reached(broker) == {"max.partitions": 1}

    names = [MetadataRequestTopic(name=name) for name in ("a",)]
    client.ask(ApiKey.METADATA, 9, MetadataRequest(topics=names))
    client.ask(ApiKey.METADATA, 9, MetadataRequest(topics=[MetadataRequestTopic(name="b")]))
    rows = [CreatableTopic(name=f"more{number}", num_partitions=1, replication_factor=1) for number in range(4)]
    client.ask(ApiKey.CREATE_TOPICS, 5, CreateTopicsRequest(topics=rows))
    assert reached(broker) == {"max.partitions": 1, "max.topics": 2, "auto.create.topics.per.minute": 1}

    with RawClient(broker.port) as parked, RawClient(broker.port) as foreign:
        for group in ("a", "b", "c"):
            parked.send(ApiKey.JOIN_GROUP, 3, join(group))
        foreign.socket.sendall(b"\x00\x00\x00\x0anot a request")
        assert foreign.is_closed_by_broker()
        until(lambda: "queued.max.requests" in reached(broker), what="a connection that is read no further")
        refused = client.ask(ApiKey.JOIN_GROUP, 3, join("d"))
        assert refused.error_code == ErrorCode.POLICY_VIOLATION
        found = reached(broker)
    assert (found["requests"], found["queued.max.requests"], found["max.groups"]) == (1, 1, 1)


def test_connections_without_room_are_counted() -> None:
    with (
        Broker(config={"max.connections.per.ip": 3}) as broker,
        kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin,
    ):
        admin.describe_broker()
        with (
            socket.create_connection(("127.0.0.1", broker.port)),
            socket.create_connection(("127.0.0.1", broker.port)),
            socket.create_connection(("127.0.0.1", broker.port)) as third,
        ):
            third.settimeout(10)
            assert third.recv(1) == b""
        facts = admin.describe_broker()
    assert int(facts["limits.reached.max.connections.per.ip"]) >= 1
