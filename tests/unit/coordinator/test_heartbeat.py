"""ConsumerGroupHeartbeat: every way to be answered, and the bugs of others that we do not repeat."""

from __future__ import annotations

from typing import Any

import pytest

from kohort.coordinator import commands
from kohort.coordinator.commands.admin import DescribeConsumerGroupReply
from kohort.coordinator.consumer.validation import MAX_NAME, MAX_OWNED_PARTITIONS, MAX_SUBSCRIBED_TOPICS
from kohort.coordinator.records import codec
from kohort.coordinator.records.types import (
    ConsumerGroupEpochSet,
    ConsumerMemberSubscribed,
    CurrentAssignmentSet,
    MemberState,
    MemberTargetSet,
    TargetAssignmentEpochSet,
)
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import GroupDialogue, topic_id_of

T = topic_id_of("t")


@pytest.mark.parametrize(
    ("fields", "code", "saying"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_REQUEST, "GroupId"),
        ({"group_id": "g" * 1_000_000}, ErrorCode.INVALID_GROUP_ID, "32767 bytes"),
        ({"group_id": "\u20ac" * 11_000}, ErrorCode.INVALID_GROUP_ID, "32767 bytes"),
        ({"instance_id": "i" * (MAX_NAME + 1)}, ErrorCode.INVALID_REQUEST, "longer than"),
        ({"rack_id": "r" * (MAX_NAME + 1)}, ErrorCode.INVALID_REQUEST, "longer than"),
        ({"client_id": "c" * (MAX_NAME + 1)}, ErrorCode.INVALID_REQUEST, "longer than"),
        ({"epoch": -(2**31)}, ErrorCode.INVALID_REQUEST, "MemberEpoch"),
        ({"epoch": 1}, ErrorCode.UNKNOWN_MEMBER_ID, "rejoin"),
        ({"epoch": -1}, ErrorCode.UNKNOWN_MEMBER_ID, "not in the group"),
        ({"epoch": -2, "instance_id": "i"}, ErrorCode.UNKNOWN_MEMBER_ID, "not in the group"),
        ({"server_assignor": "x" * 1_000_000}, ErrorCode.UNSUPPORTED_ASSIGNOR, "uniform"),
        ({"member_id": ""}, ErrorCode.INVALID_REQUEST, "MemberId"),
        ({"member_id": "x" * (MAX_NAME + 1)}, ErrorCode.INVALID_REQUEST, "longer than"),
        ({"epoch": -3}, ErrorCode.INVALID_REQUEST, "MemberEpoch -3"),
        ({"epoch": -2}, ErrorCode.INVALID_REQUEST, "InstanceId"),
        ({"rack_id": ""}, ErrorCode.INVALID_REQUEST, "RackId"),
        ({"instance_id": ""}, ErrorCode.INVALID_REQUEST, "InstanceId"),
        ({"rebalance_timeout_ms": -1}, ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs"),
        ({"rebalance_timeout_ms": -2}, ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs"),
        ({"topic_partitions": None}, ErrorCode.INVALID_REQUEST, "TopicPartitions"),
        ({"topic_partitions": {T: (0,)}}, ErrorCode.INVALID_REQUEST, "TopicPartitions"),
        ({"subscribed_topic_names": None}, ErrorCode.INVALID_REQUEST, "SubscribedTopicNames"),
        ({"subscribed_topic_names": ("",)}, ErrorCode.INVALID_REQUEST, "name is empty"),
        ({"subscribed_topic_names": ("n" * 250,)}, ErrorCode.INVALID_REQUEST, "longer than 249"),
        ({"subscribed_topic_names": ("n",) * (MAX_SUBSCRIBED_TOPICS + 1)}, ErrorCode.INVALID_REQUEST, "more than"),
        ({"subscribed_topic_regex": "t["}, ErrorCode.INVALID_REGULAR_EXPRESSION, "`t[` does not compile: missing ]"),
        ({"server_assignor": "mine"}, ErrorCode.UNSUPPORTED_ASSIGNOR, "uniform"),
    ],
)
def test_malformed_join_is_refused_and_changes_nothing(
    group: GroupDialogue, fields: dict[str, Any], code: ErrorCode, saying: str
) -> None:
    """Each bad field by name; what is not served yet says so."""
    join: dict[str, Any] = {
        "group_id": "g",
        "member_id": "a",
        "member_epoch": fields.pop("epoch", 0),
        "client_id": "c",
        "client_host": "h",
        "rebalance_timeout_ms": 1_000,
        "subscribed_topic_names": ("t",),
        "topic_partitions": {},
    }
    command = commands.ConsumerGroupHeartbeat(cause=group.cause(), request=group.request(), **{**join, **fields})
    group.new_records()
    group.ask(command).is_refused(code, saying=saying)
    assert group.new_records() == []
    assert group.shard.next_deadline() is None


def test_too_many_owned_partitions_are_refused(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    group.heartbeat("a", epoch=1, owned=range(MAX_OWNED_PARTITIONS + 1)).is_refused(
        ErrorCode.INVALID_REQUEST, saying="more than"
    )


def test_owned_partitions_that_do_not_exist_do_no_harm(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    group.heartbeat("a", epoch=1, owned={"t": [0, 1, 7, -3], "nowhere": [5]}).replies(epoch=1, assigned=None)


def test_join_writes_subscription_epoch_target_and_assignment_in_that_order(group: GroupDialogue) -> None:
    """The order in which Apache Kafka writes them."""
    group.new_records()
    group.heartbeat("a", epoch=0)
    kinds = [type(record) for record in group.new_records()]
    assert kinds == [
        ConsumerMemberSubscribed,
        ConsumerGroupEpochSet,
        MemberTargetSet,
        TargetAssignmentEpochSet,
        CurrentAssignmentSet,
    ]


def test_settled_heartbeat_writes_nothing(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=None)
    group.heartbeat("a", epoch=1, owned=[0, 1]).replies(epoch=1, assigned=None)
    group.heartbeat("a", epoch=1, owned=[0, 1], full=True).replies(epoch=1, assigned=[0, 1])
    assert group.new_records() == []


def test_only_members_whose_target_changed_get_a_record() -> None:
    group = GroupDialogue({"t": 6})
    group.stable(a=[0, 1], b=[3, 4], c=[2, 5])
    group.heartbeat("d", epoch=0)
    targets = {record.member_id for record in group.new_records() if isinstance(record, MemberTargetSet)}
    assert targets == {"c", "d"}


def test_group_is_full() -> None:
    group = GroupDialogue(group_consumer_max_size=1)
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0).is_refused(ErrorCode.GROUP_MAX_SIZE_REACHED, saying="group.consumer.max.size")
    group.heartbeat("a", epoch=0).replies(epoch=1, assigned=[0, 1])


def test_configured_assignor_may_be_named(group: GroupDialogue) -> None:
    group.heartbeat("a", epoch=0, server_assignor="uniform").replies(epoch=1, assigned=[0, 1])
    assert group.member("a").server_assignor == "uniform"


def test_member_may_subscribe_to_nothing(group: GroupDialogue) -> None:
    group.heartbeat("a", epoch=0, topics=[]).replies(epoch=1, assigned=[])
    group.heartbeat("a", epoch=1, topics=["t"]).replies(epoch=2, assigned=[0, 1])
    group.heartbeat("a", epoch=2, topics=[], owned=[0, 1]).replies(epoch=2, assigned=[])
    group.heartbeat("a", epoch=2, owned=[]).replies(epoch=3, assigned=None)


def test_empty_regex_means_none(group: GroupDialogue) -> None:
    group.heartbeat("a", epoch=0, subscribed_topic_regex="").replies(epoch=1, assigned=[0, 1])
    assert group.member("a").subscribed_topic_regex is None


def test_topic_that_does_not_exist_yet_is_assigned_when_it_does(group: GroupDialogue) -> None:
    group.heartbeat("a", epoch=0, topics=["later"]).replies(epoch=1, assigned={})
    group.set_topics({"t": 2, "later": 2})
    group.heartbeat("a", epoch=1).replies(epoch=2, assigned={"later": [0, 1]})


def test_members_with_different_topics_share_what_both_want() -> None:
    group = GroupDialogue({"t": 2, "u": 2})
    group.heartbeat("a", epoch=0, topics=["t"])
    group.heartbeat("b", epoch=0, topics=["t", "u"])
    group.settle()
    assert group.holders() == {"a": {("t", 0), ("t", 1)}, "b": {("u", 0), ("u", 1)}}


def test_kafka_16147_partition_that_comes_back_before_it_was_given_up() -> None:
    """KAFKA-16147: a partition pending revocation that is assigned to the same member again keeps its epoch."""
    group = GroupDialogue()
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=[0])
    group.leave("b")
    # The target of a has partition 1 again, which it has not given up: it does so, and gets it back.
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=None)
    assert group.group.holders == {T: {0: "a", 1: "a"}}
    group.heartbeat("c", epoch=0).replies(epoch=4, assigned=[])
    group.leave("c")
    group.heartbeat("a", epoch=1, owned=[0]).replies(epoch=5, assigned=[0, 1])
    assert group.group.holders == {T: {0: "a", 1: "a"}}
    group.heartbeat("d", epoch=0).replies(epoch=6, assigned=[])


