"""Dialogues with a member of KIP-848, from its first heartbeat to its last."""

from __future__ import annotations

import pytest

from kohort.client.consumer.application_events import CallbackKind, CloseAsked, Identity, Subscribed, Unsubscribed
from kohort.client.consumer.membership.states import MemberState
from kohort.client.core.actions import Complete, Endpoint, Fail, Lane
from kohort.client.core.requests import Failure
from kohort.errors import AuthorizationError, ErrorCode, FencedError
from kohort.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from kohort.wire.messages.fetch import FetchRequest
from kohort.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from kohort.wire.messages.join_group import JoinGroupRequest
from kohort.wire.messages.metadata import MetadataRequest
from kohort.wire.messages.offset_commit import OffsetCommitRequest
from kohort.wire.messages.offset_fetch import OffsetFetchRequest
from support.dialogues.consumer_dialogue import BROKER, ORDERS, ConsumerDialogue, orders

ASSIGNED, REVOKED, LOST = CallbackKind.ASSIGNED, CallbackKind.REVOKED, CallbackKind.LOST


@pytest.fixture
def member() -> ConsumerDialogue:
    return ConsumerDialogue(auto_commit_interval_ms=5_000)


def owned_in(request: ConsumerGroupHeartbeatRequest) -> list[int] | None:
    """The partitions of orders that a heartbeat lists."""
    if request.topic_partitions is None:
        return None
    return [partition for topic in request.topic_partitions for partition in topic.partitions]


# -- joining ----------------------------------------------------------------------------------------------------------


def test_first_heartbeat_says_everything(member: ConsumerDialogue) -> None:
    """KIP-848: epoch 0 joins, with the subscription, the rebalance timeout and nothing owned; KIP-1082: own id."""
    member.subscribe("orders", "refunds")

    request = member.heartbeat()

    assert (request.group_id, request.member_id, request.member_epoch) == ("billing", "m-1", 0)
    assert request.subscribed_topic_names == ["orders", "refunds"]
    assert request.rebalance_timeout_ms == 300_000
    assert request.topic_partitions == []


def test_partitions_are_fetched_only_after_the_assigned_callback(member: ConsumerDialogue) -> None:
    """CTR: ASSIGNING_PARTITIONS awaits the callback, which may seek."""
    member.subscribe()
    member.reply(epoch=1, assigned=[0, 1])

    assert member.state is MemberState.ASSIGNING_PARTITIONS
    assert member.fetching() == {}
    member.acknowledge(ASSIGNED, 0, 1)

    assert member.state is MemberState.STABLE
    assert set(member.fetching()) == set(orders(0, 1))


def test_gained_partitions_are_acknowledged_at_once(member: ConsumerDialogue) -> None:
    """KIP-848: the owned partitions are listed when they have changed, and only then."""
    member.subscribe()
    member.reply(epoch=1, assigned=[0, 1])
    member.acknowledge(ASSIGNED, 0, 1)

    assert owned_in(member.reply(epoch=1)) == [0, 1]
    member.advance(5_000)
    assert owned_in(member.heartbeat()) is None


def test_empty_assignment_is_an_assignment(member: ConsumerDialogue) -> None:
    """A group may have members to spare; they must know that they are not just waiting."""
    member.subscribe()
    member.reply(epoch=1, assigned=[])

    assert member.state is MemberState.STABLE
    assert member.questions == []
    assert member.delivered(Identity)[-1] == Identity(member_id="m-1", epoch=1, has_assignment=True)


def test_heartbeats_follow_the_interval_of_the_coordinator(member: ConsumerDialogue) -> None:
    """KIP-848: the coordinator announces the interval with every answer; it counts from the request."""
    member.stable(0)
    member.advance(4_990)
    assert member.find(ConsumerGroupHeartbeatRequest) == []

    member.advance(10)
    member.reply(epoch=1, interval_ms=300)

    member.advance(280)
    assert member.find(ConsumerGroupHeartbeatRequest) == []
    member.advance(20)
    assert len(member.find(ConsumerGroupHeartbeatRequest)) == 1


