"""Held heartbeats of classic members (requirement H1): in a group of their own, and in one of the consumer protocol."""

from __future__ import annotations

import pytest

from kohort.coordinator import commands, delayed_heartbeats
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import Answer
from support.dialogues.hold_dialogue import ClassicHoldDialogue


@pytest.fixture
def group() -> ClassicHoldDialogue:
    return ClassicHoldDialogue({"t": 4}, group_initial_rebalance_delay_ms=0)


def test_heartbeat_is_held_for_a_quarter_of_the_session_at_most(group: ClassicHoldDialogue) -> None:
    """Of 10 s here; a client whose session ends within a hold would be given up by it."""
    members = group.classic_group(a=[0, 1], b=[2, 3])
    short, long = group.wait(members["a"], hold_ms=1_000), group.wait(members["b"], hold_ms=60_000)
    group.advance(999)
    assert short.is_parked
    group.advance(1)
    short.is_done()
    group.advance(1_499)
    assert long.is_parked
    group.advance(1)
    long.is_done()
    assert not group.shard.groups.holds


def test_join_is_told_the_moment_it_happens(group: ClassicHoldDialogue) -> None:
    members = group.classic_group(a=[0, 1], b=[2, 3])
    held = [group.wait(each) for each in members.values()]
    group.client("c").send_join()
    group.tell_news()
    for answer in held:
        answer.is_refused(ErrorCode.REBALANCE_IN_PROGRESS)


def test_leave_is_told_the_moment_it_happens(group: ClassicHoldDialogue) -> None:
    members = group.classic_group(a=[0, 1], b=[2, 3])
    held = group.wait(members["a"])
    group.leave_group(members["b"].member_id)
    group.tell_news()
    held.is_refused(ErrorCode.REBALANCE_IN_PROGRESS)


def test_who_is_told_to_rejoin_or_is_no_member_is_answered_at_once(group: ClassicHoldDialogue) -> None:
    members = group.classic_group(a=[0, 1], b=[2, 3])
    group.client("c").send_join()
    group.wait(members["a"]).is_refused(ErrorCode.REBALANCE_IN_PROGRESS)
    members["a"].member_id = "stranger"
    group.wait(members["a"]).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)


def test_session_runs_from_the_arrival_of_what_is_held(group: ClassicHoldDialogue) -> None:
    """A process that stands still is given up in time, and its answer that is released does not count, nor there."""
    members = group.classic_group(a=[0, 1, 2, 3])
    group.wait(members["a"], counts_requests=True)
    group.advance(9_999)
    assert members["a"].member_id in group.shard.groups.classic["g"].members
    group.advance(1)
    assert not group.shard.groups.classic["g"].members


def test_what_was_held_of_the_answer_of_a_stock_client_is_added_to_its_session(group: ClassicHoldDialogue) -> None:
    """librdkafka and kafka-python let go when the coordinator was silent for a session since its last answer."""
    members = group.classic_group(a=[0, 1, 2, 3])
    answer, held_ms = group.wait(members["a"]), 10_000 // delayed_heartbeats.HOLDS_PER_SESSION
    group.advance(held_ms)
    assert not answer.is_parked
    group.advance(9_999)
    assert members["a"].member_id in group.shard.groups.classic["g"].members
    group.advance(1)
    assert not group.shard.groups.classic["g"].members


def test_administrator_removes_who_waits(group: ClassicHoldDialogue) -> None:
    members = group.classic_group(a=[0, 1], b=[2, 3])
    held = group.wait(members["a"])
    group.leave_group(members["a"].member_id)
    group.tell_news()
    held.is_refused(ErrorCode.UNKNOWN_MEMBER_ID)


def test_static_member_whose_place_is_taken_is_told(group: ClassicHoldDialogue) -> None:
    first = group.client("a", instance_id="i")
    group.rebalance(first, shares={"a": [0, 1, 2, 3]})
    held = group.wait(first)
    group.client("b", instance_id="i").send_join()
    group.tell_news()
    held.is_refused(ErrorCode.FENCED_INSTANCE_ID)


def test_group_that_gets_the_consumer_protocol_keeps_its_classic_members_waiting(group: ClassicHoldDialogue) -> None:
    """They are told to rejoin once they have to give something up."""
    members = group.classic_group(a=[0, 1, 2, 3])
    held = group.wait(members["a"])
    group.heartbeat("b", epoch=0)
    group.tell_news()
    held.is_refused(ErrorCode.REBALANCE_IN_PROGRESS)
    members["a"].rejoin()
    members["a"].rejoin()
    assert group.wait(members["a"]).is_parked


def test_classic_member_is_told_of_what_is_free_for_it(group: ClassicHoldDialogue) -> None:
    members = group.classic_group(a=[0, 1, 2, 3])
    group.heartbeat("b", epoch=0)
    group.settle_all(*members.values())
    held = group.wait(members["a"])
    assert held.is_parked
    group.leave("b")
    group.tell_news()
    held.is_refused(ErrorCode.REBALANCE_IN_PROGRESS)


def test_who_leaves_is_found_by_its_request(group: ClassicHoldDialogue) -> None:
    """Its heartbeat, which stands before the leave on its connection, is answered first; a request may name many."""
    members = group.classic_group(a=[0, 1], b=[2, 3])
    held: list[Answer] = [group.wait(each) for each in members.values()]
    leaving = tuple(commands.LeavingMember(member_id=each.member_id) for each in members.values())
    strangers = tuple(commands.LeavingMember(member_id=f"m{number}") for number in range(3_000))
    command = commands.LeaveGroup(
        cause=group.cause(), request=group.request(), group_id="g", members=(*strangers, *leaving)
    )
    for former in group.shard.find_former(command):
        group.release(former)
    for answer in held:
        answer.is_done()
