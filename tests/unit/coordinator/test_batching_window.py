"""Joins, leaves and other changes within a short window are one assignment."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.coordinator.consumer.assignment.batching_window import assignment_key
from kohort.coordinator.consumer.assignment.volatile import AssignmentWindowOpened
from kohort.coordinator.records.types import ConsumerGroupEpochSet, MemberState, TargetAssignmentEpochSet
from support.dialogues.coordinator_dialogue import GroupDialogue


def windowed(topics: dict[str, int] | None = None, **limits: Any) -> GroupDialogue:
    """A group whose window is 50 ms, and at most 1,000 ms."""
    limits.setdefault("group_consumer_assignment_window_ms", 50)
    return GroupDialogue({"t": 4} if topics is None else topics, **limits)


def targets(group: GroupDialogue) -> int:
    """How many targets were computed since this was asked last."""
    return sum(isinstance(record, TargetAssignmentEpochSet) for record in group.new_records())


def test_joins_within_the_window_are_one_assignment_and_nobody_has_to_give_anything_up() -> None:
    """Ours: an application that starts with many members moves nothing."""
    group = windowed()
    group.heartbeat("a", epoch=0).replies(epoch=1, assigned=[])
    group.advance(ms=30)
    group.heartbeat("b", epoch=0).replies(epoch=1, assigned=[])
    group.new_records()
    group.advance(ms=49)
    assert targets(group) == 0
    group.advance(ms=1)
    assert targets(group) == 1
    group.heartbeat("a", epoch=1, owned=[]).replies(epoch=3, assigned=[0, 2])
    group.heartbeat("b", epoch=1, owned=[]).replies(epoch=3, assigned=[1, 3])
    assert group.list_groups() == [("g", "consumer", "Stable", "consumer")]


def test_member_of_a_new_group_has_an_epoch_before_there_is_a_target() -> None:
    """KAFKA-20268: epochs start at 1; an answer with epoch 0 would be no membership."""
    group = windowed()
    group.heartbeat("a", epoch=0).replies(epoch=1, assigned=[])
    assert (group.group.epoch, group.group.target_epoch) == (2, 1)
    assert group.member("a").state == MemberState.STABLE
    group.heartbeat("a", epoch=1, owned=[]).replies(epoch=1, assigned=None)
    group.restart()
    group.heartbeat("a", epoch=1, owned=[]).replies(epoch=1, assigned=None)
    group.advance(ms=50)
    group.heartbeat("a", epoch=1, owned=[]).replies(epoch=2, assigned=[0, 1, 2, 3])


def test_group_that_was_empty_waits_for_its_window_too() -> None:
    group = windowed()
    group.heartbeat("a", epoch=0)
    group.advance(ms=50)
    group.settle()
    group.leave("a")
    assert (group.group.epoch, group.group.target_epoch) == (3, 3)
    group.heartbeat("b", epoch=0).replies(epoch=3, assigned=[])
    group.advance(ms=50)
    group.heartbeat("b", epoch=3, owned=[]).replies(epoch=4, assigned=[0, 1, 2, 3])


def test_changes_that_never_stop_get_a_target_once_a_second() -> None:
    group = windowed(group_consumer_assignment_window_max_ms=200)
    started_ms = group.now_ms
    for number in range(12):
        group.heartbeat(f"m{number:02}", epoch=0)
        group.advance(ms=30)
    found = [record for record in group.new_records() if isinstance(record, TargetAssignmentEpochSet)]
    # The first is that of nobody; the window of the first join ends after 200 ms, the next one begins with a join.
    assert [record.assignment_timestamp_ms - started_ms for record in found[1:]] == [200]
    group.advance(ms=50)
    assert group.group.target_epoch == group.group.epoch


def test_heartbeats_without_a_change_do_not_prolong_the_window() -> None:
    group = windowed()
    group.heartbeat("a", epoch=0)
    for _ in range(5):
        group.advance(ms=10)
        group.heartbeat("a", epoch=group.member("a").member_epoch, owned=[])
    assert group.group.target_epoch == 2


@pytest.mark.parametrize("how", ["leave", "silence", "subscription", "topics"])
def test_every_kind_of_change_opens_a_window(how: str) -> None:
    group = windowed({"t": 4, "u": 2})
    group.heartbeat("a", epoch=0)
    group.heartbeat("b", epoch=0)
    group.advance(ms=50)
    group.settle()
    group.advance(ms=44_990)
    group.heartbeat("a", epoch=3)
    if how != "silence":
        group.heartbeat("b", epoch=3)
    group.advance(ms=9)
    group.new_records()
    if how == "leave":
        group.leave("b")
    elif how == "silence":
        group.advance(ms=1)
    elif how == "subscription":
        group.heartbeat("b", epoch=3, topics=["t", "u"])
    else:
        group.set_topics({"t": 5, "u": 2})
    records = group.new_records()
    assert any(isinstance(record, AssignmentWindowOpened) for record in records)
    assert sum(isinstance(record, ConsumerGroupEpochSet) for record in records) == 1
    assert group.group.target_epoch == 3
    assert group.shard.timers.deadline(assignment_key("g")) == group.now_ms + 50
    group.heartbeat("a", epoch=3)
    group.advance(ms=50)
    assert (group.group.epoch, group.group.target_epoch) == (4, 4)


def test_later_of_window_and_interval_wins() -> None:
    """KIP-1263: an interval that is longer than the window holds the target back; a shorter one does not hurry it."""
    group = windowed(group_consumer_assignment_interval_ms=300)
    group.heartbeat("a", epoch=0)
    group.advance(ms=50)
    assert group.group.target_epoch == 2
    group.heartbeat("b", epoch=0)
    group.advance(ms=299)
    assert group.group.target_epoch == 2
    group.advance(ms=1)
    assert group.group.target_epoch == 3
    group.advance(ms=1_000)
    group.heartbeat("c", epoch=0)
    group.advance(ms=49)
    assert group.group.target_epoch == 3
    group.advance(ms=1)
    assert group.group.target_epoch == 4


def test_window_that_a_restart_interrupts_is_opened_again() -> None:
    group = windowed()
    group.heartbeat("a", epoch=0)
    group.advance(ms=50)
    group.settle()
    group.heartbeat("b", epoch=0)
    group.restart()
    group.advance(ms=49)
    assert group.group.target_epoch == 2
    group.advance(ms=1)
    assert group.group.target_epoch == 3


def test_broker_that_stood_still_closes_the_window_all_the_same() -> None:
    """Rule 17: every deadline is later by the gap; the next change finds a window that has been open for long."""
    group = windowed()
    group.heartbeat("a", epoch=0)
    group.now_ms += 5_000
    group.shard.timers.shift(5_000)
    group.heartbeat("b", epoch=0)
    assert group.group.target_epoch == 1
    group.fire_due()
    assert group.group.target_epoch == group.group.epoch == 3


def test_group_that_empties_waits_for_nothing() -> None:
    group = windowed()
    group.heartbeat("a", epoch=0)
    group.leave("a")
    assert group.shard.timers.deadline(assignment_key("g")) is None
    assert group.group.target_epoch == group.group.epoch
    assert group.list_groups() == [("g", "consumer", "Empty", "consumer")]


def test_window_of_zero_computes_with_the_change() -> None:
    group = windowed(group_consumer_assignment_window_ms=0)
    group.heartbeat("a", epoch=0).replies(epoch=1, assigned=[0, 1, 2, 3])
    assert not any(isinstance(record, AssignmentWindowOpened) for record in group.new_records())
