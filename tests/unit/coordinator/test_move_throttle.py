"""So many moves begin per second, none waits for another, and what nobody owns is not paced (H4)."""

from __future__ import annotations

import pytest

from kohort.coordinator.commands.admin import DescribeConsumerGroupReply
from kohort.coordinator.decision import TimerKey
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.hold_dialogue import HoldDialogue
from support.dialogues.mixed_dialogue import MixedDialogue
from support.dialogues.moves import describe, submit

PACE = "group.moves.per.second"


def loads(group: GroupDialogue) -> dict[str, int]:
    return {member_id: len(held) for member_id, held in group.holders().items()}


def phases(group: GroupDialogue) -> list[str]:
    return [phase for *_, phase in describe(group)]


@pytest.fixture
def paced() -> GroupDialogue:
    """Two moves a second; a has eight partitions, and b has come, which shall have half of them."""
    group = GroupDialogue({"t": 8}, group_moves_per_second=2.0)
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    group.new_records()
    return group


def test_moves_begin_one_after_the_other(paced: GroupDialogue) -> None:
    seen = []
    for _ in range(5):
        paced.settle()
        seen.append(loads(paced)["b"])
        paced.advance(ms=500)
    assert seen == [1, 2, 3, 4, 4]
    assert paced.group.epoch == 2, "it is one assignment"
    assert paced.shard.timers.deadline(TimerKey("moves", "g")) is None


def test_no_move_waits_for_another(paced: GroupDialogue) -> None:
    """The old owner has not given the first up, and is asked for the next."""
    asked = []
    for _ in range(4):
        paced.fire_due()
        reply = paced.heartbeat("a", epoch=1).body
        asked.append(8 - sum(len(found) for found in reply.assignment.values()))
        paced.advance(ms=500)
    assert asked == [1, 2, 3, 4]
    assert phases(paced) == ["fenced"] * 4


def test_until_its_move_begins_neither_side_is_told(paced: GroupDialogue) -> None:
    paced.settle()
    told = [paced.heartbeat(name, epoch=paced.member(name).member_epoch, owned=None).body for name in "ab"]
    assert [reply.assignment for reply in told] == [None, None]
    assert not paced.group.behind
    assert phases(paced) == ["waiting"] * 3
    assert paced.list_groups()[0][2] == "Reconciling"


def test_a_group_whose_moves_are_paused_is_stable(paced: GroupDialogue) -> None:
    """Kafka's tools wait for groups to be Stable: nothing goes on in this one until an administrator says so."""
    paced.settle()
    paced.alter_configs({"group.moves.paused": "true"})
    assert paced.list_groups()[0][2] == "Stable"
    assert paced.describe().body_as(DescribeConsumerGroupReply).state == "Stable"
    assert phases(paced) == ["waiting"] * 3
    paced.alter_configs({"group.moves.paused": "false"})
    assert paced.list_groups()[0][2] == "Reconciling"


def test_a_group_that_comes_from_the_classic_protocol_is_paced_from_its_first_move_on() -> None:
    group = MixedDialogue({"t": 8}, group_moves_per_second=1.0)
    clients = group.classic_group(x=[0, 1, 2, 3], y=[4, 5, 6, 7])
    group.heartbeat("a", epoch=0)
    seen = []
    for _ in range(3):
        group.fire_due()
        group.settle_all(*clients.values())
        seen.append(loads(group)["a"])
        group.advance(ms=1_000)
    assert seen == [1, 2, 2]


def test_a_burst_begins_at_once() -> None:
    group = GroupDialogue({"t": 8}, group_moves_per_second=1.0, group_moves_burst=3)
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    group.settle()
    assert loads(group)["b"] == 3
    group.advance(ms=999)
    group.settle()
    assert loads(group)["b"] == 3
    group.advance(ms=1)
    group.settle()
    assert loads(group)["b"] == 4


def test_what_nobody_owns_is_not_paced(paced: GroupDialogue) -> None:
    paced.settle()
    paced.set_topics({"t": 12})
    paced.fire_due()
    paced.settle()
    assert sum(loads(paced).values()) == 12


@pytest.mark.parametrize("leaves", ["leave", "fall silent"])
def test_what_a_member_leaves_behind_is_not_paced(paced: GroupDialogue, leaves: str) -> None:
    paced.settle()
    if leaves == "leave":
        paced.leave("a")
    else:
        for _ in range(45):
            paced.report(paced.member("b"))
            paced.now_ms += 1_000
            paced.alter_configs({"group.moves.paused": "true"})
        paced.fire_due()
    paced.settle()
    assert loads(paced) == {"b": 8}


