"""With a limit to moves, the rest of the imbalance is worked off in steps of their own epochs (H2)."""

from __future__ import annotations

import pytest

from kohort.coordinator.consumer.assignment.batching_window import STEP_MS, assignment_key, count_open
from support.dialogues.coordinator_dialogue import GroupDialogue


def loads(group: GroupDialogue) -> list[int]:
    return sorted(map(len, group.holders().values()))


@pytest.mark.parametrize("incremental_from", [0, 10_000])
def test_even_target_is_reached_in_steps_that_wait_for_one_another(incremental_from: int) -> None:
    group = GroupDialogue({"t": 12}, group_assignor_max_moves=2, incremental_from_partitions=incremental_from)
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    group.settle()
    assert loads(group) == [2, 10]
    epochs = [group.group.epoch]
    for expected in ([4, 8], [6, 6]):
        group.advance(ms=STEP_MS)
        group.settle()
        assert loads(group) == expected
        epochs.append(group.group.epoch)
    assert epochs == [2, 3, 4], "members only go to targets of newer epochs"
    group.advance(ms=10 * STEP_MS)
    assert (group.group.epoch, group.group.target_epoch) == (4, 4)
    assert group.shard.timers.deadline(assignment_key("g")) is None


def test_step_waits_until_the_one_before_is_done() -> None:
    group = GroupDialogue({"t": 12}, group_assignor_max_moves=2)
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    group.advance(ms=5 * STEP_MS)
    assert group.group.epoch == 2
    group.settle()
    group.advance(ms=STEP_MS)
    assert group.group.epoch == 3


def test_the_next_step_takes_as_many_as_have_come_to_their_end() -> None:
    """H3: no move waits for another; only as many are on their way as may be. One member has not heard of anything."""
    group = GroupDialogue({"t": 12}, group_assignor_max_moves=3)
    for name in ("slow", "quick"):
        group.heartbeat(name, epoch=0)
        for _ in range(4):
            group.settle()
            group.advance(ms=STEP_MS)
    assert loads(group) == [6, 6]
    group.heartbeat("new", epoch=0)
    seen = []
    for _ in range(4):
        seen.append(count_open(group.group))
        for name in ("quick", "quick", "new"):
            group.report(group.member(name))
        group.advance(ms=STEP_MS)
    assert (seen[0], max(seen)) == (3, 3)
    assert group.group.epoch > 4, "a step was taken while the slow one has not given up what it was asked for"
    assert len(group.holders()["slow"]) == 6
    group.settle()
    group.advance(ms=STEP_MS)
    group.settle()
    assert loads(group) == [4, 4, 4]


def test_restart_forgets_no_step() -> None:
    group = GroupDialogue({"t": 12}, group_assignor_max_moves=3)
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    group.settle()
    group.restart()
    group.advance(ms=STEP_MS)
    group.settle()
    assert loads(group) == [6, 6]


def test_steps_keep_to_the_assignment_interval() -> None:
    """KIP-1263: no two computations within the interval."""
    group = GroupDialogue({"t": 12}, group_assignor_max_moves=4, group_consumer_assignment_interval_ms=3_000)
    group.heartbeat("a", epoch=0)
    group.settle()
    group.advance(ms=3_000)
    group.heartbeat("b", epoch=0)
    group.settle()
    assert loads(group) == [4, 8]
    group.advance(ms=2_999)
    assert group.group.epoch == 2
    group.advance(ms=1)
    group.settle()
    assert loads(group) == [6, 6]


def test_limit_of_none_moves_nothing_that_is_owned() -> None:
    group = GroupDialogue({"t": 12}, group_assignor_max_moves=0)
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    group.settle()
    assert loads(group) == [0, 12]
    assert group.shard.timers.deadline(assignment_key("g")) is None
    group.set_topics({"t": 14})
    group.fire_due()
    group.settle()
    assert loads(group) == [2, 12]


def test_imbalance_that_is_tolerated_costs_no_move() -> None:
    group = GroupDialogue({"t": 12}, group_assignor_imbalance=3)
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    group.settle()
    assert loads(group) == [4, 8]


def test_other_setting_is_in_effect_at_once() -> None:
    """What a limit held back, or an imbalance that was tolerated, is worked off when the group's config changes."""
    group = GroupDialogue({"t": 12}, group_assignor_max_moves=0)
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    group.settle()
    assert loads(group) == [0, 12]
    group.alter_configs({"group.assignor.max.moves": "-1", "group.assignor.imbalance": "3"})
    group.fire_due()
    group.settle()
    assert loads(group) == [4, 8]
    group.alter_configs({"group.assignor.imbalance": None})
    group.fire_due()
    group.settle()
    assert loads(group) == [6, 6]
    epoch = group.group.epoch
    group.alter_configs({"group.assignor.max.moves": "1"})
    group.fire_due()
    assert group.group.epoch == epoch, "nothing is left to move"


def own_group() -> GroupDialogue:
    """Two members whose own assignor obeys a limit of two moves; the first one had everything."""
    group = GroupDialogue(
        {"t": 8}, group_consumer_assignors=("mine",), own_assignors=("mine",), group_assignor_max_moves=2
    )
    group.heartbeat("a", epoch=0)
    group.computed([0] * 8)
    group.settle()
    group.heartbeat("b", epoch=0)
    group.computed([0] * 6 + [1] * 2)
    group.settle()
    assert loads(group) == [2, 6]
    group.advance(ms=STEP_MS)
    return group


def test_assignor_of_the_users_own_goes_in_steps_too() -> None:
    group = own_group()
    (order,) = group.computations
    assert (order.is_step, order.epoch, group.group.epoch) == (True, 4, 3)
    group.computed([0] * 4 + [1] * 4)
    assert (group.group.epoch, group.group.target_epoch) == (4, 4)
    group.settle()
    assert loads(group) == [4, 4]
    group.advance(ms=STEP_MS)
    group.computed([0] * 4 + [1] * 4)
    assert (group.group.epoch, group.group.computing) == (4, None), "nothing moves: nothing is told"
    assert group.shard.timers.deadline(assignment_key("g")) is None


def test_step_that_a_change_overtakes_is_thrown_away() -> None:
    """The change has the epoch that the step was to have."""
    group = own_group()
    group.heartbeat("c", epoch=0)
    group.computed([0] * 4 + [1] * 4)
    assert (group.group.epoch, group.group.target_epoch) == (4, 3)
    group.fire_due()
    (order,) = group.computations
    assert (order.is_step, len(order.assignable.members)) == (False, 3)
    group.computed([0] * 4 + [1] * 2 + [2] * 2)
    group.settle()
    assert loads(group) == [2, 2, 4]
