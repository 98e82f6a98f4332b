"""Dialogues with an eager member of the classic protocol."""

from __future__ import annotations

import pytest

from kohort.client.consumer.application_events import CallbackKind
from kohort.client.consumer.membership.states import MemberState
from kohort.client.core.actions import Complete, Disconnect
from kohort.client.core.requests import Failure
from kohort.errors import AuthorizationError, ErrorCode, FencedError
from kohort.ids import TopicPartition
from kohort.wire.embedded import decode_assignment, decode_subscription
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from kohort.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
from kohort.wire.messages.offset_commit import OffsetCommitRequest
from kohort.wire.messages.sync_group import SyncGroupRequest
from support.dialogues.classic_dialogue import ClassicDialogue
from support.dialogues.consumer_dialogue import orders

ASSIGNED, REVOKED, LOST = CallbackKind.ASSIGNED, CallbackKind.REVOKED, CallbackKind.LOST


@pytest.fixture
def member() -> ClassicDialogue:
    return ClassicDialogue()


def test_join_says_who_and_what(member: ClassicDialogue) -> None:
    """KIP-394: first without an id, then with the one that the coordinator made."""
    member.subscribe()
    first = member.expect(JoinGroupRequest)
    assert (first.member_id, first.session_timeout_ms, first.rebalance_timeout_ms) == ("", 45_000, 300_000)
    assert [protocol.name for protocol in first.protocols] == ["range", "cooperative-sticky"]
    assert decode_subscription(first.protocols[0].metadata).topics == ("orders",)

    member.require_member_id("c-1")

    assert member.expect(JoinGroupRequest).member_id == "c-1"


def test_join_may_take_as_long_as_the_rebalance(member: ClassicDialogue) -> None:
    """The coordinator answers when everybody has joined."""
    member.subscribe()

    assert member.find(JoinGroupRequest)[0].timeout_ms == 305_000


def test_follower_takes_what_the_leader_gives(member: ClassicDialogue) -> None:
    """SyncGroup without assignments, then the callback, then fetching."""
    member.subscribe()
    member.require_member_id()
    member.joined(generation=4)
    request = member.synced([1, 2])
    assert (request.generation_id, request.member_id, request.assignments) == (4, "c-1", [])

    assert member.state is MemberState.ASSIGNING_PARTITIONS
    assert member.fetching() == {}
    member.acknowledge(ASSIGNED, 1, 2)

    assert set(member.fetching()) == set(orders(1, 2))


def test_leader_computes_for_everybody(member: ClassicDialogue) -> None:
    """The leader follows the topics of all members, not its own only."""
    member.topics["refunds"] = (b"refunds".ljust(16, b"."), 2)
    member.subscribe()
    member.require_member_id()
    member.joined(leader="c-1", members={"c-1": ["orders"], "c-2": ["orders", "refunds"]})

    request = member.expect(SyncGroupRequest)

    given = {entry.member_id: decode_assignment(entry.assignment).partitions for entry in request.assignments}
    assert given == {"c-1": {"orders": (0, 1)}, "c-2": {"orders": (2, 3), "refunds": (0, 1)}}


def test_leader_uses_the_protocol_that_the_group_chose(member: ClassicDialogue) -> None:
    """Every member of a group assigns by the same name."""
    member.subscribe()
    member.require_member_id()
    member.joined(leader="c-1", members={"c-1": ["orders"], "c-2": ["orders"]}, protocol="roundrobin")

    request = member.expect(SyncGroupRequest)

    given = {entry.member_id: decode_assignment(entry.assignment).partitions for entry in request.assignments}
    assert given == {"c-1": {"orders": (0, 2)}, "c-2": {"orders": (1, 3)}}


def test_leader_that_sees_new_partitions_starts_a_rebalance(member: ClassicDialogue) -> None:
    """G4: in the classic protocol the leader watches the topics."""
    member.subscribe()
    member.require_member_id()
    member.joined(leader="c-1", members={"c-1": ["orders"]})
    member.synced([0, 1, 2, 3])
    member.acknowledge(ASSIGNED, 0, 1, 2, 3)

    member.topics["orders"] = (member.topics["orders"][0], 6)
    for _ in range(101):
        member.advance(3_000)
        if member.find(HeartbeatRequest):
            member.beaten()
        member.poll()

    member.acknowledge(REVOKED, 0, 1, 2, 3)
    assert len(member.find(JoinGroupRequest)) == 1