def test_a_static_member_that_leaves_for_a_while_keeps_nobody_waiting() -> None:
    group = GroupDialogue({"t": 4}, group_moves_paused=True)
    group.heartbeat("a", epoch=0, instance_id="one")
    group.heartbeat("b", epoch=0)
    group.settle()
    assert loads(group) == {"a": 4, "b": 0}
    group.heartbeat("a", epoch=-2, instance_id="one")
    group.settle()
    assert loads(group) == {"a": 2, "b": 2}


def test_another_pace_is_in_effect_while_moves_wait(paced: GroupDialogue) -> None:
    paced.settle()
    paced.alter_configs({PACE: "0.1"})
    paced.advance(ms=9_000)
    paced.settle()
    assert loads(paced)["b"] == 1
    paced.alter_configs({PACE: "1000"})
    paced.advance(ms=10)
    paced.settle()
    assert loads(paced)["b"] == 4


def test_a_pace_that_is_taken_back_lets_everything_begin(paced: GroupDialogue) -> None:
    paced.settle()
    paced.alter_configs({PACE: "0"})
    paced.fire_due()
    paced.settle()
    assert loads(paced) == {"a": 4, "b": 4}


def test_a_pace_that_is_set_holds_back_what_nobody_was_told() -> None:
    group = GroupDialogue({"t": 8})
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    group.alter_configs({PACE: "1"})
    group.fire_due()
    group.settle()
    assert loads(group) == {"a": 7, "b": 1}


def test_paused_moves_go_on_where_they_were(paced: GroupDialogue) -> None:
    paced.settle()
    paced.alter_configs({"group.moves.paused": "true"})
    paced.advance(ms=40_000)
    paced.settle()
    assert loads(paced)["b"] == 1
    paced.alter_configs({"group.moves.paused": None})
    for _ in range(3):
        paced.fire_due()
        paced.settle()
        paced.advance(ms=500)
    assert loads(paced)["b"] == 4


def test_a_restart_finds_what_waits(paced: GroupDialogue) -> None:
    paced.settle()
    waiting = describe(paced)
    assert len(waiting) == 3

    paced.restart()

    assert describe(paced) == waiting
    paced.settle()
    assert loads(paced)["b"] == 2
    paced.advance(ms=1_000)
    paced.settle()
    assert loads(paced)["b"] == 4


def test_a_switch_goes_at_the_pace_and_a_restart_does_not_undo_it(paced: GroupDialogue) -> None:
    paced.advance(ms=2_000)
    paced.settle()
    submit(paced, dict.fromkeys(range(8), "b"))
    paced.settle()
    assert loads(paced)["b"] == 5
    paced.restart()
    paced.advance(ms=2_000)
    paced.settle()
    assert loads(paced) == {"a": 0, "b": 8}


def test_a_member_that_comes_meanwhile_changes_who_gets_what_waits(paced: GroupDialogue) -> None:
    paced.settle()
    paced.heartbeat("c", epoch=0)
    for _ in range(8):
        paced.settle()
        paced.advance(ms=500)
    assert sorted(loads(paced).values()) == [2, 3, 3]


def test_what_goes_back_to_its_owner_before_it_begins_does_not_move(paced: GroupDialogue) -> None:
    paced.settle()
    paced.leave("b")
    paced.settle()
    assert loads(paced) == {"a": 8}
    assert not paced.group.waiting


@pytest.mark.parametrize(
    ("name", "value"),
    [(PACE, "-1"), (PACE, "nan"), (PACE, "inf"), (PACE, "10001"), (PACE, "fast"), ("group.moves.burst", "0")],
)
def test_a_pace_out_of_bounds_is_refused(paced: GroupDialogue, name: str, value: str) -> None:
    paced.alter_configs({name: value}).is_refused(ErrorCode.INVALID_CONFIG, saying=name)
    assert paced.configs() == {}


def test_the_slowest_pace_is_one_move_in_a_thousand_seconds(paced: GroupDialogue) -> None:
    paced.settle()
    paced.alter_configs({PACE: "1e-300"})
    paced.advance(ms=999_000)
    assert len(describe(paced)) <= 3


def test_a_held_heartbeat_is_answered_when_the_move_of_its_member_begins() -> None:
    group = HoldDialogue({"t": 4})
    group.at_rest(a=[0, 1], b=[2, 3])
    group.alter_configs({PACE: "2"})
    held = group.beat("a"), group.beat("b")
    submit(group, {0: "b", 1: "b"})

    group.advance(0)

    held[0].replies(epoch=2, assigned=[1])
    assert held[1].is_parked
    again = group.beat("a", owned=[1])
    held[1].replies(epoch=3, assigned=[0, 2, 3])
    assert again.is_parked
    group.advance(500)
    again.replies(epoch=3, assigned=[])
