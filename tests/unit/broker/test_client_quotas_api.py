"""DescribeClientQuotas and AlterClientQuotas: what is set, what is refused in Kafka's words, what outlives a broker.

Source: KIP-546; Apache Kafka's ClientQuotaControlManager and ClientQuotasImage.
"""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import pytest

import kohort
from kohort import ClientQuota
from kohort.broker.embedded import Broker
from kohort.broker.limits import client_quotas
from kohort.errors import BrokerError, ErrorCode
from kohort.wire.registry import VERSIONS, ApiKey
from support.dialogues.broker_wire import RawClient, make

INVALID = ErrorCode.INVALID_REQUEST
PRODUCER, ADDRESS = "producer_byte_rate", "connection_creation_rate"
VERSION = VERSIONS[ApiKey.ALTER_CLIENT_QUOTAS][1]

Parts = dict[str, str | None]


def entity(parts: Parts) -> list[dict[str, str | None]]:
    return [{"entity_type": kind, "entity_name": name} for kind, name in parts.items()]


def alter(
    client: RawClient, *rows: tuple[Parts, dict[str, float | None]], validate_only: bool = False, version: int = VERSION
) -> list[tuple[int, str | None]]:
    """Set limits, or remove them with `None`; error and message of each entity."""
    entries = [
        {
            "entity": entity(parts),
            "ops": [{"key": key, "value": value or 0.0, "remove": value is None} for key, value in limits.items()],
        }
        for parts, limits in rows
    ]
    request = make(ApiKey.ALTER_CLIENT_QUOTAS, entries=entries, validate_only=validate_only)
    answer = client.ask(ApiKey.ALTER_CLIENT_QUOTAS, version, request)
    return [(row.error_code, row.error_message) for row in answer.entries]


def describe(client: RawClient, *components: tuple[str, int, str | None], strict: bool = False) -> Any:
    rows = [{"entity_type": kind, "match_type": how, "match": name} for kind, how, name in components]
    return client.ask(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, VERSION, make(ApiKey.DESCRIBE_CLIENT_QUOTAS, components=rows, strict=strict)
    )


def found(client: RawClient, *components: tuple[str, int, str | None], strict: bool = False) -> list[Parts]:
    answer = describe(client, *components, strict=strict)
    assert (answer.error_code, answer.error_message) == (0, ""), "as Kafka has it"
    return [{part.entity_type: part.entity_name for part in row.entity} for row in answer.entries]


@pytest.mark.parametrize("version", range(VERSION + 1))
def test_limits_are_set_changed_and_removed(client: RawClient, version: int) -> None:
    bob: Parts = {"user": "bob"}
    assert alter(client, (bob, {PRODUCER: 5.0, "request_percentage": 1.5}), version=version) == [(0, None)]
    assert alter(client, (bob, {PRODUCER: 7.0}), version=version) == [(0, None)]
    (row,) = describe(client).entries
    assert {each.key: each.value for each in row.values} == {PRODUCER: 7.0, "request_percentage": 1.5}
    assert alter(client, (bob, {PRODUCER: None}), version=version) == [(0, None)]
    assert alter(client, (bob, {PRODUCER: None, "no_such_limit": None}), version=version) == [(0, None)]
    (row,) = describe(client).entries
    assert [each.key for each in row.values] == ["request_percentage"]
    assert alter(client, (bob, {"request_percentage": None}), version=version) == [(0, None)]
    assert describe(client).entries == []


