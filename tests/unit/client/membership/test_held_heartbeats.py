"""Dialogues with members whose coordinator holds the answers to their heartbeats (H1), in both protocols."""

from __future__ import annotations

import pytest

from kohort.client.consumer.application_events import (
    AsynchronousCommitAsked,
    CallbackKind,
    RebalanceEnforced,
    Subscribed,
    Unsubscribed,
)
from kohort.client.consumer.membership.states import MemberState
from kohort.client.core.actions import Complete, Disconnect, Endpoint, Lane
from kohort.client.core.requests import Failure
from kohort.errors import ErrorCode
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest, ConsumerGroupHeartbeatResponse
from kohort.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from kohort.wire.messages.join_group import JoinGroupRequest
from kohort.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from support.dialogues.classic_dialogue import ClassicDialogue
from support.dialogues.consumer_dialogue import ORDERS, ConsumerDialogue, orders

ASSIGNED, REVOKED = CallbackKind.ASSIGNED, CallbackKind.REVOKED


@pytest.fixture
def member() -> ConsumerDialogue:
    """At rest with partition 0; its heartbeat is held."""
    member = ConsumerDialogue()
    member.stable(0)
    member.advance(5_000)
    assert len(beats(member)) == 1
    return member


@pytest.fixture
def classic() -> ClassicDialogue:
    """The same in the classic protocol."""
    member = ClassicDialogue()
    member.at_rest(0)
    member.beaten()
    member.advance(3_000)
    assert len(member.find(HeartbeatRequest)) == 1
    return member


def beats(member: ConsumerDialogue) -> list[ConsumerGroupHeartbeatRequest]:
    """The heartbeats under way, oldest first."""
    found = [send.request for send in member.find(ConsumerGroupHeartbeatRequest)]
    return [each for each in found if isinstance(each, ConsumerGroupHeartbeatRequest)]


