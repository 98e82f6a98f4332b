"""Dialogues with members that publish metadata, and with members that watch what others publish."""

from __future__ import annotations

import pytest

from kohort.client.consumer.application_events import MetadataPublished, MetadataWatched, PublishedSeen, Trouble
from kohort.client.consumer.membership.publishing import COALESCED_MS
from kohort.client.core.actions import Deliver
from kohort.client.core.requests import Failure
from kohort.errors import BrokerError, ErrorCode, KohortError, UnsupportedFeatureError
from kohort.wire.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
    MetadataNews,
    PublishedMetadata,
)
from support.dialogues.consumer_dialogue import ConsumerDialogue

NOTHING_NEW = MetadataNews(version=1, is_whole=False, has_more=False, members=[])


@pytest.fixture
def member() -> ConsumerDialogue:
    """At rest with partition 0; its heartbeat is held."""
    member = ConsumerDialogue()
    member.stable(0)
    member.advance(5_000)
    assert len(beats(member)) == 1
    return member


def beats(member: ConsumerDialogue) -> list[ConsumerGroupHeartbeatRequest]:
    """The heartbeats under way, oldest first."""
    found = [send.request for send in member.find(ConsumerGroupHeartbeatRequest)]
    return [each for each in found if isinstance(each, ConsumerGroupHeartbeatRequest)]


def answer(
    member: ConsumerDialogue,
    news: MetadataNews | None = None,
    *,
    error: ErrorCode = ErrorCode.NONE,
    message: str | None = None,
) -> None:
    """The oldest heartbeat is answered."""
    response = ConsumerGroupHeartbeatResponse(
        error_code=error,
        error_message=message,
        member_id="m-1",
        member_epoch=1,
        heartbeat_interval_ms=5_000,
        metadata_news=news,
    )
    member.answer(beats(member)[0], response, version=1)
    member.settle()


def news(version: int, *, is_whole: bool = False, has_more: bool = False, **found: bytes | None) -> MetadataNews:
    members = [PublishedMetadata(member_id=name, metadata=data) for name, data in found.items()]
    return MetadataNews(version=version, is_whole=is_whole, has_more=has_more, members=members)


def seen(member: ConsumerDialogue) -> list[dict[str, bytes]]:
    """What the application was told of others."""
    items = [each.item for each in member.actions if isinstance(each, Deliver)]
    return [dict(item.published) for item in items if isinstance(item, PublishedSeen)]


def troubles(member: ConsumerDialogue) -> list[KohortError]:
    items = [each.item for each in member.actions if isinstance(each, Deliver)]
    return [item.error for item in items if isinstance(item, Trouble)]


def publish(member: ConsumerDialogue, metadata: bytes) -> None:
    member.take(MetadataPublished(metadata=metadata))
    member.settle()


def test_a_publication_overtakes_the_heartbeat_that_is_held(member: ConsumerDialogue) -> None:
    publish(member, b"x")
    held, said = beats(member)
    assert held.metadata is None and said.metadata == b"x"
    assert said.watched_version == -1
    # The broker answers the one that is overtaken, then that it has taken this one; the next one may be held.
    answer(member)
    answer(member, NOTHING_NEW)
    (again,) = beats(member)
    assert again.metadata is None
    assert not troubles(member)


def test_what_is_published_in_a_row_is_said_once_in_fifty_milliseconds(member: ConsumerDialogue) -> None:
    publish(member, b"1")
    answer(member)
    answer(member, NOTHING_NEW)
    publish(member, b"2")
    publish(member, b"3")
    assert len(beats(member)) == 1
    member.advance(COALESCED_MS)
    assert [each.metadata for each in beats(member)] == [None, b"3"]
    # Two at the most are under way: the rest waits for an answer.
    publish(member, b"4")
    member.advance(COALESCED_MS)
    assert len(beats(member)) == 2
    answer(member)
    assert [each.metadata for each in beats(member)] == [b"3", b"4"]


def test_what_is_published_before_the_group_is_joined_is_said_with_the_join() -> None:
    member = ConsumerDialogue()
    member.take(MetadataPublished(metadata=b"early"))
    member.take(MetadataWatched())
    member.subscribe()
    join = member.heartbeat()
    assert (join.member_epoch, join.metadata, join.watched_version) == (0, b"early", 0)