def test_topic_that_the_leader_may_not_see_for_a_while_has_not_changed() -> None:
    """Its user may not describe it: that says nothing of its partitions, which stay where they are."""
    member = ClassicDialogue(metadata_max_age_ms=1_000)
    member.subscribe()
    member.require_member_id()
    member.joined(leader="c-1", members={"c-1": ["orders"]})
    member.synced([0, 1, 2, 3])
    member.acknowledge(ASSIGNED, 0, 1, 2, 3)
    for hidden in ({"orders"}, set[str]()):
        member.hidden = hidden
        for _ in range(10):
            member.advance(500)
            if member.find(HeartbeatRequest):
                member.beaten()
            member.poll()

    assert len(member.troubles()) == 4, "of each partition, once"
    assert (member.questions, member.find(JoinGroupRequest)) == ([], [])
    assert set(member.fetching()) == set(orders(0, 1, 2, 3))


def test_member_without_partitions_is_at_rest(member: ClassicDialogue) -> None:
    """The leader may leave a member out: no bytes at all."""
    member.subscribe()
    member.require_member_id()
    member.joined()
    member.synced(raw=b"")

    assert member.state is MemberState.STABLE


def test_rebalance_gives_up_everything_first(member: ClassicDialogue) -> None:
    """Eager: revoke all, commit, and only then JoinGroup."""
    member.at_rest(0, 1)
    member.advance(3_000)
    member.beaten(ErrorCode.REBALANCE_IN_PROGRESS)
    assert member.state is MemberState.PREPARE_REVOCATION
    member.serve()
    assert member.fetching() == {}

    member.acknowledge(REVOKED, 0, 1, consumed={0: 5})
    assert member.commits() == {TopicPartition("orders", 0): 5}
    assert member.find(JoinGroupRequest) == []
    member.accept_commit()

    assert member.state is MemberState.PREPARING_REBALANCE
    member.joined(generation=2)
    member.synced([0])
    member.acknowledge(ASSIGNED, 0)
    assert member.member.owned == set(orders(0))


def test_heartbeats_go_on_while_the_callback_runs(member: ClassicDialogue) -> None:
    """Otherwise a slow callback would cost the session."""
    member.at_rest(0)
    member.advance(3_000)
    member.beaten(ErrorCode.REBALANCE_IN_PROGRESS)

    for _ in range(3):
        member.advance(3_000)
        member.beaten(ErrorCode.REBALANCE_IN_PROGRESS)

    assert member.state is MemberState.PREPARE_REVOCATION
    member.start_callback()
    for _ in range(3):
        member.advance(3_000)
        member.beaten(ErrorCode.REBALANCE_IN_PROGRESS)

    assert member.state is MemberState.REVOKING_PARTITION
    assert len(member.questions) == 1


def test_rebalance_during_the_assigned_callback_waits_for_it(member: ClassicDialogue) -> None:
    """What the application is just being given is taken back in an orderly way."""
    member.subscribe()
    member.require_member_id()
    member.joined()
    member.synced([0])
    member.advance(3_000)
    member.beaten(ErrorCode.REBALANCE_IN_PROGRESS)

    member.acknowledge(ASSIGNED, 0)
    member.acknowledge(REVOKED, 0)

    assert len(member.find(JoinGroupRequest)) == 1


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "c-1")]
)
def test_removed_member_loses_its_partitions_and_joins_again(
    member: ClassicDialogue, code: ErrorCode, member_id: str
) -> None:
    """An unknown id is given up; after a wrong generation the id is still good."""
    member.at_rest(0, 1)
    member.advance(3_000)
    member.beaten(code)
    assert member.fetching() == {}
    assert member.warnings()[-1] == f"member c-1 of group billing lost its partitions: {code.name}"

    member.acknowledge(LOST, 0, 1)

    assert member.expect(JoinGroupRequest).member_id == member_id
    assert member.find(OffsetCommitRequest) == []


def test_member_that_is_removed_while_it_joins_is_named() -> None:
    """It keeps what it has while it joins; the id of which it is told is gone by then."""
    member = ClassicDialogue(partition_assignment_strategy="cooperative-sticky")
    member.at_rest(0, 1)
    member.advance(3_000)
    member.beaten(ErrorCode.REBALANCE_IN_PROGRESS)
    join = member.expect(JoinGroupRequest)
    refused = JoinGroupResponse(error_code=ErrorCode.UNKNOWN_MEMBER_ID, protocol_name=None, member_id="c-1")
    member.answer(join, refused, version=9)

    assert member.warnings()[-1] == "member c-1 of group billing lost its partitions: UNKNOWN_MEMBER_ID"
    member.acknowledge(LOST, 0, 1)


