"""Static members of the consumer protocol: away, back, taken over, fenced, removed by name."""

from __future__ import annotations

import pytest

from kohort.coordinator import commands
from kohort.coordinator.commands.admin import DescribeConsumerGroupReply
from kohort.coordinator.consumer.static import decide_connection_gone
from kohort.coordinator.decision import Decision
from kohort.coordinator.records.types import (
    ConsumerGroupEpochSet,
    ConsumerMemberForgotten,
    ConsumerMemberSubscribed,
    CurrentAssignmentForgotten,
    CurrentAssignmentSet,
    MemberState,
    MemberTargetForgotten,
    MemberTargetSet,
)
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import GroupDialogue, topic_id_of

T = topic_id_of("t")


def static_pair(topics: dict[str, int] | None = None, **limits: int) -> GroupDialogue:
    """Members a and b, called one and two, with a partition each."""
    group = GroupDialogue(topics, **limits)
    group.heartbeat("a", epoch=0, instance_id="one")
    group.heartbeat("b", epoch=0, instance_id="two")
    group.settle()
    group.new_records()
    return group


def lose_connection(group: GroupDialogue, member_id: str) -> None:
    """The broker hears that a member's connection was closed."""
    records = decide_connection_gone(group.group, member_id)
    group.shard.commit(Decision(tuple(records)), now_ms=group.now_ms)


def test_new_instance_joins_as_any_member(group: GroupDialogue) -> None:
    group.heartbeat("a", epoch=0, instance_id="one").replies(epoch=1, assigned=[0, 1])
    assert group.group.instance_ids == {"one": "a"}
    group.heartbeat("a", epoch=1, instance_id="one").replies(epoch=1, assigned=None)
    # A heartbeat without the name is one of the same member.
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=None)
    assert group.group.instance_ids == {"one": "a"}


def test_leaving_for_a_while_rewrites_one_record_and_keeps_partitions() -> None:
    group = static_pair()
    group.heartbeat("a", epoch=-2, instance_id="one").replies(epoch=-2, assigned=None)
    assert group.new_records() == [
        CurrentAssignmentSet(
            group_id="g",
            member_id="a",
            member_epoch=-2,
            previous_member_epoch=1,
            state=MemberState.STABLE,
            assigned={T: {0: 1}},
            pending_revocation={},
        )
    ]
    assert group.group.epoch == 2
    group.heartbeat("b", epoch=2, instance_id="two").replies(epoch=2, assigned=None)
    # Its word may come twice: the answer to the first was lost.
    group.heartbeat("a", epoch=-2, instance_id="one").replies(epoch=-2, assigned=None)
    assert group.new_records() == []


def test_return_under_a_new_id_moves_nothing() -> None:
    """The records of the old id go in the order 8, 7, 5, then those of the new one come; the epoch stays."""
    group = static_pair()
    group.heartbeat("a", epoch=-2, instance_id="one")
    group.new_records()
    group.heartbeat("a2", epoch=0, instance_id="one").replies(epoch=2, assigned=[0])
    records = group.new_records()
    assert [(type(record), getattr(record, "member_id", None)) for record in records] == [
        (CurrentAssignmentForgotten, "a"),
        (MemberTargetForgotten, "a"),
        (ConsumerMemberForgotten, "a"),
        (ConsumerMemberSubscribed, "a2"),
        (MemberTargetSet, "a2"),
        (CurrentAssignmentSet, "a2"),
    ]
    assert group.group.instance_ids == {"one": "a2", "two": "b"}
    group.heartbeat("b", epoch=2, instance_id="two").replies(epoch=2, assigned=None)
    assert group.group.epoch == 2
    # The old process, should it still be there, learns that it was replaced.
    group.heartbeat("a", epoch=2, instance_id="one").is_refused(ErrorCode.FENCED_INSTANCE_ID)
    group.heartbeat("a", epoch=2).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)


def test_return_under_the_same_id() -> None:
    group = static_pair()
    group.heartbeat("a", epoch=-2, instance_id="one")
    group.heartbeat("a", epoch=2, instance_id="one").is_refused(ErrorCode.FENCED_MEMBER_EPOCH)
    group.heartbeat("a", epoch=0, instance_id="one").replies(epoch=2, assigned=[0])
    assert group.group.epoch == 2


def test_return_with_another_subscription_is_a_change() -> None:
    group = static_pair({"t": 2, "u": 2})
    group.heartbeat("a", epoch=-2, instance_id="one")
    group.new_records()
    group.heartbeat("a2", epoch=0, instance_id="one", topics=["u"]).replies(epoch=2, assigned=[])
    assert ConsumerGroupEpochSet in map(type, group.new_records())
    group.settle()
    assert group.holders() == {"a2": {("u", 0), ("u", 1)}, "b": {("t", 0), ("t", 1)}}


