"""What tools ask of a cluster, answered by one broker: all configs at once, sizes, elections, moves, the quorum."""

from __future__ import annotations

from pathlib import Path

import pytest

import kohort
from kohort.broker.embedded import Broker
from kohort.broker.limits.memory import memory_limit_bytes
from kohort.errors import ErrorCode, KohortError
from kohort.wire.messages.alter_configs import AlterableConfig, AlterConfigsRequest, AlterConfigsResource
from kohort.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kohort.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from kohort.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from kohort.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kohort.wire.messages.list_partition_reassignments import ListPartitionReassignmentsRequest
from kohort.wire.registry import VERSIONS, ApiKey
from support.dialogues.broker_wire import RawClient

TOPIC, BROKER, GROUP = 2, 4, 32


def alter(
    client: RawClient, kind: int, name: str, validate_only: bool = False, version: int = 2, **configs: str | None
) -> int:
    """Give a resource exactly these configs; the error."""
    rows = [AlterableConfig(name=key.replace("_", "."), value=value) for key, value in configs.items()]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    request = AlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (row,) = client.ask(ApiKey.ALTER_CONFIGS, version, request).responses
    assert (row.resource_type, row.resource_name) == (kind, name)
    code: int = row.error_code
    return code


def own_configs(broker: Broker, kind: str, name: str) -> dict[str, str | None]:
    """What a resource was set to."""
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        (found,) = admin.describe_configs([(kind, name)]).values()
        return {entry.name: entry.value for entry in found if not entry.is_default}


def partition_counts(broker: Broker) -> dict[str, int]:
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        return {topic.name: topic.partition_count for topic in admin.list_topics()}


@pytest.mark.parametrize("version", range(VERSIONS[ApiKey.ALTER_CONFIGS][1] + 1))
def test_all_configs_of_a_topic_are_replaced(broker: Broker, client: RawClient, version: int) -> None:
    client.create_topic("t", retention_ms="5", flush_messages="7")
    nothing = alter(client, TOPIC, "t", version=version, segment_bytes="1000000", flush_ms=None)
    assert nothing == ErrorCode.INVALID_REQUEST
    assert own_configs(broker, "topic", "t") == {"retention.ms": "5", "flush.messages": "7"}
    assert alter(client, TOPIC, "t", version=version, segment_bytes="1000000") == 0
    assert own_configs(broker, "topic", "t") == {"segment.bytes": "1000000"}
    assert alter(client, TOPIC, "t", version=version) == 0
    assert own_configs(broker, "topic", "t") == {}


def test_a_set_with_one_mistake_or_only_to_be_checked_changes_nothing(broker: Broker, client: RawClient) -> None:
    client.create_topic("t", retention_ms="5")
    assert alter(client, TOPIC, "t", segment_bytes="1000000", retention_ms="x") == ErrorCode.INVALID_CONFIG
    assert alter(client, TOPIC, "t", True, segment_bytes="1000000") == 0
    assert alter(client, TOPIC, "unknown", segment_bytes="1000000") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert alter(client, TOPIC, "unknown", True) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert own_configs(broker, "topic", "t") == {"retention.ms": "5"}
    both = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[])
    answer = client.ask(ApiKey.ALTER_CONFIGS, 2, AlterConfigsRequest(resources=[both, both]))
    assert [row.error_code for row in answer.responses] == [ErrorCode.INVALID_REQUEST] * 2


def test_all_configs_of_a_group_are_replaced(broker: Broker, client: RawClient) -> None:
    assert alter(client, GROUP, "g", consumer_session_timeout_ms="50000", group_assignor_imbalance="2") == 0
    assert alter(client, GROUP, "g", consumer_session_timeout_ms="46000") == 0
    assert own_configs(broker, "group", "g") == {"consumer.session.timeout.ms": "46000"}


