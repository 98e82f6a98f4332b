"""An administrator gives partitions to members: at once, durably, and until members or topics change (H9)."""

from __future__ import annotations

from functools import partial

import pytest

from kohort.coordinator.commands import admin as asked
from kohort.coordinator.consumer.assignment.batching_window import STEP_MS
from kohort.coordinator.consumer.moves import MOST_MOVES
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import GroupDialogue
from support.dialogues.moves import answers, describe, submit
from support.work import steps_of


def test_a_partition_goes_to_the_member_that_was_named(group: GroupDialogue) -> None:
    group.stable(a=[0], b=[1])

    submit(group, {0: "b"})

    group.heartbeat("b", epoch=2).replies(epoch=3, assigned=None)
    group.heartbeat("a", epoch=2).replies(epoch=2, assigned=[])
    group.heartbeat("a", epoch=2, owned=[])
    group.heartbeat("b", epoch=3).replies(epoch=3, assigned=[0, 1])


def test_a_move_is_described_from_its_begin_to_its_end(group: GroupDialogue) -> None:
    group.stable(a=[0], b=[1])
    (taken,) = answers(submit(group, {0: "b"}))
    assert taken == ("t", 0, "t-0@1", ErrorCode.NONE, None)

    assert describe(group)[0] == ("t-0@1", "a", "b", "revoking")
    group.heartbeat("a", epoch=2)
    assert describe(group)[0] == ("t-0@1", "a", "b", "fenced")
    group.settle()
    assert describe(group)[0] == ("t-0@1", "a", "b", "granted")


def test_a_switch_stays_when_the_process_dies(group: GroupDialogue) -> None:
    group.stable(a=[0], b=[1])
    submit(group, {0: "b"})

    group.restart()

    assert describe(group) == [("t-0@1", "a", "b", "revoking")]
    group.settle()
    assert group.holders() == {"a": set(), "b": {("t", 0), ("t", 1)}}


@pytest.mark.parametrize("max_moves", [-1, 1])
def test_no_step_to_an_even_target_undoes_a_switch(max_moves: int) -> None:
    group = GroupDialogue({"t": 4}, group_assignor_max_moves=max_moves)
    group.heartbeat("a", epoch=0)
    group.settle()
    group.heartbeat("b", epoch=0)
    for _ in range(3):
        group.settle()
        group.advance(ms=STEP_MS)

    submit(group, dict.fromkeys(range(4), "b"))
    for _ in range(3):
        group.settle()
        group.restart()
        group.advance(ms=2 * STEP_MS)

    assert group.holders() == {"a": set(), "b": {("t", partition) for partition in range(4)}}


def test_the_assignor_decides_anew_when_a_member_comes(group: GroupDialogue) -> None:
    group.set_topics({"t": 3})
    group.heartbeat("a", epoch=0)
    group.heartbeat("b", epoch=0)
    group.settle()
    submit(group, {0: "a", 1: "a", 2: "a"})
    group.settle()
    assert len(group.holders()["a"]) == 3

    group.heartbeat("c", epoch=0)
    group.settle()

    assert [len(held) for held in group.holders().values()] == [1, 1, 1]


def test_each_move_of_a_request_stands_by_itself(group: GroupDialogue) -> None:
    group.set_topics({"t": 6, "u": 1})
    group.heartbeat("a", epoch=0)
    group.heartbeat("b", epoch=0)
    group.heartbeat("s", epoch=0, instance_id="s", topics=["t", "u"])
    group.settle()
    group.heartbeat("s", epoch=-2, instance_id="s")
    moves = [("t", 0, "b"), ("t", 1, "b"), ("t", 1, "b"), ("t", 6, "b"), ("t", -1, "b"), ("x", 0, "b")]
    moves += [("u", 0, "b"), ("t", 2, "nobody"), ("t", 3, "s")]
    epoch = group.group.epoch

    found = answers(submit(group, moves))

    assert [code for _, _, _, code, _ in found] == [
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.INVALID_REQUEST,
    ]
    assert all((message is None) == (code == ErrorCode.NONE) for *_, code, message in found)
    assert group.group.epoch == epoch + 1
    assert 0 in group.group.targets["b"][group.topic_id("t")]


def test_what_changes_nothing_is_no_new_epoch(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    for moves, validate_only in (({0: "a"}, False), ({5: "a"}, False), ({}, False), ({0: "a"}, True)):
        submit(group, moves, validate_only=validate_only)
    assert group.group.epoch == 1
    assert group.new_records() == []


def test_a_group_that_cannot_be_asked_refuses_as_a_whole() -> None:
    group = GroupDialogue(group_consumer_assignment_window_ms=50)
    submit(group, {0: "a"}).is_refused(ErrorCode.GROUP_ID_NOT_FOUND)
    submit(group, {0: "a"}, group_id="").is_refused(ErrorCode.INVALID_GROUP_ID)
    group.heartbeat("a", epoch=0)
    submit(group, {0: "a"}).is_refused(ErrorCode.REBALANCE_IN_PROGRESS, saying="submit the moves again")
    group.settle()
    submit(group, dict.fromkeys(range(MOST_MOVES + 1), "a")).is_refused(ErrorCode.INVALID_REQUEST)
    assert describe(group) == []


def test_ten_thousand_moves_of_one_request_are_ten_times_the_work_of_a_thousand() -> None:
    steps: list[int] = []
    for count in (MOST_MOVES // 10, MOST_MOVES):
        group = GroupDialogue({"t": count})
        group.heartbeat("a", epoch=0)
        group.heartbeat("b", epoch=0)
        moves = tuple(asked.AskedMove(topic="t", partition=each, to_member_id="b") for each in range(count))
        command = asked.SubmitMoves(cause=group.cause(), request=group.request(), group_id="g", moves=moves)
        steps.append(steps_of(partial(group.shard.handle, command, now_ms=group.now_ms)))
    assert steps[1] < 11 * steps[0]
