"""Who may join a static group, and how a group becomes one; the same for both protocols."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.coordinator.commands import ConsumerGroupHeartbeat
from kohort.coordinator.static_membership.mode import NAMELESS_ERRORS
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import GroupDialogue

STATIC = {"group.membership": "static"}
NAMELESS = NAMELESS_ERRORS[ConsumerGroupHeartbeat]


@pytest.fixture
def group() -> GroupDialogue:
    return GroupDialogue({"t": 4})


def join(group: GroupDialogue, name: str | None, **fields: Any) -> Any:
    return group.heartbeat(f"m-{name}", epoch=0, instance_id=name, **fields)


def test_a_member_without_a_name_is_refused(group: GroupDialogue) -> None:
    """KIP-345's draft: after the switch all joining members are required to have a name."""
    group.alter_configs(STATIC).is_done()
    join(group, None).is_refused(NAMELESS, saying="the group g is static: each of its members needs a group.")
    assert "g" not in group.shard.groups.consumer
    join(group, "a").replies(epoch=1, assigned=[0, 1, 2, 3])


def test_the_switch_is_refused_while_members_without_names_are_there(group: GroupDialogue) -> None:
    join(group, "a")
    for number in range(12):
        group.heartbeat(f"n{number:02}", epoch=0)
    refusal = group.alter_configs(STATIC).is_refused(ErrorCode.INVALID_CONFIG, saying="12 of the group's members")
    assert "(n00, n01, n02, n03, n04, n05, n06, n07, n08, n09 and others)" in str(refusal.message)
    for number in range(12):
        group.leave(f"n{number:02}")
    group.alter_configs(STATIC).is_done()


def test_the_first_joiners_values_make_a_group_static(group: GroupDialogue) -> None:
    """KIP-345's draft: registration and expansion timeouts stand in the join request."""
    join(group, "a", registration_timeout_ms=60_000, expansion_timeout_ms=5_000).replies(epoch=1, assigned=[0, 1, 2, 3])
    configs = {**STATIC, "group.registration.timeout.ms": "60000", "group.expansion.timeout.ms": "5000"}
    assert group.configs() == configs
    # A later member's values mean nothing.
    join(group, "b", registration_timeout_ms=90_000)
    assert group.configs() == configs
    join(group, None).is_refused(NAMELESS)
    group.restart()
    assert group.shard.settings_for("g").group_registration_timeout_ms == 60_000


def test_values_of_a_group_that_is_empty_again_are_those_of_the_next_first_joiner(group: GroupDialogue) -> None:
    join(group, "a", registration_timeout_ms=60_000)
    group.leave("m-a")
    join(group, "b", registration_timeout_ms=70_000)
    assert group.configs() == {**STATIC, "group.registration.timeout.ms": "70000"}


@pytest.mark.parametrize("field", ["registration_timeout_ms", "expansion_timeout_ms"])
@pytest.mark.parametrize("value", [-2, 0, 99, 86_400_001])
def test_values_out_of_bounds_are_refused_and_change_nothing(group: GroupDialogue, field: str, value: int) -> None:
    """KIP-345's draft: both have a minimum and a maximum."""
    option = f"group.min.{field.replace('_', '.')}"
    join(group, "a", **{field: value}).is_refused(ErrorCode.INVALID_REQUEST, saying=f"the broker's {option} and")
    assert group.configs() == {} and "g" not in group.shard.groups.consumer


def test_a_first_joiner_with_values_needs_a_name(group: GroupDialogue) -> None:
    join(group, None, registration_timeout_ms=60_000).is_refused(NAMELESS)
    assert group.configs() == {}


def test_a_broker_may_have_static_groups_alone() -> None:
    group = GroupDialogue({"t": 4}, group_membership="static")
    join(group, None).is_refused(NAMELESS)
    group.alter_configs({"group.membership": "dynamic"}).is_done()
    join(group, None).replies(epoch=1, assigned=[0, 1, 2, 3])
