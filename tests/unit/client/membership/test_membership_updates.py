"""Dialogues with a member that hears by its fetches and commits (H10): what it says there, and in which order it takes
what it is told."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from kohort.client.consumer.application_events import AsynchronousCommitAsked, CallbackKind
from kohort.client.consumer.membership.states import MemberState
from kohort.client.core.actions import Lane
from kohort.client.core.requests import Failure
from kohort.errors import ErrorCode
from kohort.wire.codec import encode
from kohort.wire.messages import consumer_group_heartbeat as heartbeat
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.fetch import FetchRequest, FetchResponse
from kohort.wire.messages.membership import KnownMembership, MembershipUpdate
from kohort.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from support.dialogues.consumer_dialogue import ORDERS, ConsumerDialogue, orders

ASSIGNED, REVOKED = CallbackKind.ASSIGNED, CallbackKind.REVOKED


@pytest.fixture
def member() -> ConsumerDialogue:
    """At rest with the partitions 0 and 1, at epoch 1, which a fetch of both waits for."""
    member = ConsumerDialogue()
    member.is_kohort = True
    member.stable(0, 1)
    member.fetching()
    return member


def long_fetch(member: ConsumerDialogue) -> FetchRequest:
    """The fetch that waits."""
    member.settle()
    (found,) = [send.request for send in member.find(FetchRequest) if send.lane is Lane.FETCH]
    assert isinstance(found, FetchRequest)
    return found


def news(number: int, *partitions: int, epoch: int = 1, error: int = 0) -> MembershipUpdate:
    rows = [heartbeat.TopicPartitions(topic_id=ORDERS, partitions=list(partitions))] if partitions else []
    assignment = None if error else heartbeat.Assignment(topic_partitions=rows)
    return MembershipUpdate(number=number, error_code=error, member_id="m-1", member_epoch=epoch, assignment=assignment)


def tell(member: ConsumerDialogue, told: MembershipUpdate, *, session_id: int = 7) -> None:
    """The fetch that waits is answered with nothing but news."""
    member.answer(long_fetch(member), FetchResponse(session_id=session_id, membership_update=told), version=17)


def known(word: KnownMembership | None) -> tuple[int, Sequence[int]] | None:
    """Epoch and partitions of orders in what a member says."""
    return None if word is None else (word.member_epoch, [n for row in word.topic_partitions for n in row.partitions])


def beats(member: ConsumerDialogue) -> list[ConsumerGroupHeartbeatRequest]:
    member.settle()
    found = [send.request for send in member.find(ConsumerGroupHeartbeatRequest)]
    return [each for each in found if isinstance(each, ConsumerGroupHeartbeatRequest)]


def test_first_fetch_says_whose_it_is_and_the_next_only_what_is_new(member: ConsumerDialogue) -> None:
    first = long_fetch(member)
    assert first.member is not None
    assert (first.member.group_id, first.member.member_id, known(first.member)) == ("billing", "m-1", (1, [0, 1]))
    member.answer(first, FetchResponse(session_id=7), version=17)
    assert long_fetch(member).member is None


def test_fetch_that_does_not_wait_says_nothing(member: ConsumerDialogue) -> None:
    short = [each.request for each in member.sent(FetchRequest) if each.lane is Lane.FETCH_AT_ONCE]
    assert all(isinstance(each, FetchRequest) and each.member is None for each in short)


def test_nothing_is_said_to_brokers_of_others() -> None:
    """Apache Kafka skips the tags, but is sent none."""
    member = ConsumerDialogue()
    member.stable(0)
    member.fetching()
    assert long_fetch(member).member is None
    member.advance(5_000)
    assert not member.heartbeat().wants_numbers


def test_nothing_is_said_where_it_is_switched_off() -> None:
    member = ConsumerDialogue(fetch_carries_membership=False)
    member.is_kohort = True
    member.stable(0)
    assert long_fetch(member).member is None
    member.advance(5_000)
    assert not member.heartbeat().wants_numbers


def life(member: ConsumerDialogue) -> list[tuple[str, bytes]]:
    """All that a member sends: it joins, fetches, commits and heartbeats."""
    sent: list[tuple[str, bytes]] = []

    def note() -> None:
        member.settle()
        for kind, version in ((FetchRequest, 17), (OffsetCommitRequest, 9), (ConsumerGroupHeartbeatRequest, 1)):
            sent.extend((kind.__name__, encode(each.request, version)) for each in member.find(kind))

    member.stable(0, 1)
    member.fetching()
    note()
    asked = AsynchronousCommitAsked(offsets={orders(0)[0]: 7}, callback=None, deadline_ms=member.now_ms + 9_000)
    member.take(asked)
    note()
    member.advance(5_000)
    note()
    assert {kind for kind, _ in sent} == {"FetchRequest", "OffsetCommitRequest", "ConsumerGroupHeartbeatRequest"}
    return sent


def test_requests_are_byte_for_byte_those_to_apache_kafka_where_it_is_switched_off() -> None:
    off = ConsumerDialogue(fetch_carries_membership=False)
    off.is_kohort = True
    assert life(off) == life(ConsumerDialogue())


def test_broker_that_leads_and_does_not_coordinate_is_told_nothing(member: ConsumerDialogue) -> None:
    source = next(iter(member.machine._sender._targets.all()))
    member.machine._group.lookup.endpoint = None  # type: ignore[union-attr]
    assert member.machine._sender._say(source) is None


def test_loss_that_comes_with_a_fetch_is_given_up_at_once(member: ConsumerDialogue) -> None:
    tell(member, news(10, 0))
    assert member.state is MemberState.PREPARE_REVOCATION
    member.acknowledge(REVOKED, 1)
    (beat,) = beats(member)
    assert [n for row in beat.topic_partitions or [] for n in row.partitions] == [0]
    assert beat.wants_numbers


def test_gain_that_comes_with_a_fetch_is_taken_and_said(member: ConsumerDialogue) -> None:
    tell(member, news(10, 0, 1, 2, epoch=2))
    member.acknowledge(ASSIGNED, 2)
    (beat,) = beats(member)
    assert (beat.member_epoch, [n for row in beat.topic_partitions or [] for n in row.partitions]) == (2, [0, 1, 2])


def test_next_fetch_shows_that_news_arrived(member: ConsumerDialogue) -> None:
    tell(member, news(10, 0, 1, 2, epoch=2))
    assert known(long_fetch(member).member) == (2, [0, 1, 2])


def test_fetch_by_another_connection_says_everything_anew(member: ConsumerDialogue) -> None:
    member.fail(long_fetch(member), Failure.DISCONNECTED)
    member.advance(1_000)
    assert known(long_fetch(member).member) == (1, [0, 1])


def test_older_word_of_a_fetch_does_not_undo_a_newer_one_of_a_heartbeat(member: ConsumerDialogue) -> None:
    member.advance(5_000)
    member.reply(epoch=1, assigned=[0], number=12)
    member.acknowledge(REVOKED, 1)
    member.reply(epoch=2)
    tell(member, news(11, 0, 1))
    assert member.state is MemberState.STABLE
    assert member.member.owned == set(orders(0))


def test_older_word_of_a_heartbeat_does_not_undo_a_newer_one_of_a_fetch(member: ConsumerDialogue) -> None:
    member.advance(5_000)
    tell(member, news(12, 0, 1, 2, epoch=2))
    member.acknowledge(ASSIGNED, 2)
    member.reply(epoch=1, assigned=[0, 1], number=11)
    assert member.member.epoch == 2
    assert member.member.owned == set(orders(0, 1, 2))


def test_what_is_heard_while_a_list_is_on_its_way_counts_when_that_is_answered(member: ConsumerDialogue) -> None:
    """The list leaves out what is being given, and counts as true until it is answered."""
    tell(member, news(10, 0, 1, 2, epoch=2))
    member.acknowledge(ASSIGNED, 2)
    assert len(beats(member)) == 1
    tell(member, news(11, 0, 1, 2, 3, epoch=3))
    assert member.member.epoch == 2
    assert long_fetch(member).member is None
    member.reply(epoch=2)
    assert member.member.epoch == 3
    member.acknowledge(ASSIGNED, 3)


def test_what_was_heard_is_forgotten_if_the_answer_to_the_list_is_younger(member: ConsumerDialogue) -> None:
    tell(member, news(10, 0, 1, 2, epoch=2))
    member.acknowledge(ASSIGNED, 2)
    tell(member, news(11, 0, 1, 2, 3, epoch=3))
    member.reply(epoch=4, assigned=[0, 1, 2], number=12)
    assert member.state is MemberState.STABLE
    assert member.member.owned == set(orders(0, 1, 2))


def test_member_is_not_lost_by_a_refusal_of_an_epoch_that_it_has_left(member: ConsumerDialogue) -> None:
    """It heard of another epoch while its heartbeat was on its way."""
    member.advance(5_000)
    tell(member, news(10, 0, 1, epoch=2))
    member.reply(error=ErrorCode.FENCED_MEMBER_EPOCH)
    (beat,) = beats(member)
    assert (beat.member_epoch, beat.rebalance_timeout_ms) == (2, 300_000)
    assert member.state is MemberState.STABLE


def test_refusal_that_is_heard_is_asked_about(member: ConsumerDialogue) -> None:
    """Heartbeats alone end a membership."""
    tell(member, news(10, error=ErrorCode.UNKNOWN_MEMBER_ID))
    assert member.state is MemberState.STABLE
    assert long_fetch(member).member is None
    member.reply(error=ErrorCode.UNKNOWN_MEMBER_ID)
    assert member.state is MemberState.FENCED


def test_fetch_of_before_the_coordinator_was_lost_is_not_listened_to(member: ConsumerDialogue) -> None:
    member.advance(5_000)
    (beat,) = beats(member)
    member.fail(beat, Failure.DISCONNECTED)
    member.advance(1_000)
    member.reply(epoch=1, assigned=[0, 1])
    tell(member, news(10, 0))
    assert member.state is MemberState.STABLE
    assert known(long_fetch(member).member) == (1, [0, 1])


def test_news_of_an_earlier_epoch_are_no_news(member: ConsumerDialogue) -> None:
    """A member that has joined anew may hear of its former time; with the coordinator its numbers were lost."""
    member.advance(5_000)
    member.reply(epoch=3)
    tell(member, news(10, 0, epoch=2))
    assert (member.member.epoch, member.state) == (3, MemberState.STABLE)


def test_commit_says_and_hears_the_same(member: ConsumerDialogue) -> None:
    asked = AsynchronousCommitAsked(offsets={orders(0)[0]: 7}, callback=None, deadline_ms=member.now_ms + 9_000)
    member.take(asked)
    member.settle()
    request = member.expect(OffsetCommitRequest)
    assert known(request.member) == (1, [0, 1])
    rows = [OffsetCommitResponsePartition(partition_index=0)]
    topics = [OffsetCommitResponseTopic(name="orders", partitions=rows)]
    member.answer(request, OffsetCommitResponse(topics=topics, membership_update=news(10, 0)))
    assert member.state is MemberState.PREPARE_REVOCATION


def test_who_leaves_hears_nothing_any_more(member: ConsumerDialogue) -> None:
    fetch = long_fetch(member)
    member.close()
    if any(send.request is fetch for send in member.open):
        member.answer(fetch, FetchResponse(session_id=7, membership_update=news(10, 0, 1, 2)), version=17)
    assert member.member.owned <= set(orders(0, 1))
