"""Dialogues about commits that nobody waits for."""

from __future__ import annotations

import pytest

from kohort.client.consumer.application_events import AsynchronousCommitAsked, CallbackKind, CommitAsked, CommitEnded
from kohort.client.consumer.membership.states import MemberState
from kohort.client.core.actions import Complete
from kohort.client.core.requests import Failure
from kohort.errors import AuthorizationError, ErrorCode, FencedError, KohortTimeoutError, StateError
from kohort.ids import TopicPartition
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from support.dialogues.consumer_dialogue import ConsumerDialogue, orders


def partition(index: int) -> TopicPartition:
    return orders(index)[0]


@pytest.fixture
def member() -> ConsumerDialogue:
    member = ConsumerDialogue(auto_commit_interval_ms=5_000)
    member.stable(0, 1)
    return member


def commit(member: ConsumerDialogue, callback: object, timeout_ms: int = 30_000, **offsets: int) -> None:
    """p0=5 commits offset 5 of partition 0, asynchronously."""
    chosen = {partition(int(name[1:])): offset for name, offset in offsets.items()}
    deadline = member.now_ms + timeout_ms
    member.take(AsynchronousCommitAsked(offsets=chosen, callback=callback, deadline_ms=deadline))


def ends(member: ConsumerDialogue) -> list[tuple[object, object]]:
    """Which asynchronous commits have ended, in order, and the class of the error."""
    return [(each.callback, each.error and type(each.error)) for each in member.delivered(CommitEnded)]


def test_its_end_is_delivered_with_its_offsets(member: ConsumerDialogue) -> None:
    """To the application's side, where the callback runs in a thread that polls."""
    commit(member, "a", p0=5)
    member.accept_commit()

    assert member.delivered(CommitEnded) == [CommitEnded(callback="a", offsets={partition(0): 5}, error=None)]


def test_what_waits_goes_out_together(member: ConsumerDialogue) -> None:
    """However fast an application commits, one request is under way; the latest offset counts, each end is told."""
    commit(member, "a", p0=1)
    for number in range(2, 500):
        commit(member, number, p0=number)
    commit(member, "z", p1=7)
    assert member.commits() == {partition(0): 1}

    member.accept_commit()
    assert member.commits() == {partition(0): 499, partition(1): 7}
    member.accept_commit()

    assert [ticket for ticket, _ in ends(member)] == ["a", *range(2, 500), "z"]
    assert {error for _, error in ends(member)} == {None}
    assert member.find(OffsetCommitRequest) == []


def test_offsets_that_go_back_go_back(member: ConsumerDialogue) -> None:
    """In order: the last one that the application asked for is what is committed."""
    for number in (9, 8, 3):
        commit(member, number, p0=number)
    member.accept_commit()
    member.accept_commit()

    assert member.committed == {partition(0): 3}


def test_it_keeps_its_place_between_others(member: ConsumerDialogue) -> None:
    """Not one of them overtakes another."""
    member.take(CommitAsked(offsets={partition(0): 1}, ticket="first", deadline_ms=member.now_ms + 30_000))
    commit(member, "a", p0=2)
    member.take(CommitAsked(offsets={partition(0): 3}, ticket="last", deadline_ms=member.now_ms + 30_000))
    commit(member, "b", p0=4)

    seen = []
    for _ in range(4):
        seen.append(member.commits()[partition(0)])
        member.accept_commit()

    assert seen == [1, 2, 3, 4]
    assert isinstance(member.ended("last"), Complete)


def test_one_that_is_tried_again_is_not_overtaken(member: ConsumerDialogue) -> None:
    """A second attempt behind a later commit would take the offset back."""
    commit(member, "a", p0=1)
    commit(member, "b", p0=2)
    member.fail(member.expect(OffsetCommitRequest), Failure.DISCONNECTED)
    commit(member, "c", p0=3)
    member.advance(1_000)
    assert member.commits() == {partition(0): 1}

    member.accept_commit()
    member.accept_commit()

    assert member.committed == {partition(0): 3}
    assert ends(member) == [("a", None), ("b", None), ("c", None)]