def test_an_interval_of_its_own_is_proposed_with_every_heartbeat_and_the_answer_counts() -> None:
    """G3: a tagged field; without the option nothing is proposed, and the bytes are Kafka's."""
    member = ConsumerDialogue(heartbeat_interval_ms=700)
    member.subscribe()
    assert member.reply(epoch=1, assigned=[], interval_ms=900).proposed_heartbeat_interval_ms == 700
    member.advance(890)
    assert member.find(ConsumerGroupHeartbeatRequest) == []
    member.advance(10)
    assert member.heartbeat().proposed_heartbeat_interval_ms == 700

    silent = ConsumerDialogue()
    silent.subscribe()
    assert silent.heartbeat().proposed_heartbeat_interval_ms == -1


def test_one_heartbeat_is_under_way_at_a_time(member: ConsumerDialogue) -> None:
    """A coordinator may answer late; the next heartbeat waits if it has nothing to say."""
    member.stable(0)

    member.advance(20_000)

    assert len(member.find(ConsumerGroupHeartbeatRequest)) == 1


def test_group_traffic_has_its_own_connection(member: ConsumerDialogue) -> None:
    """A long-polling fetch must not hold up a heartbeat."""
    member.stable(0)
    member.poll(p0=5)
    member.advance(5_000)

    assert member.lanes(ConsumerGroupHeartbeatRequest) == {Lane.COORDINATOR}
    assert member.lanes(OffsetCommitRequest) == member.lanes(OffsetFetchRequest) == {Lane.COORDINATOR}
    assert member.lanes(FetchRequest) == {Lane.FETCH}


def test_changed_subscription_goes_out_at_once(member: ConsumerDialogue) -> None:
    """KIP-848: a heartbeat carries the names when they have changed."""
    member.stable(0)

    member.take(Subscribed(topics=("orders", "refunds")))

    assert member.heartbeat().subscribed_topic_names == ["orders", "refunds"]


# -- giving up --------------------------------------------------------------------------------------------------------


def test_revocation_step_by_step(member: ConsumerDialogue) -> None:
    """CTR: pause, callback, commit, and only then the coordinator hears that the partition is free."""
    member.stable(0, 1)
    assert set(member.fetching()) == set(orders(0, 1))
    member.poll(p1=7)
    member.advance(4_000)
    member.serve()
    member.advance(1_001)
    member.accept_commit()

    member.reply(epoch=1, assigned=[0])
    assert member.state is MemberState.PREPARE_REVOCATION
    member.serve()
    assert set(member.fetching()) == set(orders(0)), "fetching stops before the callback"

    member.start_callback()
    assert member.state is MemberState.REVOKING_PARTITION

    member.acknowledge(REVOKED, 1, consumed={1: 9})
    assert member.state is MemberState.PARTITION_REVOKED
    assert member.commits() == {orders(1)[0]: 9}
    assert member.find(ConsumerGroupHeartbeatRequest) == [], "the commit comes before the release"

    member.accept_commit()
    assert member.state is MemberState.PREPARING_REBALANCE
    assert owned_in(member.reply(epoch=2, assigned=[0])) == [0]
    assert member.state is MemberState.STABLE


def test_heartbeats_go_on_while_the_callback_runs(member: ConsumerDialogue) -> None:
    """KIP-848: a member that is revoking stays alive, and acknowledges nothing meanwhile."""
    member.stable(0, 1)
    member.advance(5_000)
    member.reply(epoch=1, assigned=[0])
    member.start_callback()

    for _ in range(3):
        member.advance(5_000)
        assert owned_in(member.reply(epoch=1)) is None

    assert member.state is MemberState.REVOKING_PARTITION


def test_full_heartbeat_before_the_commit_still_lists_the_partition(member: ConsumerDialogue) -> None:
    """A heartbeat after a failure says everything; it must not free what is not committed yet."""
    member.stable(0, 1)
    member.advance(5_000)
    member.reply(epoch=1, assigned=[0])
    member.advance(5_000)
    lost = member.heartbeat()
    member.acknowledge(REVOKED, 1, consumed={1: 9})
    assert member.state is MemberState.PARTITION_REVOKED

    member.fail(lost, Failure.DISCONNECTED)
    member.advance(1_000)

    assert owned_in(member.heartbeat()) == [0, 1]


