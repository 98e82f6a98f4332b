"""Metadata, topics and configs as bytes on the wire."""

from __future__ import annotations

import pytest

from kohort.broker.embedded import Broker
from kohort.errors import ErrorCode
from kohort.ids import OFFSETS_TOPIC
from kohort.wire.messages.api_versions import ApiVersionsRequest
from kohort.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from kohort.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from kohort.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from kohort.wire.messages.describe_cluster import DescribeClusterRequest
from kohort.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kohort.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest
from kohort.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from kohort.wire.private import PrivateApiKey
from kohort.wire.registry import SERVED, VERSIONS, ApiKey
from support.dialogues.broker_wire import RawClient

TOPIC, BROKER, GROUP = 2, 4, 32


def versions(key: ApiKey) -> range:
    return range(VERSIONS[key][0], VERSIONS[key][1] + 1)


def metadata_of(client: RawClient, *names: str, version: int = 12, may_create: bool = False) -> list[object]:
    """(error, name) of each topic asked for."""
    request = MetadataRequest(
        topics=[MetadataRequestTopic(name=name) for name in names], allow_auto_topic_creation=may_create
    )
    return [(topic.error_code, topic.name) for topic in client.ask(ApiKey.METADATA, version, request).topics]


# ---- what the broker speaks


@pytest.mark.parametrize("software", ["kohort", "librdkafka", ""])
def test_apis_of_our_own_are_told_to_kohorts_clients_alone(client: RawClient, software: str) -> None:
    """KIP-511: a client names its software, from version 3 on."""
    request = ApiVersionsRequest(client_software_name=software, client_software_version="1")
    for version in versions(ApiKey.API_VERSIONS):
        told = {row.api_key for row in client.ask(ApiKey.API_VERSIONS, version, request).api_keys}
        own = set(PrivateApiKey) if software == "kohort" and version >= 3 else set()
        assert told == set(SERVED) | own


@pytest.mark.parametrize("version", versions(ApiKey.API_VERSIONS))
def test_api_versions_tells_every_api_and_the_features_that_are_on(client: RawClient, version: int) -> None:
    answer = client.ask(ApiKey.API_VERSIONS, version, ApiVersionsRequest())
    rows = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}
    assert set(rows) == set(SERVED)
    # librdkafka switches features off unless Produce is announced from version 0.
    assert rows[ApiKey.PRODUCE] == (0, 13)
    assert rows[ApiKey.FETCH] == (4, 18)
    if version >= 3:
        levels = {feature.name: feature.max_version_level for feature in answer.finalized_features}
        assert levels == {"group.version": 1, "transaction.version": 2}
        assert answer.finalized_features_epoch >= 0
        # A lowest level of 0 breaks clients before version 4 (KAFKA-17011).
        assert [row.min_version for row in answer.supported_features] == ([0, 0] if version >= 4 else [])


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_this_node_coordinates_every_group(broker: Broker, client: RawClient, version: int) -> None:
    request = FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=["g", "h"])
    answer = client.ask(ApiKey.FIND_COORDINATOR, version, request)
    found = answer.coordinators if version >= 4 else [answer]
    assert [(row.error_code, row.node_id, row.host, row.port) for row in found] == [
        (0, 1, "127.0.0.1", broker.port)
    ] * len(found)
    assert [row.key for row in answer.coordinators] == (["g", "h"] if version >= 4 else [])


def test_this_node_coordinates_every_transaction(broker: Broker, client: RawClient) -> None:
    """The first one to ask has the topic made."""
    request = FindCoordinatorRequest(key_type=1, coordinator_keys=["x", "y"])
    for row in client.ask(ApiKey.FIND_COORDINATOR, 4, request).coordinators:
        assert (row.error_code, row.node_id, row.port) == (0, 1, broker.port)


def test_coordinators_of_other_kinds_are_refused_for_good(client: RawClient) -> None:
    request = FindCoordinatorRequest(key_type=2, coordinator_keys=["x"])
    (row,) = client.ask(ApiKey.FIND_COORDINATOR, 4, request).coordinators
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert row.error_message


# ---- metadata


