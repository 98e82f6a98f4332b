"""How far each move is, with its times, and what has ended (H3, H9)."""

from __future__ import annotations

from functools import partial

import pytest

from kohort.coordinator import shard
from kohort.coordinator.consumer.moves import PHASES, MoveTimes
from support.coordinator_dialogue import GroupDialogue
from support.moves import describe, statuses, submit

BEGIN_MS = 1_000_000


def times(group: GroupDialogue) -> tuple[int, ...]:
    """When the one move was submitted, begun, fenced, committed and granted, since the dialogue began."""
    (move,) = statuses(group)
    assert move.phase in PHASES
    found = (move.submitted_ms, move.begun_ms, move.fenced_ms, move.committed_ms, move.granted_ms)
    return tuple(at_ms - BEGIN_MS if at_ms >= 0 else -1 for at_ms in found)


@pytest.fixture
def moving() -> GroupDialogue:
    """Partition 0 is to go from a to b; moves are paused."""
    group = GroupDialogue(group_moves_paused=True)
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    group.settle()
    submit(group, {0: "b", 1: "a"})
    return group


def test_each_phase_of_a_move_has_its_time(moving: GroupDialogue) -> None:
    assert times(moving) == (0, -1, -1, -1, -1)
    moving.advance(ms=1_000)
    moving.alter_configs({"group.moves.paused": "false"})
    moving.fire_due()
    assert times(moving) == (0, 1_000, -1, -1, -1)
    moving.advance(ms=1_000)
    moving.heartbeat("a", epoch=1)
    assert times(moving) == (0, 1_000, 2_000, -1, -1)
    moving.advance(ms=1_000)
    moving.heartbeat("a", epoch=1, owned=[1])
    assert times(moving) == (0, 1_000, 2_000, 3_000, -1)
    assert describe(moving)[0][-1] == "committed"
    moving.advance(ms=1_000)
    moving.settle()
    assert times(moving) == (0, 1_000, 2_000, 3_000, 4_000)
    assert describe(moving) == [("t-0@1", "a", "b", "granted")]


def test_an_owner_that_is_fenced_has_committed_nothing(moving: GroupDialogue) -> None:
    moving.alter_configs({"group.moves.paused": "false"})
    moving.fire_due()
    moving.heartbeat("a", epoch=1)
    for _ in range(60):
        moving.report(moving.member("b"))
        moving.advance(ms=1_000)
    assert [(each.phase, each.committed_ms) for each in statuses(moving)] == [("granted", -1)]


def test_what_is_submitted_says_who_wanted_it(group: GroupDialogue) -> None:
    group.stable(a=[0], b=[1])
    submit(group, {0: "b"})
    group.heartbeat("c", epoch=0)
    assert [(move.move_id, move.cause) for move in statuses(group)] == [
        ("t-0@1", "administrator moved partitions"),
        ("t-1@2", "assignment"),
    ]


def test_a_move_that_is_called_off_is_none(moving: GroupDialogue) -> None:
    submit(moving, {0: "a"})
    assert describe(moving) == []
    moving.alter_configs({"group.moves.paused": "false"})
    moving.fire_due()
    moving.settle()
    assert moving.holders() == {"a": {("t", 0), ("t", 1)}, "b": set()}


def test_a_restart_knows_what_moves_by_the_same_name_and_no_times(moving: GroupDialogue) -> None:
    before = describe(moving)
    moving.restart()
    assert describe(moving) == before
    assert [move.begun_ms for move in statuses(moving)] == [-1]


def test_a_group_that_goes_is_forgotten_with_its_moves(group: GroupDialogue) -> None:
    group.stable(a=[0], b=[1])
    submit(group, {0: "b"})
    group.settle()
    assert len(statuses(group)) == 1
    for name in "ab":
        group.leave(name)
    group.delete_group().is_done()
    group.stable(a=[0, 1])
    assert statuses(group) == []


def test_what_has_ended_is_bounded_and_the_group_with_most_loses_its_oldest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shard, "MoveTimes", partial(MoveTimes, most_ended=10))
    group = GroupDialogue()
    for group_id, count in (("small", 2), ("large", 40)):
        group.group_id = group_id
        group.stable(a=[0], b=[1])
        for number in range(count):
            submit(group, {0: "ba"[number % 2]})
            group.settle()
            group.advance(ms=1)
    assert 1 <= len(describe(group)) <= 8
    assert statuses(group)[0].granted_ms == group.now_ms - 1
    group.group_id = "small"
    assert len(describe(group)) == 2
