"""A group id changes its kind, and what tools see of both kinds."""

from __future__ import annotations

import pytest

from kohort.coordinator import commands as asked
from kohort.coordinator.records import (
    ClassicGroupForgotten,
    ConsumerGroupForgotten,
    TargetAssignmentEpochForgotten,
)
from kohort.errors import ErrorCode
from support.coordinator_dialogue import Answer, GroupDialogue

SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


def join(
    group: GroupDialogue, member_id: str, *, protocol_type: str = "consumer", metadata: bytes = SUBSCRIPTION
) -> Answer:
    """A classic member that makes its id itself, as one does that comes back."""
    return group.ask(
        asked.JoinGroup(
            cause=group.cause(),
            request=group.request(),
            group_id="g",
            member_id="",
            fresh_member_id=member_id,
            client_id="c",
            client_host="h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type=protocol_type,
            protocols=(("range", metadata),),
        )
    )


def sync(group: GroupDialogue, member_id: str, *, generation_id: int = 1) -> Answer:
    return group.ask(
        asked.SyncGroup(
            cause=group.cause(),
            request=group.request(),
            group_id="g",
            generation_id=generation_id,
            member_id=member_id,
            assignments={member_id: b"mine"},
        )
    )


def leave(group: GroupDialogue, member_id: str) -> Answer:
    leaving = asked.LeavingMember(member_id=member_id)
    return group.ask(asked.LeaveGroup(cause=group.cause(), request=group.request(), group_id="g", members=(leaving,)))


@pytest.fixture
def classic(group: GroupDialogue) -> GroupDialogue:
    """The group has one classic member, "x", that is Stable."""
    assert join(group, "x").body_as(asked.JoinGroupReply).generation_id == 1
    assert sync(group, "x").body_as(asked.SyncGroupReply).assignment == b"mine"
    group.new_records()
    return group


def test_heartbeat_of_nobody_leaves_a_classic_group_alone(classic: GroupDialogue) -> None:
    classic.heartbeat("a", epoch=1).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert classic.list_groups() == [("g", "consumer", "Stable", "classic")]
    assert classic.new_records() == []


def test_empty_classic_group_becomes_a_consumer_group_and_keeps_its_offsets(classic: GroupDialogue) -> None:
    assert classic.commit({0: 5}, member_id="x", epoch=1).errors() == (ErrorCode.NONE,)
    leave(classic, "x")
    classic.new_records()
    classic.heartbeat("a", epoch=0).replies(epoch=1, assigned=[0, 1])
    assert classic.new_records()[0] == ClassicGroupForgotten(group_id="g")
    assert classic.list_groups() == [("g", "consumer", "Stable", "consumer")]
    assert classic.committed([0]) == {0: 5}
    classic.restart()
    assert classic.list_groups() == [("g", "consumer", "Stable", "consumer")]


def test_simple_group_becomes_either_kind(group: GroupDialogue) -> None:
    group.commit({0: 5})
    group.heartbeat("a", epoch=0).replies(epoch=1, assigned=[0, 1])
    assert group.committed([0]) == {0: 5}


def test_consumer_group_knows_no_classic_members_that_did_not_join(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    sync(group, "x").is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    group.ask(
        asked.Heartbeat(cause=group.cause(), request=group.request(), group_id="g", generation_id=1, member_id="x")
    ).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    described = group.describe_classic().body_as(asked.DescribeClassicGroupReply)
    assert (described.error, described.state) == (ErrorCode.GROUP_ID_NOT_FOUND, "Dead")
    assert group.new_records() == []


def test_empty_consumer_group_becomes_classic_and_keeps_its_offsets(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    group.commit({0: 5}, member_id="a", epoch=1)
    group.leave("a")
    group.new_records()
    assert join(group, "x").body_as(asked.JoinGroupReply).generation_id == 1
    assert group.new_records()[:2] == [
        TargetAssignmentEpochForgotten(group_id="g"),
        ConsumerGroupForgotten(group_id="g"),
    ]
    sync(group, "x")
    assert group.list_groups() == [("g", "consumer", "Stable", "classic")]
    assert group.committed([0]) == {0: 5}
    group.restart()
    assert group.list_groups() == [("g", "consumer", "Stable", "classic")]


def test_refused_classic_join_leaves_the_empty_consumer_group_alone(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    group.leave("a")
    group.new_records()
    answer = join(group, "x", protocol_type="")
    assert not answer.is_parked
    assert group.new_records() == []
    assert group.list_groups() == [("g", "consumer", "Empty", "consumer")]


def test_lists_are_filtered_by_state_and_type_in_any_case(group: GroupDialogue) -> None:
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


def test_classic_group_is_described_by_its_own_kind_only(classic: GroupDialogue) -> None:
    classic.describe().is_refused(ErrorCode.GROUP_ID_NOT_FOUND, saying="not a consumer group")
    described = classic.describe_classic().body_as(asked.DescribeClassicGroupReply)
    assert (described.state, described.members[0].assignment) == ("Stable", b"mine")


def test_offsets_of_a_classic_group_are_deleted_unless_somebody_reads_the_topic(classic: GroupDialogue) -> None:
    classic.set_topics({"t": 2, "u": 1})
    classic.commit({0: 1, ("u", 0): 2}, member_id="x", epoch=1)
    assert classic.delete_offsets([0, ("u", 0)]).errors() == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC, ErrorCode.NONE)
    classic.delete_group().is_refused(ErrorCode.NON_EMPTY_GROUP)
    leave(classic, "x")
    assert classic.delete_offsets([0]).errors() == (ErrorCode.NONE,)
    classic.delete_group().is_done()
    assert classic.list_groups() == []


def test_offsets_of_a_member_whose_subscription_cannot_be_read_stay(group: GroupDialogue) -> None:
    join(group, "x", metadata=b"\0\0 nonsense")
    sync(group, "x")
    group.commit({0: 1}, member_id="x", epoch=1)
    assert group.delete_offsets([0]).errors() == (ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,)


def test_offsets_of_other_kinds_of_members_are_not_deleted(group: GroupDialogue) -> None:
    """Kafka Connect's groups use the classic protocol, and their subscriptions are not ours to read."""
    join(group, "x", protocol_type="connect")
    sync(group, "x")
    group.delete_offsets([0]).is_refused(ErrorCode.NON_EMPTY_GROUP)


def test_commit_to_a_classic_group_follows_its_generation(classic: GroupDialogue) -> None:
    classic.commit({0: 1}, member_id="x", epoch=7).is_refused(ErrorCode.ILLEGAL_GENERATION)
    classic.advance(ms=9_000)
    assert classic.commit({0: 1}, member_id="x", epoch=1).errors() == (ErrorCode.NONE,)
    classic.advance(ms=9_000)
    assert classic.list_groups() == [("g", "consumer", "Stable", "classic")]
    assert classic.committed([0], member_id="x", member_epoch=1) == {0: 1}


def test_parked_join_is_answered_once_by_a_later_decision(classic: GroupDialogue) -> None:
    """The seam for late answers: the reply to one request is an effect of another's decision."""
    waiting = join(classic, "y")
    assert waiting.is_parked
    again = classic.ask(
        asked.JoinGroup(
            cause=classic.cause(),
            request=classic.request(),
            group_id="g",
            member_id="x",
            fresh_member_id="-",
            client_id="c",
            client_host="h",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("range", SUBSCRIPTION),),
        )
    )
    assert waiting.body_as(asked.JoinGroupReply).generation_id == 2
    assert again.body_as(asked.JoinGroupReply).generation_id == 2
