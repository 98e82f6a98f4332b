"""LeaveGroup in every state of a classic group."""

from __future__ import annotations

from kohort.coordinator.commands import LeavingMember
from kohort.coordinator.records.types import ClassicGroupStored
from kohort.errors import ErrorCode


def test_group_that_the_last_member_leaves_is_empty_and_says_so_in_the_log(dialogue):
    dialogue.stable("a")
    dialogue.advance(500)

    assert dialogue.leave("a") == [ErrorCode.NONE]

    assert dialogue.state == "Empty"
    record = dialogue.log[-1]
    assert isinstance(record, ClassicGroupStored)
    assert (record.generation, record.members, record.leader, record.protocol_name) == (2, (), None, None)
    assert record.protocol_type == "consumer"
    assert record.state_timestamp_ms == dialogue.now_ms
    assert dialogue.timers.next_deadline() is None


def test_generation_goes_on_where_an_empty_group_stopped(dialogue):
    dialogue.stable("a")
    dialogue.leave("a")

    assert dialogue.joined(dialogue.join(fresh="b", protocol_type="connect")).generation_id == 3


def test_others_rebalance_when_one_leaves(dialogue):
    generation = dialogue.stable("a", "b", "c")

    assert dialogue.leave("a") == [ErrorCode.NONE]

    assert dialogue.state == "PreparingRebalance"
    assert dialogue.group.rebalance_reason == "a left"
    assert dialogue.group.leader == "b"
    assert dialogue.heartbeat("b", generation) == ErrorCode.REBALANCE_IN_PROGRESS
    dialogue.join("b")
    dialogue.join("c")
    assert dialogue.state == "CompletingRebalance"


def test_several_leave_with_one_rebalance(dialogue):
    dialogue.stable("a", "b", "c", "d", "e")

    outcome = dialogue.leave("b", "ghost", "c", "d", "e", "e")

    assert outcome == [0, ErrorCode.UNKNOWN_MEMBER_ID, 0, 0, 0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert dialogue.members == ["a"]
    assert dialogue.group.rebalance_reason == "b, c, d and others left"
    assert dialogue.joined(dialogue.join("a")).generation_id == 6


def test_leaving_ends_the_join_phase_that_waited_for_it(dialogue):
    dialogue.stable("a", "b")
    join = dialogue.join("a")

    dialogue.leave("b")

    assert [m.member_id for m in dialogue.joined(join).members] == ["a"]


def test_parked_join_of_who_leaves_is_answered(dialogue):
    dialogue.stable("a", "b")
    join = dialogue.join("b", protocols=(("range", b"changed"),))

    dialogue.leave("b")

    assert dialogue.error(join) == ErrorCode.UNKNOWN_MEMBER_ID


def test_parked_sync_of_who_leaves_is_answered(dialogue):
    dialogue.stable("a", "b", "c")
    for member in ("a", "b", "c"):
        dialogue.join(member)
    leaving, staying = dialogue.sync("b", 4), dialogue.sync("c", 4)

    dialogue.leave("b")

    assert dialogue.error(leaving) == ErrorCode.UNKNOWN_MEMBER_ID
    assert dialogue.error(staying) == ErrorCode.REBALANCE_IN_PROGRESS
    assert dialogue.state == "PreparingRebalance"


def test_leave_of_who_is_no_member_is_refused(dialogue):
    assert dialogue.leave("ghost") == [ErrorCode.UNKNOWN_MEMBER_ID]
    dialogue.stable("a")
    assert dialogue.leave("ghost") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert dialogue.leave("") == [ErrorCode.UNKNOWN_MEMBER_ID]
    assert dialogue.leave("a", group_id="") == [ErrorCode.INVALID_GROUP_ID]
    assert dialogue.state == "Stable"


def test_expected_member_that_leaves_is_waited_for_no_longer(dialogue):
    dialogue.stable("a", "b")
    dialogue.join(fresh="c", requires_known_member_id=True)
    dialogue.join("a")
    last = dialogue.join("b")
    assert dialogue.is_parked(last)

    assert dialogue.leave("c") == [ErrorCode.NONE]

    assert dialogue.joined(last).generation_id == 3


def test_expected_member_that_leaves_moves_nobody(dialogue):
    dialogue.stable("a")
    dialogue.join(fresh="c", requires_known_member_id=True)

    assert dialogue.leave("c") == [ErrorCode.NONE]

    assert dialogue.state == "Stable"
    assert dialogue.deadline("pending", "c") is None


def test_group_that_nobody_ever_joined_is_forgotten(dialogue):
    dialogue.join(fresh="a", requires_known_member_id=True)

    dialogue.leave("a")

    assert dialogue.group is None


def test_administrator_removes_an_instance_by_its_name(dialogue):
    """KIP-571: an empty member id with an instance id."""
    dialogue.stable("a")
    dialogue.join(fresh="i-1", instance_id="i")
    dialogue.join("a")

    outcome = dialogue.leave(
        LeavingMember(member_id="", instance_id="nobody"),
        LeavingMember(member_id="a", instance_id="i"),
        LeavingMember(member_id="", instance_id="i"),
    )

    assert outcome == [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID, ErrorCode.NONE]
    assert dialogue.members == ["a"]