def test_kafka_19233_known_member_may_join_again(group: GroupDialogue) -> None:
    """KAFKA-19233: the first answer was lost, or the client was fenced by somebody else's word: epoch 0 is accepted."""
    group.heartbeat("a", epoch=0).replies(epoch=1, assigned=[0, 1])
    group.new_records()
    group.heartbeat("a", epoch=0).replies(epoch=1, assigned=[0, 1])
    assert group.new_records() == []


def test_rejoin_of_a_member_that_was_to_give_up_something(group: GroupDialogue) -> None:
    """Who joins owns nothing, so nothing is left to be given up."""
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=[0])
    group.heartbeat("a", epoch=0).replies(epoch=2, assigned=[0])
    group.heartbeat("b", epoch=2).replies(epoch=2, assigned=[1])


def test_kafka_20268_group_epoch_starts_at_one(group: GroupDialogue) -> None:
    """KAFKA-20268: also where the first member subscribes to nothing."""
    group.heartbeat("a", epoch=0, topics=[]).replies(epoch=1, assigned=[])
    assert (group.group.epoch, group.group.target_epoch) == (1, 1)


def test_kafka_20442_empty_group_is_not_behind_its_epoch(group: GroupDialogue) -> None:
    """KAFKA-20442: the last member goes, by its word or by silence, and the target is as new as the group."""
    group.stable(a=[0, 1])
    group.leave("a")
    assert (group.group.epoch, group.group.target_epoch, group.group.target_timestamp_ms) == (2, 2, 0)
    group.heartbeat("a", epoch=0).replies(epoch=3, assigned=[0, 1])
    group.advance(ms=45_000)
    assert (group.group.epoch, group.group.target_epoch, group.group.target_timestamp_ms) == (4, 4, 0)


