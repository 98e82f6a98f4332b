"""Which configs a topic may have: the same answers as Apache Kafka 4.3."""

from __future__ import annotations

import pytest

import kohort
from kohort.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.registry import ApiKey
from support.apache_broker import ApacheKafka
from support.broker_wire import RawClient

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


def test_values_are_taken_and_refused_as_by_apache_kafka() -> None:
    with ApacheKafka() as apache, kohort.Broker() as ours:
        assert codes(ours.port) == codes(apache.port)
