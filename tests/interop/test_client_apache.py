"""Our consumer, producer and admin client against a real Apache Kafka 4.3.

The scenarios are those that our own broker has to pass; what is here beside them is what only Apache Kafka can show.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

import kohort
from kohort import Consumer
from kohort.assign.assignors import built_in
from kohort.errors import UnsupportedFeatureError
from support.peers.apache_broker import ApacheKafka
from support.peers.lossy_proxy import LossyProxy
from support.scenarios import client_scenarios, transaction_scenarios, transform_scenarios
from support.scenarios.client_scenarios import BROKER_CONFIG, group_options, new_topic, poll_until, send_values
from support.scenarios.client_suite import ClientSuite
from support.scenarios.matrix import ApacheBroker, Case, cases, members_go_on, opened
from support.scenarios.mixed_scenarios import java_member_shares, neighbours, python_member_shares

pytestmark = [pytest.mark.interop, pytest.mark.apache]


@pytest.fixture(scope="module")
def place() -> Iterator[ApacheBroker]:
    """One broker for nearly the whole file; each scenario has topics and groups of its own."""
    with opened(ApacheBroker) as made:
        yield made


@pytest.fixture(scope="module")
def proxy() -> Iterator[LossyProxy]:
    """In front of the broker that is left of an older time."""
    with LossyProxy() as made:
        yield made


@pytest.fixture(scope="module")
def old_kafka(proxy: LossyProxy) -> Iterator[ApacheKafka]:
    """A broker without KIP-848 that creates no topics by itself, behind a proxy."""
    config = {
        **BROKER_CONFIG,
        "auto.create.topics.enable": "false",
        "group.coordinator.rebalance.protocols": "classic",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}",
    }
    broker = ApacheKafka(config)
    proxy.target_port = broker.port
    with broker:
        yield broker


@pytest.fixture
def address(place: ApacheBroker) -> str:
    """HOST:PORT of that broker."""
    return place.bootstrap_servers


@pytest.fixture
def restart(place: ApacheBroker) -> Callable[[], None]:
    """Stops that broker and starts it on its data."""
    return lambda: place.happen("restart", "", "")


@pytest.fixture
def splitting(place: ApacheBroker) -> LossyProxy:
    """In front of that broker."""
    return place.proxy


@pytest.fixture
def strict_address(old_kafka: ApacheKafka) -> str:
    """HOST:PORT of the other broker."""
    return old_kafka.bootstrap_servers


class TestClientsOnApacheKafka(ClientSuite):
    """Everything that our clients do anywhere."""


@pytest.mark.parametrize(("ours", "theirs"), [("consumer", "classic"), ("classic", "consumer")])
def test_members_of_both_protocols_share_a_group(address: str, ours: str, theirs: str) -> None:
    """KIP-848's migration: the coordinator translates between a classic and a consumer member."""
    client_scenarios.mixed_members_share(address, ours, theirs)


@pytest.mark.timeout(180)
@pytest.mark.parametrize("case", cases(ApacheBroker), ids=str)
def test_members_go_on_at_apache_kafka(place: ApacheBroker, case: Case) -> None:
    """The matrix of what may happen to a broker and its topics: see `test_client_matrix`."""
    members_go_on(place, case)


@pytest.mark.parametrize("client", neighbours("python", "Apache"))
def test_python_clients_share_a_group_with_ours_at_apache_kafka(address: str, client: str) -> None:
    """kafka-python, aiokafka."""
    python_member_shares(address, client)


@pytest.mark.parametrize("assignor", neighbours("java", "Apache"))
def test_java_shares_a_group_with_ours_at_apache_kafka(address: str, assignor: str) -> None:
    """Kafka's own consumer."""
    java_member_shares(address, assignor)


def test_transactions_of_apache_kafka(address: str) -> None:
    """KIP-890: each transaction has an epoch of its own, and its batches add the partitions."""
    transaction_scenarios.whole(address)
    transform_scenarios.whole(address)


def test_transactions_by_the_older_flow(strict_address: str) -> None:
    """KIP-98: partitions and groups are added before anything is written."""
    with kohort.Admin(bootstrap_servers=strict_address) as admin:
        admin.update_features({"transaction.version": 1}, downgrade="safe")
    transaction_scenarios.whole(strict_address, group_protocol="classic")
    transform_scenarios.whole(strict_address, group_protocol="classic")