def test_instance_that_does_not_come_back_is_fenced_when_its_session_ends() -> None:
    """The session timer runs on: leaving does not prolong it."""
    group = static_pair()
    group.advance(ms=20_000)
    group.heartbeat("b", epoch=2, instance_id="two")
    group.heartbeat("a", epoch=-2, instance_id="one")
    group.advance(ms=24_999)
    assert "a" in group.group.members
    group.advance(ms=1)
    assert group.group.instance_ids == {"two": "b"}
    group.heartbeat("b", epoch=2, instance_id="two").replies(epoch=3, assigned=[0, 1])
    group.heartbeat("a2", epoch=0, instance_id="one").replies(epoch=4, assigned=[])


def test_live_instance_is_not_taken_over() -> None:
    group = static_pair()
    group.heartbeat("a2", epoch=0, instance_id="one").is_refused(
        ErrorCode.UNRELEASED_INSTANCE_ID, saying="give each process its own"
    )
    assert group.new_records() == []
    group.heartbeat("a", epoch=2, instance_id="one").replies(epoch=2, assigned=None)


def test_live_instance_may_join_again_under_its_own_id() -> None:
    """Kafka says UNRELEASED_INSTANCE_ID, which ends a client whose first answer was lost; KAFKA-19233 is about that."""
    group = static_pair()
    group.heartbeat("b", epoch=0, instance_id="two").replies(epoch=2, assigned=[1])
    assert group.new_records() == []


def test_crashed_instance_may_be_taken_over_once_its_connection_is_gone() -> None:
    """Kafka keeps the new process out until the session of the old one has ended: up to 45 seconds."""
    group = static_pair()
    lose_connection(group, "a")
    group.heartbeat("a2", epoch=0, instance_id="one").replies(epoch=2, assigned=[0])
    assert group.group.epoch == 2
    group.heartbeat("a", epoch=1, instance_id="one").is_refused(ErrorCode.FENCED_INSTANCE_ID)
    group.commit({0: 5}, member_id="a", epoch=1, instance_id="one").is_refused(ErrorCode.FENCED_INSTANCE_ID)


def test_crashed_instance_that_had_to_give_something_up_gives_it_up_with_its_place() -> None:
    group = GroupDialogue()
    group.heartbeat("a", epoch=0, instance_id="one")
    group.heartbeat("b", epoch=0, instance_id="two")
    group.heartbeat("a", epoch=1, instance_id="one").replies(epoch=1, assigned=[0])
    assert group.member("a").state == MemberState.UNREVOKED_PARTITIONS
    lose_connection(group, "a")
    group.heartbeat("a2", epoch=0, instance_id="one").replies(epoch=2, assigned=[0])
    group.heartbeat("b", epoch=2, instance_id="two").replies(epoch=2, assigned=[1])
    # The deadline of the old id went with it.
    group.advance(ms=44_000)
    assert set(group.group.members) == {"a2", "b"}


def test_reconnected_instance_is_not_taken_over() -> None:
    group = static_pair()
    lose_connection(group, "b")
    lose_connection(group, "b")
    group.heartbeat("b", epoch=2, instance_id="two").replies(epoch=2, assigned=None)
    group.heartbeat("b2", epoch=0, instance_id="two").is_refused(ErrorCode.UNRELEASED_INSTANCE_ID)


def test_lost_connection_of_others_means_nothing() -> None:
    group = GroupDialogue()
    group.stable(a=[0, 1])
    assert decide_connection_gone(group.group, "a") == []
    assert decide_connection_gone(group.group, "nobody") == []


def test_partition_that_an_absent_member_shall_not_have_is_free_at_once() -> None:
    """Kafka leaves it with the absent member until that comes back or its session ends."""
    group = GroupDialogue({"t": 3})
    group.heartbeat("a", epoch=0, instance_id="one")
    group.heartbeat("a", epoch=-2, instance_id="one")
    group.heartbeat("b", epoch=0, instance_id="two").replies(epoch=2, assigned=[2])
    assert group.holders()["a"] == {("t", 0), ("t", 1)}
    group.heartbeat("a2", epoch=0, instance_id="one").replies(epoch=2, assigned=[0, 1])


def test_member_that_has_to_give_something_up_leaves_for_a_while() -> None:
    group = GroupDialogue()
    group.heartbeat("a", epoch=0, instance_id="one")
    group.heartbeat("b", epoch=0).replies(epoch=2, assigned=[])
    group.heartbeat("a", epoch=1, instance_id="one").replies(epoch=1, assigned=[0])
    group.heartbeat("a", epoch=-2, instance_id="one").replies(epoch=-2)
    group.heartbeat("b", epoch=2).replies(epoch=2, assigned=[1])
    assert len(group.shard.timers) == 2


@pytest.mark.parametrize("epoch", [-1, -2, 1])
def test_names_that_are_not_the_speakers(epoch: int) -> None:
    group = static_pair()
    group.heartbeat("a", epoch=epoch, instance_id="two").is_refused(ErrorCode.FENCED_INSTANCE_ID)
    group.heartbeat("a", epoch=epoch, instance_id="three").is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    group.heartbeat("c", epoch=epoch, instance_id="three").is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    assert group.new_records() == []


