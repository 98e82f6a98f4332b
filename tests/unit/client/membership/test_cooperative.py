"""Dialogues with a cooperative member of the classic protocol: it keeps what does not move in a rebalance."""

from __future__ import annotations

import pytest

from kohort.client.consumer.application_events import CallbackKind, CommitAsked, Subscribed
from kohort.client.consumer.membership.states import MemberState
from kohort.client.core.actions import Complete, Fail
from kohort.client.core.requests import Failure
from kohort.errors import ErrorCode, FencedError
from kohort.wire.embedded import decode_subscription
from kohort.wire.messages.join_group import JoinGroupRequest
from kohort.wire.messages.leave_group import LeaveGroupRequest
from kohort.wire.messages.offset_commit import OffsetCommitRequest
from support.dialogues.classic_dialogue import ClassicDialogue
from support.dialogues.consumer_dialogue import orders

ASSIGNED, REVOKED, LOST = CallbackKind.ASSIGNED, CallbackKind.REVOKED, CallbackKind.LOST


@pytest.fixture
def member() -> ClassicDialogue:
    return ClassicDialogue(partition_assignment_strategy="cooperative-sticky")


def rebalance(member: ClassicDialogue) -> JoinGroupRequest:
    """The group rebalances, and the member hears of it."""
    member.advance(3_000)
    member.beaten(ErrorCode.REBALANCE_IN_PROGRESS)
    return member.expect(JoinGroupRequest)


def test_member_joins_with_what_it_holds_and_reads_on(member: ClassicDialogue) -> None:
    """KIP-429: nothing is given up before it is known what moves."""
    member.at_rest(0, 1)

    request = rebalance(member)

    said = decode_subscription(request.protocols[0].metadata)
    assert (said.owned_partitions, said.generation_id) == ({"orders": (0, 1)}, 1)
    assert [each.name for each in request.protocols] == ["cooperative-sticky"]
    assert set(member.fetching()) == set(orders(0, 1))
    assert member.questions == []


def test_rebalance_that_moves_nothing_asks_nothing(member: ClassicDialogue) -> None:
    """The application does not notice."""
    member.at_rest(0, 1)
    rebalance(member)

    member.joined(2, protocol="cooperative-sticky")
    member.synced([0, 1])

    assert member.state is MemberState.STABLE
    assert member.questions == []
    assert member.find(JoinGroupRequest) == []


def test_what_is_missing_is_given_up_and_then_the_member_joins_again(member: ClassicDialogue) -> None:
    """So that the next round can hand it on."""
    member.at_rest(0, 1)
    member.poll(p0=3, p1=5)
    rebalance(member)
    member.joined(2, protocol="cooperative-sticky")
    member.synced([0])

    member.serve()
    assert set(member.fetching()) == set(orders(0)), "reading of what goes has stopped, that of the rest goes on"
    member.acknowledge(REVOKED, 1, consumed={1: 5})
    assert member.expect(OffsetCommitRequest).generation_id_or_member_epoch == 2
    member.accept_commit()

    request = member.expect(JoinGroupRequest)
    assert decode_subscription(request.protocols[0].metadata).owned_partitions == {"orders": (0,)}
    assert decode_subscription(request.protocols[0].metadata).generation_id == 2


def test_what_is_new_is_taken_before_the_member_joins_again(member: ClassicDialogue) -> None:
    """Some go, some come in one round: revoked first, then assigned, then the next round."""
    member.at_rest(0, 1)
    rebalance(member)
    member.joined(2, protocol="cooperative-sticky")
    member.synced([0, 2])

    member.acknowledge(REVOKED, 1)
    assert member.find(JoinGroupRequest) == []
    member.acknowledge(ASSIGNED, 2)

    request = member.expect(JoinGroupRequest)
    assert decode_subscription(request.protocols[0].metadata).owned_partitions == {"orders": (0, 2)}


def test_gain_alone_needs_no_other_round(member: ClassicDialogue) -> None:
    """on_assigned is told of what is new only."""
    member.at_rest(0)
    rebalance(member)
    member.joined(2, protocol="cooperative-sticky")
    member.synced([0, 3])

    member.acknowledge(ASSIGNED, 3)

    assert member.state is MemberState.STABLE
    assert member.find(JoinGroupRequest) == []
    assert set(member.fetching()) == set(orders(0, 3))


def test_topics_that_are_read_no_more_are_given_up_before_the_join(member: ClassicDialogue) -> None:
    """The others are kept."""
    member.topics["refunds"] = (b"refunds".ljust(16, b"."), 1)
    member.at_rest(0)

    member.take(Subscribed(topics=("refunds",)))
    member.settle()
    member.acknowledge(REVOKED, 0)

    request = member.expect(JoinGroupRequest)
    said = decode_subscription(request.protocols[0].metadata)
    assert (said.topics, said.owned_partitions) == (("refunds",), {})


