"""When a target is computed: at once, after the interval, or after everybody who is silent is gone."""

from __future__ import annotations

from kohort.coordinator.consumer.assignment.batching_window import assignment_key
from kohort.coordinator.consumer.assignment.target import hash_topics
from kohort.coordinator.records.types import ConsumerMemberForgotten, MemberState, TargetAssignmentEpochSet
from kohort.coordinator.topics import TopicFacts, TopicImage
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import GroupDialogue, topic_id_of


def test_interval_holds_back_the_target_and_a_timer_computes_it() -> None:
    """KIP-1263: within the interval joins share one computation; nobody's heartbeat is needed for it."""
    group = GroupDialogue({"t": 4}, group_consumer_assignment_interval_ms=1_000)
    group.heartbeat("a", epoch=0).replies(epoch=1, assigned=[0, 1, 2, 3])
    group.advance(ms=400)
    group.heartbeat("b", epoch=0).replies(epoch=1, assigned=[])
    group.heartbeat("c", epoch=0).replies(epoch=1, assigned=[])
    assert group.list_groups() == [("g", "consumer", "Assigning", "consumer")]
    assert (group.group.epoch, group.group.target_epoch) == (3, 1)
    group.advance(ms=599)
    assert group.group.target_epoch == 1
    group.advance(ms=1)
    assert group.group.target_epoch == 3
    group.settle()
    assert sorted(len(found) for found in group.holders().values()) == [1, 1, 2]


def test_partitions_of_topics_left_are_revoked_while_the_interval_runs() -> None:
    """A change of the subscription counts at once, whatever the target still says."""
    group = GroupDialogue({"t": 1, "u": 1}, group_consumer_assignment_interval_ms=1_000)
    group.stable(a={"t": [0], "u": [0]})
    group.heartbeat("a", epoch=1, topics=["u"]).replies(epoch=1, assigned={"u": [0]})
    assert group.member("a").state == MemberState.UNREVOKED_PARTITIONS
    assert group.group.target_epoch == 1
    group.heartbeat("a", epoch=1, owned={"u": [0]}).replies(epoch=1, assigned=None)
    assert group.member("a").state == MemberState.STABLE
    group.advance(ms=1_000)
    assert group.group.target_epoch == 2
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=None)


def test_after_the_interval_a_heartbeat_computes_and_disarms_the_timer() -> None:
    group = GroupDialogue(group_consumer_assignment_interval_ms=1_000)
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    assert group.shard.timers.deadline(assignment_key("g")) == group.now_ms + 1_000
    # The clock goes on before the loop looks at its deadlines.
    group.now_ms += 2_000
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=[0])
    assert group.shard.timers.deadline(assignment_key("g")) is None


def test_many_silent_members_cost_one_computation() -> None:
    """Each fence raises the epoch; the target is computed once, after the last of them."""
    group = GroupDialogue({"t": 12})
    for name in "abcdef":
        group.heartbeat(name, epoch=0)
    group.settle()
    group.advance(ms=44_000)
    group.heartbeat("a", epoch=group.group.epoch)
    group.new_records()
    group.advance(ms=1_000)
    records = group.new_records()
    assert sum(isinstance(record, ConsumerMemberForgotten) for record in records) == 5
    assert sum(isinstance(record, TargetAssignmentEpochSet) for record in records) == 1
    assert group.group.target_epoch == group.group.epoch
    group.settle()
    assert group.holders() == {"a": {("t", partition) for partition in range(12)}}


def test_heartbeat_between_two_fences_computes_and_the_timer_finds_nothing_to_do(group: GroupDialogue) -> None:
    group.stable(a=[0], b=[1])
    group.advance(ms=1)
    group.heartbeat("a", epoch=2)
    group.now_ms += 44_999
    assert group.fire_one()
    group.heartbeat("a", epoch=2).replies(epoch=3, assigned=[0, 1])
    assert not group.fire_one()


def test_new_partitions_and_deleted_topics_reach_the_target() -> None:
    group = GroupDialogue({"t": 2, "u": 1})
    group.stable(a={"t": [0, 1], "u": [0]})
    group.set_topics({"t": 3})
    group.fire_due()
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned={"t": [0, 1]})
    group.heartbeat("a", epoch=1, owned=[0, 1]).replies(epoch=2, assigned=[0, 1, 2])


def test_topic_that_is_made_again_is_another_one(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    before = group.topic_id("t")
    group.set_topics({})
    group.set_topics({"t": 1})
    assert group.topic_id("t") != before
    group.fire_due()
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=[])
    group.heartbeat("a", epoch=1, owned=[]).replies(epoch=3, assigned=[0])


def test_change_of_other_topics_does_not_concern_the_group(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    group.set_topics({"t": 2, "other": 5})
    assert group.group.epoch == 1


def test_a_change_before_the_crash_is_noticed_after_it(group: GroupDialogue) -> None:
    """The catalogue knew of the new partition, the group did not: its stored hash tells."""
    group.stable(a=[0, 1])
    shard = group.fold()
    group.shard = shard
    group.set_topics({"t": 3})
    group.fire_due()
    group.heartbeat("a", epoch=1).replies(epoch=2, assigned=[0, 1, 2])


def test_restart_without_a_change_of_topics_is_no_rebalance(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    group.restart()
    assert group.group.epoch == 1
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=None)


def test_hash_says_what_concerns_a_group() -> None:
    def image(**counts: int) -> TopicImage:
        facts = [TopicFacts(name=n, topic_id=topic_id_of(n), partition_count=c) for n, c in counts.items()]
        return TopicImage.of(facts, version=1)

    assert hash_topics(image(t=1, u=1), ["t"]) == hash_topics(image(t=1), ["t", "missing"])
    assert hash_topics(image(t=1), ["t"]) != hash_topics(image(t=2), ["t"])
    assert hash_topics(image(t=1, u=1), ["t", "u"]) == hash_topics(image(u=1, t=1), ["u", "t"])


def test_unknown_members_are_never_told_that_the_group_is_not_found(group: GroupDialogue) -> None:
    group.heartbeat("a", epoch=3).is_refused(ErrorCode.UNKNOWN_MEMBER_ID, saying="rejoin")