def test_leaving_for_good_frees_the_name() -> None:
    group = static_pair()
    group.heartbeat("a", epoch=-1, instance_id="one").replies(epoch=-1)
    assert group.group.instance_ids == {"two": "b"}
    group.heartbeat("c", epoch=0, instance_id="one").replies(epoch=4, assigned=[])


def test_member_id_that_is_in_use_does_not_take_a_place() -> None:
    group = static_pair()
    group.heartbeat("a", epoch=-2, instance_id="one")
    group.heartbeat("b", epoch=0, instance_id="one").is_refused(ErrorCode.INVALID_REQUEST, saying="new member id")


def test_dynamic_member_may_become_static_and_change_its_name(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    group.heartbeat("a", epoch=0, instance_id="one").replies(epoch=1, assigned=[0, 1])
    group.heartbeat("a", epoch=0, instance_id="other").replies(epoch=1, assigned=[0, 1])
    assert group.group.instance_ids == {"other": "a"}


def test_full_group_lets_an_instance_come_back() -> None:
    group = static_pair(group_consumer_max_size=2)
    group.heartbeat("a", epoch=-2, instance_id="one")
    group.heartbeat("c", epoch=0, instance_id="three").is_refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
    group.heartbeat("a2", epoch=0, instance_id="one").replies(epoch=2, assigned=[0])


def test_administrator_removes_by_instance_id_alone_by_member_id_or_by_both() -> None:
    """KIP-345: the member id is unknown to an administrator."""
    group = static_pair({"t": 4})
    group.heartbeat("c", epoch=0, instance_id="three")
    asks = (
        commands.LeavingMember(member_id="", instance_id="one"),
        commands.LeavingMember(member_id="b", instance_id="two"),
        commands.LeavingMember(member_id="x", instance_id="three"),
        commands.LeavingMember(member_id="", instance_id="nobody"),
        commands.LeavingMember(member_id="c"),
    )
    answer = group.ask(commands.LeaveGroup(cause=group.cause(), request=group.request(), group_id="g", members=asks))
    assert [error for _, error in answer.body_as(commands.LeaveGroupReply).members] == [
        ErrorCode.NONE,
        ErrorCode.NONE,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.NONE,
    ]
    assert group.group.members == {}
    assert len(group.shard.timers) == 0


def test_commits_carry_the_name_and_are_fenced_by_it() -> None:
    group = static_pair()
    assert group.commit({0: 5}, member_id="a", epoch=2, instance_id="one").errors() == (ErrorCode.NONE,)
    group.commit({0: 6}, member_id="b", epoch=2, instance_id="one").is_refused(ErrorCode.FENCED_INSTANCE_ID)
    group.commit({0: 6}, member_id="x", epoch=2, instance_id="three").is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    group.heartbeat("a", epoch=-2, instance_id="one")
    group.commit({0: 7}, member_id="a", epoch=2, instance_id="one").is_refused(ErrorCode.STALE_MEMBER_EPOCH)
    group.heartbeat("a2", epoch=0, instance_id="one")
    group.commit({0: 8}, member_id="a", epoch=2, instance_id="one").is_refused(ErrorCode.FENCED_INSTANCE_ID)
    assert group.commit({0: 9}, member_id="a2", epoch=2, instance_id="one").errors() == (ErrorCode.NONE,)
    assert group.committed() == {0: 9}


def test_describe_shows_names_and_who_is_away() -> None:
    group = static_pair()
    group.heartbeat("a", epoch=-2, instance_id="one")
    members = group.describe().body_as(DescribeConsumerGroupReply).members
    assert [(member.member_id, member.instance_id, member.member_epoch) for member in members] == [
        ("a", "one", -2),
        ("b", "two", 2),
    ]


@pytest.mark.parametrize("topics_first", [False, True])
def test_restart_keeps_names_and_reservations(topics_first: bool) -> None:
    """A member that was away has its whole session timeout again."""
    group = static_pair()
    group.heartbeat("a", epoch=-2, instance_id="one")
    group.advance(ms=40_000)
    group.restart(topics_first=topics_first)
    assert group.group.instance_ids == {"one": "a", "two": "b"}
    group.advance(ms=40_000)
    group.heartbeat("a2", epoch=0, instance_id="one").replies(epoch=2, assigned=[0])
    group.heartbeat("b", epoch=2, instance_id="two").replies(epoch=2, assigned=None)
    group.restart()
    assert group.group.instance_ids == {"one": "a2", "two": "b"}


def test_compacted_log_gives_the_same_names() -> None:
    group = static_pair()
    group.heartbeat("a", epoch=-2, instance_id="one")
    group.heartbeat("a2", epoch=0, instance_id="one")
    assert group.fold(group.compacted()).groups.consumer["g"].instance_ids == {"one": "a2", "two": "b"}
