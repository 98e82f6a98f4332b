"""KIP-848, the next generation of the consumer rebalance protocol, sentence by sentence, at the coordinator."""

from __future__ import annotations

import pytest

from kohort.coordinator import commands
from kohort.coordinator.commands.admin import DescribeConsumerGroupReply
from kohort.coordinator.records.types import (
    ConsumerGroupEpochSet,
    ConsumerMemberForgotten,
    CurrentAssignmentForgotten,
    MemberState,
    MemberTargetForgotten,
    MemberTargetSet,
    TargetAssignmentEpochSet,
)
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import GroupDialogue


def test_first_member_gets_everything_in_its_first_answer() -> None:
    """The coordinator computes the assignment: one request, no leader, no second round."""
    group = GroupDialogue({"t": 3})
    group.heartbeat("a", epoch=0).replies(epoch=1, assigned=[0, 1, 2], interval=5_000)
    assert group.list_groups() == [("g", "consumer", "Stable", "consumer")]


def test_a_member_whose_assignment_does_not_change_is_not_impacted() -> None:
    """First design goal, its second sentence: who keeps its partitions does not notice a rebalance."""
    group = GroupDialogue({"t": 3})
    group.stable(a=[0, 1], b=[2])
    group.heartbeat("c", epoch=0)
    # The target takes partition 1 from a; b keeps what it has, and its epoch with it.
    group.new_records()
    group.heartbeat("b", epoch=2).replies(epoch=2, assigned=None)
    assert not group.new_records()
    group.commit({2: 10}, member_id="b", epoch=2).errors()
    assert group.member("b").state == MemberState.STABLE


def test_no_global_barrier_one_silent_member_holds_up_only_who_waits_for_its_partition() -> None:
    """First design goal, its first sentence, and the last point of the motivation: no barrier for the whole group."""
    group = GroupDialogue({"t": 6})
    group.stable(a=[0, 1, 2], b=[3, 4, 5])
    group.heartbeat("c", epoch=0).replies(epoch=3, assigned=[])
    # b gives up its partition, a says nothing at all.
    group.heartbeat("b", epoch=2).replies(epoch=2, assigned=[3, 4])
    group.heartbeat("b", epoch=2, owned=[3, 4]).replies(epoch=3, assigned=None)
    group.heartbeat("c", epoch=3).replies(epoch=3, assigned=[5])
    assert group.member("c").state == MemberState.UNRELEASED_PARTITIONS
    assert group.member("a").member_epoch == 2


def test_offsets_can_be_committed_while_the_rebalance_is_under_way() -> None:
    """Last point of the motivation: members commit while a rebalance is under way, and are not stuck behind it."""
    group = GroupDialogue()
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=[0])
    assert group.commit({0: 5, 1: 7}, member_id="a", epoch=1).errors() == (ErrorCode.NONE, ErrorCode.NONE)
    assert group.committed() == {0: 5, 1: 7}


def test_a_partition_moves_in_three_heartbeats_and_never_has_two_owners() -> None:
    """Reconciliation of the group: the owner is told, it acknowledges, the new owner is given it."""
    group = GroupDialogue()
    group.stable(a=[0, 1])

    group.heartbeat("b", epoch=0).replies(epoch=2, assigned=[])
    group.heartbeat("a", epoch=1, owned=[0, 1]).replies(epoch=1, assigned=[0])
    group.heartbeat("b", epoch=2).replies(epoch=2, assigned=None)
    group.heartbeat("a", epoch=1, owned=[0]).replies(epoch=2, assigned=None)
    group.heartbeat("b", epoch=2).replies(epoch=2, assigned=[1])
    group.heartbeat("b", epoch=2, owned=[1]).replies(epoch=2, assigned=None)

    assert group.describe().body_as(object).state == "Stable"