@pytest.mark.parametrize(
    ("parts", "limits", "message"),
    [
        ({}, {PRODUCER: 5.0}, "Invalid empty client quota entity"),
        ({"group": "g"}, {PRODUCER: 5.0}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {PRODUCER: 5.0}, "Empty user not supported"),
        ({"user": "x" * 1_025}, {PRODUCER: 5.0}, "a user of 1025 characters; 1024 are allowed"),
        (
            {"ip": "10.0.0.1", "user": "bob"},
            {ADDRESS: 5.0},
            "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId",
        ),
        ({"ip": "nowhere.invalid"}, {ADDRESS: 5.0}, "nowhere.invalid is not a valid IP or resolvable host."),
        ({"user": "bob"}, {"bytes": 5.0}, "Invalid configuration key bytes"),
        ({"user": "bob"}, {ADDRESS: 5.0}, f"Invalid configuration key {ADDRESS}"),
        ({"ip": None}, {PRODUCER: 5.0}, f"Invalid configuration key {PRODUCER}"),
        ({"user": "bob"}, {PRODUCER: 1e-320 * 0}, f"Quota {PRODUCER} must be greater than 0"),
        ({"user": "bob"}, {PRODUCER: -1.0}, f"Quota {PRODUCER} must be greater than 0"),
        ({"user": "bob"}, {PRODUCER: 2.0**64}, f"Proposed value for {PRODUCER} is too large for a LONG."),
        ({"user": "bob"}, {PRODUCER: math.inf}, f"Proposed value for {PRODUCER} is too large for a LONG."),
        ({"ip": "::1"}, {ADDRESS: 2.0**31}, f"Proposed value for {ADDRESS} is too large for an INT."),
        ({"user": "bob"}, {PRODUCER: 5.5}, f"{PRODUCER} cannot be a fractional value."),
        ({"user": "bob"}, {PRODUCER: math.nan}, f"Quota {PRODUCER} must be a finite number"),
        ({"user": "bob"}, {"request_percentage": math.nan}, "Quota request_percentage must be a finite number"),
        ({"user": "bob"}, {"request_percentage": math.inf}, "Quota request_percentage must be a finite number"),
    ],
)
def test_what_cannot_be_is_refused_in_kafkas_words(
    client: RawClient, parts: Parts, limits: dict[str, float | None], message: str
) -> None:
    good: Parts = {"client-id": "good"}
    assert alter(client, (parts, limits), (good, {PRODUCER: 5.0})) == [(INVALID, message), (0, None)]
    assert found(client) == [good], "a refused entity does not hold up the others"


@pytest.mark.parametrize("value", [2.0**63, 1.0, 5.0000000001])
def test_the_largest_and_the_smallest_of_kafkas_are_taken(client: RawClient, value: float) -> None:
    """2^63 is Long.MAX_VALUE as a double."""
    assert alter(client, ({"user": "bob"}, {PRODUCER: value})) == [(0, None)]
    (row,) = describe(client).entries
    assert row.values[0].value == value
    assert client.ask(ApiKey.API_VERSIONS, 0, make(ApiKey.API_VERSIONS)).error_code == 0


def test_an_entity_that_is_named_twice_is_refused(client: RawClient) -> None:
    bob: Parts = {"user": "bob", "client-id": None}
    text = "Ignoring duplicate entity ClientQuotaEntity(entries={user=bob, client-id=null})"
    assert alter(client, (bob, {PRODUCER: 5.0}), (bob, {PRODUCER: 6.0})) == [(INVALID, text)]
    entry = {"entity": entity(bob), "ops": [{"key": PRODUCER, "value": 5.0}, {"key": PRODUCER, "value": 6.0}]}
    answer = client.ask(ApiKey.ALTER_CLIENT_QUOTAS, VERSION, make(ApiKey.ALTER_CLIENT_QUOTAS, entries=[entry]))
    assert [(row.error_code, row.error_message) for row in answer.entries] == [(INVALID, text)]


def test_what_is_only_checked_changes_nothing(client: RawClient) -> None:
    rows: tuple[tuple[Parts, dict[str, float | None]], ...] = (({"user": "bob"}, {PRODUCER: 5.0}), ({"user": ""}, {}))
    assert alter(client, *rows, validate_only=True) == [(0, None), (INVALID, "Empty user not supported")]
    assert found(client) == []


