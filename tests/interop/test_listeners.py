"""Brokers with an inside and an outside address: clients of each listener are sent to its addresses and no other."""

from __future__ import annotations

import asyncio
import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import confluent_kafka
import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka.admin import AdminClient
from kafka import KafkaConsumer, KafkaProducer

import kohort
from kohort.broker.embedded import Broker
from kohort.errors import ConfigError, KohortError
from kohort.testing import Cluster
from kohort.wire.messages.describe_cluster import DescribeClusterRequest
from kohort.wire.messages.describe_quorum import DescribeQuorumRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.metadata import MetadataRequest
from support.builders.site import blocks
from support.dialogues.raw_client import RawClient
from support.peers.certificates import Certificates
from support.peers.cli import started_python
from support.peers.lossy_proxy import LossyProxy
from support.waiting import PATIENCE_SECONDS, until

pytestmark = pytest.mark.interop

VALUES = [b"a", b"b", b"c"]
PROTOCOLS = {"listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:PLAINTEXT"}
#: Two addresses of this machine: that nothing listens on the other one's port shows where a client has gone.
ADDRESSES = {"INSIDE": "127.0.0.1", "OUTSIDE": "127.0.0.2"}
LISTENERS = ",".join(f"{name}://{host}:0" for name, host in ADDRESSES.items())
CONFIG = {
    "listeners": LISTENERS,
    **PROTOCOLS,
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
}


@contextmanager
def forwarded() -> Iterator[tuple[Broker, str]]:
    """A broker in a container, so to say: its outside address is that of a port that is forwarded."""
    with LossyProxy() as proxy:
        told = {"advertised.listeners": f"OUTSIDE://127.0.0.1:{proxy.port}"}
        config = {**CONFIG, **told, "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://127.0.0.1:0"}
        with Broker(config=config) as broker:
            proxy.target_port = int(broker.bootstrap_of("OUTSIDE").rpartition(":")[2])
            yield broker, f"127.0.0.1:{proxy.port}"