def test_nothing_consumed_needs_no_commit(member: ConsumerDialogue) -> None:
    """The release does not wait for an empty commit."""
    member.stable(0, 1)
    member.advance(5_000)
    member.reply(epoch=1, assigned=[0])

    member.acknowledge(REVOKED, 1)

    assert member.find(OffsetCommitRequest) == []
    assert owned_in(member.heartbeat()) == [0]


def test_commit_that_fails_does_not_hold_the_partition_for_ever(member: ConsumerDialogue) -> None:
    """At least once: the next owner reads again what could not be committed."""
    member.stable(0, 1)
    member.advance(5_000)
    member.reply(epoch=1, assigned=[0])
    member.acknowledge(REVOKED, 1, consumed={1: 9})

    member.accept_commit(ErrorCode.OFFSET_METADATA_TOO_LARGE)

    assert owned_in(member.heartbeat()) == [0]
    assert any("could not be committed" in line for line in member.warnings())


def test_assignment_that_arrives_during_a_callback_is_taken_afterwards(member: ConsumerDialogue) -> None:
    """The target is kept, whatever is under way."""
    member.stable(0)
    member.advance(5_000)
    member.reply(epoch=2, assigned=[0, 1])
    member.advance(5_000)
    member.reply(epoch=3, assigned=[1, 2])

    member.acknowledge(ASSIGNED, 1)
    member.acknowledge(REVOKED, 0)
    assert owned_in(member.reply(epoch=3)) == [0, 1, 2]
    assert owned_in(member.reply(epoch=3, assigned=[1, 2])) == [1, 2]
    member.acknowledge(ASSIGNED, 2)

    assert member.member.owned == set(orders(1, 2))


# -- being cut off ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code", [ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND]
)
def test_fenced_member_loses_its_partitions_and_joins_again(member: ConsumerDialogue, code: ErrorCode) -> None:
    """KIP-848: partitions are lost, not revoked; the next heartbeat has epoch 0 and says everything."""
    member.stable(0, 1)
    member.poll(p0=5)
    member.advance(5_000)
    member.accept_commit()
    member.reply(error=code)

    assert member.state is MemberState.FENCED
    assert member.fetching() == {}
    assert member.find(ConsumerGroupHeartbeatRequest) == [], "it joins when the application knows of the loss"
    member.acknowledge(LOST, 0, 1)

    again = member.heartbeat()
    assert (again.member_id, again.member_epoch, owned_in(again)) == ("m-1", 0, [])
    assert again.subscribed_topic_names == ["orders"]


def test_lost_partitions_are_not_committed(member: ConsumerDialogue) -> None:
    """They belong to others; a late commit would undo theirs."""
    member.stable(0)
    member.advance(4_000)
    member.poll(p0=5)
    member.advance(1_000)
    member.reply(error=ErrorCode.FENCED_MEMBER_EPOCH)

    member.advance(10_000)

    assert member.find(OffsetCommitRequest) == []


def test_silent_coordinator_is_given_up(member: ConsumerDialogue) -> None:
    """G3: silent for the session timeout: fetching stops, partitions are lost."""
    member.stable(0, 1)
    member.advance(5_000)

    member.advance(39_000)
    assert member.state is MemberState.STABLE
    member.advance(1_001)

    assert member.state is MemberState.FENCED
    assert member.fetching() == {}
    member.acknowledge(LOST, 0, 1)


