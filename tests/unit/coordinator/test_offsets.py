"""Committing, fetching and deleting offsets: who may, and what is answered."""

from __future__ import annotations

import pytest

from kohort.coordinator.commands import CommittedOffset, FetchOffsetsReply
from kohort.coordinator.commands import admin as asked
from kohort.coordinator.records.types import OffsetCommitted, OffsetForgotten
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import GroupDialogue, topic_id_of

NONE, STALE = ErrorCode.NONE, ErrorCode.STALE_MEMBER_EPOCH


def test_simple_consumer_makes_an_empty_group_that_is_listed_described_and_deleted(group: GroupDialogue) -> None:
    """A commit without a member: generation -1, empty member id."""
    assert group.commit({0: 5}).errors() == (NONE,)
    assert group.list_groups() == [("g", "", "Empty", "classic")]
    described = group.describe_classic().body_as(asked.DescribeClassicGroupReply)
    assert (described.error, described.state, described.members) == (NONE, "Empty", ())
    group.describe().is_refused(ErrorCode.GROUP_ID_NOT_FOUND)
    group.restart()
    assert group.committed() == {0: 5}
    group.delete_group().is_done()
    assert group.new_records()[-1] == OffsetForgotten(group_id="g", topic="t", partition=0)
    assert group.list_groups() == []
    assert group.describe_classic().body_as(asked.DescribeClassicGroupReply).error == ErrorCode.GROUP_ID_NOT_FOUND


def test_commit_keeps_everything_that_was_said(group: GroupDialogue) -> None:
    group.new_records()
    group.commit({0: 5}, metadata="mine")
    assert group.new_records() == [
        OffsetCommitted(
            group_id="g",
            topic="t",
            partition=0,
            offset=5,
            leader_epoch=-1,
            metadata="mine",
            commit_timestamp_ms=group.now_ms,
            topic_id=topic_id_of("t"),
        )
    ]
    (found,) = group.fetch_offsets([0]).body_as(FetchOffsetsReply).offsets
    assert found == CommittedOffset(
        topic="t", topic_id=topic_id_of("t"), partition=0, offset=5, leader_epoch=-1, metadata="mine"
    )


def test_bad_partitions_do_not_hold_up_good_ones(group: GroupDialogue) -> None:
    answer = group.commit({0: 1, 9: 2, ("nowhere", 0): 3, -1: 4, 1: 5})
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert answer.errors() == (NONE, unknown, unknown, unknown, NONE)
    assert group.committed() == {0: 1, 1: 5}


def test_metadata_that_is_too_long_is_refused(group: GroupDialogue) -> None:
    """In bytes, not characters."""
    assert group.commit({0: 1}, metadata="é" * 2_048).errors() == (NONE,)
    assert group.commit({0: 2}, metadata="é" * 2_049).errors() == (ErrorCode.OFFSET_METADATA_TOO_LARGE,)
    assert group.committed() == {0: 1}


def test_topic_id_of_another_topic_is_refused(group: GroupDialogue) -> None:
    assert group.commit({0: 1}, topic_id=topic_id_of("t", generation=9)).errors() == (ErrorCode.UNKNOWN_TOPIC_ID,)
    assert group.commit({0: 1}, topic_id=topic_id_of("t")).errors() == (NONE,)


def test_member_of_an_unknown_group_is_sent_to_rejoin(group: GroupDialogue) -> None:
    group.commit({0: 1}, member_id="a", epoch=3).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    group.commit({0: 1}, member_id="a", epoch=3, is_member_epoch_aware=False).is_refused(ErrorCode.ILLEGAL_GENERATION)


@pytest.mark.parametrize("epoch", [0, -1])
def test_nobody_commits_into_a_group_with_members_without_being_one(group: GroupDialogue, epoch: int) -> None:
    group.stable(a=[0, 1])
    group.commit({0: 1}, epoch=epoch).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    group.commit({0: 1}, member_id="x", epoch=1).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    group.leave("a")
    assert group.commit({0: 1}).errors() == (NONE,)


def test_member_epoch_has_to_be_understood(group: GroupDialogue) -> None:
    group.stable(a=[0, 1])
    group.commit({0: 1}, member_id="a", epoch=1, is_member_epoch_aware=False).is_refused(ErrorCode.UNSUPPORTED_VERSION)
    group.commit({0: 1}, member_id="a", epoch=2).is_refused(STALE)
    group.commit({0: 1}, member_id="a", epoch=-1).is_refused(STALE)
    assert group.commit({0: 1}, member_id="a", epoch=1).errors() == (NONE,)


