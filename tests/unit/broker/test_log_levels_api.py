"""The levels of the broker's loggers on the wire (KIP-412): shown, set, taken back, and what is refused."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

import kohort
from kohort.broker.embedded import Broker
from kohort.errors import AuthorizationError, BrokerError, ErrorCode
from kohort.wire.messages import alter_configs
from kohort.wire.messages import incremental_alter_configs as altering
from kohort.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from kohort.wire.messages.list_config_resources import ListConfigResourcesRequest
from kohort.wire.registry import VERSIONS, ApiKey
from support.dialogues.broker_wire import RawClient

LOGGER = 8
SET, DELETE, APPEND, SUBTRACT = range(4)
GROUPS = "kohort.broker.groups"
PASSWORDS = {"alice": "wonder", "bob": "builder"}


@pytest.fixture(autouse=True)
def levels_of_before() -> Iterator[None]:
    """Loggers are the process's: other tests find them as they were."""
    loggers = [logging.getLogger("kohort"), *map(logging.getLogger, list(logging.root.manager.loggerDict))]
    before = {logger: logger.level for logger in loggers}
    yield
    for logger, level in before.items():
        logger.setLevel(level)


def describe(client: RawClient, *names: str, node: str = "1", version: int = 4) -> dict[str, str]:
    row = DescribeConfigsResource(
        resource_type=LOGGER, resource_name=node, configuration_keys=list(names) if names else None
    )
    request = DescribeConfigsRequest(resources=[row], include_synonyms=True, include_documentation=True)
    (answer,) = client.ask(ApiKey.DESCRIBE_CONFIGS, version, request).results
    assert answer.error_code == 0, answer.error_message
    for config in answer.configs:
        # As Apache Kafka answers them.
        assert (config.config_source, config.read_only, config.is_sensitive) == (6 if version else -1, False, False)
        assert config.synonyms == []
        assert not config.documentation
    return {config.name: config.value for config in answer.configs}


def alter(
    client: RawClient, *changes: tuple[str, int, str | None], node: str = "1", validate_only: bool = False
) -> tuple[int, str | None]:
    rows = [altering.AlterableConfig(name=name, config_operation=how, value=value) for name, how, value in changes]
    resource = altering.AlterConfigsResource(resource_type=LOGGER, resource_name=node, configs=rows)
    request = altering.IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = client.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, request).responses
    return answer.error_code, answer.error_message


@pytest.mark.parametrize(
    "version", range(VERSIONS[ApiKey.DESCRIBE_CONFIGS][0], VERSIONS[ApiKey.DESCRIBE_CONFIGS][1] + 1)
)
def test_loggers_of_kohort_are_shown_and_no_other(client: RawClient, version: int) -> None:
    logging.getLogger("of.the.program").setLevel(logging.DEBUG)
    found = describe(client, version=version)
    assert {"root", "kohort.broker", GROUPS, "kohort.broker.connections", "kohort.broker.storage"} <= found.keys()
    assert {name for name in found if not name.startswith("kohort.")} == {"root"}
    assert found["root"] == "WARN"
    assert describe(client, GROUPS, "of.the.program", version=version) == {GROUPS: "WARN"}


def test_level_is_set_counts_at_once_and_is_taken_back(client: RawClient) -> None:
    assert alter(client, ("kohort.broker", SET, "INFO"), validate_only=True) == (0, None)
    assert describe(client, "kohort.broker") == {"kohort.broker": "WARN"}
    assert alter(client, ("kohort.broker", SET, "DEBUG"), (GROUPS, SET, "FATAL")) == (0, None)
    assert describe(client, "kohort.broker", GROUPS, "kohort.broker.storage") == {
        "kohort.broker": "DEBUG", GROUPS: "FATAL", "kohort.broker.storage": "DEBUG",
    }  # fmt: skip
    assert logging.getLogger("kohort.broker.storage").isEnabledFor(logging.DEBUG)
    assert not logging.getLogger(GROUPS).isEnabledFor(logging.ERROR)
    assert alter(client, (GROUPS, DELETE, None)) == (0, None)
    assert describe(client, GROUPS) == {GROUPS: "DEBUG"}


@pytest.mark.parametrize("level", ["FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE"])
def test_every_level_of_kafka_can_be_set_on_all(client: RawClient, level: str) -> None:
    assert alter(client, ("root", SET, level)) == (0, None)
    assert set(describe(client).values()) == {level}