def test_coordinator_that_is_loading_is_not_silent(member: ConsumerDialogue) -> None:
    """A restarted coordinator answers that it is not ready; nobody is fenced for that."""
    member.stable(0)
    member.advance(5_000)
    for _ in range(100):
        member.advance(1_200)
        member.reply(error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    assert member.state is MemberState.STABLE


def test_moved_coordinator_is_looked_up_and_told_everything(member: ConsumerDialogue) -> None:
    """NOT_COORDINATOR: find the new one; it may have missed anything, so the heartbeat is full."""
    member.stable(0)
    member.by_hand.add(FindCoordinatorRequest)
    member.advance(5_000)
    member.reply(error=ErrorCode.NOT_COORDINATOR)

    member.advance(200)
    elsewhere = FindCoordinatorResponse(coordinators=[])
    elsewhere.host, elsewhere.port, elsewhere.node_id = "10.0.0.2", 9093, 2
    member.answer(member.expect(FindCoordinatorRequest), elsewhere)
    member.advance(200)

    send = member.find(ConsumerGroupHeartbeatRequest)[0]
    assert send.to == Endpoint("10.0.0.2", 9093)
    request = member.heartbeat()
    assert request.member_epoch == 1
    assert owned_in(request) == [0]
    assert request.subscribed_topic_names == ["orders"]


def test_lost_answer_is_made_up_for_by_a_full_heartbeat(member: ConsumerDialogue) -> None:
    """KIP-848: an assignment is sent once; only a full request makes the coordinator repeat it."""
    member.stable(0)
    member.advance(5_000)
    member.fail(member.heartbeat(), Failure.TIMED_OUT)
    member.advance(1_000)

    request = member.reply(epoch=2, assigned=[0, 1])

    assert owned_in(request) == [0]
    assert request.rebalance_timeout_ms == 300_000
    member.acknowledge(ASSIGNED, 1)


def test_fence_while_the_assigned_callback_runs_loses_those_partitions_too(member: ConsumerDialogue) -> None:
    """The application may hold them already."""
    member.stable(0)
    member.advance(5_000)
    member.reply(epoch=2, assigned=[0, 1])
    late = member.questions.pop()
    member.advance(5_000)
    member.reply(error=ErrorCode.FENCED_MEMBER_EPOCH)

    assert late.kind is ASSIGNED
    member.acknowledge(LOST, 0, 1)
    assert member.fetching() == {}


def test_late_answer_of_the_application_counts_for_nothing(member: ConsumerDialogue) -> None:
    """A callback that returns after the member was fenced must not bring its partitions back."""
    member.stable(0)
    member.advance(5_000)
    member.reply(epoch=2, assigned=[0, 1])
    member.advance(5_000)
    member.reply(error=ErrorCode.FENCED_MEMBER_EPOCH)

    member.acknowledge(ASSIGNED, 1)

    assert member.state is MemberState.FENCED
    assert member.fetching() == {}


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNSUPPORTED_ASSIGNOR,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.INVALID_REGULAR_EXPRESSION,
    ],
)
def test_refusal_for_good_reaches_the_application(member: ConsumerDialogue, code: ErrorCode) -> None:
    """KIP-848: nothing the member does would help; poll raises code, group, member and epoch."""
    member.stable(0)
    member.advance(5_000)
    member.reply(error=code, message="because")

    assert member.state is MemberState.FATAL
    assert member.fetching() == {}
    trouble = member.troubles()[-1]
    assert trouble.is_fatal
    assert isinstance(trouble.error, FencedError)
    assert (trouble.error.code, trouble.error.group, trouble.error.member) == (code, "billing", "m-1")
    member.acknowledge(LOST, 0)
    member.advance(60_000)
    assert member.find(ConsumerGroupHeartbeatRequest) == []


def test_right_on_the_group_that_is_taken_away_is_named(member: ConsumerDialogue) -> None:
    """By the right and the group; partitions are lost, as they are by any refusal."""
    member.stable(0)
    member.advance(5_000)
    member.reply(error=ErrorCode.GROUP_AUTHORIZATION_FAILED)

    trouble = member.troubles()[-1]
    assert trouble.is_fatal
    assert isinstance(trouble.error, AuthorizationError)
    assert (trouble.error.operation, trouble.error.resource_type, trouble.error.name) == ("read", "group", "billing")
    member.acknowledge(LOST, 0)


def test_new_subscription_after_a_refusal_starts_afresh(member: ConsumerDialogue) -> None:
    """The application may have corrected what was wrong."""
    member.subscribe()
    member.reply(error=ErrorCode.GROUP_AUTHORIZATION_FAILED)

    member.subscribe("refunds")

    assert member.heartbeat().member_epoch == 0


def test_topic_that_may_not_be_read_is_reported_and_tried_again(member: ConsumerDialogue) -> None:
    """Rights can be granted while the member waits."""
    member.subscribe()
    member.reply(error=ErrorCode.TOPIC_AUTHORIZATION_FAILED)

    assert [trouble.is_fatal for trouble in member.troubles()] == [False]
    member.advance(1_000)
    assert member.heartbeat().member_epoch == 0