def test_older_epoch_is_accepted_for_what_has_been_held_since(group: GroupDialogue) -> None:
    """KIP-1251: a commit that was sent before the epoch rose is good for partitions that stayed."""
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1)
    group.heartbeat("a", epoch=1, owned=[0]).replies(epoch=2)
    assert group.commit({0: 1, 1: 1}, member_id="a", epoch=1).errors() == (NONE, STALE)
    group.leave("b")
    group.heartbeat("a", epoch=2).replies(epoch=3, assigned=[0, 1])
    # Partition 1 was granted anew at epoch 3: what was said at epoch 1 or 2 is from another life.
    assert group.commit({0: 2, 1: 2}, member_id="a", epoch=1).errors() == (NONE, STALE)
    assert group.commit({0: 2, 1: 2}, member_id="a", epoch=2).errors() == (NONE, STALE)
    assert group.commit({0: 3, 1: 3}, member_id="a", epoch=3).errors() == (NONE, NONE)


def test_whom_newer_epochs_left_alone_commits_what_it_holds_and_what_the_group_does_not_share() -> None:
    """Ours: what it gave up before them it would commit late, and nobody else may hold that just now."""
    group = GroupDialogue({"t": 1, "u": 1, "v": 1})
    group.stable(a={"t": [0], "u": [0]})
    group.heartbeat("c", epoch=0, topics=["u"]).replies(epoch=2, assigned=[])
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned={"t": [0]})
    group.heartbeat("a", epoch=1, owned={"t": [0]}).replies(epoch=2)
    group.heartbeat("d", epoch=0, topics=["t"]).replies(epoch=3, assigned=[])
    assert group.commit({0: 1, ("u", 0): 1, ("v", 0): 1}, member_id="a", epoch=2).errors() == (NONE, STALE, NONE)
    (a, *_) = group.describe().body_as(asked.DescribeConsumerGroupReply).members
    assert (a.member_epoch, group.member("a").member_epoch) == (3, 2)


def test_whom_newer_epochs_left_alone_commits_on_a_topic_that_was_made_anew() -> None:
    """It gives the old one up, and commits before: by its name, which is that of the new one."""
    group = GroupDialogue({"t": 1})
    group.stable(a=[0])
    group.heartbeat("b", epoch=0).replies(epoch=2, assigned=[])
    group.set_topics({})
    group.set_topics({"t": 1})
    group.fire_due()
    assert group.commit({0: 0}, member_id="a", epoch=1).errors() == (NONE,)


def test_current_epoch_does_not_open_what_somebody_else_holds() -> None:
    """Ours: partition 3 was released on its own, its old owner's epoch is still current, and its commit is refused."""
    group = GroupDialogue({"t": 4})
    group.stable(a=[0, 1, 2, 3])
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=[0, 1])
    group.heartbeat("a", epoch=1, owned=[0, 1, 2])
    group.heartbeat("b", epoch=2).replies(epoch=2, assigned=[3])
    group.commit({3: 50}, member_id="b", epoch=2)
    assert group.commit({2: 7, 3: 40}, member_id="a", epoch=1).errors() == (NONE, STALE)
    assert group.committed([2, 3]) == {2: 7, 3: 50}


def test_what_nobody_holds_may_be_committed_by_any_member(group: GroupDialogue) -> None:
    """As in Apache Kafka: an application may keep offsets of topics that it reads by hand."""
    group.set_topics({"t": 2, "u": 1})
    group.stable(a=[0, 1])
    assert group.commit({("u", 0): 9}, member_id="a", epoch=1).errors() == (NONE,)


def test_member_that_shows_a_grant_commits_to_its_acknowledgement_and_no_longer() -> None:
    """users@kafka 2014-07, steps 5 to 8: partition 3 is released, 2 is not yet, and no next owner has come."""
    group = GroupDialogue({"t": 4})
    group.stable(a=[0, 1, 2, 3])
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1).replies(epoch=1, assigned=[0, 1])
    assert group.commit({3: 40}, member_id="a", epoch=1, shows_grant=True).errors() == (NONE,)
    group.heartbeat("a", epoch=1, owned=[0, 1, 2])
    late = group.commit({0: 1, 2: 7, 3: 50}, member_id="a", epoch=1, shows_grant=True)
    assert late.errors() == (NONE, NONE, STALE)
    assert group.committed([2, 3]) == {2: 7, 3: 40}


def test_fetch_of_everything_is_in_order(group: GroupDialogue) -> None:
    group.set_topics({"t": 2, "b": 11})
    group.commit({1: 1, 0: 2, ("b", 10): 3, ("b", 9): 4})
    assert list(group.committed()) == [("b", 9), ("b", 10), 0, 1]
    assert group.committed(group_id="unknown") == {}