@pytest.mark.parametrize("version", versions(ApiKey.METADATA))
def test_metadata_shows_the_cluster_in_every_version(broker: Broker, client: RawClient, version: int) -> None:
    topic_id = client.create_topic("t", partitions=3)
    answer = client.ask(ApiKey.METADATA, version, MetadataRequest(topics=[] if version == 0 else None))
    assert [(row.node_id, row.host, row.port) for row in answer.brokers] == [(1, "127.0.0.1", broker.port)]
    by_name = {topic.name: topic for topic in answer.topics}
    assert set(by_name) == {"t", OFFSETS_TOPIC}
    assert [(row.partition_index, row.leader_id, row.replica_nodes) for row in by_name["t"].partitions] == [
        (number, 1, [1]) for number in range(3)
    ]
    if version >= 1:
        assert by_name[OFFSETS_TOPIC].is_internal and not by_name["t"].is_internal
        assert answer.controller_id == 1
    if version >= 10:
        assert by_name["t"].topic_id == topic_id


def test_no_topics_asked_for_is_none_answered(client: RawClient) -> None:
    client.create_topic("t")
    assert client.ask(ApiKey.METADATA, 1, MetadataRequest(topics=[])).topics == []


def test_topic_that_is_named_again_and_again_is_answered_once(client: RawClient) -> None:
    """A request of a few bytes a name must not become an answer of all partitions for each of them."""
    client.create_topic("t", partitions=3)
    assert metadata_of(client, "t", "missing", "t", "missing") == [
        (0, "t"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "missing"),
    ]


def test_an_unknown_topic_is_created_if_the_client_wants_it(client: RawClient) -> None:
    assert metadata_of(client, "new") == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "new")]
    assert metadata_of(client, "new", may_create=True) == [(0, "new")]
    assert metadata_of(client, "new") == [(0, "new")]


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "x" * 250, "tön"])
def test_a_name_that_no_topic_can_have_is_refused(client: RawClient, name: str) -> None:
    assert metadata_of(client, name, may_create=True) == [(ErrorCode.INVALID_TOPIC_EXCEPTION, name)]


class TestWithoutAutoCreation:
    @pytest.fixture
    def broker_config(self) -> dict[str, object]:
        return {"auto.create.topics.enable": "false", "num.partitions": 5, "delete.topic.enable": False}

    def test_an_unknown_topic_stays_unknown(self, client: RawClient) -> None:
        assert metadata_of(client, "new", may_create=True) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "new")]
        assert metadata_of(client, "new", version=3) == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "new")]

    def test_minus_one_partitions_is_the_brokers_number(self, client: RawClient) -> None:
        client.create_topic("t", partitions=-1)
        answer = client.ask(ApiKey.METADATA, 1, MetadataRequest(topics=[MetadataRequestTopic(name="t")]))
        assert len(answer.topics[0].partitions) == 5

    def test_deletion_may_be_switched_off(self, client: RawClient) -> None:
        client.create_topic("t")
        answer = client.ask(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(timeout_ms=30_000, topic_names=["t"]))
        assert answer.responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED


def test_topics_are_found_by_id(client: RawClient) -> None:
    topic_id = client.create_topic("t")
    asked = [MetadataRequestTopic(topic_id=each, name=None) for each in (topic_id, b"1" * 16)]
    answer = client.ask(ApiKey.METADATA, 12, MetadataRequest(topics=asked))
    assert {topic.topic_id: (topic.error_code, topic.name) for topic in answer.topics} == {
        topic_id: (0, "t"),
        b"1" * 16: (ErrorCode.UNKNOWN_TOPIC_ID, None),
    }
    too_early = client.ask(ApiKey.METADATA, 10, MetadataRequest(topics=[asked[0]]))
    assert too_early.topics[0].error_code == ErrorCode.INVALID_REQUEST


def rows_by_id(client: RawClient, name: str | None, *topic_ids: bytes) -> list[tuple[int, str | None, bytes]]:
    """(error, name, id) of each row, in their order; `name` is what is said of a topic beside its id."""
    asked = [MetadataRequestTopic(topic_id=each, name=name) for each in topic_ids]
    rows = client.ask(ApiKey.METADATA, 13, MetadataRequest(topics=asked, allow_auto_topic_creation=False)).topics
    return [(row.error_code, row.name, row.topic_id) for row in rows]