# -- a broker without KIP-848 -----------------------------------------------------------------------------------------


def test_broker_that_knows_version_0_only_makes_the_member_id(member: ConsumerDialogue) -> None:
    """KIP-1082 came with version 1; before it an empty id asks for one."""
    member.subscribe()
    member.fail(member.heartbeat(), Failure.UNSUPPORTED)

    request = member.heartbeat()

    assert request.member_id == ""
    assert member.find(ConsumerGroupHeartbeatRequest)[0].max_version == 0


def test_broker_without_the_api_means_the_classic_protocol(member: ConsumerDialogue) -> None:
    """One line of warning, then JoinGroup."""
    member.subscribe()
    member.fail(member.heartbeat(), Failure.UNSUPPORTED)
    member.fail(member.heartbeat(), Failure.UNSUPPORTED)
    member.settle()

    assert len(member.find(JoinGroupRequest)) == 1
    (warning,) = [line for line in member.warnings() if "classic" in line]
    assert warning.endswith("using the classic group protocol")


def test_assignor_that_was_asked_for_is_said_to_be_lost_with_the_protocol() -> None:
    """`group.remote.assignor` is a field of KIP-848's heartbeat; JoinGroup has none for it."""
    member = ConsumerDialogue(group_remote_assignor="uniform")
    member.subscribe()
    member.fail(member.heartbeat(), Failure.UNSUPPORTED)
    member.fail(member.heartbeat(), Failure.UNSUPPORTED)

    (warning,) = [line for line in member.warnings() if "classic" in line]
    assert warning.endswith("using the classic group protocol; group.remote.assignor has no effect there")


def test_broker_with_the_api_switched_off_means_the_classic_protocol(member: ConsumerDialogue) -> None:
    """`group.version` 0: UNSUPPORTED_VERSION in the answer."""
    member.subscribe()
    member.reply(error=ErrorCode.UNSUPPORTED_VERSION)
    member.settle()

    assert len(member.find(JoinGroupRequest)) == 1


# -- topics -----------------------------------------------------------------------------------------------------------


def test_partitions_of_a_topic_that_is_not_known_yet_are_taken_later(member: ConsumerDialogue) -> None:
    """KAFKA-16198: what cannot be resolved is kept, however many heartbeats go by."""
    refunds = b"refunds".ljust(16, b".")
    member.topics.pop("refunds", None)
    member.subscribe("orders", "refunds")
    member.reply(epoch=1, assigned={ORDERS: [0], refunds: [0]})
    member.acknowledge(ASSIGNED, 0)
    member.reply(epoch=1)
    member.advance(5_000)
    member.reply(epoch=1)

    member.topics["refunds"] = (refunds, 1)
    member.advance(2_000)

    member.acknowledge(ASSIGNED, 0, topic="refunds")
    request = member.heartbeat()
    assert {(topic.topic_id, tuple(topic.partitions)) for topic in request.topic_partitions or ()} == {
        (ORDERS, (0,)),
        (refunds, (0,)),
    }


def test_topic_that_was_made_anew_is_another_topic(member: ConsumerDialogue) -> None:
    """KIP-516: the old partition goes, the new one of the same name comes."""
    member.stable(0)
    young = b"young".ljust(16, b".")
    member.topics["orders"] = (young, 4)
    member.advance(5_000)
    member.reply(epoch=2, assigned={young: [0]})

    member.acknowledge(REVOKED, 0)
    request = member.reply(epoch=2)
    member.advance(1_000)
    member.acknowledge(ASSIGNED, 0)
    member.advance(0)

    assert [topic.topic_id for topic in request.topic_partitions or ()] == [young]
    assert [topic.topic_id for topic in member.heartbeat().topic_partitions or ()] == [young]


def test_missing_topic_is_warned_of_once(member: ConsumerDialogue) -> None:
    """It is read as soon as it exists."""
    member.subscribe("orders", "nosuch")
    member.advance(20_000)

    assert len([line for line in member.warnings() if "nosuch" in line]) == 1
    assert member.troubles() == []


# -- a slow application -----------------------------------------------------------------------------------------------


