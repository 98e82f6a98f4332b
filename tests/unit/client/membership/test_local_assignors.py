"""Dialogues of members that run assignors of their own for their group (G9)."""

from __future__ import annotations

from array import array

import pytest

from kohort.assign.interface import Assignable
from kohort.client.consumer.application_events import (
    AssignmentSaid,
    CallbackKind,
    ComputationDone,
    ComputationWanted,
    RebalanceEnforced,
    Subscribed,
)
from kohort.client.core.actions import Lane
from kohort.client.core.requests import Failure
from kohort.errors import ErrorCode, UnsupportedFeatureError
from kohort.wire.messages.consumer_group_heartbeat import ClientAssignment, ConsumerGroupHeartbeatRequest
from kohort.wire.messages.consumer_group_install_assignment import (
    AssignmentToInstall,
    ConsumerGroupInstallAssignmentRequest,
    ConsumerGroupInstallAssignmentResponse,
)
from kohort.wire.messages.consumer_group_prepare_assignment import (
    ConsumerGroupPrepareAssignmentRequest,
    ConsumerGroupPrepareAssignmentResponse,
    MemberToAssign,
    SubscriptionToAssign,
    TopicToAssign,
)
from support.dialogues.consumer_dialogue import ORDERS, ConsumerDialogue


class Mine:
    """An assignor with all that it may have."""

    name = "mine"
    minimum_version, maximum_version = 1, 3

    def assign(self, group: Assignable) -> array[int]:
        return group.owner


PREPARED = ConsumerGroupPrepareAssignmentResponse(
    group_epoch=7,
    assignor_name="mine",
    assignor_version=3,
    topics=[TopicToAssign(topic_id=ORDERS, topic_name="orders", partitions=2)],
    subscriptions=[SubscriptionToAssign(topics=[0])],
    members=[
        MemberToAssign(
            member_id=member_id,
            member_epoch=1,
            rack_id=rack,
            subscription=0,
            reason=0,
            metadata_version=2,
            metadata_bytes=member_id.encode(),
        )
        for member_id, rack in (("m-0", None), ("m-1", "east"))
    ],
    owners=[0, -1],
)


@pytest.fixture
def member() -> ConsumerDialogue:
    """It has joined, and was asked to compute."""
    member = ConsumerDialogue(group_local_assignors=[Mine()])
    member.is_kohort = True
    member.take(Subscribed(topics=("orders",), metadata=(b"here",)))
    member.reply(should_compute=True)
    return member


def compute(member: ConsumerDialogue) -> ComputationWanted:
    """The coordinator says what there is to assign."""
    request = member.expect(ConsumerGroupPrepareAssignmentRequest)
    member.answer(request, PREPARED, version=0)
    return wanted(member)


def wanted(member: ConsumerDialogue) -> ComputationWanted:
    found = member.delivered(ComputationWanted)[-1]
    assert isinstance(found, ComputationWanted)
    return found


def finish(member: ConsumerDialogue, *owners: int, error: str = "") -> None:
    """The application's assignor has given this."""
    done = ComputationDone(
        number=wanted(member).number, assignor="mine", owner=array("i", owners), said={"m-0": b"hello"}, error=error
    )
    member.take(done)
    member.settle()


def brought(member: ConsumerDialogue) -> ConsumerGroupInstallAssignmentRequest:
    return member.expect(ConsumerGroupInstallAssignmentRequest)


def answer(member: ConsumerDialogue, error: ErrorCode = ErrorCode.NONE) -> None:
    """To what was brought."""
    member.answer(brought(member), ConsumerGroupInstallAssignmentResponse(error_code=error, error_message="why"))


def words(member: ConsumerDialogue) -> list[list[tuple[int, bytes]] | None]:
    """Reason and metadata of the assignors of each heartbeat that was sent."""
    found = []
    for send in member.sent(ConsumerGroupHeartbeatRequest):
        request = send.request
        assert isinstance(request, ConsumerGroupHeartbeatRequest)
        said = request.client_assignors
        found.append(None if said is None else [(each.reason, bytes(each.metadata_bytes)) for each in said])
    return found


