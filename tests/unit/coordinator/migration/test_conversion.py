"""A group id changes its kind, and what tools see of both kinds."""

from __future__ import annotations

import pytest

from kohort.coordinator import commands
from kohort.coordinator.commands.admin import DescribeClassicGroupReply
from kohort.coordinator.records.types import (
    ClassicGroupForgotten,
    ConsumerGroupForgotten,
    TargetAssignmentEpochForgotten,
)
from kohort.errors import ErrorCode
from support.dialogues.mixed_dialogue import MixedDialogue


@pytest.fixture
def classic(group: MixedDialogue) -> MixedDialogue:
    """The group has one classic member, "x", that is Stable."""
    assert group.join(fresh="x").body_as(commands.JoinGroupReply).generation_id == 1
    assert group.sync("x", 1, {"x": b"mine"}).body_as(commands.SyncGroupReply).assignment == b"mine"
    group.new_records()
    return group


def test_heartbeat_of_nobody_leaves_a_classic_group_alone(classic: MixedDialogue) -> None:
    classic.heartbeat("a", epoch=1).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert classic.list_groups() == [("g", "consumer", "Stable", "classic")]
    assert classic.new_records() == []


def test_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(classic: MixedDialogue) -> None:
    assert classic.commit({0: 5}, member_id="x", epoch=1).errors() == (ErrorCode.NONE,)
    classic.leave_group("x")
    classic.new_records()
    classic.heartbeat("a", epoch=0).replies(epoch=1, assigned=[0, 1])
    assert classic.new_records()[0] == ClassicGroupForgotten(group_id="g")
    assert classic.list_groups() == [("g", "consumer", "Stable", "consumer")]
    assert classic.committed([0]) == {0: 5}
    classic.restart()
    assert classic.list_groups() == [("g", "consumer", "Stable", "consumer")]


def test_simple_group_becomes_either_kind(group: MixedDialogue) -> None:
    group.commit({0: 5})
    group.heartbeat("a", epoch=0).replies(epoch=1, assigned=[0, 1])
    assert group.committed([0]) == {0: 5}


def test_consumer_group_knows_no_classic_members_that_did_not_join(group: MixedDialogue) -> None:
    group.stable(a=[0, 1])
    group.sync("x", 1, {"x": b"mine"}).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    group.ask(
        commands.Heartbeat(cause=group.cause(), request=group.request(), group_id="g", generation_id=1, member_id="x")
    ).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    described = group.describe_classic().body_as(DescribeClassicGroupReply)
    assert (described.error, described.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert group.new_records() == []


def test_empty_consumer_group_becomes_classic_and_keeps_its_offsets(group: MixedDialogue) -> None:
    group.stable(a=[0, 1])
    group.commit({0: 5}, member_id="a", epoch=1)
    group.leave("a")
    group.new_records()
    assert group.join(fresh="x").body_as(commands.JoinGroupReply).generation_id == 1
    assert group.new_records()[:2] == [
        TargetAssignmentEpochForgotten(group_id="g"),
        ConsumerGroupForgotten(group_id="g"),
    ]
    group.sync("x", 1, {"x": b"mine"})
    assert group.list_groups() == [("g", "consumer", "Stable", "classic")]
    assert group.committed([0]) == {0: 5}
    group.restart()
    assert group.list_groups() == [("g", "consumer", "Stable", "classic")]


def test_refused_classic_join_leaves_the_empty_consumer_group_alone(group: MixedDialogue) -> None:
    group.stable(a=[0, 1])
    group.leave("a")
    group.new_records()
    answer = group.join(fresh="x", protocol_type="")
    assert not answer.is_parked
    assert group.new_records() == []
    assert group.list_groups() == [("g", "consumer", "Empty", "consumer")]


def test_lists_are_filtered_by_state_and_type_in_any_case(group: MixedDialogue) -> None:
    group.stable(a=[0, 1])
    group.heartbeat("z", epoch=0, group_id="f")
    group.leave("a")
    group.commit({0: 1}, group_id="simple")
    empty, stable = ("g", "consumer", "Empty", "consumer"), ("f", "consumer", "Stable", "consumer")
    simple = ("simple", "", "Empty", "classic")
    assert group.list_groups() == [stable, empty, simple]
    assert group.list_groups(states=["empty"]) == [empty, simple]
    assert group.list_groups(states=["STABLE", "Dead"]) == [stable]
    assert group.list_groups(types=["Classic"]) == [simple]
    assert group.list_groups(states=["empty"], types=["CONSUMER"]) == [empty]


def test_classic_group_is_described_by_its_own_kind_only(classic: MixedDialogue) -> None:
    classic.describe().is_refused(ErrorCode.GROUP_ID_NOT_FOUND, saying="not a consumer group")
    described = classic.describe_classic().body_as(DescribeClassicGroupReply)
    assert (described.state, described.members[0].assignment) == ("Stable", b"mine")


def test_offsets_of_a_classic_group_are_deleted_unless_somebody_reads_the_topic(classic: MixedDialogue) -> None:
    classic.set_topics({"t": 2, "u": 1})
    classic.commit({0: 1, ("u", 0): 2}, member_id="x", epoch=1)
    assert classic.delete_offsets([0, ("u", 0)]).errors() == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)
    classic.delete_group().is_refused(ErrorCode.NON_EMPTY_GROUP)
    classic.leave_group("x")
    assert classic.delete_offsets([0]).errors() == (ErrorCode.NONE,)
    classic.delete_group().is_done()
    assert classic.list_groups() == []


def test_offsets_of_a_member_whose_subscription_cannot_be_read_stay(group: MixedDialogue) -> None:
    group.join(fresh="x", protocols=[("range", b"\0\0 nonsense")])
    group.sync("x", 1, {"x": b"mine"})
    group.commit({0: 1}, member_id="x", epoch=1)
    assert group.delete_offsets([0]).errors() == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,)


def test_offsets_of_other_kinds_of_members_are_not_deleted(group: MixedDialogue) -> None:
    """Kafka Connect's groups use the classic protocol, and their subscriptions are not ours to read."""
    group.join(fresh="x", protocol_type="connect")
    group.sync("x", 1, {"x": b"mine"})
    group.delete_offsets([0]).is_refused(ErrorCode.NON_EMPTY_GROUP)


def test_commit_to_a_classic_group_follows_its_generation(classic: MixedDialogue) -> None:
    classic.commit({0: 1}, member_id="x", epoch=7).is_refused(ErrorCode.ILLEGAL_GENERATION)
    classic.advance(ms=9_000)
    assert classic.commit({0: 1}, member_id="x", epoch=1).errors() == (ErrorCode.NONE,)
    classic.advance(ms=9_000)
    assert classic.list_groups() == [("g", "consumer", "Stable", "classic")]
    assert classic.committed([0], member_id="x", member_epoch=1) == {0: 1}


def test_parked_join_is_answered_once_by_a_later_decision(classic: MixedDialogue) -> None:
    """The seam for late answers: the reply to one request is an effect of another's decision."""
    waiting = classic.join(fresh="y")
    assert waiting.is_parked
    again = classic.join("x")
    assert waiting.body_as(commands.JoinGroupReply).generation_id == 2
    assert again.body_as(commands.JoinGroupReply).generation_id == 2