def test_member_whose_application_does_not_poll_leaves(member: ConsumerDialogue) -> None:
    """KIP-62: max.poll.interval.ms; it joins again when the application polls."""
    slow = ConsumerDialogue(max_poll_interval_ms=20_000)
    slow.stable(0)
    for _ in range(3):
        slow.advance(5_000)
        slow.reply(epoch=1)
    slow.advance(5_001)

    leaving = [send.request for send in slow.find(ConsumerGroupHeartbeatRequest)]
    assert [request.member_epoch for request in leaving] == [-1]  # type: ignore[attr-defined]
    assert any("max.poll.interval.ms" in line for line in slow.warnings())
    slow.open.clear()
    slow.advance(30_000)
    assert slow.find(ConsumerGroupHeartbeatRequest) == []

    slow.poll()
    slow.acknowledge(LOST, 0)
    assert slow.heartbeat().member_epoch == 0


def test_member_with_nothing_waits_for_the_next_poll_too(member: ConsumerDialogue) -> None:
    """Otherwise it would join and leave without end."""
    slow = ConsumerDialogue(max_poll_interval_ms=3_000)
    slow.stable()
    slow.advance(3_001)
    slow.open.clear()
    slow.advance(30_000)
    assert slow.find(ConsumerGroupHeartbeatRequest) == []

    slow.poll()

    assert slow.heartbeat().member_epoch == 0


def revoking(policy: str) -> ConsumerDialogue:
    member = ConsumerDialogue(max_poll_interval_ms=20_000, revocation_timeout_policy=policy)
    member.stable(0, 1)
    member.advance(5_000)
    member.reply(epoch=1, assigned=[0])
    member.start_callback()
    return member