class TestConfigsOfTheBroker:
    @pytest.fixture
    def broker_config(self) -> dict[str, object]:
        return {"num.partitions": 2, "message.max.bytes": 1000}

    def test_they_are_in_force_at_once(self, broker: Broker, client: RawClient) -> None:
        client.create_topic("plain")
        client.create_topic("own", max_message_bytes="500")
        assert client.produce("plain", bytes(2000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        assert alter(client, BROKER, "1", message_max_bytes="4000", num_partitions="5") == 0
        assert client.produce("plain", bytes(2000)).error_code == 0
        assert client.produce("own", bytes(2000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
        client.create_topic("many", partitions=-1)
        assert partition_counts(broker)["many"] == 5

        assert alter(client, BROKER, "") == 0
        assert client.produce("plain", bytes(2000)).error_code == ErrorCode.MESSAGE_TOO_LARGE

    def test_what_only_a_start_can_set_is_refused(self, client: RawClient) -> None:
        assert alter(client, BROKER, "1", node_id="5") == ErrorCode.INVALID_REQUEST
        assert alter(client, BROKER, "1", message_max_bytes="x") == ErrorCode.INVALID_CONFIG
        assert alter(client, BROKER, "7", message_max_bytes="5") == ErrorCode.INVALID_REQUEST
        assert alter(client, BROKER, "1", True, message_max_bytes="4000") == 0
        client.create_topic("t")
        assert client.produce("t", bytes(2000)).error_code == ErrorCode.MESSAGE_TOO_LARGE


def test_configs_of_the_broker_outlive_it(tmp_path: Path) -> None:
    with Broker(data_dir=tmp_path) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.create_topic("t")
        admin.alter_configs([("broker", "1")], {"log.retention.ms": "5000"})
        admin.alter_configs([("broker", "1")], {"num.partitions": "3"})
    with Broker(data_dir=tmp_path) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        of_broker, of_topic = admin.describe_configs([("broker", "1"), ("topic", "t")]).values()
        found = {entry.name: entry for entry in of_broker}
        assert (found["log.retention.ms"].value, found["num.partitions"].value) == ("5000", "3")
        assert {entry.name: entry.value for entry in of_topic}["retention.ms"] == "5000"
        with RawClient(broker.port) as client:
            client.create_topic("many", partitions=-1)
        assert partition_counts(broker)["many"] == 3


@pytest.mark.parametrize(
    "version", range(VERSIONS[ApiKey.DESCRIBE_LOG_DIRS][0], VERSIONS[ApiKey.DESCRIBE_LOG_DIRS][1] + 1)
)
def test_sizes_of_partitions_and_of_the_volume(tmp_path: Path, version: int) -> None:
    with Broker(data_dir=tmp_path) as broker, RawClient(broker.port) as client:
        client.create_topic("t", partitions=3)
        client.produce("t", bytes(1000), partition=1)
        asked = [
            DescribableLogDirTopic(topic="t", partitions=[1, 2, 1, 9]),
            DescribableLogDirTopic(topic="missing", partitions=[0]),
        ]
        (found,) = client.ask(ApiKey.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=asked)).results
        assert (found.error_code, found.log_dir) == (0, str(tmp_path))
        (topic,) = found.topics
        assert [(row.partition_index, row.partition_size > 1000) for row in topic.partitions] == [(1, True), (2, False)]
        if version >= 4:
            assert 0 < found.usable_bytes <= found.total_bytes
        (everything,) = client.ask(ApiKey.DESCRIBE_LOG_DIRS, version, DescribeLogDirsRequest(topics=None)).results
        assert {(row.name, len(row.partitions)) for row in everything.topics} >= {("t", 3), ("__consumer_offsets", 4)}


def test_the_size_of_memory_is_what_records_may_take(client: RawClient) -> None:
    (found,) = client.ask(ApiKey.DESCRIBE_LOG_DIRS, 4, DescribeLogDirsRequest(topics=[])).results
    assert found.topics == []
    assert 0 < found.usable_bytes < found.total_bytes == memory_limit_bytes(None)


@pytest.mark.parametrize("version", range(3))
def test_no_election_is_needed(client: RawClient, version: int) -> None:
    client.create_topic("t", partitions=2)
    asked = [TopicPartitions(topic="t", partitions=[0, 1, 0, 5]), TopicPartitions(topic="missing", partitions=[0])]
    answer = client.ask(ApiKey.ELECT_LEADERS, version, ElectLeadersRequest(topic_partitions=asked))
    assert [
        (row.topic, [(each.partition_id, each.error_code) for each in row.partition_result])
        for row in answer.replica_election_results
    ] == [
        (
            "t",
            [
                (0, ErrorCode.ELECTION_NOT_NEEDED),
                (1, ErrorCode.ELECTION_NOT_NEEDED),
                (5, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ],
        ),
        ("missing", [(0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
    ]
    everything = client.ask(ApiKey.ELECT_LEADERS, version, ElectLeadersRequest(topic_partitions=None))
    assert everything.replica_election_results == []


@pytest.mark.parametrize("version", range(2))
def test_partitions_stay_where_they_are(client: RawClient, version: int) -> None:
    client.create_topic("t")
    wanted: list[tuple[str, int, list[int] | None]] = [
        ("t", 0, [1]),
        ("t", 0, [2]),
        ("t", 0, [1, 2]),
        ("t", 0, []),
        ("t", 0, None),
        ("t", 4, [1]),
        ("missing", 0, [1]),
    ]
    rows = [
        ReassignableTopic(name=name, partitions=[ReassignablePartition(partition_index=number, replicas=replicas)])
        for name, number, replicas in wanted
    ]
    answer = client.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, version, AlterPartitionReassignmentsRequest(topics=rows))
    assert [row.partitions[0].error_code for row in answer.responses] == [
        0,
        *[ErrorCode.INVALID_REPLICA_ASSIGNMENT] * 3,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        *[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2,
    ]
    assert "broker 1" in answer.responses[1].partitions[0].error_message
    listed = client.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, ListPartitionReassignmentsRequest())
    assert (listed.error_code, listed.topics) == (0, [])


@pytest.mark.parametrize("version", range(3))
def test_the_quorum_is_this_broker(broker: Broker, client: RawClient, version: int) -> None:
    asked = [
        TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)]),
        TopicData(topic_name="t", partitions=[PartitionData(partition_index=0)]),
    ]
    answer = client.ask(ApiKey.DESCRIBE_QUORUM, version, DescribeQuorumRequest(topics=asked))
    (metadata,), (other,) = (topic.partitions for topic in answer.topics)
    assert (metadata.error_code, metadata.leader_id, metadata.observers) == (0, 1, [])
    (voter,) = metadata.current_voters
    assert (voter.replica_id, voter.log_end_offset) == (1, metadata.high_watermark)
    assert other.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    if version >= 2:
        (node,) = answer.nodes
        assert [(each.host, each.port) for each in node.listeners] == [("127.0.0.1", broker.port)]


@pytest.mark.parametrize("name", ["a.b", "a_b", "a.b.c_d"])
def test_names_that_differ_in_dots_and_underscores_only_are_refused(client: RawClient, name: str) -> None:
    """Kafka's metrics have the same name for both."""
    client.create_topic(name)
    alike = name.translate(str.maketrans("._", "_."))
    with kohort.Admin(bootstrap_servers=f"127.0.0.1:{client.socket.getpeername()[1]}") as admin:
        with pytest.raises(KohortError, match=f"Topic '{alike}' collides with existing topic: {name}"):
            admin.create_topic(alike)
        with pytest.raises(KohortError, match=rf"Topic '{name}' already exists\."):
            admin.create_topic(name)
        admin.delete_topics([name])
        admin.create_topic(alike)