def listed(request: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    """The partitions that a heartbeat says are owned."""
    rows = request.topic_partitions
    return None if rows is None else [partition for row in rows for partition in row.partitions]


def overtake(member: ConsumerDialogue) -> ConsumerGroupHeartbeatRequest:
    """Another subscription: its heartbeat comes behind the one that is held."""
    member.take(Subscribed(topics=("orders", "refunds")))
    member.settle()
    (_, request) = beats(member)
    return request


def commit(member: ConsumerDialogue) -> None:
    """The application commits something; it is not answered yet."""
    asked = AsynchronousCommitAsked(offsets={orders(0)[0]: 7}, callback=None, deadline_ms=member.now_ms + 9_000)
    member.take(asked)
    member.settle()


# -- what overtakes ---------------------------------------------------------------------------------------------------


def test_new_subscription_overtakes_a_heartbeat(member: ConsumerDialogue) -> None:
    """It lists what is owned: the epoch that the answer before it brings makes its own the previous one (KIP-848)."""
    request = overtake(member)

    assert (request.subscribed_topic_names, listed(request), request.member_epoch) == (["orders", "refunds"], [0], 1)


def test_revocation_is_acknowledged_though_a_heartbeat_is_under_way(member: ConsumerDialogue) -> None:
    member.reply(assigned=[])
    member.advance(5_000)
    assert [listed(each) for each in beats(member)] == [None]

    member.acknowledge(REVOKED, 0)

    assert [listed(each) for each in beats(member)] == [None, []]


def test_overtaken_answer_is_not_acted_on(member: ConsumerDialogue) -> None:
    """Its assignment was made before the coordinator had read what is owned."""
    overtake(member)

    member.reply(epoch=2, assigned=[0, 1])
    assert member.questions == []
    member.reply(epoch=3, assigned=[0])

    assert (member.questions, member.state, member.member.epoch) == ([], MemberState.STABLE, 3)


def test_overtaken_assignment_that_stands_is_taken_with_the_answer_behind_it(member: ConsumerDialogue) -> None:
    """A coordinator tells an assignment once."""
    overtake(member)

    member.reply(epoch=2, assigned=[0, 1])
    member.reply(epoch=2)

    member.acknowledge(ASSIGNED, 1)
    assert listed(beats(member)[-1]) == [0, 1]


@pytest.mark.parametrize("owned", [[0], []])
def test_who_is_told_what_it_has_says_so_at_once(member: ConsumerDialogue, owned: list[int]) -> None:
    """A coordinator that tells an assignment holds no heartbeat before a list has come."""
    if not owned:
        member.reply(assigned=[])
        member.acknowledge(REVOKED, 0)
    member.reply(epoch=2, assigned=owned)

    (request,) = beats(member)
    assert listed(request) == owned
    assert request.rebalance_timeout_ms == -1


@pytest.mark.parametrize("is_kohort", [True, False])
def test_who_is_let_in_with_nothing_is_within_reach_at_once(is_kohort: bool) -> None:
    """It reads nothing either, so only a heartbeat that is held tells it of its share. Apache Kafka holds none."""
    member = ConsumerDialogue()
    member.is_kohort = is_kohort
    member.subscribe()
    member.reply(epoch=1, assigned=[])

    assert [listed(each) for each in beats(member)] == ([None] if is_kohort else [])


def test_who_waits_with_nothing_says_so_once() -> None:
    member = ConsumerDialogue()
    member.is_kohort = True
    member.subscribe()
    member.reply(epoch=1, assigned=[])
    member.reply(epoch=1)

    assert beats(member) == []


def test_hold_to_its_end_is_one_by_the_interval_before_its_answer() -> None:
    """Told to come soon the member was held for most of that, and is told to take its time: it is to be held again."""
    member = ConsumerDialogue()
    member.subscribe()
    member.reply(epoch=1, assigned=[], interval_ms=500)
    member.advance(500)
    member.advance(400)
    member.reply(epoch=1, interval_ms=5_000)

    assert len(beats(member)) == 1


def test_overtaken_assignment_waits_whatever_else_happens(member: ConsumerDialogue) -> None:
    """The picture of the cluster is renewed while the answer behind it is awaited."""
    overtake(member)
    member.reply(epoch=2, assigned=[0, 1])

    member.topics["refunds"] = (b"refunds".ljust(16, b"."), 1)
    member.advance(1_000)

    assert member.questions == []


def test_what_an_overtaken_heartbeat_said_is_said_again_if_it_was_refused() -> None:
    """The one behind it was answered well, but did not say everything."""
    member = ConsumerDialogue()
    member.stable(0)
    member.take(Subscribed(topics=("orders", "refunds")))
    member.settle()
    member.take(Subscribed(topics=("orders",)))
    member.settle()

    member.reply(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    member.reply(epoch=1)

    (request,) = beats(member)
    assert (request.subscribed_topic_names, request.rebalance_timeout_ms, listed(request)) == (["orders"], 300_000, [0])


@pytest.mark.parametrize("code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID])
def test_member_that_is_fenced_twice_loses_its_partitions_once(member: ConsumerDialogue, code: ErrorCode) -> None:
    overtake(member)

    member.reply(error=code)
    assert member.state is MemberState.STABLE
    member.reply(error=code)

    member.acknowledge(CallbackKind.LOST, 0)
    assert [each.member_epoch for each in beats(member)] == [0]


def test_connection_that_breaks_takes_both_along(member: ConsumerDialogue) -> None:
    """The next heartbeat says everything, with the epoch that was told last."""
    overtake(member)
    for request in beats(member):
        member.fail(request, Failure.DISCONNECTED)

    member.advance(1_000)

    (request,) = beats(member)
    assert (request.member_epoch, listed(request), request.rebalance_timeout_ms) == (1, [0], 300_000)


def test_partition_that_the_application_is_being_given_is_listed() -> None:
    """Wanted back by then, it would be free for others; the same holds for a heartbeat that is repeated."""
    member = ConsumerDialogue()
    member.stable(0)
    member.advance(5_000)
    member.reply(epoch=2, assigned=[0, 1])
    member.start_callback()
    member.advance(5_000)

    assert listed(overtake(member)) == [0, 1]
    for request in beats(member):
        member.fail(request, Failure.DISCONNECTED)
    member.advance(1_000)
    assert [listed(each) for each in beats(member)] == [[0, 1]]


def test_partition_whose_topic_has_no_name_yet_is_listed(member: ConsumerDialogue) -> None:
    """It will be taken: were it left out, the coordinator might give it to another who takes it, too."""
    young = b"young".ljust(16, b".")
    member.reply(epoch=2, assigned={ORDERS: [0], young: [3]})
    member.advance(5_000)

    request = overtake(member)

    rows = {row.topic_id: list(row.partitions) for row in request.topic_partitions or ()}
    assert rows == {ORDERS: [0], young: [3]}


def test_partition_that_is_wanted_back_before_it_was_taken_is_given_up_by_a_list(member: ConsumerDialogue) -> None:
    """The coordinator waits for a word of whoever was given something, and removes the silent."""
    young = b"young".ljust(16, b".")
    member.reply(epoch=2, assigned={ORDERS: [0], young: [3]})
    overtake(member)
    member.reply(epoch=2)
    member.reply(epoch=2, assigned={ORDERS: [0]})

    (request,) = beats(member)
    assert {row.topic_id: list(row.partitions) for row in request.topic_partitions or ()} == {ORDERS: [0]}


def test_no_more_than_two_are_under_way(member: ConsumerDialogue) -> None:
    overtake(member)
    member.take(Subscribed(topics=("orders",)))
    member.settle()
    assert len(beats(member)) == 2

    member.reply(epoch=1)

    assert [each.subscribed_topic_names for each in beats(member)] == [["orders", "refunds"], ["orders"]]


def test_a_heartbeat_at_another_broker_is_not_overtaken(member: ConsumerDialogue) -> None:
    """Answers of two connections come in any order."""
    member.by_hand.add(FindCoordinatorRequest)
    commit(member)
    member.accept_commit(ErrorCode.NOT_COORDINATOR)
    member.advance(1_000)
    moved = Coordinator(key="billing", node_id=2, host="127.0.0.2", port=9092)
    member.answer(member.expect(FindCoordinatorRequest), FindCoordinatorResponse(coordinators=[moved]))

    member.take(Subscribed(topics=("orders", "refunds")))
    member.settle()
    assert len(beats(member)) == 1

    member.reply(error=ErrorCode.NOT_COORDINATOR)
    member.advance(1_000)
    assert [send.to for send in member.find(ConsumerGroupHeartbeatRequest)] == [Endpoint("127.0.0.2", 9092)]


def test_leaving_waits_for_no_hold(member: ConsumerDialogue) -> None:
    member.take(Unsubscribed(ticket="left", deadline_ms=member.now_ms + 30_000))
    member.acknowledge(REVOKED, 0)

    (_, leave) = beats(member)
    assert leave.member_epoch == -1
    member.reply(epoch=1)
    member.answer(leave, ConsumerGroupHeartbeatResponse(member_epoch=-1), version=1)
    assert isinstance(member.ended("left"), Complete)


# -- when the next one is due -----------------------------------------------------------------------------------------


def test_interval_counts_from_the_request(member: ConsumerDialogue) -> None:
    """The broker released it after 2 s: it waits for a sign of life for 5 s since it came."""
    member.advance(2_000)
    member.reply(epoch=1)

    member.advance(2_900)
    assert beats(member) == []
    member.advance(100)
    assert len(beats(member)) == 1


def test_heartbeat_that_was_held_to_the_end_is_followed_at_once(member: ConsumerDialogue) -> None:
    """Otherwise the member is out of reach for what is left of the interval."""
    member.advance(4_000)
    member.reply(epoch=1)
    assert len(beats(member)) == 1


def test_member_that_cuts_its_holds_heartbeats_at_once_and_then_once_a_second(member: ConsumerDialogue) -> None:
    """A commit by the connection of a heartbeat that is held has it answered."""
    for _ in range(2):
        member.advance(100)
        commit(member)
        member.reply(epoch=1)
        member.accept_commit()
        assert len(beats(member)) == 1

    for _ in range(3):
        member.advance(100)
        commit(member)
        member.reply(epoch=1)
        member.accept_commit()
        member.advance(880)
        assert beats(member) == []
        member.advance(20)
        assert len(beats(member)) == 1

    member.advance(1_000)
    member.reply(epoch=1)
    assert beats(member) == [], "nobody has cut that one"


def test_hold_outlasts_the_time_limit_of_other_requests() -> None:
    """What is held is no silence: the limit holds for a broker that does not hold, or not for so long."""
    member = ConsumerDialogue(request_timeout_ms=1_000)
    member.subscribe()
    assert member.find(ConsumerGroupHeartbeatRequest)[0].timeout_ms == 2_000
    member.reply(epoch=1, assigned=[], interval_ms=5_000)
    member.advance(5_000)
    assert member.find(ConsumerGroupHeartbeatRequest)[0].timeout_ms == 7_000

    ordinary = ConsumerDialogue()
    ordinary.stable(0)
    ordinary.advance(5_000)
    assert ordinary.find(ConsumerGroupHeartbeatRequest)[0].timeout_ms == 30_000


# -- the classic protocol ---------------------------------------------------------------------------------------------


def test_classic_member_joins_again_though_a_heartbeat_is_under_way(classic: ClassicDialogue) -> None:
    """Nobody waits for the answer of the heartbeat any more."""
    (held,) = [send.request for send in classic.find(HeartbeatRequest)]
    classic.take(Subscribed(topics=("orders", "refunds")))
    classic.settle()
    classic.acknowledge(REVOKED, 0)
    assert len(classic.find(JoinGroupRequest)) == 1

    classic.answer(held, HeartbeatResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID), version=4)
    classic.joined(generation=2)
    classic.synced([1])
    classic.acknowledge(ASSIGNED, 1)
    assert classic.state is MemberState.STABLE


def test_cooperative_member_joins_again_though_a_heartbeat_is_under_way() -> None:
    member = ClassicDialogue(partition_assignment_strategy="cooperative-sticky")
    member.at_rest(0)
    member.beaten()
    member.advance(3_000)
    assert len(member.find(HeartbeatRequest)) == 1

    member.take(RebalanceEnforced(reason="because"))
    member.settle()

    assert len(member.find(JoinGroupRequest)) == 1
    assert member.member.owned == set(orders(0))


def test_classic_member_leaves_behind_its_heartbeat(classic: ClassicDialogue) -> None:
    """By the same connection: a heartbeat is answered before the leave is, held or not."""
    (held,) = [send.request for send in classic.find(HeartbeatRequest)]
    classic.take(Unsubscribed(ticket="left", deadline_ms=classic.now_ms + 30_000))
    classic.acknowledge(REVOKED, 0)

    leave = classic.expect(LeaveGroupRequest)
    classic.answer(held, HeartbeatResponse(), version=4)
    classic.answer(leave, LeaveGroupResponse(), version=5)
    assert isinstance(classic.ended("left"), Complete)
    assert not [each for each in classic.actions if isinstance(each, Disconnect) and each.lane is Lane.COORDINATOR]


def test_classic_interval_counts_from_the_request(classic: ClassicDialogue) -> None:
    classic.advance(1_000)
    classic.beaten()

    classic.advance(1_900)
    assert classic.find(HeartbeatRequest) == []
    classic.advance(100)
    assert len(classic.find(HeartbeatRequest)) == 1


def test_classic_heartbeat_that_was_held_is_followed_at_once(classic: ClassicDialogue) -> None:
    classic.advance(2_500)
    classic.beaten()
    assert len(classic.find(HeartbeatRequest)) == 1


def test_classic_hold_that_was_cut_is_followed_at_once(classic: ClassicDialogue) -> None:
    classic.advance(100)
    commit(classic)
    classic.beaten()
    assert len(classic.find(HeartbeatRequest)) == 1


def test_classic_member_is_within_reach_from_its_first_moment() -> None:
    """The first heartbeat follows the share, so that a broker may hold it."""
    member = ClassicDialogue()
    member.subscribe()
    member.require_member_id()
    member.joined()
    member.synced([0])
    assert len(member.find(HeartbeatRequest)) == 1