def test_a_join_names_the_assignors_with_what_they_tell() -> None:
    member = ConsumerDialogue(group_local_assignors=[Mine()])
    member.is_kohort = True
    member.take(Subscribed(topics=("orders",), metadata=(b"here",)))
    (said,) = member.heartbeat().client_assignors or ()
    assert (said.name, said.minimum_version, said.maximum_version, said.metadata_version) == ("mine", 1, 3, 3)
    assert (said.reason, said.metadata_bytes) == (0, b"here")


def test_members_without_assignors_say_nothing_of_any() -> None:
    member = ConsumerDialogue()
    member.stable(0)
    member.advance(10_000)
    assert set(map(str, words(member))) == {"None"}


def test_who_is_asked_gets_the_group_as_a_broker_would_hand_it_to_the_assignor(member: ConsumerDialogue) -> None:
    request = member.expect(ConsumerGroupPrepareAssignmentRequest)
    assert (request.group_id, request.member_id, request.member_epoch) == ("billing", "m-1", 1)
    assert member.lanes(ConsumerGroupPrepareAssignmentRequest) == {Lane.CONTROL}, "behind no heartbeat that is held"
    group = compute(member).group
    assert (group.topic_names, group.owner, len(group.space)) == (("orders",), array("i", [0, -1]), 2)
    assert [list(each) for each in group.subscribers] == [[0, 1]]
    assert [(each.member_id, each.rack_id, each.metadata, each.metadata_version) for each in group.members] == [
        ("m-0", None, b"m-0", 2),
        ("m-1", "east", b"m-1", 2),
    ]


def test_the_result_is_brought_with_what_members_are_told(member: ConsumerDialogue) -> None:
    compute(member)
    finish(member, 0, 1)
    request = brought(member)
    assert (request.group_epoch, request.error, request.owners) == (7, 0, [0, 1])
    assert request.members == [AssignmentToInstall(member_id="m-0", metadata_version=3, metadata_bytes=b"hello")]
    answer(member)
    member.advance(60_000)
    assert len(member.sent(ConsumerGroupInstallAssignmentRequest)) == 1


def test_a_heartbeat_goes_out_as_soon_as_the_coordinator_knows_who_computes(member: ConsumerDialogue) -> None:
    """It is the one that is answered with the assignment."""
    assert not member.find(ConsumerGroupHeartbeatRequest)
    compute(member)
    member.settle()
    assert len(member.find(ConsumerGroupHeartbeatRequest)) == 1


def test_an_assignor_that_fails_is_reported_and_nobody_stops(member: ConsumerDialogue) -> None:
    compute(member)
    finish(member, error="the assignor mine raised ValueError: no")
    assert (brought(member).error, brought(member).owners, brought(member).members) == (1, [], [])
    answer(member)
    assert any("raised ValueError: no" in line for line in member.warnings())
    assert not member.troubles()