def test_only_a_list_acknowledges_a_revocation() -> None:
    """TopicPartitions null means "as I said last"; a plain heartbeat keeps the partition where it is."""
    group = GroupDialogue()
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=[0])
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=None)
    group.heartbeat("a", epoch=1, owned=[0, 1]).replies(epoch=1, assigned=None)
    assert group.holders() == {"a": {("t", 0)}, "b": set()}
    group.heartbeat("b", epoch=2).replies(epoch=2, assigned=None)


def test_a_member_that_gives_and_takes_gives_first() -> None:
    """A member's epoch rises when it has given up everything; only then is it given anything."""
    group = GroupDialogue({"t": 1, "u": 1})
    group.stable(a={"t": [0]}, b={"u": [0]})
    # They swap: a wants only u, b only t.
    group.heartbeat("b", epoch=2, topics=["t"]).replies(epoch=2, assigned={})
    group.heartbeat("a", epoch=1, topics=["u"]).replies(epoch=1, assigned={})
    group.heartbeat("b", epoch=2, owned=[]).replies(epoch=4, assigned=None)
    assert group.holders() == {"a": set(), "b": set()}
    group.heartbeat("a", epoch=1, owned=[]).replies(epoch=4, assigned={"u": [0]})
    group.heartbeat("b", epoch=4).replies(epoch=4, assigned={"t": [0]})


def test_silent_member_is_fenced_and_its_partition_granted(group: GroupDialogue) -> None:
    """A member that does not revoke within its rebalance timeout is removed."""
    group.rebalance_timeout_ms = 10_000
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0).replies(epoch=2, assigned=[])
    group.heartbeat("a", epoch=1, owned=[0, 1]).replies(epoch=1, assigned=[0])

    group.advance(ms=9_999)
    assert "a" in group.group.members
    group.new_records()
    group.advance(ms=1)

    assert ConsumerMemberForgotten(group_id="g", member_id="a") in group.new_records()
    group.heartbeat("b", epoch=2).replies(epoch=3, assigned=[0, 1])
    group.heartbeat("a", epoch=1).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)


def test_member_without_heartbeats_is_fenced_after_the_session_timeout(group: GroupDialogue) -> None:
    """Member failures: the coordinator removes a member from which it hears nothing."""
    group.stable(a=[0, 1])
    group.advance(ms=44_999)
    group.heartbeat("a", epoch=1).replies(epoch=1)
    group.advance(ms=44_999)
    assert list(group.group.members) == ["a"]
    group.advance(ms=1)
    assert list(group.group.members) == []
    assert group.list_groups() == [("g", "consumer", "Empty", "consumer")]


def test_a_refused_heartbeat_does_not_prolong_the_session(group: GroupDialogue) -> None:
    """Whoever uses the member's id with a wrong epoch does not keep it alive."""
    group.stable(a=[0, 1])
    group.advance(ms=40_000)
    group.heartbeat("a", epoch=7).is_refused(ErrorCode.FENCED_MEMBER_EPOCH)
    group.advance(ms=5_000)
    assert list(group.group.members) == []


def test_leaving_frees_partitions_at_once_and_writes_tombstones_in_order(group: GroupDialogue) -> None:
    """Member leaves with epoch -1: tombstones of assignment, target and subscription, then the epoch."""
    group.stable(a=[0], b=[1])
    answer = group.leave("a")
    answer.replies(epoch=-1, assigned=None)
    records = group.new_records()
    assert records[:3] == [
        CurrentAssignmentForgotten(group_id="g", member_id="a"),
        MemberTargetForgotten(group_id="g", member_id="a"),
        ConsumerMemberForgotten(group_id="g", member_id="a"),
    ]
    assert isinstance(records[3], ConsumerGroupEpochSet) and records[3].epoch == 3
    assert isinstance(records[4], MemberTargetSet) and records[4].member_id == "b"
    assert isinstance(records[5], TargetAssignmentEpochSet) and records[5].assignment_epoch == 3
    group.heartbeat("b", epoch=2).replies(epoch=3, assigned=[0, 1])
    group.leave("a").is_refused(ErrorCode.UNKNOWN_MEMBER_ID)


