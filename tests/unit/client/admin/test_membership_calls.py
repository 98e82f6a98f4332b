"""Static membership as the admin client switches it: S3, KIP-345 as drafted. What groups do then: elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import pytest

import kohort
from kohort import Admin, Broker, Consumer, TopicPartition
from kohort.errors import BrokerError, ConfigError, ErrorCode
from support.peers.awaited_admin import AwaitedAdmin

BILLING = {TopicPartition("t", 0): 0}


@pytest.fixture(scope="module")
def broker() -> Iterator[Broker]:
    with Broker() as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("t", 4)
        yield broker


@pytest.fixture(params=[Admin, AwaitedAdmin], ids=["blocking", "awaited"])
def admin(broker: Broker, request: pytest.FixtureRequest) -> Iterator[Any]:
    with request.param(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.alter_group_offsets("g", BILLING)
        yield admin
        admin.alter_group_configs("g", dict.fromkeys(own_configs(admin)))


def own_configs(admin: Any) -> dict[str, str | None]:
    return {row.name: row.value for row in admin.describe_group_configs("g") if row.is_own}


def test_there_and_back(admin: Any) -> None:
    """Timeouts as milliseconds or spans; those that are not named stay as they are."""
    admin.enable_static_membership("g", 900_000, expansion_timeout=timedelta(seconds=2))
    assert admin.describe_group("g").is_static
    admin.enable_static_membership("g", registration_timeout=timedelta(minutes=20))
    assert own_configs(admin) == {
        "group.membership": "static",
        "group.registration.timeout.ms": "1200000",
        "group.expansion.timeout.ms": "2000",
    }
    admin.force_rebalance("g")
    first = own_configs(admin)["group.rebalance.token"]
    admin.force_rebalance("g")
    assert first and own_configs(admin)["group.rebalance.token"] != first
    admin.enable_dynamic_membership("g")
    assert not admin.describe_group("g").is_static


@pytest.mark.parametrize(
    ("call", "code", "words"),
    [
        (lambda admin: admin.enable_static_membership("nope"), ErrorCode.GROUP_ID_NOT_FOUND, "there is no group nope"),
        (lambda admin: admin.enable_dynamic_membership("nope"), ErrorCode.GROUP_ID_NOT_FOUND, "there is no group nope"),
        (lambda admin: admin.force_rebalance("nope"), ErrorCode.GROUP_ID_NOT_FOUND, "there is no group nope"),
        (lambda admin: admin.enable_static_membership(""), ErrorCode.INVALID_REQUEST, "the group's name is empty"),
        (lambda admin: admin.enable_dynamic_membership("g"), ErrorCode.INVALID_REQUEST, "it is dynamic already"),
        (lambda admin: admin.force_rebalance("g"), ErrorCode.INVALID_REQUEST, "is not static: it is dynamic"),
        (
            lambda admin: admin.enable_static_membership("g", 10),
            ErrorCode.INVALID_CONFIG,
            "group.registration.timeout.ms cannot be 10: 100 to 86400000 is expected",
        ),
        (
            lambda admin: admin.enable_static_membership("g", None, timedelta(days=2)),
            ErrorCode.INVALID_CONFIG,
            "group.expansion.timeout.ms cannot be 172800000",
        ),
    ],
)
def test_what_cannot_be_changes_nothing(admin: Any, call: Callable[[Any], object], code: ErrorCode, words: str) -> None:
    """K345: an error where the group is in another mode, is not there, or a timeout is out of bounds."""
    with pytest.raises(BrokerError) as refused:
        call(admin)
    assert (refused.value.code, words in str(refused.value)) == (code, True)
    assert own_configs(admin) == {}


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_members_without_names_are_told_by_their_ids(broker: Broker, admin: Any, protocol: str) -> None:
    with Consumer("t", bootstrap_servers=broker.bootstrap_servers, group_id=protocol, group_protocol=protocol) as one:
        while not one.assignment():
            one.poll(0.02)
        with pytest.raises(BrokerError, match=r"have no group.instance.id") as refused:
            admin.enable_static_membership(protocol)
        assert one.member_id is not None and one.member_id in str(refused.value)
        assert not admin.describe_group(protocol).is_static


@pytest.mark.parametrize(
    ("given", "error"), [(-1, ConfigError), ("1", TypeError), (1.5, TypeError), (True, TypeError)], ids=repr
)
def test_what_is_no_time_is_refused_before_anything_is_asked(given: object, error: type[Exception]) -> None:
    with kohort.Admin(bootstrap_servers="127.0.0.1:1") as admin, pytest.raises(error, match=r"registration.timeout.ms"):
        admin.enable_static_membership("g", given)  # type: ignore[arg-type]


def test_a_member_is_shown_offline_from_when_it_was_last_heard_of(broker: Broker, admin: Any) -> None:
    """Also the names of those who are away stay with the group."""
    here = {"bootstrap_servers": broker.bootstrap_servers, "group_id": "shop"}
    with Consumer("t", **here, member_name="till-7", registration_timeout_ms=60_000) as one:
        while not one.assignment():
            one.poll(0.02)
        found = admin.describe_group("shop")
        assert (found.is_static, [row.offline_since_ms for row in found.members]) == (True, [None])
    (row,) = admin.describe_group("shop").members
    assert (row.instance_id, len(row.assignment)) == ("till-7", 4)
    assert row.offline_since_ms is not None and row.offline_since_ms > 1_600_000_000_000
    admin.remove_members("shop", ["till-7"])
