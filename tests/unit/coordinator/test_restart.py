"""What a restart finds again: the state by the same `apply`, and deadlines in full."""

from __future__ import annotations

import pytest

from kohort.coordinator.consumer.assignment.batching_window import assignment_key
from kohort.coordinator.decision import TimerKey
from kohort.coordinator.records import codec
from kohort.coordinator.records.types import (
    ClassicGroupStored,
    ConsumerGroupEpochSet,
    ConsumerMemberForgotten,
    CurrentAssignmentForgotten,
    CurrentAssignmentSet,
    MemberState,
    MemberTargetForgotten,
    MemberTargetSet,
    StoredClassicMember,
    TargetAssignmentEpochForgotten,
    TargetAssignmentEpochSet,
)
from support.dialogues.coordinator_dialogue import GroupDialogue, topic_id_of

T = topic_id_of("t")


def test_state_is_the_same_and_members_go_on(group: GroupDialogue) -> None:
    group.stable(a=[0], b=[1])
    group.commit({0: 3}, member_id="a", epoch=2)
    before = group.shard.state_digest()
    group.restart()
    assert group.shard.state_digest() == before
    group.heartbeat("a", epoch=2).replies(epoch=2, assigned=None)
    assert group.committed([0], member_id="a", member_epoch=2) == {0: 3}


def test_sessions_run_in_full_after_a_restart(group: GroupDialogue) -> None:
    """However long nobody listened, nobody is fenced for that."""
    group.stable(a=[0, 1])
    group.advance(ms=44_000)
    group.restart()
    group.advance(ms=44_999)
    assert list(group.group.members) == ["a"]
    group.advance(ms=1)
    assert list(group.group.members) == []


def test_rebalance_timeout_of_a_member_that_has_to_give_up_runs_in_full(group: GroupDialogue) -> None:
    group.rebalance_timeout_ms = 10_000
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1)
    group.advance(ms=9_000)
    group.restart()
    assert group.shard.timers.deadline(TimerKey("rebalance", "g", "a")) == group.now_ms + 10_000
    assert group.shard.timers.deadline(TimerKey("rebalance", "g", "b")) is None
    group.advance(ms=10_000)
    assert list(group.group.members) == ["b"]


def test_target_that_was_due_is_computed_after_the_restart() -> None:
    group = GroupDialogue(group_consumer_assignment_interval_ms=1_000)
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    group.restart()
    assert group.shard.timers.deadline(assignment_key("g")) == group.now_ms + 1_000
    group.advance(ms=1_000)
    assert group.group.target_epoch == 2


@pytest.mark.parametrize("topics_first", [False, True])
def test_target_is_computed_although_a_topic_went_while_nobody_listened(topics_first: bool) -> None:
    """Nobody subscribes to it any more: only its offsets go, which is no change of the group."""
    group = GroupDialogue({"t": 2, "v": 1}, group_consumer_assignment_interval_ms=1_000)
    group.stable(a=[0, 1])
    group.commit({("v", 0): 7}, member_id="a", epoch=1)
    group.heartbeat("b", epoch=0)
    group.restart(topics_first=topics_first, topics={"t": 2})
    assert group.committed([("v", 0)]) == {("v", 0): -1}
    assert (group.group.epoch, group.group.target_epoch) == (2, 1)
    group.advance(ms=1_000)
    assert group.group.target_epoch == 2


def test_crash_between_fences_and_their_target(group: GroupDialogue) -> None:
    """The fence is in the log, the computation is not: it follows at once."""
    group.stable(a=[0], b=[1])
    group.advance(ms=10)
    group.heartbeat("a", epoch=2)
    group.now_ms += 45_000 - 10
    assert group.fire_one()
    assert (group.group.epoch, group.group.target_epoch) == (3, 2)
    group.restart()
    group.fire_due()
    assert (group.group.epoch, group.group.target_epoch) == (3, 3)


def stored_classic(*member_ids: str) -> ClassicGroupStored:
    """A classic group at rest."""
    return ClassicGroupStored(
        group_id="g",
        protocol_type="consumer",
        generation=1,
        protocol_name="range" if member_ids else None,
        leader=member_ids[0] if member_ids else None,
        state_timestamp_ms=1,
        members=tuple(
            StoredClassicMember(
                member_id=member_id,
                instance_id=None,
                client_id="c",
                client_host="h",
                rebalance_timeout_ms=60_000,
                session_timeout_ms=10_000,
                subscription=b"",
                assignment=b"",
            )
            for member_id in member_ids
        ),
    )


def test_classic_sessions_run_in_full_too(group: GroupDialogue) -> None:
    group.log.append(codec.encode(stored_classic("x")))
    group.restart()
    assert group.list_groups() == [("g", "consumer", "Stable", "classic")]
    assert group.shard.timers.deadline(TimerKey("session", "g", "x")) == group.now_ms + 10_000
    group.advance(ms=10_000)
    assert group.list_groups() == [("g", "consumer", "Empty", "classic")]