def test_fetch_of_what_is_not_committed_says_minus_one(group: GroupDialogue) -> None:
    assert group.committed([0, ("nowhere", 3)], group_id="unknown") == {0: -1, ("nowhere", 3): -1}


def test_kafka_20765_fetch_accepts_the_previous_epoch(group: GroupDialogue) -> None:
    """KAFKA-20765: the answer with the new epoch may be on its way; "nothing committed" or a spin would be worse."""
    group.stable(a=[0, 1])
    group.heartbeat("b", epoch=0)
    group.heartbeat("a", epoch=1)
    group.heartbeat("a", epoch=1, owned=[0]).replies(epoch=2)
    assert group.committed([0], member_id="a", member_epoch=2) == {0: -1}
    assert group.committed([0], member_id="a", member_epoch=1) == {0: -1}
    group.fetch_offsets([0], member_id="a", member_epoch=3).is_refused(STALE)
    group.fetch_offsets([0], member_id="a", member_epoch=0).is_refused(STALE)
    group.fetch_offsets([0], member_id="x", member_epoch=1).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)
    group.fetch_offsets([0], group_id="lost", member_id="a", member_epoch=1).is_refused(ErrorCode.UNKNOWN_MEMBER_ID)


def test_offsets_in_use_are_not_deleted(group: GroupDialogue) -> None:
    group.set_topics({"t": 2, "u": 1})
    group.stable(a=[0, 1])
    group.commit({0: 1, ("u", 0): 2}, member_id="a", epoch=1)
    answer = group.delete_offsets([0, ("u", 0), ("u", 0), ("nowhere", 0)])
    assert answer.errors() == (
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        NONE,
        NONE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
    assert group.committed() == {0: 1}


def test_deleting_offsets_of_an_unknown_group_is_refused(group: GroupDialogue) -> None:
    group.delete_offsets([0], group_id="").is_refused(ErrorCode.INVALID_GROUP_ID)
    group.delete_offsets([0]).is_refused(ErrorCode.GROUP_ID_NOT_FOUND)


def test_deleting_the_last_offset_ends_a_simple_group(group: GroupDialogue) -> None:
    group.commit({0: 1})
    assert group.delete_offsets([0]).errors() == (NONE,)
    assert group.list_groups() == []


def test_deleted_topic_takes_its_offsets_with_it(group: GroupDialogue) -> None:
    group.set_topics({"t": 2, "u": 1})
    group.commit({0: 1, ("u", 0): 2})
    group.commit({1: 7}, group_id="other")
    group.new_records()
    group.set_topics({"u": 1})
    assert group.committed() == {("u", 0): 2}
    assert group.committed(group_id="other") == {}
    group.set_topics({"t": 2, "u": 1})
    assert group.committed([0]) == {0: -1}


def test_topic_made_again_while_the_coordinator_was_down_does_not_inherit_offsets(group: GroupDialogue) -> None:
    """Offsets of the first topic would make a consumer of the second one skip records."""
    group.set_topics({"t": 2, "u": 1})
    group.commit({0: 1, ("u", 0): 2})
    group.shard = group.fold()
    # Both changes happen before the shard hears of topics again.
    group._topics.pop("t")
    group._generations["t"] = 1
    group.set_topics({"t": 2, "u": 1})
    assert group.committed() == {("u", 0): 2}


def test_group_with_members_is_not_deleted(group: GroupDialogue) -> None:
    group.delete_group().is_refused(ErrorCode.GROUP_ID_NOT_FOUND)
    group.stable(a=[0, 1])
    group.commit({0: 1}, member_id="a", epoch=1)
    group.delete_group().is_refused(ErrorCode.NON_EMPTY_GROUP)
    group.leave("a")
    group.delete_group().is_done()
    assert group.list_groups() == []
    assert group.committed() == {}
    group.restart()
    assert not any(group.shard.state_digest().values())


def test_commit_by_the_id_of_a_topic_that_was_deleted_under_the_group(group: GroupDialogue) -> None:
    """Kafka's UNKNOWN_TOPIC_ID has a Java consumer repeat its last commit for minutes before it lets go."""
    group.stable(a=[0, 1])
    deleted = group.topic_id("t")
    group.set_topics({"u": 1})
    errors = group.commit({("", 0): 5}, member_id="a", epoch=1, topic_id=deleted).errors()
    assert errors == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,)
    never = topic_id_of("never")
    assert group.commit({("", 0): 5}, member_id="a", epoch=1, topic_id=never).errors() == (ErrorCode.UNKNOWN_TOPIC_ID,)
    group.settle()
    assert group.commit({("", 0): 5}, member_id="a", epoch=2, topic_id=deleted).errors() == (
        ErrorCode.UNKNOWN_TOPIC_ID,
    )
