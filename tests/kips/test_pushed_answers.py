"""What the two sources ask of a coordinator that tells its members of a rebalance: heartbeats that are held (H1).

Source: users@kafka, "New Consumer Design", July 2014; KIP-848, motivation and design goals.
"""

from __future__ import annotations

from typing import Any

import pytest

from kohort.coordinator.commands import ConsumerGroupHeartbeatReply
from kohort.coordinator.records.types import ConsumerMemberForgotten
from kohort.errors import ErrorCode
from support.dialogues.coordinator_dialogue import Answer
from support.dialogues.hold_dialogue import HOLD_MS, ClassicHoldDialogue, HoldDialogue

SESSION_MS = 45_000


@pytest.fixture
def group() -> HoldDialogue:
    """A group "g" without members, and a topic "t" of four partitions."""
    return HoldDialogue({"t": 4})


def partitions_in(answer: Answer) -> list[int]:
    """What a member is told to own."""
    body: Any = answer.body
    assert isinstance(body, ConsumerGroupHeartbeatReply) and body.assignment is not None
    return sorted(partition for partitions in body.assignment.values() for partition in partitions)


def test_rebalanced_partitions_come_in_the_answer_to_a_heartbeat_that_was_sent_before(group: HoldDialogue) -> None:
    """Robert Withers, 14 July 2014: send the rebalanced partitions in the HeartbeatResponse, to all consumers or a
    sub-set of them, without another round trip: push the rebalance, do not pull it."""
    group.at_rest(a=[0, 1], b=[2, 3])
    of_a, of_b = group.beat("a"), group.beat("b")
    group.beat("c", epoch=0)
    assert (of_a.is_parked, partitions_in(of_b)) == (True, [2])


def test_rebalance_takes_less_than_a_heartbeat(group: HoldDialogue) -> None:
    """Guozhang Wang, 8 July 2014: where consumers are notified by heartbeat responses only, a rebalance takes no less
    than the heartbeat interval. It takes no time here that members do not take themselves, whatever the interval."""
    group.at_rest(a=[0, 1], b=[2, 3])
    of_b = group.beat("b")
    joined = group.beat("c", epoch=0)
    began_ms = group.now_ms
    assert partitions_in(of_b) == [2]
    group.beat("b", owned=[2])
    assert partitions_in(joined) == [3]
    assert group.now_ms == began_ms


def test_fourth_consumer_is_given_each_partition_when_its_loser_has_let_go_of_it() -> None:
    """Robert Withers, 16 July 2014, steps 6 to 9, pushed: each loser is told, and with its acknowledgement the new
    consumer is; nobody asks. What it is given it lists, and is told of the next."""
    group = HoldDialogue({"t": 12})
    for member_id in "abc":
        group.beat(member_id, epoch=0, hold_ms=0)
    group.settle()
    for member_id in "abc":
        group.beat(member_id, owned=sorted(partition for _, partition in group.holders()[member_id]), hold_ms=0)
    held = {member_id: group.beat(member_id) for member_id in "abc"}
    group.beat("d", epoch=0, hold_ms=0).replies(epoch=4, assigned=[])
    waiting = group.beat("d")
    for count, (member_id, told) in enumerate(held.items(), start=1):
        kept = partitions_in(told)
        assert len(kept) == 3
        group.beat(member_id, owned=kept)
        given = partitions_in(waiting)
        assert len(given) == count
        waiting = group.beat("d", owned=given)
    assert waiting.is_parked


def test_consecutive_triggers_find_one_answer(group: HoldDialogue) -> None:
    """Guozhang Wang, 16 July 2014: assignments that ride on heartbeats could get inconsistent with consecutive
    triggers. What is held is answered with what holds when it leaves, and nobody is told of what another one has."""
    group.at_rest(a=[0, 1, 2, 3])
    held = group.beat("a")
    joins = [group.beat(member_id, epoch=0) for member_id in "bc"]
    held.replies(epoch=1, assigned=[0, 1])
    assert group.beat("a", owned=[0, 1]).is_parked
    assert [partitions_in(each) for each in joins] == [[2], [3]]


def test_a_gain_is_told_directly_and_the_heartbeat_still_detects_failures(group: HoldDialogue) -> None:
    """Robert Withers, 21 July 2014: the heartbeat is kept, to control how failures are found and to tell clients
    directly that they gain or lose a partition, above all that they gain."""
    group.at_rest(a=[0, 1], b=[2, 3])
    group.beat("b", counts_requests=True)
    group.advance(SESSION_MS - HOLD_MS)
    of_a = group.beat("a")
    # What was held of b was answered meanwhile, which is no sign of its life.
    group.advance(HOLD_MS)
    assert ConsumerMemberForgotten(group_id="g", member_id="b") in group.new_records()
    assert partitions_in(of_a) == [0, 1, 2, 3]


def test_consumer_whose_assignment_is_not_changed_is_not_impacted(group: HoldDialogue) -> None:
    """KIP-848, first design goal, its second sentence: nothing is written for it, and it is not even answered."""
    group.at_rest(a=[0, 1], b=[2, 3])
    of_a = group.beat("a")
    group.beat("b")
    group.new_records()
    group.beat("c", epoch=0)
    group.beat("b", owned=[2])
    group.leave("c")
    group.tell_news()
    assert group.holders() == {"a": {("t", 0), ("t", 1)}, "b": {("t", 2), ("t", 3)}}
    assert "a" not in {getattr(record, "member_id", "") for record in group.new_records()}
    assert of_a.is_parked


def test_coordinator_mends_the_latency_of_clients_as_they_are(group: HoldDialogue) -> None:
    """KIP-848, second design goal: without waiting on the adoption of clients. A client that says nothing but what
    every client says is told of its revocation in the middle of its interval."""
    group.at_rest(a=[0, 1], b=[2, 3])
    of_b = group.beat("b")
    group.advance(HOLD_MS // 2)
    assert of_b.is_parked
    group.beat("c", epoch=0)
    assert partitions_in(of_b) == [2]


def test_live_consumers_of_a_barrier_are_told_of_it_at_once() -> None:
    """Robert Withers, 18 July 2014: a global lock by a pull protocol, a HeartbeatRequest and then a JoinGroupRequest of
    all live consumers, is a big one. Where the classic protocol has it, no member is waited for because it sleeps."""
    group = ClassicHoldDialogue({"t": 4}, group_initial_rebalance_delay_ms=0)
    members = group.classic_group(x=[0, 1], y=[2, 3]).values()
    held = [group.wait(each) for each in members]
    joining = group.client("z").send_join()
    group.tell_news()
    for answer in held:
        answer.is_refused(ErrorCode.REBALANCE_IN_PROGRESS)
    for each in members:
        each.send_join()
    assert not joining.is_parked