def beat(member: ConsumerDialogue, ms: int) -> None:
    """Time passes in a callback; heartbeats are answered."""
    for _ in range(ms // 5_000):
        member.advance(5_000)
        if member.state is MemberState.REVOKING_PARTITION:
            member.reply(epoch=1)


def test_revocation_callback_that_takes_too_long_is_waited_for_once_more() -> None:
    """C4: retry_then_leave is the default."""
    member = revoking("retry_then_leave")
    beat(member, 25_000)
    assert member.state is MemberState.REVOKING_PARTITION
    assert any("revocation callback" in line for line in member.warnings())

    beat(member, 20_000)

    assert member.state is MemberState.FENCED


def test_policy_leave_does_not_wait() -> None:
    """C4."""
    member = revoking("leave")

    beat(member, 25_000)

    assert member.state is MemberState.FENCED


def test_policy_retry_waits_for_ever() -> None:
    """C4."""
    member = revoking("retry")

    beat(member, 200_000)

    assert member.state is MemberState.REVOKING_PARTITION


# -- the end ----------------------------------------------------------------------------------------------------------


def test_close_revokes_commits_and_leaves(member: ConsumerDialogue) -> None:
    """C6: in this order, then the driver stops."""
    member.stable(0, 1)
    member.poll(p0=3)
    member.close()
    member.serve()
    assert member.fetching() == {}
    member.acknowledge(REVOKED, 0, 1, consumed={0: 3, 1: 8})
    assert member.commits() == {orders(0)[0]: 3, orders(1)[0]: 8}
    member.accept_commit()

    leave = member.heartbeat()
    assert (leave.member_id, leave.member_epoch) == ("m-1", -1)
    assert not member.is_stopped
    member.reply(epoch=-1)

    assert isinstance(member.ended("close"), Complete)
    assert member.is_stopped


@pytest.mark.parametrize("is_asked", [False, True], ids=["at rest", "in the middle of a revocation"])
def test_member_that_nobody_closes_leaves_without_an_answer(member: ConsumerDialogue, is_asked: bool) -> None:
    """The program ends, or has forgotten the consumer: what was processed is committed, what may not be is not."""
    member.stable(0, 1)
    member.poll(p0=3)
    if is_asked:
        member.advance(5_000)
        member.reply(epoch=2, assigned=[1])
    member.take(CloseAsked(ticket="close", deadline_ms=member.now_ms + 30_000, is_forgotten=True))
    member.settle()
    assert member.commits() == {orders(0)[0]: 3}
    member.accept_commit()

    leave = next(send.request for send in member.find(ConsumerGroupHeartbeatRequest))
    assert isinstance(leave, ConsumerGroupHeartbeatRequest)
    assert leave.member_epoch == -1
    member.answer(leave, ConsumerGroupHeartbeatResponse(member_epoch=-1))

    assert isinstance(member.ended("close"), Complete)
    assert member.is_stopped


def test_close_of_a_member_that_is_joining_takes_the_join_back(member: ConsumerDialogue) -> None:
    """The join under way may succeed after all."""
    member.subscribe()
    member.close()

    epochs = [send.request.member_epoch for send in member.find(ConsumerGroupHeartbeatRequest)]  # type: ignore[attr-defined]
    assert epochs == [0, -1]


def test_close_does_not_wait_for_a_broker_that_is_gone(member: ConsumerDialogue) -> None:
    """Nobody would take the commit."""
    member.stable(0)
    member.by_hand.add(FindCoordinatorRequest)
    member.close()
    member.acknowledge(REVOKED, 0, consumed={0: 3})
    member.fail(member.expect(OffsetCommitRequest), Failure.DISCONNECTED)
    member.advance(1_000)

    member.fail(member.expect(FindCoordinatorRequest), Failure.UNREACHABLE)

    assert isinstance(member.ended("close"), Complete)
    assert member.is_stopped


def test_close_ends_at_its_deadline(member: ConsumerDialogue) -> None:
    """C6: an application that never answers, a coordinator that never does."""
    member.stable(0)
    member.close(timeout_ms=2_000)
    member.advance(1_990)
    assert not member.is_stopped

    member.advance(20)

    assert isinstance(member.ended("close"), Complete)
    assert member.is_stopped


def test_unsubscribe_leaves_and_goes_on(member: ConsumerDialogue) -> None:
    """The consumer can subscribe again, as the same member."""
    member.stable(0)
    member.take(Unsubscribed(ticket="unsubscribe", deadline_ms=member.now_ms + 10_000))
    member.acknowledge(REVOKED, 0)
    member.reply(epoch=-1)
    assert isinstance(member.ended("unsubscribe"), Complete)
    assert member.state is MemberState.UNSUBSCRIBED

    member.subscribe()

    assert (member.heartbeat().member_id, member.heartbeat().member_epoch) == ("m-1", 0)


def test_fence_during_close_ends_it(member: ConsumerDialogue) -> None:
    """There is nothing left to give up."""
    member.stable(0)
    member.advance(5_000)
    member.close()
    member.reply(error=ErrorCode.UNKNOWN_MEMBER_ID)
    member.questions.pop(0)
    member.acknowledge(LOST, 0)

    assert isinstance(member.ended("close"), Complete)


def test_commit_after_the_member_was_fenced_is_refused(member: ConsumerDialogue) -> None:
    """The partitions belong to others; without an epoch an empty group would even take it."""
    from kohort.client.consumer.application_events import CommitAsked

    member.stable(0)
    member.advance(5_000)
    member.reply(error=ErrorCode.FENCED_MEMBER_EPOCH)
    member.take(CommitAsked(offsets={orders(0)[0]: 4}, ticket="commit", deadline_ms=member.now_ms + 5_000))
    member.settle()

    ended = member.ended("commit")
    assert isinstance(ended, Fail)
    assert isinstance(ended.error, FencedError)
    assert member.find(OffsetCommitRequest) == []


def test_nothing_is_asked_of_anybody_before_the_application_wants_something(member: ConsumerDialogue) -> None:
    """A consumer that was only built costs the cluster nothing."""
    member.advance(1_000)

    assert member.find(ConsumerGroupHeartbeatRequest) == []
    assert member.find(MetadataRequest) == []
    assert BROKER not in {send.to for send in member.open}


def test_heartbeats_tell_for_how_long_the_application_has_not_polled(member: ConsumerDialogue) -> None:
    """As long as it polls they are equal: the broker answers a repeated one without reading it."""
    member.stable(0)
    told = []
    for _ in range(2):
        member.advance(4_000)
        member.poll()
        member.advance(1_500)
        told.append(member.heartbeat().last_poll_ms)
        member.reply(epoch=1)
    member.advance(5_700)
    assert (told, member.heartbeat().last_poll_ms) == ([0, 0], 5_000)