def test_history_and_moves_of_a_group_are_had_of_kohorts_broker_only(address: str) -> None:
    with kohort.Admin(bootstrap_servers=address) as admin:
        with pytest.raises(UnsupportedFeatureError, match="only kohort's broker keeps a history"):
            admin.group_history("anybody")
        with pytest.raises(UnsupportedFeatureError, match="only kohort's broker moves partitions on request"):
            admin.switch_partition("anybody", kohort.TopicPartition("t", 0), "somebody")


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_static_groups_are_had_of_kohorts_broker_only(address: str, protocol: str) -> None:
    """Members that ask for one are members as always: Kafka skips tagged fields that it does not know."""
    group = client_scenarios.fresh("named")
    options = group_options(address, group, protocol)
    with (
        kohort.Admin(bootstrap_servers=address) as admin,
        new_topic(address, "named") as topic,
        Consumer(**options, member_name="till-7", registration_timeout_ms=60_000, expansion_timeout_ms=0) as consumer,
    ):
        consumer.subscribe([topic])
        client_scenarios.wait_until(lambda: bool(consumer.assignment()), "an assignment", consumer)
        assert [row.instance_id for row in admin.describe_group(group).members] == ["till-7"]
        for call in (admin.enable_static_membership, admin.enable_dynamic_membership, admin.force_rebalance):
            saying = "only kohort's broker keeps static groups: the coordinator is Apache Kafka 4.3 and has no "
            with pytest.raises(UnsupportedFeatureError, match=saying):
                call(group)
        assert not admin.describe_group(group).is_static


def test_assignors_in_members_are_had_of_kohorts_broker_only(address: str) -> None:
    """The member leaves and says why: Kafka would skip what it says and compute by itself."""
    options = group_options(address, client_scenarios.fresh("mine"), "consumer")
    with (
        new_topic(address, "mine") as topic,
        Consumer(**options, group_local_assignors=built_in("uniform")) as consumer,
    ):
        consumer.subscribe([topic])
        with pytest.raises(UnsupportedFeatureError, match="are of kohort's brokers, and this is none"):
            client_scenarios.wait_until(lambda: bool(consumer.assignment()), "a refusal", consumer)
        assert not consumer.assignment()


def test_metadata_are_published_at_kohorts_broker_only(address: str) -> None:
    """The consumer reads on: what it wanted to say is said to nobody."""
    options = group_options(address, client_scenarios.fresh("said"), "consumer")
    with new_topic(address, "said") as topic, Consumer(**options) as consumer:
        consumer.subscribe([topic])
        client_scenarios.wait_until(lambda: bool(consumer.assignment()), "an assignment", consumer)
        consumer.publish(b"anything")
        with pytest.raises(UnsupportedFeatureError, match="Apache Kafka has none"):
            client_scenarios.wait_until(lambda: False, "a refusal", consumer)
        assert consumer.poll(0.5) == [] and consumer.assignment()


def test_broker_without_kip_848_gets_classic_members(old_kafka: ApacheKafka, caplog: pytest.LogCaptureFixture) -> None:
    """group.protocol=consumer falls back, with one line of warning for as long as the consumer lives."""
    address = old_kafka.bootstrap_servers
    options = {**group_options(address, "old", "consumer"), "auto_offset_reset": "earliest"}
    with (
        caplog.at_level(logging.WARNING, "kohort"),
        new_topic(address, "old") as topic,
        Consumer(**options) as consumer,
    ):
        for value in (b"one", b"two"):
            send_values(address, topic, [value])
            consumer.subscribe([topic])
            assert [record.value for record in poll_until(consumer, 1)] == [value]
            consumer.unsubscribe()
        assert [record.levelname for record in caplog.records] == ["WARNING"]
        assert "KIP-848" in caplog.text and "classic" in caplog.text


def test_the_console_says_that_there_is_no_history(address: str) -> None:
    """Members, offsets and lag are there all the same, and a change that only kohort's brokers know is refused."""
    for package in ("starlette", "uvicorn", "jinja2"):
        pytest.importorskip(package)
    from kohort.console import changes, pages
    from kohort.console.reader import ClusterReader

    threads = ThreadPoolExecutor(2)
    with new_topic(address, "watched") as topic:
        reader = ClusterReader({"bootstrap.servers": address}, threads)
        reader.admin.alter_group_offsets("watched", {kohort.TopicPartition(topic, 0): 0})
        group = asyncio.run(pages.group(reader, {"id": "watched"}))
        assert (group["has_history"], group["picture"], group["offsets"][0]["committed"]) == (False, None, 0)
        with pytest.raises(pages.PageError, match="keeps no history"):
            asyncio.run(pages.rebalance(reader, {"group": "watched", "number": "1"}))
        asked = {"kind": "move", "group": "watched", "topic": topic, "partition": "0", "member": "a"}
        with pytest.raises(UnsupportedFeatureError):
            changes.find_change(asked).carry_out(reader.admin, asked, False)
    reader.close()
    threads.shutdown()