def test_silent_coordinator_is_given_up(member: ClassicDialogue) -> None:
    """G3: both ways."""
    member.at_rest(0)
    member.advance(45_001)

    assert member.state is MemberState.FENCED
    member.acknowledge(LOST, 0)


def test_rebalance_that_begins_anew_during_sync(member: ClassicDialogue) -> None:
    """REBALANCE_IN_PROGRESS on SyncGroup: join again."""
    member.subscribe()
    member.require_member_id()
    member.joined()

    member.synced(error=ErrorCode.REBALANCE_IN_PROGRESS)

    assert member.expect(JoinGroupRequest).member_id == "c-1"


def test_coordinator_that_moves_during_a_join(member: ClassicDialogue) -> None:
    """Found again, joined again."""
    member.subscribe()
    member.joined(error=ErrorCode.NOT_COORDINATOR)

    member.advance(1_000)

    assert len(member.find(JoinGroupRequest)) == 1


def test_missing_common_assignor_is_named(member: ClassicDialogue) -> None:
    """Others have their defaults: roundrobin in aiokafka, range in Java."""
    member.subscribe()
    member.require_member_id()
    member.joined(error=ErrorCode.INCONSISTENT_GROUP_PROTOCOL)

    (trouble,) = member.troubles()
    assert "its members are no consumers, or have none of these assignors: range" in str(trouble.error)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
    ],
)
def test_refusal_for_good_reaches_the_application(member: ClassicDialogue, code: ErrorCode) -> None:
    """The next poll raises it."""
    member.subscribe()
    member.joined(error=code)

    assert member.state is MemberState.FATAL
    error = member.troubles()[-1].error
    assert isinstance(error, FencedError)
    assert error.code is code


def test_right_that_is_missing_is_named(member: ClassicDialogue) -> None:
    """By the right and the group."""
    member.subscribe()
    member.joined(error=ErrorCode.GROUP_AUTHORIZATION_FAILED)

    assert member.state is MemberState.FATAL
    error = member.troubles()[-1].error
    assert isinstance(error, AuthorizationError)
    assert (error.operation, error.resource_type, error.name) == ("read", "group", "billing")


def test_assignment_that_cannot_be_read_is_a_refusal(member: ClassicDialogue) -> None:
    """A leader of another make may send anything."""
    member.subscribe()
    member.require_member_id()
    member.joined()

    member.synced(raw=b"\x00\x01\x7f\xff\xff\xff")

    assert member.state is MemberState.FATAL


def test_close_leaves_the_group(member: ClassicDialogue) -> None:
    """LeaveGroup with the member id."""
    member.at_rest(0)
    member.close()
    member.acknowledge(REVOKED, 0)

    request = member.expect(LeaveGroupRequest)
    assert [each.member_id for each in request.members] == ["c-1"]
    member.answer(request, LeaveGroupResponse(), version=5)

    assert isinstance(member.ended("close"), Complete)
    assert member.is_stopped


def test_leave_does_not_queue_behind_a_join_that_waits(member: ClassicDialogue) -> None:
    """A broker serves one request of a connection at a time, and JoinGroup may wait for minutes."""
    member.at_rest()
    member.advance(3_000)
    member.beaten(ErrorCode.REBALANCE_IN_PROGRESS)
    assert len(member.find(JoinGroupRequest)) == 1

    member.close()

    assert any(isinstance(action, Disconnect) for action in member.actions)
    assert member.find(JoinGroupRequest) == []
    member.answer(member.expect(LeaveGroupRequest), LeaveGroupResponse(), version=5)
    assert member.is_stopped


def test_answer_that_is_lost_leads_to_another_join(member: ClassicDialogue) -> None:
    """The coordinator knows the member id and answers with the present generation."""
    member.subscribe()
    member.require_member_id()
    member.fail(member.expect(JoinGroupRequest), Failure.DISCONNECTED)

    member.advance(1_000)

    assert member.expect(JoinGroupRequest).member_id == "c-1"


def test_changed_subscription_means_another_join(member: ClassicDialogue) -> None:
    """Eager: everything goes first."""
    member.at_rest(0)
    member.subscribe("orders", "refunds")
    member.acknowledge(REVOKED, 0)

    request = member.expect(JoinGroupRequest)

    assert decode_subscription(request.protocols[0].metadata).topics == ("orders", "refunds")