def test_state_stored_by_newer_software_forces_a_rejoin(group: GroupDialogue) -> None:
    """KIP-848: a member whose stored state is not known is fenced, unless it owns nothing."""
    group.stable(a=[0, 1])
    unknown = CurrentAssignmentSet(
        group_id="g",
        member_id="a",
        member_epoch=1,
        previous_member_epoch=0,
        state=MemberState.UNKNOWN,
        assigned={T: {0: 1, 1: 1}},
        pending_revocation={},
    )
    group.log.append(codec.encode(unknown))
    group.restart()
    group.heartbeat("a", epoch=1).is_refused(ErrorCode.FENCED_MEMBER_EPOCH, saying="newer broker")
    group.heartbeat("a", epoch=1, owned=[0]).is_refused(ErrorCode.FENCED_MEMBER_EPOCH)
    group.heartbeat("a", epoch=1, owned=[]).replies(epoch=1, assigned=None)
    assert group.member("a").state == MemberState.STABLE


def test_describe_shows_who_has_what_and_who_shall_have_it(group: GroupDialogue) -> None:
    """KAFKA-20431: what a member has yet to give up is shown as its own."""
    group.describe().is_refused(ErrorCode.GROUP_ID_NOT_FOUND, saying="does not exist")
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1)
    reply = group.describe().body_as(DescribeConsumerGroupReply)
    assert (reply.state, reply.group_epoch, reply.assignment_epoch, reply.assignor_name) == (
        "Reconciling",
        2,
        2,
        "uniform",
    )
    a, b = reply.members
    assert (a.member_id, a.member_epoch, a.assignment, a.target_assignment) == ("a", 1, {T: (0, 1)}, {T: (0,)})
    assert (b.member_id, b.member_epoch, b.assignment, b.target_assignment) == ("b", 2, {}, {T: (1,)})
    assert reply.topic_names == {T: "t"}
    group.settle()
    assert group.describe().body_as(DescribeConsumerGroupReply).state == "Stable"


def test_administrator_removes_members(group: GroupDialogue) -> None:
    """KAFKA-18188: LeaveGroup works on KIP-848 groups, by member id."""
    group.stable(a=[0], b=[1])
    gone, unknown = commands.LeavingMember(member_id="a"), commands.LeavingMember(member_id="x")
    answer = group.ask(
        commands.LeaveGroup(cause=group.cause(), request=group.request(), group_id="g", members=(gone, unknown, gone))
    )
    outcomes = answer.body_as(commands.LeaveGroupReply).members
    assert outcomes == (
        (gone, ErrorCode.NONE),
        (unknown, ErrorCode.UNKNOWN_MEMBER_ID),
        (gone, ErrorCode.NONE),
    )
    group.heartbeat("b", epoch=2).replies(epoch=3, assigned=[0, 1])
    assert group.shard.timers.deadline(group.member("b").session_key) is not None
    assert len(group.shard.timers) == 1


def test_removing_nobody_changes_nothing(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    unknown = commands.LeavingMember(member_id="x")
    group.ask(commands.LeaveGroup(cause=group.cause(), request=group.request(), group_id="g", members=(unknown,)))
    assert group.new_records() == []