def test_group_epoch_follows_subscriptions_and_nothing_else(group: GroupDialogue) -> None:
    """The group epoch is bumped when subscriptions change; rack, client and timeout only rewrite the member."""
    group.set_topics({"t": 2, "u": 1})
    group.stable(a=[0, 1])
    group.heartbeat("a", epoch=1, rack_id="r1", rebalance_timeout_ms=5, client_id="other").replies(epoch=1)
    assert (group.group.epoch, group.member("a").rack_id) == (1, "r1")
    group.heartbeat("a", epoch=1, topics=["t"]).replies(epoch=1)
    assert group.group.epoch == 1
    group.heartbeat("a", epoch=1, topics=["u", "t", "u"]).replies(epoch=2, assigned={"t": [0, 1], "u": [0]})
    assert group.member("a").subscribed_topic_names == ("t", "u")


def test_partitions_of_a_topic_that_a_member_leaves_are_revoked_and_others_stay(group: GroupDialogue) -> None:
    """A change of the subscription is reconciled like any other."""
    group.set_topics({"t": 1, "u": 1})
    group.stable(a={"t": [0], "u": [0]})
    group.heartbeat("a", epoch=1, topics=["u"], owned={"t": [0], "u": [0]}).replies(epoch=1, assigned={"u": [0]})
    group.heartbeat("a", epoch=1, owned={"u": [0]}).replies(epoch=2, assigned=None)


def test_new_partitions_are_given_out_without_a_heartbeat_that_asks() -> None:
    """The coordinator watches the topics, so that clients need not have one picture of them."""
    group = GroupDialogue({"t": 1})
    group.stable(a=[0])
    group.set_topics({"t": 3})
    group.fire_due()
    assert (group.group.epoch, group.group.target_epoch) == (2, 2)
    group.heartbeat("a", epoch=1).replies(epoch=2, assigned=[0, 1, 2])


def test_lost_answer_is_recovered_by_a_full_request(group: GroupDialogue) -> None:
    """The answer that gave a partition was lost; a client says everything again after an error, and hears all."""
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1)
    group.heartbeat("a", epoch=1, owned=[0])
    group.heartbeat("b", epoch=2).replies(epoch=2, assigned=[1])
    group.heartbeat("b", epoch=2, full=True).replies(epoch=2, assigned=[1])


def test_lost_answer_with_a_new_epoch_lets_the_previous_one_pass(group: GroupDialogue) -> None:
    """The previous epoch is accepted with a list of what was assigned; anything else of the past is fenced."""
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1, owned=[0, 1])
    group.heartbeat("a", epoch=1, owned=[0]).replies(epoch=2)
    # The client did not hear "2".
    group.heartbeat("a", epoch=1, owned=[0]).replies(epoch=2, assigned=[0])
    group.heartbeat("a", epoch=1).is_refused(ErrorCode.FENCED_MEMBER_EPOCH)
    group.heartbeat("a", epoch=1, owned=[0, 1]).is_refused(ErrorCode.FENCED_MEMBER_EPOCH)
    group.heartbeat("a", epoch=3).is_refused(ErrorCode.FENCED_MEMBER_EPOCH)


def test_a_live_member_of_a_lost_group_is_sent_to_rejoin() -> None:
    """GROUP_ID_NOT_FOUND would end Java and librdkafka clients; UNKNOWN_MEMBER_ID makes them rejoin."""
    group = GroupDialogue()
    group.heartbeat("a", epoch=5).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    group.leave("a").is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    group.stable(b=[0, 1])
    group.heartbeat("a", epoch=5).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)


def test_hand_over_of_one_partition_does_not_wait_for_the_others() -> None:
    """Ours: a partition is released when it leaves the list of owned ones, although others are still pending."""
    group = GroupDialogue({"t": 6})
    group.stable(a=[0, 1, 2, 3, 4, 5])
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=[0, 1, 2])
    group.heartbeat("a", epoch=1, owned=[0, 1, 2, 3, 4]).replies(epoch=1, assigned=None)
    group.heartbeat("b", epoch=2).replies(epoch=2, assigned=[5])
    assert group.member("a").state == MemberState.UNREVOKED_PARTITIONS
    group.heartbeat("a", epoch=1, owned=[0, 1, 2]).replies(epoch=2, assigned=None)
    group.heartbeat("b", epoch=2).replies(epoch=2, assigned=[3, 4, 5])


