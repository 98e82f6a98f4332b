"""Dialogues about committed offsets."""

from __future__ import annotations

import pytest

from kohort.client.consumer.application_events import (
    CallbackKind,
    CommitAsked,
    CommittedAsked,
    PartitionsAssigned,
    Start,
    Subscribed,
)
from kohort.client.core.actions import Complete, Fail
from kohort.client.core.requests import Failure
from kohort.client.records import OffsetAndMetadata
from kohort.errors import BrokerError, ErrorCode, FencedError, KohortTimeoutError
from kohort.ids import TopicPartition
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.offset_commit import OffsetCommitRequest
from kohort.wire.messages.offset_fetch import OffsetFetchRequest
from support.dialogues.consumer_dialogue import ConsumerDialogue, orders, read_commit


def partition(index: int) -> TopicPartition:
    return orders(index)[0]


@pytest.fixture
def member() -> ConsumerDialogue:
    member = ConsumerDialogue(auto_commit_interval_ms=5_000)
    member.stable(0, 1)
    return member


def commit(member: ConsumerDialogue, ticket: str = "commit", timeout_ms: int = 30_000, **offsets: int) -> None:
    """p0=5 commits offset 5 of partition 0."""
    chosen = {partition(int(name[1:])): offset for name, offset in offsets.items()}
    member.take(CommitAsked(offsets=chosen, ticket=ticket, deadline_ms=member.now_ms + timeout_ms))
    member.settle()


def error_of(member: ConsumerDialogue, ticket: str = "commit") -> Exception:
    ended = member.ended(ticket)
    assert isinstance(ended, Fail)
    return ended.error


def test_commit_names_member_and_epoch(member: ConsumerDialogue) -> None:
    """KIP-848: fenced by both."""
    commit(member, p0=5)

    request = member.accept_commit()

    assert (request.member_id, request.generation_id_or_member_epoch) == ("m-1", 1)
    assert member.ended("commit") == Complete(ticket="commit", value=None)


def test_commits_are_sent_one_after_the_other(member: ConsumerDialogue) -> None:
    """A later commit is never overtaken by an earlier one."""
    commit(member, "first", p0=5)
    commit(member, "second", p0=6)
    assert member.commits() == {partition(0): 5}

    member.accept_commit()

    assert member.commits() == {partition(0): 6}
    assert member.ended("second") is None


def test_metadata_and_leader_epoch_are_committed(member: ConsumerDialogue) -> None:
    """KIP-320: with the epoch, whoever starts there sees whether the log was cut off since."""
    chosen = {partition(0): OffsetAndMetadata(5, "half of it", 3), partition(1): 6}
    member.take(CommitAsked(offsets=chosen, ticket="commit", deadline_ms=member.now_ms + 30_000))

    first, second = member.accept_commit().topics[0].partitions

    assert (first.committed_offset, first.committed_metadata, first.committed_leader_epoch) == (5, "half of it", 3)
    assert (second.committed_offset, second.committed_metadata, second.committed_leader_epoch) == (6, "", -1)


def test_metadata_that_is_too_large_is_a_typed_error(member: ConsumerDialogue) -> None:
    """The broker's offset.metadata.max.bytes; the next commit goes well."""
    chosen = {partition(0): OffsetAndMetadata(5, "x" * 5_000)}
    member.take(CommitAsked(offsets=chosen, ticket="long", deadline_ms=member.now_ms + 30_000))
    member.settle()
    member.accept_commit(ErrorCode.OFFSET_METADATA_TOO_LARGE)
    commit(member, "short", p0=5)
    member.accept_commit()

    error = error_of(member, "long")
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert not error.retriable
    assert isinstance(member.ended("short"), Complete)


@pytest.mark.parametrize("code", [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_COORDINATOR])
def test_commit_is_tried_again_when_that_may_help(member: ConsumerDialogue, code: ErrorCode) -> None:
    """The ticket ends with the attempt that counts."""
    commit(member, p0=5)
    member.accept_commit(code)
    assert member.ended("commit") is None

    member.advance(1_000)
    member.accept_commit()

    assert isinstance(member.ended("commit"), Complete)


def test_lost_connection_is_tried_again(member: ConsumerDialogue) -> None:
    """Committing the same offset twice is harmless."""
    commit(member, p0=5)
    member.fail(member.expect(OffsetCommitRequest), Failure.DISCONNECTED)

    member.advance(1_000)

    assert member.commits() == {partition(0): 5}


def test_stale_epoch_is_tried_again_with_the_new_one(member: ConsumerDialogue) -> None:
    """STALE_MEMBER_EPOCH: the heartbeat brings the epoch with which the commit is good."""
    member.advance(5_000)
    commit(member, p0=5)
    member.accept_commit(ErrorCode.STALE_MEMBER_EPOCH)
    member.reply(epoch=2)

    member.advance(1_000)

    request = member.expect(OffsetCommitRequest)
    assert request.generation_id_or_member_epoch == 2
    assert read_commit(request) == {partition(0): 5}