def test_filters(client: RawClient) -> None:
    entities: list[Parts] = [
        {"user": "bob"},
        {"user": None},
        {"user": "bob", "client-id": "app"},
        {"user": "bob", "client-id": None},
        {"client-id": "app"},
        {"ip": "10.0.0.1"},
    ]
    for parts in entities:
        assert alter(client, (parts, {ADDRESS if "ip" in parts else PRODUCER: 5.0})) == [(0, None)]
    assert found(client) == entities
    assert found(client, strict=True) == []
    assert found(client, ("user", 0, "bob")) == [entities[0], entities[2], entities[3]]
    assert found(client, ("user", 0, "bob"), strict=True) == [entities[0]]
    assert found(client, ("user", 1, None)) == [entities[1]]
    assert found(client, ("user", 2, None), strict=True) == [entities[0], entities[1]]
    assert found(client, ("user", 2, None), ("client-id", 1, None)) == [entities[3]]
    assert found(client, ("client-id", 0, "app"), strict=True) == [entities[4]]
    assert found(client, ("ip", 2, None)) == [entities[5]]


@pytest.mark.parametrize(
    ("components", "code", "message"),
    [
        ([("", 0, "a")], INVALID, "Invalid empty entity type."),
        (
            [("user", 0, "a"), ("user", 2, None)],
            INVALID,
            "Entity type user cannot appear more than once in the filter.",
        ),
        ([("group", 0, "a")], ErrorCode.UNSUPPORTED_VERSION, "Unsupported entity type group"),
        ([("user", 0, None)], INVALID, "Request specified MATCH_TYPE_EXACT, but set match string to null."),
        ([("user", 1, "a")], INVALID, "Request specified MATCH_TYPE_DEFAULT, but also specified a match string."),
        ([("user", 2, "a")], INVALID, "Request specified MATCH_TYPE_SPECIFIED, but also specified a match string."),
        ([("user", 3, None)], INVALID, "Unknown match type 3"),
        (
            [("user", 0, "a"), ("ip", 2, None)],
            INVALID,
            "Invalid entity filter component combination. IP filter component should not be used with user or "
            "clientId filter component.",
        ),
    ],
)
def test_filters_that_cannot_be(
    client: RawClient, components: list[tuple[str, int, str | None]], code: int, message: str
) -> None:
    answer = describe(client, *components)
    assert (answer.error_code, answer.error_message, answer.entries) == (code, message, None)


def test_the_entities_of_a_cluster_are_bounded(client: RawClient, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client_quotas, "MOST_ENTITIES", 2)
    for name in ("a", "b"):
        assert alter(client, ({"user": name}, {PRODUCER: 5.0})) == [(0, None)]
    ((code, text),) = alter(client, ({"user": "c"}, {PRODUCER: 5.0}))
    assert code == ErrorCode.POLICY_VIOLATION
    assert text == "there would be quotas of 3 users, clients and addresses; 2 are allowed"
    assert alter(client, ({"user": "a"}, {PRODUCER: 6.0})) == [(0, None)]


def test_limits_outlive_the_broker(tmp_path: Path) -> None:
    quotas = [
        ClientQuota(entity={"user": "bob"}, values={PRODUCER: 5.0}),
        ClientQuota(entity={"user": None, "client-id": "é\n"}, values={"request_percentage": 0.1}),
        ClientQuota(entity={"ip": None}, values={ADDRESS: 7.0}),
    ]
    with Broker(data_dir=tmp_path) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_client_quotas([*quotas, ClientQuota(entity={"user": "eve"}, values={PRODUCER: 5.0})])
        admin.alter_client_quotas([ClientQuota(entity={"user": "eve"}, values={PRODUCER: None})])
        told = admin.describe_client_quotas()
        assert sorted(map(str, told)) == sorted(map(str, quotas))
    with Broker(data_dir=tmp_path) as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.describe_client_quotas() == told
        assert admin.describe_broker()["quotas"] == "3"
        with pytest.raises(BrokerError, match=f"Invalid configuration key {ADDRESS}"):
            admin.alter_client_quotas([ClientQuota(entity={"user": "bob"}, values={ADDRESS: 5.0})])


def test_many_entities_go_in_several_requests(broker: Broker) -> None:
    quotas = [
        ClientQuota(
            entity={"user": f"u{number}", "client-id": None},
            values={
                PRODUCER: 5.0,
                "consumer_byte_rate": 5.0,
                "request_percentage": 5.0,
                "controller_mutation_rate": 5.0,
            },
        )
        for number in range(2_500)
    ]
    with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_client_quotas(quotas)
        assert len(admin.describe_client_quotas({"user": ...})) == 2_500
