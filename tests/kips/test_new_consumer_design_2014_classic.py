"""users@kafka, "New Consumer Design", July 2014: what the thread asks of groups, in the protocol that came of it.

Guozhang Wang's opening of 8 July is what the classic protocol was built from; `test_new_consumer_design_2014` has what
was answered to it, in the protocol that came later.
"""

from __future__ import annotations

import pytest

from kohort.coordinator import commands
from kohort.errors import ErrorCode
from support.dialogues.classic_client import SESSION_MS, ClassicClient, rebalance
from support.dialogues.coordinator_dialogue import GroupDialogue


@pytest.fixture
def world() -> GroupDialogue:
    """A shard and topics "t" of four partitions and "u" of one."""
    return GroupDialogue({"t": 4, "u": 1})


def test_offsets_live_in_a_log_that_keeps_the_latest_of_each_key(world: GroupDialogue) -> None:
    """G1. Guozhang Wang, 8 July, offset management: a special log, bounded by key-based compaction."""
    for offset in range(5):
        world.commit({0: offset, 1: offset + 10})
    compacted = world.compacted()
    assert len(compacted) == 2
    offsets = world.fold(compacted).groups.offsets["g"]["t"]
    assert {partition: commit.offset for partition, commit in offsets.items()} == {0: 4, 1: 14}


def test_consumer_sets_its_session_timeout_within_bounds(world: GroupDialogue) -> None:
    """G3. Guozhang Wang, 8 July, failure detection: the consumer sets the timeout when it starts."""
    hasty = ClassicClient(world, "a", session_timeout_ms=world.settings.group_min_session_timeout_ms - 1)
    hasty.join().is_refused(ErrorCode.INVALID_SESSION_TIMEOUT, saying="are allowed")


def test_consumer_that_is_not_heard_of_for_its_session_has_failed(world: GroupDialogue) -> None:
    """G3. The same: not heard of for the session timeout; how often it heartbeats within it is its own business."""
    a, b = ClassicClient(world, "a"), ClassicClient(world, "b", session_timeout_ms=2 * SESSION_MS)
    a.join()
    b.join()
    rebalance(a, b, plan={"a": (0, 1), "b": (2, 3)})
    world.advance(SESSION_MS - 1)
    assert a.heartbeat() == ErrorCode.NONE
    world.advance(SESSION_MS - 1)
    assert (a.heartbeat(), b.heartbeat()) == (ErrorCode.NONE, ErrorCode.NONE)
    world.advance(SESSION_MS)
    assert (a.heartbeat(), b.heartbeat()) == (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS)


@pytest.mark.parametrize("event", ["failure", "new consumer", "other topics", "more partitions"])
def test_each_of_the_four_events_triggers_a_rebalance_and_heartbeats_tell_of_it(
    world: GroupDialogue, event: str
) -> None:
    """G4. Guozhang Wang, 8 July, consumer rebalance: four causes; the others are asked for their subscriptions anew.

    The classic protocol leaves the fourth to a member that watches the topics and rejoins.
    """
    a, b = ClassicClient(world, "a"), ClassicClient(world, "b", session_timeout_ms=2 * SESSION_MS)
    b.join()
    a.join()
    rebalance(b, a, plan={"a": (0, 1), "b": (2, 3)})
    match event:
        case "failure":
            world.advance(SESSION_MS)
        case "new consumer":
            ClassicClient(world, "c").join()
        case "other topics":
            a.topics = ("t", "u")
            a.join()
        case "more partitions":
            world.set_topics({"t": 6, "u": 1})
            a.topics = ("t",)
            b.join()
    watching = a if event == "more partitions" else b
    assert watching.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS


def test_consumers_with_different_algorithms_do_not_form_a_group(world: GroupDialogue) -> None:
    """G6, G11. Guozhang Wang, 8 July: the user names the algorithm, and who names another one is rejected.

    Who was there goes on undisturbed. As the protocol was built a consumer may name several, and votes decide.
    """
    a = ClassicClient(world, "a", protocols=("range", "sticky"))
    rebalance(a, plan={"a": (0, 1, 2, 3)})
    ClassicClient(world, "b", protocols=("roundrobin",)).join().is_refused(
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL, saying="in common"
    )
    assert a.heartbeat() == ErrorCode.NONE

    c = ClassicClient(world, "c", protocols=("sticky", "roundrobin"))
    c.join()
    a.join()
    assert c.learn_generation().protocol_name == a.learn_generation().protocol_name == "sticky"


def test_commit_of_somebody_who_is_not_in_the_group_is_rejected(world: GroupDialogue) -> None:
    """G2. Guozhang Wang, 8 July: one coordinator for membership and offsets, so that it can tell; id and generation."""
    a = ClassicClient(world, "a")
    rebalance(a, plan={"a": (0, 1, 2, 3)})
    assert a.commit(0, 5) == ErrorCode.NONE
    stranger = ClassicClient(world, "stranger")
    stranger.member_id, stranger.generation = "stranger-id", a.generation
    assert stranger.commit(0, 9) == ErrorCode.UNKNOWN_MEMBER_ID
    a.generation -= 1
    assert a.commit(0, 9) == ErrorCode.ILLEGAL_GENERATION
    assert world.committed([0]) == {0: 5}


def test_consumer_with_an_assignment_of_its_own_stores_offsets_here_all_the_same(world: GroupDialogue) -> None:
    """G1. Guozhang Wang, 8 July, consumer API: assignment by hand, with the offsets of the servers or elsewhere."""
    assert world.commit({0: 5}).errors() == (ErrorCode.NONE,)
    assert world.committed([0]) == {0: 5}
    assert world.list_groups() == [("g", "", "Empty", "classic")]


def test_consumer_that_loses_a_partition_commits_while_the_others_wait_for_it(world: GroupDialogue) -> None:
    """G2. Rob Withers, 16 July: when does a consumer that is losing a partition get a chance to commit its offset?

    At any time until the next assignment is given out: nobody else can have the partition before.
    """
    a, b = ClassicClient(world, "a"), ClassicClient(world, "b")
    rebalance(a, plan={"a": (0, 1, 2, 3)})
    b.join()
    assert a.heartbeat() == ErrorCode.REBALANCE_IN_PROGRESS
    assert a.commit(3, 7) == ErrorCode.NONE
    a.join()
    a.learn_generation()
    b.learn_generation()
    assert a.commit(3, 8) == ErrorCode.NONE
    b.sync()
    a.sync({"a-id": (0, 1), "b-id": (2, 3)})
    assert b.learn_assignment() == (2, 3)
    assert world.committed([3]) == {3: 8}


def test_triggers_in_a_row_never_give_a_partition_two_owners(world: GroupDialogue) -> None:
    """G4. Guozhang Wang, 16 July: with consecutive triggers the assignments must come from one consistent view.

    Here the barrier is that view: while a rebalance is under way a further trigger starts it over, and an assignment of
    the round before is refused.
    """
    a, b, c = (ClassicClient(world, name) for name in "abc")
    rebalance(a, plan={"a": (0, 1, 2, 3)})
    b.join()
    a.join()
    a.learn_generation()
    b.learn_generation()
    stale = {"a-id": (0, 1), "b-id": (2, 3)}
    b.sync()
    c.join()
    assert b.syncing is not None
    assert b.syncing.body_as(commands.SyncGroupReply).error == ErrorCode.REBALANCE_IN_PROGRESS
    a.sync(stale).is_refused(ErrorCode.REBALANCE_IN_PROGRESS)
    a.join()
    b.join()
    rebalance(a, b, c, plan={"a": (0, 1), "b": (2,), "c": (3,)})
    assert sorted(a.owned + b.owned + c.owned) == [0, 1, 2, 3]
