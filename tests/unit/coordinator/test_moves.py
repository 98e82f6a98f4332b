"""How far each move is, with its times, and what has ended (H3, H9)."""

from __future__ import annotations

import pytest

from kohort.coordinator.consumer.moves import PHASES
from kohort.coordinator.records.types import SubmittedMoveForgotten, SubmittedMoveSet
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.moves import describe, statuses, submit

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


@pytest.mark.parametrize("steps", range(2, 6))
def test_a_restart_knows_each_phase_of_what_was_asked_for_with_its_times(moving: GroupDialogue, steps: int) -> None:
    submit(moving, {0: "b"})
    for step in (
        lambda: moving.alter_configs({"group.moves.paused": "false"}),
        moving.fire_due,
        lambda: moving.heartbeat("a", epoch=1),
        lambda: moving.heartbeat("a", epoch=1, owned=[1]),
        moving.settle,
    )[:steps]:
        moving.advance(ms=1_000)
        step()
    before = statuses(moving)

    moving.restart()

    assert statuses(moving) == before
    assert [move.cause for move in before] == ["administrator moved partitions"]
    moving.settle()
    assert describe(moving) == [("t-0@1", "a", "b", "granted")]


def test_a_restart_knows_what_the_assignor_moves_by_the_same_name_and_no_times(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    before = describe(group)
    assert [move.begun_ms for move in statuses(group)] == [BEGIN_MS]
    group.restart()
    assert describe(group) == before
    assert [move.begun_ms for move in statuses(group)] == [-1]


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


def test_what_has_ended_is_known_until_the_partition_is_asked_for_again(group: GroupDialogue) -> None:
    """So it is bounded as committed offsets are: one for each partition of a group."""
    group.stable(a=[0], b=[1])
    for number in range(5):
        submit(group, {0: "ba"[number % 2]})
        group.settle()
        group.advance(ms=1)
    (last,) = statuses(group)
    assert (last.to_member_id, last.granted_ms) == ("b", group.now_ms - 1)
    group.restart()
    assert statuses(group) == [last]


def test_what_was_asked_for_is_forgotten_with_its_topic(group: GroupDialogue) -> None:
    group.set_topics({"t": 2, "u": 2})
    group.heartbeat("a", epoch=0, topics=["t", "u"])
    group.heartbeat("b", epoch=0, topics=["t", "u"])
    group.settle()
    submit(group, [("u", number, "a") for number in range(2)])
    group.settle()
    assert {move.topic for move in statuses(group)} == {"u"}
    group.set_topics({"t": 2})
    assert [type(record) for record in group.new_records() if isinstance(record, SubmittedMoveForgotten)]
    assert statuses(group) == []


def test_what_the_assignor_decides_anew_nobody_has_asked_for() -> None:
    group = GroupDialogue({"t": 6}, group_moves_paused=True)
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    submit(group, dict.fromkeys(range(6), "b"))
    asked_for = {move.move_id for move in statuses(group) if move.cause == "administrator moved partitions"}
    assert len(asked_for) == 3, "the assignor gives b the others anyway"
    group.heartbeat("c", epoch=0)
    causes = {move.move_id: (move.to_member_id, move.cause) for move in statuses(group)}
    assert {cause for taker, cause in causes.values() if taker != "b"} == {"assignment"}
    assert asked_for - causes.keys(), "what goes back to its owner is none"
    group.restart()
    assert {move.move_id: (move.to_member_id, move.cause) for move in statuses(group)} == causes


@pytest.mark.parametrize("side", ["one", "two"])
def test_the_process_that_takes_a_static_member_s_place_takes_its_moves_too(side: str) -> None:
    """KIP-345: whoever comes back under the name changes nothing about who shall have what."""
    group = GroupDialogue({"t": 2}, group_moves_paused=True)
    for name in ("one", "two"):
        group.heartbeat(name, epoch=0, instance_id=name)
        group.settle()
    submit(group, {0: "two", 1: "two"})
    group.heartbeat(side, epoch=-2, instance_id=side)
    group.heartbeat("new", epoch=0, instance_id=side)
    group.settle()
    group.alter_configs({"group.moves.paused": "false"})
    group.fire_due()
    group.settle()
    moves = statuses(group)
    assert {(move.cause, move.phase) for move in moves} <= {("administrator moved partitions", "granted")}
    assert len(group.holders()["new" if side == "two" else "two"]) == 2


def test_a_commit_writes_nothing_about_moves(moving: GroupDialogue) -> None:
    moving.new_records()
    moving.commit({0: 7}, member_id="a", epoch=1)
    assert not any(isinstance(record, SubmittedMoveSet) for record in moving.new_records())
