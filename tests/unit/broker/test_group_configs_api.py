"""Configs of groups on the wire: set, described, listed, in effect; and what is refused."""

from __future__ import annotations

import pytest

import kohort
from kohort.errors import BrokerError, ErrorCode
from kohort.wire.messages import incremental_alter_configs as altering
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kohort.wire.messages.list_config_resources import ListConfigResourcesRequest
from kohort.wire.registry import VERSIONS, ApiKey
from support.dialogues.broker_wire import RawClient

TOPIC, BROKER, LOGGER, GROUP = 2, 4, 8, 32
#: The longest text that the protocol carries.
LONGEST = 32_767
SET, DELETE, APPEND, SUBTRACT = range(4)
SESSION, INTERVAL = "consumer.session.timeout.ms", "consumer.heartbeat.interval.ms"


def versions(key: ApiKey) -> range:
    return range(VERSIONS[key][0], VERSIONS[key][1] + 1)


def resource(
    *changes: tuple[str, int, str | None], name: str = "g", kind: int = GROUP
) -> altering.AlterConfigsResource:
    rows = [
        altering.AlterableConfig(name=key, config_operation=operation, value=value) for key, operation, value in changes
    ]
    return altering.AlterConfigsResource(resource_type=kind, resource_name=name, configs=rows)


def alter(
    client: RawClient, *resources: altering.AlterConfigsResource, version: int = 1, validate_only: bool = False
) -> list[tuple[int, str | None]]:
    """Error and message of each resource."""
    request = altering.IncrementalAlterConfigsRequest(resources=list(resources), validate_only=validate_only)
    answers = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, version, request).responses
    assert [(row.resource_type, row.resource_name) for row in answers] == [
        (each.resource_type, each.resource_name) for each in resources
    ]
    return [(row.error_code, row.error_message) for row in answers]


def describe(client: RawClient, *names: str, version: int = 4, group: str = "g") -> dict[str, tuple[str, int]]:
    """Value and source of each config of a group."""
    row = DescribeConfigsResource(
        resource_type=GROUP, resource_name=group, configuration_keys=list(names) if names else None
    )
    request = DescribeConfigsRequest(resources=[row], include_synonyms=True, include_documentation=True)
    (answer,) = client.ask(ApiKey.DESCRIBE_CONFIGS, version, request).results
    assert (answer.error_code, answer.resource_type, answer.resource_name) == (0, GROUP, group)
    for config in answer.configs:
        assert not config.read_only and not config.is_sensitive
        assert config.synonyms[0].value == config.value
        assert version < 3 or config.documentation
    return {config.name: (config.value, config.config_source) for config in answer.configs}


def interval(client: RawClient, epoch: int) -> int:
    """The interval that a member is told."""
    request = ConsumerGroupHeartbeatRequest(group_id="g", member_id="m", member_epoch=epoch)
    if epoch == 0:
        request.rebalance_timeout_ms = 1_000
        request.subscribed_topic_names, request.topic_partitions = ["t"], []
    answer = client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)
    assert answer.error_code == 0
    told: int = answer.heartbeat_interval_ms
    return told


@pytest.mark.parametrize("version", versions(ApiKey.INCREMENTAL_ALTER_CONFIGS))
def test_configs_of_a_group_are_set_and_taken_back_and_count_at_once(client: RawClient, version: int) -> None:
    """KIP-848; the group need not exist when they are set."""
    change = resource((SESSION, SET, "9000"), (INTERVAL, SET, "700"))
    assert alter(client, change, version=version, validate_only=True) == [(0, None)]
    assert describe(client, SESSION, INTERVAL) == {SESSION: ("45000", 5), INTERVAL: ("5000", 5)}
    assert alter(client, change, version=version) == [(0, None)]
    assert describe(client, SESSION, INTERVAL) == {SESSION: ("9000", 8), INTERVAL: ("700", 8)}
    assert describe(client, INTERVAL, group="other") == {INTERVAL: ("5000", 5)}
    assert interval(client, 0) == 700
    assert alter(client, resource((INTERVAL, DELETE, None)), version=version) == [(0, None)]
    assert interval(client, 1) == 1_000, "that of a group that has moved lately"


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_CONFIGS))
def test_all_configs_of_a_group_are_described(client: RawClient, version: int) -> None:
    assert describe(client, version=version) == {
        "consumer.session.timeout.ms": ("45000", 5),
        "consumer.heartbeat.interval.ms": ("5000", 5),
        "consumer.assignment.interval.ms": ("0", 5),
        "consumer.assignor.offload.enable": ("true", 5),
        "group.disconnect.grace.ms": ("-1", 5),
        "group.assignor": ("", 5),
        "group.consumer.assignor.mismatch": ("vote", 5),
        "group.assignor.max.moves": ("-1", 5),
        "group.assignor.imbalance": ("0", 5),
        "group.moves.per.second": ("0.0", 5),
        "group.moves.burst": ("1", 5),
        "group.moves.paused": ("false", 5),
        "group.moves.order": ("name", 5),
        "group.initial.rebalance.delay.ms": ("0", 5),
        "group.membership": ("dynamic", 5),
        "group.registration.timeout.ms": ("1800000", 5),
        "group.expansion.timeout.ms": ("300000", 5),
        "group.rebalance.token": ("", 5),
        "group.static.fallback": ("admin", 5),
        "group.ownership.enforce": ("ours", 5),
        "group.ownership.refusal": ("quiet", 5),
        "group.ownership.lease.ms": ("-1", 5),
        "group.liveness": ("heartbeat", 5),
    }