@pytest.mark.parametrize("code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION])
def test_member_that_was_removed_while_it_joined_loses_what_it_kept(member: ClassicDialogue, code: ErrorCode) -> None:
    """Others may own it by now: nothing is committed, on_lost is called."""
    member.at_rest(0, 1)
    rebalance(member)

    member.joined(error=code)
    assert member.fetching() == {}
    member.acknowledge(LOST, 0, 1)
    member.advance(1_000)

    assert decode_subscription(member.expect(JoinGroupRequest).protocols[0].metadata).owned_partitions == {}


def test_lost_answer_is_asked_for_again_with_everything_kept(member: ClassicDialogue) -> None:
    """A coordinator that moves costs nobody anything."""
    member.at_rest(0)
    member.fail(rebalance(member), Failure.DISCONNECTED)
    member.advance(1_000)

    again = member.expect(JoinGroupRequest)

    assert decode_subscription(again.protocols[0].metadata).owned_partitions == {"orders": (0,)}
    assert member.questions == []


def test_coordinator_that_stays_away_while_the_member_joins_is_given_up(member: ClassicDialogue) -> None:
    """G3: whoever keeps partitions without a coordinator may share them with their next owner."""
    member.at_rest(0)
    rebalance(member)
    for _ in range(60):
        for send in list(member.find(JoinGroupRequest)):
            member.fail(send.request, Failure.DISCONNECTED)
        member.advance(1_000)
        member.poll()

    assert member.questions[-1].kind is LOST


def test_commit_between_join_and_sync_is_tried_again(member: ClassicDialogue) -> None:
    """REBALANCE_IN_PROGRESS: Kafka takes no commits then, and the partitions are still the member's."""
    member.at_rest(0)
    rebalance(member)
    member.joined(2, protocol="cooperative-sticky")
    member.poll(p0=7)
    member.advance(5_000)
    member.accept_commit(ErrorCode.REBALANCE_IN_PROGRESS)
    member.synced([0])
    member.advance(1_000)

    assert member.commits() == {orders(0)[0]: 7}
    member.accept_commit()
    assert member.troubles() == []


def test_commit_that_the_end_of_the_join_overtakes_is_tried_again(member: ClassicDialogue) -> None:
    """The coordinator is a generation ahead, and the member has not heard of it: that is no loss."""
    member.at_rest(0)
    rebalance(member)
    member.take(CommitAsked(offsets={orders(0)[0]: 7}, ticket="commit", deadline_ms=member.now_ms + 30_000))
    member.settle()
    member.accept_commit(ErrorCode.ILLEGAL_GENERATION)
    assert member.ended("commit") is None

    member.joined(2, protocol="cooperative-sticky")
    member.synced([0])
    member.advance(1_000)
    assert member.accept_commit().generation_id_or_member_epoch == 2

    assert isinstance(member.ended("commit"), Complete)


def test_commit_of_an_older_generation_at_rest_is_refused(member: ClassicDialogue) -> None:
    """Then the group has gone on without this member."""
    member.at_rest(0)
    member.take(CommitAsked(offsets={orders(0)[0]: 7}, ticket="commit", deadline_ms=member.now_ms + 30_000))
    member.settle()
    member.accept_commit(ErrorCode.ILLEGAL_GENERATION)

    ended = member.ended("commit")
    assert isinstance(ended, Fail)
    assert isinstance(ended.error, FencedError)


def test_close_during_a_rebalance_gives_everything_up(member: ClassicDialogue) -> None:
    """Revoked, committed, left; the join that waits is broken off."""
    member.at_rest(0)
    rebalance(member)

    member.close()
    member.acknowledge(REVOKED, 0)

    assert len(member.find(LeaveGroupRequest)) == 1
    assert member.find(JoinGroupRequest) == []


@pytest.mark.parametrize("given", [[0, 1], [0], [0, 1, 2], [2]], ids=["the same", "less", "more", "another"])
@pytest.mark.parametrize("leader", ["c-0", "c-1"], ids=["follower", "leader"])
@pytest.mark.parametrize("is_joined", [False, True], ids=["join", "sync"])
def test_rebalance_that_ends_beside_a_close_changes_nothing(
    member: ClassicDialogue, is_joined: bool, leader: str, given: list[int]
) -> None:
    """What is owned is being given up already, and it is committed in the generation that has begun."""

    def join() -> None:
        member.joined(2, protocol="cooperative-sticky", leader=leader, members={"c-0": ["orders"], "c-1": ["orders"]})

    member.at_rest(0, 1)
    member.poll(p0=3, p1=5)
    rebalance(member)
    if is_joined:
        join()
    member.close()
    if not is_joined:
        join()
    member.synced(given)
    assert member.state is MemberState.PREPARE_REVOCATION

    member.acknowledge(REVOKED, 0, 1, consumed={0: 3, 1: 5})
    assert member.accept_commit().generation_id_or_member_epoch == 2
    assert len(member.find(LeaveGroupRequest)) == 1
    assert member.questions == []