def test_retried_commit_leaves_out_what_was_given_up_meanwhile(member: ConsumerDialogue) -> None:
    """The partition may have a new owner, whose commits must not be undone."""
    member.advance(5_000)
    commit(member, p0=5, p1=6)
    member.accept_commit(ErrorCode.STALE_MEMBER_EPOCH)
    member.reply(epoch=1, assigned=[0])
    member.acknowledge(CallbackKind.REVOKED, 1)
    member.reply(epoch=2, assigned=[0])

    member.advance(1_000)

    assert member.commits() == {partition(0): 5}


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.ILLEGAL_GENERATION]
)
def test_refused_commit_says_who_was_fenced(member: ConsumerDialogue, code: ErrorCode) -> None:
    """Typed fields, for applications that roll back."""
    commit(member, p0=5)
    member.accept_commit(code)

    error = error_of(member)
    assert isinstance(error, FencedError)
    assert (error.code, error.group, error.member, error.epoch) == (code, "billing", "m-1", 1)


def test_commit_of_an_application_that_was_too_slow_says_so() -> None:
    """max.poll.interval.ms: not that the coordinator does not know a member without a name."""
    slow = ConsumerDialogue(max_poll_interval_ms=4_000)
    slow.stable(0)
    slow.advance(4_001)
    commit(slow, p0=5)

    assert str(error_of(slow)) == (
        "UNKNOWN_MEMBER_ID while committing offsets: no poll for 4000 ms (max.poll.interval.ms); "
        "poll more often, or take fewer records at a time (group billing, member m-1, epoch 1)"
    )


def test_commit_before_the_member_has_joined_says_so() -> None:
    early = ConsumerDialogue()
    early.take(Subscribed(topics=("orders",)))
    early.settle()
    commit(early, p0=5)

    assert str(error_of(early)).startswith(
        "UNKNOWN_MEMBER_ID while committing offsets: it has not joined its group yet"
    )