def test_refusal_is_told_to_those_whom_it_concerns(member: ConsumerDialogue) -> None:
    """They went out together, but one of two topics may not be read."""
    commit(member, "before", p0=1)
    commit(member, "good", p0=2)
    commit(member, "bad", p1=3)
    member.accept_commit()
    request = member.expect(OffsetCommitRequest)
    answers = [
        OffsetCommitResponsePartition(partition_index=0, error_code=ErrorCode.NONE),
        OffsetCommitResponsePartition(partition_index=1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED),
    ]
    topic = OffsetCommitResponseTopic(name="orders", partitions=answers)
    member.answer(request, OffsetCommitResponse(topics=[topic]))

    assert ends(member) == [("before", None), ("good", None), ("bad", AuthorizationError)]


def test_fenced_member_is_told(member: ConsumerDialogue) -> None:
    """As by a commit that waits."""
    commit(member, "a", p0=1)
    member.accept_commit(ErrorCode.FENCED_MEMBER_EPOCH)

    assert ends(member) == [("a", FencedError)]


def test_failure_that_nobody_asked_for_is_logged(member: ConsumerDialogue) -> None:
    """Once for what went out together."""
    for number in range(10):
        commit(member, None, p0=number)
    member.accept_commit(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    member.accept_commit(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    lines = [line for line in member.warnings() if "asynchronous commit of group billing failed" in line]
    assert len(lines) == 2
    assert ends(member) == []


def test_without_an_answer_it_ends_in_time(member: ConsumerDialogue) -> None:
    """And what is asked for much later has a time of its own."""
    commit(member, "a", timeout_ms=2_000, p0=1)
    commit(member, "b", timeout_ms=2_000, p0=2)
    member.advance(1_500)
    commit(member, "c", timeout_ms=2_000, p0=3)
    member.advance(1_000)

    assert ends(member) == [("a", KohortTimeoutError), ("b", KohortTimeoutError)]
    member.accept_commit()
    member.accept_commit()
    assert ends(member)[2:] == [("c", None)]


@pytest.mark.parametrize("consumed", [{}, {0: 9}])
def test_partition_is_given_up_behind_it(member: ConsumerDialogue, consumed: dict[int, int]) -> None:
    """What a revocation callback commits is there before the next owner asks."""
    member.advance(5_000)
    member.reply(epoch=1, assigned=[1])
    commit(member, "earlier", p1=4)
    commit(member, "in the callback", p0=9)
    member.acknowledge(CallbackKind.REVOKED, 0, consumed=consumed)
    assert member.state is MemberState.PARTITION_REVOKED

    while member.find(OffsetCommitRequest):
        member.accept_commit()

    assert member.state is MemberState.PREPARING_REBALANCE
    assert member.committed == {partition(0): 9, partition(1): 4}
    assert ends(member) == [("earlier", None), ("in the callback", None)]


def test_close_waits_for_it(member: ConsumerDialogue) -> None:
    """The last offsets of a program are not lost."""
    commit(member, "a", p0=1)
    commit(member, "b", p0=2)
    member.close()
    member.acknowledge(CallbackKind.REVOKED, 0, 1)
    member.accept_commit()
    assert member.ended("close") is None
    member.accept_commit()
    member.reply(epoch=-1)

    assert isinstance(member.ended("close"), Complete)
    assert ends(member) == [("a", None), ("b", None)]


def test_close_does_not_wait_longer_than_it_may(member: ConsumerDialogue) -> None:
    """Every commit ends, and says so before the ticket of the close does."""
    commit(member, "a", p0=1)
    commit(member, "b", p0=2)
    member.close(timeout_ms=2_000)
    member.acknowledge(CallbackKind.REVOKED, 0, 1)
    member.advance(2_000)

    assert isinstance(member.ended("close"), Complete)
    assert ends(member) == [("a", StateError), ("b", StateError)]