def with_confluent(bootstrap: str, group: str) -> tuple[set[str], list[bytes]]:
    told = AdminClient({"bootstrap.servers": bootstrap}).list_topics(timeout=PATIENCE_SECONDS).brokers.values()
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    for value in VALUES:
        producer.produce(group, value)
    assert producer.flush(PATIENCE_SECONDS) == 0
    config = {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest"}
    with confluent_kafka.Consumer(config) as consumer:
        consumer.subscribe([group])
        came: list[bytes] = []

        def poll() -> None:
            came.extend(each.value() for each in consumer.consume(9, 0.1) if not each.error())

        until(lambda: len(came) == len(VALUES), what=f"the values of {group}", step=poll)
    return {f"{each.host}:{each.port}" for each in told}, came


def with_kafka_python(bootstrap: str, group: str) -> tuple[set[str], list[bytes]]:
    producer = KafkaProducer(bootstrap_servers=bootstrap)
    for value in VALUES:
        producer.send(group, value).get(PATIENCE_SECONDS)
    producer.close()
    # Now and then it assigns by metadata from before the topic; it looks again after this time.
    fresh = {"auto_offset_reset": "earliest", "metadata_max_age_ms": 500}
    with closing(KafkaConsumer(group, bootstrap_servers=bootstrap, group_id=group, **fresh)) as consumer:
        came = [next(consumer).value for _ in VALUES]
        told = {f"{each.host}:{each.port}" for each in consumer._client.cluster.brokers()}
    return told, came


def with_aiokafka(bootstrap: str, group: str) -> tuple[set[str], list[bytes]]:
    async def play() -> tuple[set[str], list[bytes]]:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap) as producer:
            for value in VALUES:
                await producer.send_and_wait(group, value)
        consumer = AIOKafkaConsumer(group, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest")
        async with consumer:
            came = [(await asyncio.wait_for(consumer.getone(), PATIENCE_SECONDS)).value for _ in VALUES]
            told = {f"{each.host}:{each.port}" for each in consumer._client.cluster.brokers()}
        return told, came

    return asyncio.run(play())


def with_ours(bootstrap: str, group: str) -> tuple[set[str], list[bytes]]:
    with kohort.Admin(bootstrap_servers=bootstrap) as admin, kohort.Producer(bootstrap_servers=bootstrap) as producer:
        told = {f"{each.host}:{each.port}" for each in admin.describe_cluster().brokers}
        for value in VALUES:
            producer.send(group, value=value)
        producer.flush()
    with kohort.Consumer(bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest") as consumer:
        consumer.subscribe([group])
        came: list[bytes] = []

        def poll() -> None:
            came.extend(each.value for each in consumer.poll(0.1))

        until(lambda: len(came) == len(VALUES), what=f"the values of {group}", step=poll)
    return told, came


CLIENTS: list[Callable[[str, str], tuple[set[str], list[bytes]]]] = [
    with_confluent,
    with_kafka_python,
    with_aiokafka,
    with_ours,
]


def test_each_client_is_sent_to_the_address_that_it_came_by() -> None:
    with forwarded() as (broker, outside):
        inside = broker.bootstrap_of("INSIDE")
        for play in CLIENTS:
            for name, bootstrap in (("inside", inside), ("outside", outside)):
                assert play(bootstrap, f"{play.__name__}-{name}") == ({bootstrap}, VALUES), play


# kafka-python closes no socket whose connection broke while it was busy: the garbage collector does, some time later.
@pytest.mark.filterwarnings("ignore:unclosed <socket:ResourceWarning")
def test_three_brokers_tell_the_addresses_of_the_listener_that_was_asked() -> None:
    with Cluster(3, config=CONFIG) as cluster:
        for play in CLIENTS:
            for name in ADDRESSES:
                bootstrap = cluster.bootstrap_of(name)
                told, came = play(bootstrap, f"{play.__name__}-{name}")
                assert told <= set(bootstrap.split(",")), play
                assert sorted(came) == VALUES
        before = cluster.bootstrap_of("OUTSIDE")
        cluster.stop(2)
        cluster.start(2)
        assert cluster.bootstrap_of("OUTSIDE") == before, "a broker comes back where it was, by each listener"
        cluster.advertise(2, "broker-2.example", 443, listener="outside")
        assert hosts_told(cluster.address(1, "OUTSIDE")) == ["127.0.0.2", "broker-2.example", "127.0.0.2"]
        assert hosts_told(cluster.address(1)) == ["127.0.0.1"] * 3
        with pytest.raises(ConfigError, match="there is no listener MIDDLE: one of INSIDE, OUTSIDE is expected"):
            cluster.address(1, "MIDDLE")


def test_brokers_of_a_cluster_are_plain_inside_and_secured_on_every_interface(tmp_path: Path) -> None:
    """By TLS and a login, an address beyond this machine needs no leave."""
    certificates = Certificates(tmp_path)
    users = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-secret";'
    config = {
        "listeners": "INSIDE://127.0.0.1:0,OUTSIDE://0.0.0.0:0",
        "advertised.listeners": "OUTSIDE://localhost:0",
        "listener.security.protocol.map": "INSIDE:PLAINTEXT,OUTSIDE:SASL_SSL",
        "ssl.keystore.location": str(certificates.store("localhost", "127.0.0.1")),
        "listener.name.outside.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.outside.plain.sasl.jaas.config": users,
        "super.users": "User:alice;User:ANONYMOUS",
    }
    secured: dict[str, Any] = {
        "security_protocol": "SASL_SSL",
        "sasl_mechanism": "PLAIN",
        "sasl_username": "alice",
        "ssl_ca_location": str(certificates.ca),
    }
    with Cluster(2, config=config) as cluster:
        outside = cluster.bootstrap_of("OUTSIDE").replace("0.0.0.0", "localhost")
        with kohort.Admin(bootstrap_servers=outside, sasl_password="alice-secret", **secured) as admin:
            admin.create_topic("t", 4)
            told = {f"{each.host}:{each.port}" for each in admin.describe_cluster().brokers}
        assert told == set(outside.split(","))
        with (
            pytest.raises(KohortError, match="not authenticated"),
            kohort.Admin(bootstrap_servers=outside, sasl_password="alice-sekret", **secured) as admin,
        ):
            admin.list_topics()
        assert with_ours(cluster.bootstrap_of("INSIDE"), "t")[0] == set(cluster.bootstrap_servers.split(","))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"config": {**CONFIG, "listeners": "INSIDE://127.0.0.1:9092"}},
            "has INSIDE://127.0.0.1:9092 for every broker",
        ),
        ({"config": CONFIG, "host": "127.0.0.1"}, "host and port cannot be given beside 2 listeners"),
        ({"config": {"listeners": "A://127.0.0.1:0"}}, "listener.security.protocol.map does not say the protocol"),
        (
            {"config": {**CONFIG, "advertised.listeners": "INSIDE://h:1"}},
            "has port 1 of INSIDE for every broker",
        ),
    ],
)
def test_listeners_that_a_cluster_cannot_have(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        Cluster(2, **arguments)
    assert message in str(raised.value)


def test_cluster_that_strangers_reach_does_not_open() -> None:
    with pytest.raises(KohortError, match=r"listener PLAINTEXT on 0\.0\.0\.0:0 can be reached from other machines"):
        Cluster(2, host="0.0.0.0").open()


def hosts_told(bootstrap: str) -> list[str]:
    with RawClient(bootstrap) as client:
        return [each.host for each in client.ask(MetadataRequest(topics=[]), 9).brokers]


@pytest.mark.parametrize("name", ADDRESSES)
def test_every_answer_with_an_address_has_that_of_the_listener(name: str) -> None:
    with Broker(config=CONFIG) as broker, RawClient(broker.bootstrap_of(name)) as client:

        def told(message: Any, version: int) -> Any:
            return client.ask(message, version)

        found = [
            *told(MetadataRequest(topics=[]), 9).brokers,
            *told(DescribeClusterRequest(include_cluster_authorized_operations=False), 1).brokers,
            *told(FindCoordinatorRequest(key_type=0, coordinator_keys=["g"]), 4).coordinators,
            *told(DescribeQuorumRequest(topics=[]), 2).nodes[0].listeners,
        ]
        assert {f"{each.host}:{each.port}" for each in found} == {broker.bootstrap_of(name)}
        assert len(found) == 4
        assert found[-1].name == name


@pytest.mark.parametrize(
    ("host", "near"),
    [("", "127.0.0.1"), ("", "127.0.0.3"), ("[::]", "127.0.0.1"), ("[::]", "127.0.0.3"), ("[::]", "::1")],
)
def test_every_interface_is_told_as_the_one_that_was_reached(host: str, near: str) -> None:
    """An address of IPv4 as such, though a socket of IPv6 has taken it."""
    config = {"listeners": f"PLAINTEXT://{host}:0", "allow.anonymous.beyond.loopback": "true"}
    with Broker(config=config) as broker:
        assert hosts_told(f"{near}:{broker.port}") == [near]


def test_command_of_the_how_to_starts_a_broker_with_both() -> None:
    """As it stands, but for the ports, which another program may have."""
    (block,) = blocks("how-to/listen-on-several-addresses.md", "bash")
    words = [re.sub(r"0\.0\.0\.0:\d+", "0.0.0.0:0", word) for word in shlex.split(block.code.replace("\\\n", " "))]
    assert words[:2] == ["kohort", "up"]
    with started_python("-m", "kohort.cli.main", *words[1:]) as broker:
        (ready,) = broker.wait_for_lines(1, start="ready ")
        inside, outside = (word.rpartition(":")[2] for word in ready.split()[1:])
        assert hosts_told(f"127.0.0.1:{inside}") == ["kohort"]
        assert hosts_told(f"127.0.0.1:{outside}") == ["kafka.example"]
        assert "  clients of OUTSIDE are told to connect to kafka.example:9094 (advertised.listeners)" in broker.lines
        assert broker.end() == 0