def test_a_failure_makes_it_say_that_again_with_everything(member: ConsumerDialogue) -> None:
    publish(member, b"x")
    answer(member)
    member.fail(beats(member)[0], Failure.TIMED_OUT)
    member.advance(1_000)
    (again,) = beats(member)
    assert again.metadata == b"x" and again.rebalance_timeout_ms > 0


def test_a_fenced_member_says_it_with_its_next_join(member: ConsumerDialogue) -> None:
    publish(member, b"x")
    answer(member)
    answer(member, NOTHING_NEW)
    answer(member, error=ErrorCode.UNKNOWN_MEMBER_ID)
    member.questions.clear()
    member.machine.handle(MetadataWatched(), member.now_ms)
    assert member.machine.publishing.say(member.now_ms, is_full=True).metadata == b"x"


def test_who_watches_keeps_a_picture_and_says_up_to_where(member: ConsumerDialogue) -> None:
    member.take(MetadataWatched())
    member.settle()
    assert beats(member)[1].watched_version == 0
    answer(member)
    answer(member, news(7, is_whole=True, a=b"1", b=b"2"))
    assert seen(member) == [{"a": b"1", "b": b"2"}]
    assert beats(member)[0].watched_version == 7
    answer(member, news(9, a=None, c=b"3"))
    assert seen(member)[-1] == {"b": b"2", "c": b"3"}
    assert beats(member)[0].watched_version == 9
    # After a restart of the broker everything is told anew.
    answer(member, news(20, is_whole=True, c=b"4"))
    assert seen(member)[-1] == {"c": b"4"}


def test_a_picture_that_comes_in_pages_is_told_when_it_is_whole(member: ConsumerDialogue) -> None:
    member.take(MetadataWatched())
    member.settle()
    answer(member)
    answer(member, news(3, is_whole=True, has_more=True, a=b"1"))
    assert not seen(member)
    assert beats(member)[0].watched_version == 3
    answer(member, news(5, b=b"2"))
    assert seen(member) == [{"a": b"1", "b": b"2"}]


def test_members_with_names_are_told_by_them(member: ConsumerDialogue) -> None:
    member.take(MetadataWatched())
    member.settle()
    answer(member)
    named = PublishedMetadata(member_id="m-7", instance_id="one", metadata=b"1")
    answer(member, MetadataNews(version=3, is_whole=True, has_more=False, members=[named]))
    # Its successor has its name, and the member before it is gone.
    gone = PublishedMetadata(member_id="m-7", metadata=None)
    after = PublishedMetadata(member_id="m-8", instance_id="one", metadata=b"1")
    answer(member, MetadataNews(version=5, is_whole=False, has_more=False, members=[after, gone]))
    assert seen(member) == [{"one": b"1"}, {"one": b"1"}]


@pytest.mark.parametrize("what", [MetadataPublished(metadata=b"x"), MetadataWatched()])
def test_a_coordinator_that_does_not_know_it_is_found_out(
    member: ConsumerDialogue, what: MetadataPublished | MetadataWatched
) -> None:
    """Apache Kafka skips the tagged fields: its answer says nothing of them."""
    member.take(what)
    member.settle()
    answer(member)
    answer(member)
    (error,) = troubles(member)
    assert isinstance(error, UnsupportedFeatureError) and "none of kohort's" in str(error)
    # Nothing of it is said any more, and the member goes on.
    member.advance(5_000)
    assert (beats(member)[0].metadata, beats(member)[0].watched_version) == (None, -1)


def test_what_the_group_has_no_room_for_is_told_and_the_member_stays(member: ConsumerDialogue) -> None:
    publish(member, b"x")
    answer(member)
    answer(member, error=ErrorCode.POLICY_VIOLATION, message="more than 16777216")
    (error,) = troubles(member)
    assert isinstance(error, BrokerError) and error.code is ErrorCode.POLICY_VIOLATION
    member.advance(1_000)
    (again,) = beats(member)
    assert again.metadata is None and again.member_epoch == 1
    answer(member)
    assert not member.questions


def test_who_has_fallen_back_to_the_classic_protocol_is_told_so() -> None:
    member = ConsumerDialogue()
    member.take(MetadataPublished(metadata=b"x"))
    member.subscribe()
    for _ in range(2):
        member.fail(member.heartbeat(), Failure.UNSUPPORTED)
        member.settle()
        if not member.find(ConsumerGroupHeartbeatRequest):
            break
    assert "the members speak the classic protocol" in str(troubles(member)[0])
    member.take(MetadataWatched())
    assert len(troubles(member)) == 2
