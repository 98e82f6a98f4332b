"""Our consumer, producer and admin client against a real Apache Kafka 4.3.

The scenarios are those that our own broker has to pass; what is here beside them is what only Apache Kafka can show.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from kohort import Consumer
from support import admin_scenarios, client_data_scenarios, client_scenarios
from support.apache_broker import ApacheKafka, free_port
from support.client_scenarios import BROKER_CONFIG, PROTOCOLS, group_options, new_topic, poll_until, send_values
from support.lossy_proxy import LossyProxy

pytestmark = [pytest.mark.interop, pytest.mark.apache]

both_protocols = pytest.mark.parametrize("protocol", PROTOCOLS)


@pytest.fixture(scope="module")
def quick_java() -> Iterator[None]:
    """A JVM that lives for a minute starts twice as fast if it does not optimise for hours."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JDK_JAVA_OPTIONS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
        yield


@pytest.fixture(scope="module")
def formatted(quick_java: None, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The data directory of a broker that has never run; both brokers start from a copy."""
    blank = ApacheKafka(directory=str(tmp_path_factory.mktemp("blank")))
    blank.format()
    return blank.directory / "logs"


@pytest.fixture(scope="module")
def kafka(formatted: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ApacheKafka]:
    """One broker for nearly the whole file; each scenario has topics and groups of its own."""
    broker = ApacheKafka(BROKER_CONFIG, directory=str(tmp_path_factory.mktemp("kafka")))
    shutil.copytree(formatted, broker.directory / "logs")
    with broker:
        yield broker


@pytest.fixture(scope="module")
def proxy() -> Iterator[LossyProxy]:
    """In front of the broker that is left of an older time."""
    with LossyProxy() as made:
        yield made


@pytest.fixture(scope="module")
def old_kafka(formatted: Path, tmp_path_factory: pytest.TempPathFactory, proxy: LossyProxy) -> Iterator[ApacheKafka]:
    """A broker without KIP-848 that creates no topics by itself, behind a proxy."""
    config = {
        **BROKER_CONFIG,
        "auto.create.topics.enable": "false",
        "group.coordinator.rebalance.protocols": "classic",
        "advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}",
    }
    broker = ApacheKafka(config, directory=str(tmp_path_factory.mktemp("old-kafka")))
    shutil.copytree(formatted, broker.directory / "logs")
    proxy.target_port = broker.port
    with broker:
        yield broker


@pytest.fixture
def address(kafka: ApacheKafka) -> str:
    """HOST:PORT of that broker."""
    return kafka.bootstrap_servers


@both_protocols
def test_members_join_leave_and_vanish(address: str, protocol: str) -> None:
    """Three members share six partitions; one joins, one leaves, one falls silent, one is killed."""
    client_scenarios.members_join_leave_and_vanish(address, protocol)


@both_protocols
def test_our_members_and_confluent_ones_share_a_group(address: str, protocol: str) -> None:
    """Both speak the same protocol."""
    client_scenarios.mixed_members_share(address, protocol, protocol)


@both_protocols
def test_callbacks_follow_the_assignment(address: str, protocol: str) -> None:
    """assigned, revoked: in that order, with what moves."""
    client_scenarios.callbacks_follow_the_assignment(address, protocol)


@both_protocols
def test_slow_application_is_left_behind(address: str, protocol: str) -> None:
    """lost: after max.poll.interval.ms without a poll."""
    client_scenarios.slow_application_is_left_behind(address, protocol)


@both_protocols
def test_offsets_are_committed_and_sought(address: str, protocol: str) -> None:
    """commit, committed, position, seek."""
    client_scenarios.offsets_are_committed_and_sought(address, protocol)


@both_protocols
def test_progress_is_committed_by_itself(address: str, protocol: str) -> None:
    """enable.auto.commit."""
    client_scenarios.progress_is_committed_by_itself(address, protocol)


def test_partitions_are_assigned_by_hand(address: str) -> None:
    """assign."""
    client_scenarios.partitions_are_assigned_by_hand(address)


def test_reset_decides_where_to_start(address: str) -> None:
    """auto.offset.reset."""
    client_scenarios.reset_decides_where_to_start(address)


def test_our_records_are_read_by_others(address: str) -> None:
    """Codecs, acks, headers, tombstones."""
    client_data_scenarios.our_records_are_read_by_others(address)


def test_records_of_others_are_read(address: str) -> None:
    """Codecs of confluent-kafka, by poll and poll_arrow."""
    client_data_scenarios.records_of_others_are_read(address)


def test_keys_go_where_java_puts_them(address: str) -> None:
    """The partitioner."""
    client_data_scenarios.keys_go_where_java_puts_them(address)


def test_records_without_key_reach_every_partition(address: str) -> None:
    """The partitioner without keys."""
    client_data_scenarios.records_without_key_reach_every_partition(address)


def test_missing_topic_is_created_by_sending(address: str) -> None:
    """auto.create.topics.enable."""
    client_data_scenarios.missing_topic_is_created_by_sending(address)


def test_refused_records_say_why(address: str) -> None:
    """Refusals of the broker and of our own."""
    client_data_scenarios.refused_records_say_why(address)


def test_wrong_address_is_named() -> None:
    """Nobody listens."""
    client_data_scenarios.wrong_address_is_named(free_port())


def test_topics_are_made_grown_and_deleted(address: str) -> None:
    """Admin: topics."""
    admin_scenarios.topics_are_made_grown_and_deleted(address)


@both_protocols
def test_groups_are_listed_and_described(address: str, protocol: str) -> None:
    """Admin: groups."""
    admin_scenarios.groups_are_listed_and_described(address, protocol)


def test_offsets_of_a_group_without_members(address: str) -> None:
    """Admin: offsets."""
    admin_scenarios.offsets_of_a_group_without_members(address)


def test_cluster_is_described(address: str) -> None:
    """Admin: the cluster."""
    admin_scenarios.cluster_is_described(address)


@pytest.mark.parametrize(("ours", "theirs"), [("consumer", "classic"), ("classic", "consumer")])
def test_members_of_both_protocols_share_a_group(address: str, ours: str, theirs: str) -> None:
    """KIP-848's migration: the coordinator translates between a classic and a consumer member."""
    client_scenarios.mixed_members_share(address, ours, theirs)


def test_groups_outlive_their_coordinator(kafka: ApacheKafka) -> None:
    """A restart of the broker on its data."""

    def restart() -> None:
        kafka.stop()
        kafka.start()

    client_scenarios.groups_outlive_their_coordinator(kafka.bootstrap_servers, restart)


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


def test_missing_topic_is_named(old_kafka: ApacheKafka) -> None:
    """Nothing is created by itself."""
    client_data_scenarios.missing_topic_is_named(old_kafka.bootstrap_servers)


def test_lost_answers_double_nothing(old_kafka: ApacheKafka, proxy: LossyProxy) -> None:
    """The idempotent producer and a connection that breaks."""
    client_data_scenarios.lost_answers_double_nothing(old_kafka.bootstrap_servers, proxy)