def test_deleted_topic_is_refused_under_the_name_that_it_had(client: RawClient) -> None:
    """Java asks by id with an empty name; at a null one its consumer throws, and loses the answer to its heartbeat.

    With Apache Kafka 4.3 that befell a consumer with a pattern in 12 of 12 deletions.
    """
    former = client.create_topic("t")
    client.ask(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(timeout_ms=30_000, topics=[DeleteTopicState(name="t")]))

    assert rows_by_id(client, "", former) == [(ErrorCode.UNKNOWN_TOPIC_ID, "t", former)]
    assert rows_by_id(client, None, former) == [(ErrorCode.UNKNOWN_TOPIC_ID, None, former)], "as librdkafka asks"
    assert rows_by_id(client, "", b"1" * 16) == [(ErrorCode.UNKNOWN_TOPIC_ID, None, b"1" * 16)], "it never was"

    again = client.create_topic("t")
    gone, there = (ErrorCode.UNKNOWN_TOPIC_ID, "t", former), (ErrorCode.NONE, "t", again)
    assert rows_by_id(client, "", again, former) == rows_by_id(client, "", former, again) == [gone, there]


def test_operations_are_told_only_to_those_who_ask(client: RawClient) -> None:
    client.create_topic("t")
    asked = [MetadataRequestTopic(name="t")]
    request = MetadataRequest(
        topics=asked, include_cluster_authorized_operations=True, include_topic_authorized_operations=True
    )
    answer = client.ask(ApiKey.METADATA, 9, request)
    assert answer.cluster_authorized_operations > 0
    assert answer.topics[0].topic_authorized_operations > 0
    silent = client.ask(ApiKey.METADATA, 9, MetadataRequest(topics=asked))
    assert silent.topics[0].topic_authorized_operations == silent.cluster_authorized_operations == -(2**31)


# ---- creating, growing, deleting


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_TOPICS))
def test_topics_are_created_and_only_once(client: RawClient, version: int) -> None:
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    request = CreateTopicsRequest(topics=[topic])
    row = client.ask(ApiKey.CREATE_TOPICS, version, request).topics[0]
    assert row.error_code == 0
    if version >= 5:
        assert (row.num_partitions, row.replication_factor) == (2, 1)
        assert {config.name: config.value for config in row.configs}["flush.messages"] == "1"
    again = client.ask(ApiKey.CREATE_TOPICS, version, request).topics[0]
    assert again.error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_only_validating_creates_nothing(client: RawClient) -> None:
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1)
    answer = client.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic], validate_only=True))
    assert answer.topics[0].error_code == 0
    assert metadata_of(client, "t") == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t")]


@pytest.mark.parametrize(
    ("topic", "code"),
    [
        (CreatableTopic(name="a/b", num_partitions=1, replication_factor=1), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (CreatableTopic(name="t", num_partitions=0, replication_factor=1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic(name="t", num_partitions=2**31 - 1, replication_factor=1), ErrorCode.INVALID_PARTITIONS),
        (CreatableTopic(name="t", num_partitions=1, replication_factor=3), ErrorCode.INVALID_REPLICATION_FACTOR),
        (
            CreatableTopic(
                name="t",
                num_partitions=1,
                replication_factor=1,
                configs=[CreatableTopicConfig(name="retension.ms", value="1")],
            ),
            ErrorCode.INVALID_CONFIG,
        ),
        (
            CreatableTopic(
                name="t",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[9])],
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
        (
            CreatableTopic(
                name="t",
                num_partitions=-1,
                replication_factor=-1,
                assignments=[CreatableReplicaAssignment(partition_index=1, broker_ids=[1])],
            ),
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ),
    ],
)
def test_a_topic_that_cannot_be_is_refused_and_the_others_are_created(
    client: RawClient, topic: CreatableTopic, code: ErrorCode
) -> None:
    good = CreatableTopic(name="good", num_partitions=1, replication_factor=1)
    answer = client.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic, good]))
    assert [row.error_code for row in answer.topics] == [code, 0]
    assert answer.topics[0].error_message


