"""Which configs a topic may have: the same answers as Apache Kafka 4.3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

import kohort
from kohort.losswindow import LossWindow
from kohort.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.registry import ApiKey
from support.apache_broker import ApacheKafka
from support.broker_wire import RawClient
from support.cli import run_kohort

pytestmark = [pytest.mark.interop, pytest.mark.apache]

VALUES = {
    "cleanup.policy": ["", "compact", "compact,delete", "compakt", "Compact", "none"],
    "compression.gzip.level": ["0", "-1", "1", "9", "10"],
    "compression.lz4.level": ["0", "17"],
    "compression.type": ["none", "uncompressed", "GZIP", "producer", "lz5"],
    "compression.zstd.level": ["23"],
    "delete.retention.ms": ["-1"],
    "file.delete.delay.ms": ["-1"],
    "flush.messages": ["0", "1"],
    "flush.ms": ["-1", "0"],
    "follower.replication.throttled.replicas": ["0:1,1:2"],
    "index.interval.bytes": ["-1", "0"],
    "leader.replication.throttled.replicas": ["", "*", "0:1", "abc", "none"],
    "local.retention.ms": ["-3", "-2", "-1", "99999999999"],
    "max.compaction.lag.ms": ["0", "1"],
    "max.message.bytes": ["-1", "0"],
    "message.format.version": ["3.0"],
    "message.timestamp.after.max.ms": ["-1"],
    "message.timestamp.type": ["createtime", "CreateTime"],
    "min.cleanable.dirty.ratio": ["1.5", "0", "x"],
    "min.compaction.lag.ms": ["-1"],
    "min.insync.replicas": ["0", "1", "2"],
    "preallocate": ["yes", "TRUE"],
    "remote.log.copy.disable": ["true"],
    "remote.storage.enable": ["true", "false"],
    "retention.bytes": ["-1", "0"],
    "retention.ms": ["-2", "-1", " 5 ", "1e3"],
    "segment.index.bytes": ["0", "4"],
    "segment.jitter.ms": ["-1"],
    "segment.ms": ["0", "1"],
    "unclean.leader.election.enable": ["true"],
}


def codes(port: int) -> dict[tuple[str, str], int]:
    """(config, value) -> the answer to a topic that has it; nothing is created."""
    answers = {}
    with RawClient(port) as client:
        for name, value in ((name, value) for name, values in VALUES.items() for value in values):
            config = CreatableTopicConfig(name=name, value=value)
            topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[config])
            request = CreateTopicsRequest(topics=[topic], validate_only=True, timeout_ms=30_000)
            answers[name, value] = client.ask(ApiKey.CREATE_TOPICS, 7, request).topics[0].error_code
    return answers


@pytest.fixture(scope="module")
def apache() -> Iterator[ApacheKafka]:
    with ApacheKafka() as broker:
        yield broker


def test_values_are_taken_and_refused_as_by_apache_kafka(apache: ApacheKafka) -> None:
    with kohort.Broker() as ours:
        assert codes(ours.port) == codes(apache.port)


def test_what_a_power_cut_may_take_is_told_of_topics_of_apache_kafka(apache: ApacheKafka) -> None:
    limits = {"flush.messages": 500, "flush.ms": 1_500}
    with kohort.Admin(bootstrap_servers=apache.bootstrap_servers) as admin:
        admin.create_topics(["plain", kohort.NewTopic("synced", configs={"flush.messages": 1})])
        admin.create_topic("some", configs=limits)
        windows = [topic.loss_window for topic in admin.describe_topics(["plain", "synced", "some"])]
    assert windows == [LossWindow(None, None), None, LossWindow(500, 1_500)]
    told = run_kohort("topic", "describe", "plain", "--bootstrap", apache.bootstrap_servers).out.splitlines()
    assert told[1].endswith("a power cut may take whatever the system has not written yet")