def test_giving_up_partitions_one_by_one_does_not_prolong_the_rebalance_timeout() -> None:
    """Every hand-over ends within the rebalance timeout."""
    group = GroupDialogue({"t": 4})
    group.rebalance_timeout_ms = 10_000
    group.stable(a=[0, 1, 2, 3])
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=[0, 1])
    group.advance(ms=9_000)
    group.heartbeat("a", epoch=1, owned=[0, 1, 2])
    group.advance(ms=1_000)
    assert list(group.group.members) == ["b"]


def test_acknowledging_in_time_disarms_the_rebalance_timeout() -> None:
    group = GroupDialogue()
    group.rebalance_timeout_ms = 10_000
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1)
    group.heartbeat("a", epoch=1, owned=[0])
    group.advance(ms=20_000)
    assert sorted(group.group.members) == ["a", "b"]


def test_exactly_once_when_the_hand_over_is_clean() -> None:
    """Design goals: the old owner's last commit is what the new owner starts from, and nothing overwrites it."""
    group = GroupDialogue()
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1)
    assert group.commit({1: 42}, member_id="a", epoch=1).errors() == (ErrorCode.NONE,)
    group.heartbeat("a", epoch=1, owned=[0])
    group.heartbeat("b", epoch=2).replies(epoch=2, assigned=[1])
    assert group.committed([1], member_id="b", member_epoch=2) == {1: 42}
    # A commit of the old owner that was on its way comes too late.
    assert group.commit({1: 41}, member_id="a", epoch=1).errors() == (ErrorCode.STALE_MEMBER_EPOCH,)
    assert group.committed([1]) == {1: 42}


def test_at_least_once_in_the_worst_case() -> None:
    """Fourth design goal: a member that dies has its successor begin where it committed last, never after that."""
    group = GroupDialogue()
    group.stable(a=[0, 1])
    group.commit({0: 5}, member_id="a", epoch=1)
    group.heartbeat("b", epoch=0)
    group.advance(ms=45_000)
    group.heartbeat("b", epoch=0)
    assert group.committed([0], member_id="b", member_epoch=group.member("b").member_epoch) == {0: 5}
    group.commit({0: 9}, member_id="a", epoch=1).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)


def test_the_state_of_a_group_can_be_read_without_its_clients() -> None:
    """Second point of the motivation and second design goal: who wants, has and shall have what is the broker's."""
    group = GroupDialogue({"t": 2, "u": 1})
    group.heartbeat("a", epoch=0, topics=["t"], rack_id="r", server_assignor="uniform", instance_id="one")
    group.heartbeat("b", epoch=0, topics=["t", "u"])
    reply = group.describe().body_as(DescribeConsumerGroupReply)
    a, b = reply.members
    assert (reply.state, reply.group_epoch, reply.assignment_epoch) == ("Stable", 2, 2)
    assert (a.instance_id, a.rack_id, a.client_id, a.client_host) == ("one", "r", "client-a", "/127.0.0.1")
    assert (a.subscribed_topic_names, b.subscribed_topic_names) == (("t",), ("t", "u"))
    shall = [{reply.topic_names[topic_id] for topic_id in member.target_assignment} for member in (a, b)]
    assert shall == [{"t"}, {"u"}]


def test_members_have_one_picture_of_the_topics_the_coordinators() -> None:
    """Last sub-point of the first point of the motivation: views of topics that differ between members are over."""
    group = GroupDialogue({"t": 1})
    group.heartbeat("a", epoch=0)
    group.heartbeat("b", epoch=0)
    group.set_topics({"t": 4})
    group.settle()
    assert sorted(len(owned) for owned in group.holders().values()) == [2, 2]
    group.heartbeat("a", epoch=group.group.epoch).replies(epoch=group.group.epoch)


