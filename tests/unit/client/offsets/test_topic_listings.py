"""Dialogues about the question which topics there are."""

from __future__ import annotations

import pytest

from kohort.client.consumer.application_events import CloseAsked, Subscribed, TopicsAsked
from kohort.client.core.actions import Complete, Fail
from kohort.client.core.requests import Failure
from kohort.client.records import ListedTopic
from kohort.errors import BrokersUnreachableError, KohortTimeoutError, StateError
from kohort.ids import TopicPartition, format_topic_id
from kohort.wire.messages.metadata import MetadataRequest
from support.dialogues.consumer_dialogue import ORDERS, ConsumerDialogue, orders

REFUNDS = b"refunds".ljust(16, b".")


@pytest.fixture
def consumer() -> ConsumerDialogue:
    consumer = ConsumerDialogue()
    consumer.topics["refunds"] = (REFUNDS, 1)
    return consumer


def ask(
    consumer: ConsumerDialogue, ticket: str = "ask", timeout_ms: int = 10_000, topics: tuple[str, ...] | None = None
) -> None:
    consumer.take(TopicsAsked(ticket=ticket, deadline_ms=consumer.now_ms + timeout_ms, topics=topics))
    consumer.settle()


def listed(topic_id: bytes, *partitions: int) -> ListedTopic:
    return ListedTopic(format_topic_id(topic_id), partitions)


def everything(consumer: ConsumerDialogue) -> MetadataRequest:
    """The open question about all topics."""
    asked = [send.request for send in consumer.find(MetadataRequest)]
    (request,) = [each for each in asked if isinstance(each, MetadataRequest) and each.topics is None]
    return request


def test_topics_are_found_with_their_partitions(consumer: ConsumerDialogue) -> None:
    """By name, whatever is subscribed to."""
    ask(consumer)

    assert consumer.ended("ask") == Complete(
        ticket="ask", value={"orders": listed(ORDERS, 0, 1, 2, 3), "refunds": listed(REFUNDS, 0)}
    )


def test_what_is_followed_stays_as_it_is(consumer: ConsumerDialogue) -> None:
    """A member of one topic does not follow all of them from then on, and creates none."""
    consumer.stable(0)
    ask(consumer)

    assert set(consumer.machine._cluster.topics) == {"orders"}
    assert consumer.fetching() == {orders(0)[0]: 0}
    assert isinstance(consumer.ended("ask"), Complete)


def test_broker_that_does_not_answer_is_asked_again(consumer: ConsumerDialogue) -> None:
    """Within the time that the caller gives."""
    consumer.stable(0)
    consumer.by_hand.add(MetadataRequest)
    ask(consumer)
    consumer.fail(everything(consumer), Failure.DISCONNECTED)
    assert consumer.ended("ask") is None
    consumer.by_hand.clear()
    consumer.advance(1_000)

    assert isinstance(consumer.ended("ask"), Complete)


def test_question_ends_in_time(consumer: ConsumerDialogue) -> None:
    """And an answer that comes later is nobody's."""
    consumer.stable(0)
    consumer.by_hand.add(MetadataRequest)
    ask(consumer, timeout_ms=2_000)
    request = everything(consumer)
    consumer.advance(2_001)
    ended = consumer.ended("ask")
    consumer.answer(request, consumer.metadata(request))

    assert isinstance(ended, Fail)
    assert isinstance(ended.error, KohortTimeoutError)


def test_nobody_there_is_said_at_once(consumer: ConsumerDialogue) -> None:
    """As by every other call."""
    consumer.by_hand.add(MetadataRequest)
    ask(consumer)
    consumer.fail(consumer.expect(MetadataRequest), Failure.UNREACHABLE)

    ended = consumer.ended("ask")
    assert isinstance(ended, Fail)
    assert isinstance(ended.error, BrokersUnreachableError)