def test_a_misspelt_config_is_told_the_nearest_name(client: RawClient) -> None:
    config = CreatableTopicConfig(name="retension.ms", value="1")
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[config])
    (row,) = client.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic])).topics
    assert "did you mean retention.ms" in row.error_message


def test_one_name_twice_in_a_request_is_refused(client: RawClient) -> None:
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    answer = client.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic, topic]))
    assert [row.error_code for row in answer.topics] == [ErrorCode.INVALID_REQUEST]
    assert metadata_of(client, "t") == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t")]


def test_one_name_twice_is_neither_deleted_nor_grown(client: RawClient) -> None:
    """As by Apache Kafka's controller; the others of the request are."""
    for name in ("t", "u"):
        client.create_topic(name)
    grown = [CreatePartitionsTopic(name=name, count=2, assignments=None) for name in ("t", "t", "u")]
    answer = client.ask(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(timeout_ms=30_000, topics=grown))
    assert [row.error_code for row in answer.results] == [ErrorCode.INVALID_REQUEST, 0]
    deleted = [DeleteTopicState(name=name) for name in ("t", "t", "u")]
    answer = client.ask(ApiKey.DELETE_TOPICS, 6, DeleteTopicsRequest(timeout_ms=30_000, topics=deleted))
    assert [row.error_code for row in answer.responses] == [ErrorCode.INVALID_REQUEST, 0]
    assert metadata_of(client, "t") == [(0, "t")]


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_TOPICS))
def test_topics_are_deleted(client: RawClient, version: int) -> None:
    client.create_topic("t")
    rows = [DeleteTopicState(name=name) for name in ("t", "unknown")]
    request = DeleteTopicsRequest(timeout_ms=30_000, topics=rows, topic_names=["t", "unknown"])
    answer = client.ask(ApiKey.DELETE_TOPICS, version, request)
    assert [row.error_code for row in answer.responses] == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert metadata_of(client, "t") == [(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "t")]


def test_a_topic_is_deleted_by_id_and_comes_back_with_another(client: RawClient) -> None:
    topic_id = client.create_topic("t")
    request = DeleteTopicsRequest(timeout_ms=30_000, topics=[DeleteTopicState(name=None, topic_id=topic_id)])
    assert client.ask(ApiKey.DELETE_TOPICS, 6, request).responses[0].name == "t"
    assert client.create_topic("t") != topic_id
    assert client.ask(ApiKey.DELETE_TOPICS, 6, request).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_the_coordinators_log_cannot_be_deleted_or_grown(client: RawClient) -> None:
    deleted = client.ask(ApiKey.DELETE_TOPICS, 5, DeleteTopicsRequest(timeout_ms=30_000, topic_names=[OFFSETS_TOPIC]))
    assert deleted.responses[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION
    row = CreatePartitionsTopic(name=OFFSETS_TOPIC, count=99, assignments=None)
    grown = client.ask(ApiKey.CREATE_PARTITIONS, 3, CreatePartitionsRequest(timeout_ms=30_000, topics=[row]))
    assert grown.results[0].error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("version", versions(ApiKey.CREATE_PARTITIONS))
def test_topics_grow_and_never_shrink(client: RawClient, version: int) -> None:
    client.create_topic("t", partitions=2)

    def grow(count: int, *, validate_only: bool = False, name: str = "t") -> int:
        row = CreatePartitionsTopic(name=name, count=count, assignments=None)
        request = CreatePartitionsRequest(timeout_ms=30_000, topics=[row], validate_only=validate_only)
        code: int = client.ask(ApiKey.CREATE_PARTITIONS, version, request).results[0].error_code
        return code

    assert grow(4, validate_only=True) == 0
    assert grow(2) == ErrorCode.INVALID_PARTITIONS
    assert grow(4) == 0
    assert grow(3) == ErrorCode.INVALID_PARTITIONS
    assert grow(9, name="unknown") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert client.produce("t", b"x", partition=3).error_code == 0


def test_pages_of_partitions_cover_everything_once(client: RawClient) -> None:
    for name, partitions in (("a", 3), ("b", 2), ("c", 1)):
        client.create_topic(name, partitions=partitions)
    seen: list[tuple[str, int]] = []
    cursor: Cursor | None = None
    for _ in range(10):
        request = DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in "cab"], response_partition_limit=2, cursor=cursor
        )
        answer = client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
        page = [(topic.name, row.partition_index) for topic in answer.topics for row in topic.partitions]
        assert len(page) <= 2
        seen += page
        cursor = answer.next_cursor
        if cursor is None:
            break
    assert seen == [("a", 0), ("a", 1), ("a", 2), ("b", 0), ("b", 1), ("c", 0)]