def test_a_pattern_is_the_coordinators_to_resolve() -> None:
    """The same, for subscriptions by pattern: no member looks at topics itself (needs RE2)."""
    pytest.importorskip("re2")
    group = GroupDialogue({"t1": 1, "t2": 1, "u": 1})
    for member_id in ("a", "b"):
        group.heartbeat(member_id, epoch=0, topics=[], subscribed_topic_regex="t.")
    group.settle()
    assert sorted(name for owned in group.holders().values() for name, _ in owned) == ["t1", "t2"]
    group.set_topics({"t1": 1, "t2": 1, "t3": 1, "u": 1})
    group.settle()
    assert sorted(name for owned in group.holders().values() for name, _ in owned) == ["t1", "t2", "t3"]


def test_one_misbehaving_member_does_not_take_the_group_down() -> None:
    """Last point of the motivation, its second sentence: joining again and again disturbs nobody else."""
    group = GroupDialogue({"t": 6})
    group.stable(a=[0, 1, 2], b=[3, 4, 5])
    for attempt in range(5):
        group.heartbeat("x", epoch=0)
        group.commit({0: attempt}, member_id="a", epoch=2).errors()
        group.leave("x")
    assert group.holders() == {"a": {("t", 0), ("t", 1), ("t", 2)}, "b": {("t", 3), ("t", 4), ("t", 5)}}
    assert group.group.epoch > 2
    group.heartbeat("a", epoch=2).replies(epoch=2, assigned=None)


@pytest.mark.parametrize("member_count", [3, 30])
def test_what_a_join_writes_does_not_grow_with_the_group(member_count: int) -> None:
    """Last point of the motivation, its third sentence: the cost of a rebalance does not rise with the members."""
    group = GroupDialogue({"t": 10 * member_count})
    for number in range(member_count):
        group.heartbeat(f"m{number:02}", epoch=0)
    group.settle()
    group.new_records()
    group.heartbeat("new", epoch=0)
    targets = [record for record in group.new_records() if isinstance(record, MemberTargetSet)]
    assert len(targets) <= 11


def test_why_a_group_rebalanced_is_known_without_the_logs_of_its_clients() -> None:
    """First point of the motivation, second sub-point, and second design goal: the coordinator tells what happened,
    whose word or silence began it, and to whom."""
    group = GroupDialogue({"t": 2})
    group.stable(a=[0], b=[1])
    group.told.clear()
    group.advance(ms=30_000)
    group.heartbeat("a", epoch=2)
    group.advance(ms=15_001)
    group.heartbeat("a", epoch=2, owned=[0])
    told = {(entry.event, entry.member_id): dict(entry.details) for entry in group.told}
    assert told["member_removed", "b"] == {"reason": "session timeout", "session_ms": "45000", "silent_ms": "45000"}
    assert told["epoch_bumped", ""]["trigger"] == "session timeout"
    assert told["assignment_changed", "a"]["gained"] == "t-1"


def test_state_reaches_other_members_without_a_dummy_rebalance() -> None:
    """Second point of the motivation in its first version: the classic protocol "only propagates the state during a
    rebalance so we have introduced fake or dummy rebalance with the sole goal to propagate some new state"."""
    group = GroupDialogue()
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    group.settle()
    before = group.group.epoch, group.holders()
    news = group.heartbeat("b", epoch=2, watched_version=0).body_as(commands.ConsumerGroupHeartbeatReply).metadata_news
    group.heartbeat("a", epoch=2, metadata=b"state").replies(epoch=2, assigned=None)
    group.advance(50)
    answer = group.heartbeat("b", epoch=2, watched_version=news.version)
    answer.replies(epoch=2, assigned=None)
    (told,) = answer.body_as(commands.ConsumerGroupHeartbeatReply).metadata_news.members
    assert (told.member_id, told.metadata) == ("a", b"state")
    assert (group.group.epoch, group.holders()) == before
    assert group.group.target_epoch == group.group.epoch
