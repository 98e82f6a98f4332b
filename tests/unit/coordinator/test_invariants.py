"""The checker is checked: each law, broken by hand, is noticed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kohort.coordinator.invariants import check_groups, check_step, epochs_of
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records import MemberState
from kohort.errors import InvariantViolation
from support.coordinator_dialogue import GroupDialogue, topic_id_of

T, U = topic_id_of("t"), topic_id_of("u")


def _epoch(group: ConsumerGroup) -> None:
    group.target_epoch = 9


def _double(group: ConsumerGroup) -> None:
    group.members["b"].assigned = {T: {0: 2, 1: 2}}


def _unnoted(group: ConsumerGroup) -> None:
    group.holders = {T: {0: "a"}}


def _double_target(group: ConsumerGroup) -> None:
    group.targets["b"] = {T: (0, 1)}


def _hole(group: ConsumerGroup) -> None:
    group.targets["b"] = {}


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
    ("break_it", "law"),
    [
        (_epoch, "newer than the group"),
        (_double, "both hold"),
        (_unnoted, "noted holders"),
        (_double_target, "target gives partition 0 to a and to b"),
        (_hole, "target lacks"),
        (_stranger, "which is no member"),
        (_unordered, "not in order"),
        (_unsubscribed, "did not subscribe"),
        (_counted, "counted subscriptions"),
        (_subscribers, "counted subscribers"),
        (_pending, "STABLE and has partitions to give up"),
        (_nothing_pending, "has nothing to give up"),
        (_both, "may use what it has to give up"),
        (_future_grant, "never had"),
        (_beyond, "not in its target"),
        (_incomplete, "does not have all"),
        (_ahead, "ahead of the target"),
        (_hollow, "topic without partitions"),
    ],
)
def test_broken_law_is_noticed(group: GroupDialogue, break_it: Callable[[ConsumerGroup], None], law: str) -> None:
    group.stable(a=[0], b=[1])
    break_it(group.group)
    with pytest.raises(InvariantViolation, match=law) as violation:
        check_groups(group.shard.groups)
    assert any("b: epoch" in str(row) for row in violation.value.story)


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