def test_classic_group_that_is_larger_than_allowed_rebalances_when_it_is_loaded() -> None:
    """Source: Apache Kafka's `onLoaded`; the limit may have been lowered."""
    group = GroupDialogue(group_max_size=1)
    group.log.append(codec.encode(stored_classic("x", "y")))
    group.restart()
    assert group.list_groups() == [("g", "consumer", "PreparingRebalance", "classic")]


def test_compacted_log_gives_the_same_state(group: GroupDialogue) -> None:
    """Compaction keeps the latest record of each key."""
    group.set_topics({"t": 2, "u": 2})
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0, topics=["t", "u"])
    group.settle()
    group.commit({0: 1, ("u", 1): 2}, member_id="b", epoch=2)
    group.leave("a")
    group.settle()
    assert group.fold(group.compacted()).state_digest() == group.shard.state_digest()
    without_tombstones = [(key, value) for key, value in group.compacted() if value is not None]
    assert group.fold(without_tombstones).state_digest() == group.shard.state_digest()


@pytest.mark.parametrize("cut", range(12))
def test_kafka_19862_half_compacted_log_is_read_without_an_error(group: GroupDialogue, cut: int) -> None:
    """KAFKA-19862: a loader may see the compacted head of a log and the whole tail; it ends where the log ends."""
    group.set_topics({"t": 3, "u": 2})
    for member_id in "abc":
        group.heartbeat(member_id, epoch=0, topics=["t", "u"])
        group.settle()
    group.leave("b")
    group.settle()
    group.heartbeat("b", epoch=0)
    group.settle()
    position = len(group.log) * cut // 12
    head, tail = group.log[:position], group.log[position:]
    written_again = {key for key, _ in tail}
    compacted = [(key, value) for key, value in head if key not in written_again]
    assert group.fold([*compacted, *tail]).state_digest() == group.shard.state_digest()


def test_tombstones_of_what_is_not_there_do_nothing(group: GroupDialogue) -> None:
    """KAFKA-19862: compaction may have taken the group, or the member, that a tombstone is for."""
    for record in (
        CurrentAssignmentForgotten(group_id="lost", member_id="a"),
        MemberTargetForgotten(group_id="lost", member_id="a"),
        ConsumerMemberForgotten(group_id="lost", member_id="a"),
        TargetAssignmentEpochForgotten(group_id="lost"),
    ):
        group.shard.apply(record)
    assert group.shard.groups.consumer == {}


def test_grant_that_is_read_before_its_release_keeps_its_holder(group: GroupDialogue) -> None:
    """Compaction took the record in which "a" let go; the later one without the partition must not free it again."""
    group.shard.apply(ConsumerGroupEpochSet(group_id="h", epoch=3))
    for member_id, partitions, epoch in (("a", {0: 1, 1: 1}, 1), ("b", {1: 2}, 2), ("a", {0: 1}, 3)):
        group.shard.apply(
            CurrentAssignmentSet(
                group_id="h",
                member_id=member_id,
                member_epoch=epoch,
                previous_member_epoch=epoch - 1,
                state=MemberState.STABLE,
                assigned={T: partitions},
                pending_revocation={},
            )
        )
    assert group.shard.groups.consumer["h"].holders == {T: {0: "a", 1: "b"}}


def test_member_without_a_subscription_is_fenced_in_the_end(group: GroupDialogue) -> None:
    """What compaction left of a member has a session like any other, and is cleaned away by its end."""
    group.stable(a=[0, 1])
    left_over = MemberTargetSet(group_id="g", member_id="ghost", partitions={})
    current = CurrentAssignmentSet(
        group_id="g",
        member_id="ghost",
        member_epoch=1,
        previous_member_epoch=0,
        state=MemberState.STABLE,
        assigned={},
        pending_revocation={},
    )
    group.log.extend(codec.encode(record) for record in (left_over, current))
    group.restart()
    group.advance(ms=44_000)
    group.heartbeat("a", epoch=1)
    group.advance(ms=1_000)
    assert list(group.group.members) == ["a"]


def test_id_that_was_classic_and_is_not_any_more(group: GroupDialogue) -> None:
    """The tombstone of the classic group may be gone; the latest word counts, either way."""
    stored = stored_classic()
    consumer = (
        ConsumerGroupEpochSet(group_id="g", epoch=1),
        TargetAssignmentEpochSet(group_id="g", assignment_epoch=1),
    )
    for records, kind in (((stored, *consumer), "consumer"), ((*consumer, stored), "classic")):
        group.log = [codec.encode(record) for record in records]
        group.shard = group.fold()
        assert [listed[-1] for listed in group.list_groups()] == [kind]