@pytest.mark.parametrize("error", [ErrorCode.STALE_MEMBER_EPOCH, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
def test_a_result_that_comes_at_a_bad_moment_is_brought_again(member: ConsumerDialogue, error: ErrorCode) -> None:
    compute(member)
    finish(member, 0, 1)
    member.reply(epoch=2)
    answer(member, error)
    member.advance(2_000)
    assert brought(member).member_epoch == 2, "by the epoch that it has by now"


def test_a_lost_connection_brings_it_again_to_whoever_coordinates(member: ConsumerDialogue) -> None:
    compute(member)
    finish(member, 0, 1)
    member.fail(brought(member), Failure.DISCONNECTED)
    member.advance(2_000)
    answer(member)


@pytest.mark.parametrize("error", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.INVALID_REQUEST])
def test_a_result_that_nobody_wants_any_more_is_dropped_with_a_warning(
    member: ConsumerDialogue, error: ErrorCode
) -> None:
    compute(member)
    finish(member, 0, 1)
    answer(member, error)
    member.advance(60_000)
    assert len(member.sent(ConsumerGroupInstallAssignmentRequest)) == 1
    assert any("was not taken: why" in line for line in member.warnings())


def test_what_was_computed_too_late_is_not_brought() -> None:
    member = ConsumerDialogue(group_local_assignors=[Mine()], max_poll_interval_ms=60_000)
    member.is_kohort = True
    member.take(Subscribed(topics=("orders",), metadata=(b"",)))
    member.reply(should_compute=True)
    compute(member)
    finish(member, 0, 1)
    for _ in range(200):
        if member.find(ConsumerGroupInstallAssignmentRequest):
            answer(member, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if member.find(ConsumerGroupHeartbeatRequest):
            member.reply()
        member.poll()
        member.advance(1_000)
    count = len(member.sent(ConsumerGroupInstallAssignmentRequest))
    member.advance(4_000)
    assert len(member.sent(ConsumerGroupInstallAssignmentRequest)) == count > 1


def test_who_is_asked_anew_forgets_what_it_was_computing(member: ConsumerDialogue) -> None:
    """The coordinator was restarted, or the group has moved on."""
    compute(member)
    member.reply(should_compute=True)
    finish(member, 0, 1)
    assert not member.find(ConsumerGroupInstallAssignmentRequest), "of the computation before"
    compute(member)
    finish(member, 0, 1)
    answer(member)


def test_being_told_again_while_it_asks_changes_nothing(member: ConsumerDialogue) -> None:
    """Answers are told until the coordinator has heard the question."""
    member.advance(5_000)
    member.reply(should_compute=True)
    assert len(member.sent(ConsumerGroupPrepareAssignmentRequest)) == 1


def test_a_question_that_is_lost_is_asked_when_it_is_told_again(member: ConsumerDialogue) -> None:
    member.fail(member.expect(ConsumerGroupPrepareAssignmentRequest), Failure.DISCONNECTED)
    member.advance(5_000)
    member.reply(should_compute=True)
    compute(member)


def test_a_member_that_is_fenced_computes_no_more(member: ConsumerDialogue) -> None:
    compute(member)
    member.reply(error=ErrorCode.FENCED_MEMBER_EPOCH)
    finish(member, 0, 1)
    assert not member.find(ConsumerGroupInstallAssignmentRequest)


def test_an_enforced_rebalance_tells_anew_and_asks_for_a_computation_once() -> None:
    member = ConsumerDialogue(group_local_assignors=[Mine()])
    member.is_kohort = True
    member.take(Subscribed(topics=("orders",), metadata=(b"a",)))
    member.reply(assigned=[0])
    member.acknowledge(CallbackKind.ASSIGNED, 0)
    member.reply()
    member.take(RebalanceEnforced(reason="lag", metadata=(b"b",)))
    member.settle()
    assert words(member)[-1] == [(1, b"b")]
    member.reply()
    member.advance(20_000)
    assert words(member)[-1] is None
    assert member.warnings() == []


def test_what_comes_with_an_assignment_is_handed_on(member: ConsumerDialogue) -> None:
    member.fail(member.expect(ConsumerGroupPrepareAssignmentRequest), Failure.DISCONNECTED)
    member.advance(5_000)
    member.reply(said=ClientAssignment(error=-1, metadata_version=3, metadata_bytes=b"late"))
    assert member.delivered(AssignmentSaid) == [AssignmentSaid(error=-1, version=3, metadata=b"late")]


def test_a_broker_without_the_feature_is_left_with_a_sentence() -> None:
    """Apache Kafka takes the heartbeat, skips what it does not know, and would compute by itself."""
    member = ConsumerDialogue(group_local_assignors=[Mine()])
    member.subscribe()
    member.reply(assigned=[0])
    (trouble,) = member.troubles()
    assert trouble.is_fatal and isinstance(trouble.error, UnsupportedFeatureError)
    assert "are of kohort's brokers, and this is none" in str(trouble.error)
    leaving = member.expect(ConsumerGroupHeartbeatRequest)
    assert leaving.member_epoch == -1