def test_one_request_changes_topics_and_groups_each_on_its_own_and_answers_in_order(client: RawClient) -> None:
    client.create_topic("t")
    (first, _), (second, text), (third, _), (fourth, _) = alter(
        client,
        resource(("group.assignor.imbalance", SET, "2")),
        resource((SESSION, SET, "1"), name="other"),
        resource(("retention.ms", SET, "5"), name="t", kind=TOPIC),
        resource(("node.id", SET, "1"), name="1", kind=BROKER),
    )
    assert (first, second, third, fourth) == (0, ErrorCode.INVALID_CONFIG, 0, ErrorCode.INVALID_REQUEST)
    assert "100 to 1800000" in str(text)
    assert describe(client, "group.assignor.imbalance") == {"group.assignor.imbalance": ("2", 8)}


@pytest.mark.parametrize(
    ("changes", "code", "saying"),
    [
        ([("consumer.sesion.timeout.ms", SET, "1")], ErrorCode.INVALID_CONFIG, "did you mean"),
        ([("x" * LONGEST, SET, "1")], ErrorCode.INVALID_CONFIG, "longer than 249"),
        ([("x" * LONGEST, APPEND, "1")], ErrorCode.INVALID_CONFIG, "is not a list"),
        ([(SESSION, SET, "1" * LONGEST)], ErrorCode.INVALID_CONFIG, "has 32767 characters"),
        ([(SESSION, SET, "-1")], ErrorCode.INVALID_CONFIG, "100 to 1800000"),
        ([(SESSION, SET, None)], ErrorCode.INVALID_REQUEST, "Null value not supported"),
        ([(SESSION, APPEND, "1")], ErrorCode.INVALID_CONFIG, "is not a list"),
        ([(SESSION, SUBTRACT, "1")], ErrorCode.INVALID_CONFIG, "is not a list"),
        ([(SESSION, 9, "1")], ErrorCode.INVALID_REQUEST, "operation 9 is unknown"),
        ([(SESSION, SET, "50000"), (SESSION, SET, "60000")], ErrorCode.INVALID_REQUEST, "named twice"),
        ([("share.isolation.level", SET, "read_committed")], ErrorCode.INVALID_CONFIG, "is not offered"),
    ],
)
def test_bad_input_is_refused_and_changes_nothing(
    client: RawClient, changes: list[tuple[str, int, str | None]], code: ErrorCode, saying: str
) -> None:
    ((answered, text),) = alter(client, resource(("group.assignor.imbalance", SET, "1"), *changes))
    assert (answered, len(str(text)) < 1_000) == (code, True)
    assert saying in str(text)
    assert {source for _, source in describe(client).values()} == {5}


def test_groups_that_cannot_have_configs_are_refused(client: RawClient) -> None:
    change = (SESSION, SET, "50000")
    ((code, _),) = alter(client, resource(change, name=""))
    assert code == ErrorCode.INVALID_REQUEST
    twice = alter(client, resource(change), resource(change))
    assert [code for code, _ in twice] == [ErrorCode.INVALID_REQUEST] * 2


def test_what_has_configs_is_listed(client: RawClient) -> None:
    """KIP-1142."""
    client.create_topic("t")
    alter(client, *(resource((SESSION, SET, "50000"), name=name) for name in ("c", "a", "b")))

    def listed(*kinds: int, version: int = 1) -> list[tuple[int, str]]:
        request = ListConfigResourcesRequest(resource_types=list(kinds))
        answer = client.ask(ApiKey.LIST_CONFIG_RESOURCES, version, request)
        assert answer.error_code == 0
        return [(row.resource_type, row.resource_name) for row in answer.config_resources]

    groups = [(GROUP, "a"), (GROUP, "b"), (GROUP, "c")]
    assert listed(GROUP) == groups
    assert listed() == [(TOPIC, "__consumer_offsets"), (TOPIC, "t"), (LOGGER, "1"), (BROKER, "1"), *groups]
    assert listed(16) == listed(version=0) == []
    refused = client.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest(resource_types=[7]))
    assert refused.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_our_own_admin_alters_and_describes(broker: kohort.Broker) -> None:
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_group_configs("g", {SESSION: 50_000, "consumer.assignor.offload.enable": False})
        own = {row.name: row.value for row in admin.describe_group_configs("g") if row.is_own}
        assert own == {SESSION: "50000", "consumer.assignor.offload.enable": "false"}
        admin.alter_group_configs("g", {SESSION: None}, validate_only=True)
        with pytest.raises(BrokerError, match="100 to 1800000") as refusal:
            admin.alter_group_configs("g", {SESSION: 1})
        assert refusal.value.code is ErrorCode.INVALID_CONFIG
        admin.alter_group_configs("g", dict.fromkeys(own))
        assert not any(row.is_own for row in admin.describe_group_configs("g"))
        assert all(row.doc for row in admin.describe_group_configs("g"))