@pytest.mark.parametrize(
    ("changes", "code", "why"),
    [
        ([("nothing", SET, "INFO")], ErrorCode.INVALID_CONFIG, "Logger nothing does not exist!"),
        ([("logging", SET, "INFO")], ErrorCode.INVALID_CONFIG, "Logger logging does not exist!"),
        ([("x" * 30_000, DELETE, None)], ErrorCode.INVALID_CONFIG, f"Logger {'x' * 200} does not exist!"),
        (
            [("root", SET, "LOUD")], ErrorCode.INVALID_CONFIG,
            "Cannot set the log level of root to LOUD as it is not a supported log level. "
            "Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN",
        ),
        ([("root", SET, "OFF")], ErrorCode.INVALID_CONFIG, "Cannot set the log level of root to OFF"),
        ([("root", SET, "")], ErrorCode.INVALID_CONFIG, "Cannot set the log level of root to "),
        ([("root", SET, None)], ErrorCode.INVALID_REQUEST, "Null value not supported for: root"),
        ([("root", DELETE, None)], ErrorCode.INVALID_REQUEST, "Removing the log level of the root logger is not"),
        ([("root", APPEND, "INFO")], ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed for the BROKER_"),
        ([("root", SUBTRACT, "INFO")], ErrorCode.INVALID_REQUEST, "SUBTRACT operation is not allowed"),
        ([("root", 9, "INFO")], ErrorCode.INVALID_REQUEST, "Unknown operation type 9 is not allowed"),
        ([("root", SET, "INFO"), ("root", SET, "WARN")], ErrorCode.INVALID_REQUEST, "named twice"),
    ],
    ids=lambda value: str(value)[:40],
)  # fmt: skip
def test_change_that_is_wrong_changes_nothing(
    client: RawClient, changes: list[tuple[str, int, str | None]], code: ErrorCode, why: str
) -> None:
    before = describe(client)
    said, message = alter(client, ("kohort.broker", SET, "TRACE"), *changes)
    assert said == code
    assert message is not None
    assert why in message
    assert describe(client) == before


@pytest.mark.parametrize("node", ["", "2", "-1", "x", "1" * 5_000, "\u0661", " 1"])
def test_loggers_of_another_broker_are_not_its_own(client: RawClient, node: str) -> None:
    row = DescribeConfigsResource(resource_type=LOGGER, resource_name=node)
    (answer,) = client.ask(ApiKey.DESCRIBE_CONFIGS, 4, DescribeConfigsRequest(resources=[row])).results
    assert (answer.error_code, answer.configs) == (ErrorCode.INVALID_REQUEST, [])
    assert alter(client, ("root", SET, "INFO"), node=node)[0] == ErrorCode.INVALID_REQUEST


def test_old_api_does_not_know_loggers(client: RawClient) -> None:
    """KIP-412: AlterConfigs would have to take every other level back."""
    rows = [alter_configs.AlterableConfig(name="root", value="INFO")]
    resource = alter_configs.AlterConfigsResource(resource_type=LOGGER, resource_name="1", configs=rows)
    (answer,) = client.ask(ApiKey.ALTER_CONFIGS, 2, alter_configs.AlterConfigsRequest(resources=[resource])).responses
    assert (answer.error_code, answer.error_message) == (ErrorCode.INVALID_REQUEST, "Unknown resource type 8")


def test_broker_is_listed_as_one_that_has_loggers(client: RawClient) -> None:
    """KIP-1142."""
    answer = client.ask(ApiKey.LIST_CONFIG_RESOURCES, 1, ListConfigResourcesRequest(resource_types=[LOGGER]))
    assert [(row.resource_type, row.resource_name) for row in answer.config_resources] == [(LOGGER, "1")]


def test_admin_client_shows_and_sets_levels(broker: Broker) -> None:
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_configs(("broker-logger", 1), {"kohort.broker": "INFO"})
        ((_, (row,)),) = admin.describe_configs(("broker_logger", 1), ["kohort.broker"]).items()
        assert (row.name, row.value, row.source) == ("kohort.broker", "INFO", "DYNAMIC_BROKER_LOGGER_CONFIG")
        admin.alter_configs(("broker-logger", 1), {"kohort.broker": None})
        with pytest.raises(BrokerError, match="not a supported log level"):
            admin.alter_configs(("broker-logger", 1), {"kohort.broker": "LOUD"})


def test_levels_are_the_cluster_s_configs() -> None:
    """KIP-412: DESCRIBE_CONFIGS and ALTER_CONFIGS on the cluster; without them nothing is told and nothing changed."""
    config = {
        "listeners": "SASL_PLAINTEXT://127.0.0.1:0",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
        + " ".join(f"user_{name}={password}" for name, password in PASSWORDS.items())
        + ";",
        "super.users": "User:alice",
    }
    logger = ("broker-logger", 1)
    with kohort.Broker(config=config) as broker:
        login = {
            "bootstrap.servers": broker.bootstrap_servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
        }
        of_alice, of_bob = ({"sasl.username": name, "sasl.password": password} for name, password in PASSWORDS.items())
        with kohort.Admin({**login, **of_alice}) as alice, kohort.Admin({**login, **of_bob}) as admin:
            with pytest.raises(AuthorizationError):
                admin.describe_configs(logger)
            with pytest.raises(AuthorizationError):
                admin.alter_configs(logger, {"root": "TRACE"})
            ((_, (row,)),) = alice.describe_configs(logger, ["root"]).items()
            assert row.value == "WARN"
            cluster = {"resource_type": "cluster", "name": "kafka-cluster"}
            alice.create_acls([kohort.Acl(**cluster, principal="User:bob", operation="describe_configs")])
            assert len(admin.describe_configs(logger)) == 1
            with pytest.raises(AuthorizationError):
                admin.alter_configs(logger, {"root": "TRACE"})
