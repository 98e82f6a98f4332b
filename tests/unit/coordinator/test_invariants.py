"""The checker is checked: each law, broken by hand, is noticed."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from kohort.coordinator.invariants import (
    check_groups,
    check_legal_target_assignment,
    check_no_double_assignment,
    check_step,
    check_type,
    check_valid_member_epoch,
    check_valid_partition_epoch,
    check_valid_stable_group_state,
    epochs_of,
)
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records.types import MemberState
from kohort.errors import InvariantViolation
from support.dialogues.coordinator_dialogue import GroupDialogue, topic_id_of

T, U = topic_id_of("t"), topic_id_of("u")


def _epoch(group: ConsumerGroup) -> None:
    group.target_epoch = 9


def _double(group: ConsumerGroup) -> None:
    _behind(group, {0: 1, 1: 1})


def _unnoted(group: ConsumerGroup) -> None:
    group.holders = {T: {0: "a"}}


def _double_target(group: ConsumerGroup) -> None:
    group.targets["b"] = {T: (0, 1)}
    group.members["b"].state = MemberState.UNRELEASED_PARTITIONS


def _hole(group: ConsumerGroup) -> None:
    group.targets["b"] = {}
    _behind(group, {1: 1})


def _behind(group: ConsumerGroup, grants: dict[int, int]) -> None:
    """b is on its way, so that only what is broken besides is."""
    member = group.members["b"]
    member.member_epoch, member.state, member.assigned = 1, MemberState.UNRELEASED_PARTITIONS, {T: grants}


def _stranger(group: ConsumerGroup) -> None:
    group.targets["x"] = {T: (1,)}


def _unordered(group: ConsumerGroup) -> None:
    group.targets["b"] = {T: (1, 1)}


def _unsubscribed(group: ConsumerGroup) -> None:
    group.members["b"].subscribed_topic_names = ("u",)
    group.subscriptions = {("t",): 1, ("u",): 1}
    group.topic_subscribers = {"t": 1, "u": 1}


def _counted(group: ConsumerGroup) -> None:
    group.subscriptions[("u",)] = 1


def _subscribers(group: ConsumerGroup) -> None:
    group.topic_subscribers["t"] = 1


def _pending(group: ConsumerGroup) -> None:
    group.members["b"].pending_revocation = {U: {0: 1}}
    group.holders[U] = {0: "b"}


def _nothing_pending(group: ConsumerGroup) -> None:
    group.members["b"].state = MemberState.UNREVOKED_PARTITIONS


def _both(group: ConsumerGroup) -> None:
    group.members["b"].state = MemberState.UNREVOKED_PARTITIONS
    group.members["b"].pending_revocation = {T: {1: 2}}


def _future_grant(group: ConsumerGroup) -> None:
    group.members["b"].assigned = {T: {1: 3}}


def _beyond(group: ConsumerGroup) -> None:
    group.members["b"].assigned = {T: {1: 2}, U: {0: 2}}
    group.holders[U] = {0: "b"}


def _incomplete(group: ConsumerGroup) -> None:
    group.members["b"].assigned = {}
    del group.holders[T][1]


def _ahead(group: ConsumerGroup) -> None:
    group.members["b"].member_epoch = 3


def _hollow(group: ConsumerGroup) -> None:
    group.members["b"].assigned[U] = {}


@pytest.mark.parametrize(
    ("break_it", "law", "why"),
    [
        (_epoch, "TypeOK", "newer than the group"),
        (_double, "NoDoubleClientAssignment", "both hold"),
        (_unnoted, "TypeOK", "noted holders"),
        (_double_target, "LegalTargetAssignment", "target gives partition 0 to a and to b"),
        (_hole, "LegalTargetAssignment", "target lacks"),
        (_stranger, "LegalTargetAssignment", "which is no member"),
        (_unordered, "LegalTargetAssignment", "not in order"),
        (_unsubscribed, "LegalTargetAssignment", "did not subscribe"),
        (_counted, "TypeOK", "counted subscriptions"),
        (_subscribers, "TypeOK", "counted subscribers"),
        (_pending, "ValidStableGroupState", "STABLE and has partitions to give up"),
        (_nothing_pending, "ValidStableGroupState", "has nothing to give up"),
        (_both, "ValidPartitionEpoch", "may use what it has to give up"),
        (_future_grant, "ValidPartitionEpoch", "never had"),
        (_beyond, "ValidMemberEpoch", "not in its target"),
        (_incomplete, "ValidStableGroupState", "does not have all"),
        (_ahead, "ValidMemberEpoch", "ahead of the target"),
        (_hollow, "TypeOK", "topic without partitions"),
    ],
)
def test_broken_law_is_noticed(
    group: GroupDialogue, break_it: Callable[[ConsumerGroup], None], law: str, why: str
) -> None:
    """Each by its own law, and by no other, whatever is looked at first."""
    group.stable(a=[0], b=[1])
    assert laws_broken(group) == set()
    break_it(group.group)
    with pytest.raises(InvariantViolation, match=f"^{law}: .*{why}") as violation:
        check_groups(group.shard.groups)
    assert any("b: epoch" in str(row) for row in violation.value.story)
    assert laws_broken(group) == {law}


def laws_broken(dialogue: GroupDialogue) -> set[str]:
    """The laws that do not hold, each looked at by itself."""
    group, image = dialogue.group, dialogue.shard.groups.image
    checks = [
        lambda: check_type(group),
        lambda: check_no_double_assignment(group),
        lambda: check_legal_target_assignment(group, image),
        lambda: check_valid_stable_group_state(group),
        *(partial(check_valid_partition_epoch, group, member) for member in group.members.values()),
        *(partial(check_valid_member_epoch, group, member) for member in group.members.values()),
    ]
    laws = set()
    for check in checks:
        try:
            check()
        except InvariantViolation as violation:
            laws.add(violation.law.partition(":")[0])
    return laws


def test_empty_group_that_is_behind_is_noticed(group: GroupDialogue) -> None:
    """KAFKA-20442."""
    group.stable(a=[0, 1])
    group.leave("a")
    group.group.target_epoch = 1
    with pytest.raises(InvariantViolation, match="KAFKA-20442"):
        check_groups(group.shard.groups)


def test_epoch_that_falls_is_noticed(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    before = epochs_of(group.shard.groups)
    group.member("a").member_epoch = 0
    with pytest.raises(InvariantViolation, match="epoch of a fell from 1 to 0"):
        check_step(before, group.shard.groups)
    group.group.epoch = 0
    with pytest.raises(InvariantViolation, match="epoch fell from 1 to 0"):
        check_step(before, group.shard.groups)


def test_offset_that_waits_for_no_transaction_is_noticed(group: GroupDialogue) -> None:
    group.commit_in_transaction({0: 1}, producer=7)
    transactions = group.shard.groups.transactions
    transactions[8] = transactions.pop(7)
    with pytest.raises(InvariantViolation, match="no transaction of that producer is open"):
        check_groups(group.shard.groups)
    transactions[7] = transactions.pop(8)
    claims = group.shard.groups.pending_offsets["g"]
    claims["t", 1] = claims.pop(("t", 0))
    with pytest.raises(InvariantViolation, match="of another partition"):
        check_groups(group.shard.groups)
    claims["t", 0] = {}
    with pytest.raises(InvariantViolation, match="empty mapping of pending"):
        check_groups(group.shard.groups)


def test_empty_mapping_of_offsets_is_noticed() -> None:
    groups = GroupsState()
    groups.offsets["g"] = {"t": {}}
    with pytest.raises(InvariantViolation, match="empty mapping"):
        check_groups(groups)
