"""Configs of topics that change nothing: taken, and said to whoever asks, and in the log."""

from __future__ import annotations

import pytest

from kohort.broker.embedded import Broker
from kohort.client.admin.admin import Admin
from kohort.errors import ErrorCode
from kohort.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kohort.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient

TOPIC = 2


def documentation(client: RawClient, topic: str, *, version: int = 4) -> dict[str, str | None]:
    """Config -> what the broker says of it."""
    row = DescribeConfigsResource(resource_type=TOPIC, resource_name=topic, configuration_keys=None)
    request = DescribeConfigsRequest(resources=[row], include_documentation=True)
    (answer,) = client.ask(ApiKey.DESCRIBE_CONFIGS, version, request).results
    return {config.name: config.documentation for config in answer.configs}


def set_configs(client: RawClient, topic: str, *, validate_only: bool = False, **configs: str) -> int:
    rows = [
        AlterableConfig(name=key.replace("_", "."), config_operation=0, value=value) for key, value in configs.items()
    ]
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=rows)
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    code: int = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses[0].error_code
    return code


def logged(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "event=config_idle" in record.getMessage()]


@pytest.mark.parametrize("version", [3, 4])
def test_documentation_says_which_values_change_nothing(client: RawClient, version: int) -> None:
    client.create_topic("t", retention_ms="5", min_insync_replicas="2", flush_messages="9")
    said = documentation(client, "t", version=version)
    assert str(said["min.insync.replicas"]).startswith("Without effect here. ")
    assert str(said["retention.ms"]).startswith("Age at which segments go")
    assert str(said["flush.messages"]).startswith("Records after which")
    assert str(said["retention.bytes"]).startswith("Size of a partition"), "a default is as true as a value"
    assert str(said["segment.index.bytes"]).startswith("Without effect here. "), "a default can be as idle as a value"


def test_topic_that_came_by_itself_says_the_same_of_its_defaults(client: RawClient) -> None:
    asked = MetadataRequest(topics=[MetadataRequestTopic(name="itself")], allow_auto_topic_creation=True)
    client.ask(ApiKey.METADATA, 12, asked)
    assert str(documentation(client, "itself")["segment.index.bytes"]).startswith("Without effect here. ")


def test_idle_configs_are_one_line_of_the_log(client: RawClient, caplog: pytest.LogCaptureFixture) -> None:
    """CreateTopics has no room for a warning, so a foreign client is not told."""
    client.create_topic("t", preallocate="true", cleanup_policy="compact", flush_messages="9")
    assert logged(caplog) == ["event=config_idle topic=t why='without effect here' configs=preallocate=true"]
    caplog.clear()
    assert set_configs(client, "t", flush_messages="5") == 0
    assert set_configs(client, "t", unclean_leader_election_enable="true", validate_only=True) == 0
    assert logged(caplog) == [], "what was said once is not said again, and what was only asked is not set"
    assert set_configs(client, "t", min_insync_replicas="2") == 0
    assert logged(caplog) == ["event=config_idle topic=t why='without effect here' configs=min.insync.replicas=2"]


@pytest.mark.parametrize(
    "configs",
    [
        {"cleanup.policy": "compakt"},
        {"remote.storage.enable": "true"},
        {"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"},
    ],
)
def test_topic_with_configs_that_kafka_refuses_is_not_created(client: RawClient, configs: dict[str, str]) -> None:
    rows = [CreatableTopicConfig(name=name, value=value) for name, value in configs.items()]
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=rows)
    (row,) = client.ask(ApiKey.CREATE_TOPICS, 7, CreateTopicsRequest(topics=[topic])).topics
    assert row.error_code == ErrorCode.INVALID_CONFIG
    assert all(name in row.error_message for name in configs)


def test_admin_hands_on_what_the_broker_says(broker: Broker) -> None:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        idle = admin.create_topic("t", configs={"preallocate": True, "min.insync.replicas": 2, "flush.messages": 5})
        assert idle == {"preallocate": "without effect here", "min.insync.replicas": "without effect here"}
        assert admin.create_topic("plain") == {}
        values = {"cleanup.policy": ["compact", "delete"], "preallocate": False, "retention.ms": None}
        assert admin.create_topic("values.of.Python", configs=values) == {}
        (python,) = admin.describe_topics(["values.of.Python"])
        assert python.configs == {"cleanup.policy": "compact,delete", "preallocate": "false"}
        (described,) = admin.describe_topics(["t"])
    assert described.idle == idle
    assert described.configs.keys() == {*idle, "flush.messages"}