def test_refusal_for_good_is_an_error(member: ConsumerDialogue) -> None:
    """E.g. the group may not be written."""
    commit(member, p0=5)
    member.accept_commit(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    error = error_of(member)
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.GROUP_AUTHORIZATION_FAILED


def test_commit_that_takes_too_long_ends_in_time(member: ConsumerDialogue) -> None:
    """The caller's timeout; the next commit still waits for the answer."""
    commit(member, "slow", timeout_ms=2_000, p0=5)
    commit(member, "next", p0=6)
    member.advance(2_001)

    assert isinstance(error_of(member, "slow"), KohortTimeoutError)
    assert member.commits() == {partition(0): 5}
    member.accept_commit()
    assert member.commits() == {partition(0): 6}


def test_commit_that_is_refused_until_its_time_is_over_says_what_was_refused(member: ConsumerDialogue) -> None:
    """A topic that does not exist may come; who commits to a misspelt one is told its name."""
    commit(member, timeout_ms=1_000, p0=5)
    member.accept_commit(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    member.advance(1_000)

    assert isinstance(error_of(member), KohortTimeoutError)
    assert str(error_of(member)).endswith("the last attempt: orders-0: UNKNOWN_TOPIC_OR_PARTITION")


def test_commit_of_partitions_assigned_by_hand_names_no_member() -> None:
    """A group without members takes commits of anybody."""
    consumer = ConsumerDialogue()
    consumer.take(PartitionsAssigned(starts={partition(0): Start(fence=consumer.new_fence(), offset=0)}))
    commit(consumer, p0=5)

    request = consumer.expect(OffsetCommitRequest)

    assert (request.member_id, request.generation_id_or_member_epoch) == ("", -1)


# -- automatic --------------------------------------------------------------------------------------------------------


def test_automatic_commit_contains_what_was_returned_from(member: ConsumerDialogue) -> None:
    """Only what the application said at the start of a poll."""
    member.poll(p0=3)
    member.advance(2_000)
    member.poll(p0=7, p1=2)
    assert member.find(OffsetCommitRequest) == []

    member.advance(3_000)

    assert member.commits() == {partition(0): 7, partition(1): 2}


def test_close_waits_for_the_automatic_commit_that_is_under_way(member: ConsumerDialogue) -> None:
    """Though nothing was consumed since: what it says was consumed, and nobody says it again."""
    member.poll(p0=3)
    member.advance(5_000)
    assert member.commits() == {partition(0): 3}
    member.reply(epoch=1)
    member.close()
    member.acknowledge(CallbackKind.REVOKED, 0, 1)
    assert member.ended("close") is None
    member.accept_commit()
    member.reply(epoch=1)
    member.reply(epoch=-1)

    assert isinstance(member.ended("close"), Complete)
    assert member.committed == {partition(0): 3}
    assert member.warnings() == []


def test_nothing_new_means_no_commit(member: ConsumerDialogue) -> None:
    """An idle consumer does not write."""
    member.poll(p0=3)
    member.advance(5_000)
    member.accept_commit()

    member.advance(60_000)

    assert member.find(OffsetCommitRequest) == []


def test_automatic_commit_can_be_switched_off() -> None:
    """`enable.auto.commit` false."""
    member = ConsumerDialogue(enable_auto_commit=False)
    member.stable(0)
    member.poll(p0=3)
    member.advance(60_000)

    assert member.find(OffsetCommitRequest) == []


def test_automatic_commit_that_fails_is_made_up_for(member: ConsumerDialogue) -> None:
    """A warning; the next interval commits the newest position."""
    member.poll(p0=3, p1=1)
    member.advance(5_000)
    member.poll(p0=9)
    for _ in range(45):
        if member.find(OffsetCommitRequest) and member.commits() == {partition(0): 3, partition(1): 1}:
            member.accept_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        if member.find(ConsumerGroupHeartbeatRequest):
            member.reply(epoch=1)
        member.advance(1_000)

    assert any("automatic commit" in line for line in member.warnings())
    member.advance(6_000)
    assert member.commits() == {partition(0): 9, partition(1): 1}


def test_automatic_commit_that_fails_takes_nothing_back_that_was_committed_since(member: ConsumerDialogue) -> None:
    """The application has gone back by its own commit, which waited behind the one that failed."""
    member.poll(p0=3, p1=7)
    member.advance(5_000)
    assert member.commits() == {partition(0): 3, partition(1): 7}
    commit(member, p1=2, timeout_ms=300_000)
    for _ in range(60):
        if member.find(OffsetCommitRequest):
            is_automatic = member.commits() == {partition(0): 3, partition(1): 7}
            member.accept_commit(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS if is_automatic else ErrorCode.NONE)
        if member.find(ConsumerGroupHeartbeatRequest):
            member.reply(epoch=1)
        member.advance(1_000)

    assert any("automatic commit" in line for line in member.warnings())
    assert member.committed == {partition(0): 3, partition(1): 2}


# -- asking -----------------------------------------------------------------------------------------------------------


def ask(member: ConsumerDialogue, *indexes: int, timeout_ms: int = 10_000) -> None:
    chosen = tuple(orders(*indexes))
    member.take(CommittedAsked(partitions=chosen, ticket="ask", deadline_ms=member.now_ms + timeout_ms))
    member.settle()


def test_committed_offsets_are_found(member: ConsumerDialogue) -> None:
    """`None` where there is none."""
    member.committed[partition(0)] = 12
    ask(member, 0, 1)

    assert member.ended("ask") == Complete(
        ticket="ask", value={partition(0): OffsetAndMetadata(12), partition(1): None}
    )


def test_question_about_offsets_ends_in_time(member: ConsumerDialogue) -> None:
    """The caller's timeout."""
    member.by_hand.add(OffsetFetchRequest)
    ask(member, 0, timeout_ms=2_000)
    member.advance(2_001)

    assert isinstance(error_of(member, "ask"), KohortTimeoutError)


def test_question_is_asked_again_after_a_lost_connection(member: ConsumerDialogue) -> None:
    """And answered once."""
    member.by_hand.add(OffsetFetchRequest)
    ask(member, 0)
    member.fail(member.expect(OffsetFetchRequest), Failure.DISCONNECTED)
    member.by_hand.clear()
    member.advance(1_000)

    assert isinstance(member.ended("ask"), Complete)


def test_old_broker_answers_without_groups(member: ConsumerDialogue) -> None:
    """Before version 8 the answer is about one group."""
    from kohort.wire.messages.offset_fetch import (
        OffsetFetchResponse,
        OffsetFetchResponsePartition,
        OffsetFetchResponseTopic,
    )

    member.by_hand.add(OffsetFetchRequest)
    ask(member, 0, 1)
    found = [
        OffsetFetchResponsePartition(partition_index=0, committed_offset=4, committed_leader_epoch=2, metadata="kept"),
        OffsetFetchResponsePartition(partition_index=1, committed_offset=-1),
    ]
    answer = OffsetFetchResponse(topics=[OffsetFetchResponseTopic(name="orders", partitions=found)])
    member.answer(member.expect(OffsetFetchRequest), answer, version=5)

    expected = {partition(0): OffsetAndMetadata(4, "kept", 2), partition(1): None}
    assert member.ended("ask") == Complete(ticket="ask", value=expected)