def test_topics_that_do_not_exist_are_named_with_their_error(client: RawClient) -> None:
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="no"), TopicRequest(name="a/b")])
    answer = client.ask(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, request)
    assert {topic.name: topic.error_code for topic in answer.topics} == {
        "no": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a/b": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CLUSTER))
def test_the_cluster_is_one_broker(broker: Broker, client: RawClient, version: int) -> None:
    answer = client.ask(ApiKey.DESCRIBE_CLUSTER, version, DescribeClusterRequest())
    assert [(row.broker_id, row.port) for row in answer.brokers] == [(1, broker.port)]
    assert len(answer.cluster_id) == 22
    if version >= 1:
        refused = client.ask(ApiKey.DESCRIBE_CLUSTER, version, DescribeClusterRequest(endpoint_type=2))
        assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_the_only_epoch_ends_where_the_log_ends(client: RawClient, version: int) -> None:
    client.create_topic("t")
    client.produce("t", b"a", b"b")
    rows = [OffsetForLeaderPartition(partition=0, leader_epoch=epoch) for epoch in (0, 1)]
    rows.append(OffsetForLeaderPartition(partition=9, leader_epoch=0))
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=rows)])
    answer = client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)
    assert [(row.error_code, row.leader_epoch, row.end_offset) for row in answer.topics[0].partitions] == [
        (0, 0, 2),
        (0, -1, -1),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, -1, -1),
    ]


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_FOR_LEADER_EPOCH))
def test_end_of_an_epoch_is_told_to_who_knows_the_leader(client: RawClient, version: int) -> None:
    """KIP-320: a client with older metadata than the broker's, or newer, looks for the leader first."""
    client.create_topic("t")
    rows = [OffsetForLeaderPartition(partition=0, current_leader_epoch=epoch, leader_epoch=0) for epoch in (-1, 0, 5)]
    request = OffsetForLeaderEpochRequest(topics=[OffsetForLeaderTopic(topic="t", partitions=rows)])
    answer = client.ask(ApiKey.OFFSET_FOR_LEADER_EPOCH, version, request)
    assert [(row.error_code, row.end_offset) for row in answer.topics[0].partitions] == [
        (0, 0),
        (0, 0),
        (ErrorCode.UNKNOWN_LEADER_EPOCH, -1),
    ]


# ---- configs


def describe(
    client: RawClient, kind: int, name: str, *keys: str, version: int = 4, synonyms: bool = False
) -> tuple[int, dict[str, object]]:
    """Error, and config by name."""
    row = DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=list(keys) or None)
    request = DescribeConfigsRequest(resources=[row], include_synonyms=synonyms)
    (answer,) = client.ask(ApiKey.DESCRIBE_CONFIGS, version, request).results
    return answer.error_code, {config.name: config for config in answer.configs}


def alter(client: RawClient, name: str, *changes: tuple[str, int, str | None], kind: int = TOPIC) -> tuple[int, str]:
    """Error and message."""
    rows = [AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes]
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)
    request = IncrementalAlterConfigsRequest(resources=[resource])
    (answer,) = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    return answer.error_code, answer.error_message


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_a_topics_own_configs_are_told_apart_from_defaults(client: RawClient, version: int) -> None:
    client.create_topic("t", flush_messages="10")
    code, configs = describe(client, TOPIC, "t", version=version)
    assert code == 0
    shown = {name: (configs[name].value, configs[name].config_source) for name in ("flush.messages", "segment.bytes")}  # type: ignore[attr-defined]
    assert shown == {"flush.messages": ("10", 1), "segment.bytes": (str(1 << 30), 5)}