def test_close_ends_it(consumer: ConsumerDialogue) -> None:
    """Each question ends once."""
    consumer.stable()
    consumer.by_hand.add(MetadataRequest)
    ask(consumer)
    consumer.take(CloseAsked(ticket="close", deadline_ms=consumer.now_ms))

    ended = consumer.ended("ask")
    assert isinstance(ended, Fail)
    assert isinstance(ended.error, StateError)


def test_partition_without_a_leader_counts() -> None:
    """It is there, though nobody can read it now."""
    consumer = ConsumerDialogue()
    consumer.topics = {"orders": (ORDERS, 2)}
    consumer.leaders = {TopicPartition("orders", 1): -1}
    ask(consumer)

    assert consumer.ended("ask") == Complete(ticket="ask", value={"orders": listed(ORDERS, 0, 1)})


def test_named_topics_are_asked_for_anew(consumer: ConsumerDialogue) -> None:
    """Whatever the consumer has seen before: a topic that was made anew has another id, and more partitions perhaps."""
    consumer.stable(0)
    consumer.topics["orders"] = (REFUNDS, 5)
    ask(consumer, topics=("orders",))

    assert consumer.ended("ask") == Complete(ticket="ask", value={"orders": listed(REFUNDS, 0, 1, 2, 3, 4)})


def test_partitions_that_were_added_are_followed_at_once(consumer: ConsumerDialogue) -> None:
    """The leader of a classic group divides them without waiting for metadata.max.age.ms."""
    consumer.stable(0)
    consumer.topics["orders"] = (ORDERS, 6)
    ask(consumer, topics=("orders", "refunds"))

    assert [each.partition for each in consumer.machine._cluster.partitions_of("orders")] == [0, 1, 2, 3, 4, 5]
    assert set(consumer.machine._cluster.topics) == {"orders"}

    looked = consumer.machine._cluster.generation
    ask(consumer, "again", topics=("orders", "refunds"))
    assert consumer.machine._cluster.generation == looked


def test_topic_that_a_pattern_may_match_is_followed_at_once(consumer: ConsumerDialogue) -> None:
    """Whoever follows all topics has a look at the new one."""
    consumer.take(Subscribed(topics=(), pattern="ord.*"))
    consumer.settle()
    consumer.topics["ordinary"] = (REFUNDS, 2)
    ask(consumer)

    assert "ordinary" in consumer.machine._cluster.topics


def test_name_that_is_unknown_for_a_moment_may_be_new(consumer: ConsumerDialogue) -> None:
    """A broker that has not heard of it yet is asked again; nobody creates it."""
    consumer.stable(0)
    consumer.by_hand.add(MetadataRequest)
    ask(consumer, topics=("new", "orders"))
    (request,) = [each for each in (send.request for send in consumer.find(MetadataRequest)) if named(each, "new")]
    assert isinstance(request, MetadataRequest)
    assert not request.allow_auto_topic_creation
    consumer.answer(request, consumer.metadata(request))
    assert consumer.ended("ask") is None
    consumer.topics["new"] = (REFUNDS, 1)
    consumer.by_hand.clear()
    consumer.advance(900)

    assert consumer.ended("ask") == Complete(
        ticket="ask", value={"new": listed(REFUNDS, 0), "orders": listed(ORDERS, 0, 1, 2, 3)}
    )


def test_name_that_stays_unknown_is_left_out(consumer: ConsumerDialogue) -> None:
    """After a moment, not at the end of the caller's patience."""
    consumer.stable(0)
    ask(consumer, topics=("nowhere", "refunds"), timeout_ms=60_000)
    assert consumer.ended("ask") is None
    consumer.advance(2_500)

    assert consumer.ended("ask") == Complete(ticket="ask", value={"refunds": listed(REFUNDS, 0)})


def named(request: object, topic: str) -> bool:
    """Whether it asks for that topic by name."""
    return isinstance(request, MetadataRequest) and topic in [each.name for each in request.topics or ()]