def test_only_the_configs_asked_for_are_told(client: RawClient) -> None:
    client.create_topic("t")
    assert set(describe(client, TOPIC, "t", "retention.ms", "no.such")[1]) == {"retention.ms"}


def test_password_of_the_broker_is_shown_to_nobody() -> None:
    """Kafka answers null and marks it as sensitive, whether it is set or not."""
    with Broker(config={"ssl.key.password": "swordfish"}) as broker, RawClient(broker.port) as client:
        _, configs = describe(client, BROKER, "1", synonyms=True)
        for name in ("ssl.key.password", "ssl.keystore.password"):
            row = configs[name]
            assert (row.value, row.is_sensitive, row.config_type) == (None, True, 9)  # type: ignore[attr-defined]
            assert [each.value for each in row.synonyms] == [None]  # type: ignore[attr-defined]
        assert not configs["ssl.keystore.location"].is_sensitive  # type: ignore[attr-defined]
        assert "swordfish" not in repr(configs)
        error, words = alter(client, "1", ("ssl.key.password", 0, "sardine"), kind=BROKER)
        assert error != 0 and "sardine" not in words


def test_configs_of_the_broker_and_of_groups_can_be_seen(client: RawClient) -> None:
    code, configs = describe(client, BROKER, "1")
    assert (code, configs["num.partitions"].value, configs["node.id"].read_only) == (0, "1", True)  # type: ignore[attr-defined]
    assert describe(client, BROKER, "7")[0] == ErrorCode.INVALID_REQUEST
    code, configs = describe(client, GROUP, "g")
    assert (code, configs["consumer.session.timeout.ms"].value) == (0, "45000")  # type: ignore[attr-defined]
    assert describe(client, 16, "1")[0] == ErrorCode.INVALID_REQUEST
    assert describe(client, TOPIC, "unknown")[0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_configs_are_set_added_to_taken_from_and_deleted(client: RawClient) -> None:
    client.create_topic("t")

    def value(name: str) -> object:
        return describe(client, TOPIC, "t")[1][name].value  # type: ignore[attr-defined]

    assert alter(client, "t", ("retention.ms", 0, "5"), ("cleanup.policy", 2, "compact"))[0] == 0
    assert (value("retention.ms"), value("cleanup.policy")) == ("5", "delete,compact")
    assert alter(client, "t", ("retention.ms", 1, None), ("cleanup.policy", 3, "delete"))[0] == 0
    assert (value("retention.ms"), value("cleanup.policy")) == ("604800000", "compact")


def test_a_change_with_one_mistake_changes_nothing(client: RawClient) -> None:
    client.create_topic("t")
    code, text = alter(client, "t", ("retention.ms", 0, "5"), ("retension.ms", 0, "5"))
    assert code == ErrorCode.INVALID_CONFIG and "retention.ms" in text
    assert alter(client, "t", ("retention.ms", 0, "5"), ("segment.bytes", 0, "x"))[0] == ErrorCode.INVALID_CONFIG
    assert alter(client, "t", ("retention.ms", 2, "5"))[0] == ErrorCode.INVALID_CONFIG
    assert alter(client, "t", ("retention.ms", 0, None))[0] == ErrorCode.INVALID_REQUEST
    assert alter(client, "t", ("retention.ms", 9, "1"))[0] == ErrorCode.INVALID_REQUEST
    assert describe(client, TOPIC, "t")[1]["retention.ms"].value == "604800000"  # type: ignore[attr-defined]


def test_configs_that_cannot_be_altered_are_refused_honestly(client: RawClient) -> None:
    code, text = alter(client, "1", ("node.id", 0, "1"), kind=BROKER)
    assert code == ErrorCode.INVALID_REQUEST
    assert text == "Cannot update these configs dynamically: [node.id]; they are settings of the broker's start"


def test_a_changed_limit_holds_at_once(client: RawClient) -> None:
    client.create_topic("t")
    assert alter(client, "t", ("max.message.bytes", 0, "100"))[0] == 0
    assert client.produce("t", bytes(1000)).error_code == ErrorCode.MESSAGE_TOO_LARGE
