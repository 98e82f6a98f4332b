"""Dialogues with members that subscribe to a pattern instead of names."""

from __future__ import annotations

import re

import pytest

from kohort.client.consumer.application_events import CallbackKind, Subscribed
from kohort.client.consumer.membership.states import MemberState
from kohort.client.consumer.subscriptions import choose_pattern
from kohort.client.core.requests import Failure
from kohort.errors import ConfigError
from kohort.ids import TopicPartition
from kohort.wire.embedded import decode_subscription
from kohort.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kohort.wire.messages.heartbeat import HeartbeatRequest
from kohort.wire.messages.join_group import JoinGroupRequest
from kohort.wire.messages.metadata import MetadataRequest
from support.dialogues.classic_dialogue import ClassicDialogue
from support.dialogues.consumer_dialogue import ConsumerDialogue

REFUNDS = b"refunds".ljust(16, b".")
PATTERN = Subscribed(topics=(), pattern="or.*|re.*")


# -- KIP-848: the coordinator matches ---------------------------------------------------------------------------------


def test_pattern_is_said_to_the_coordinator() -> None:
    """KIP-848: no names, and the regular expression as it is."""
    member = ConsumerDialogue()
    member.take(PATTERN)

    request = member.heartbeat()

    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == ([], "or.*|re.*")


def test_partitions_of_topics_that_were_never_named_are_read() -> None:
    """They come by id: every topic's name is asked for."""
    member = ConsumerDialogue()
    member.topics["refunds"] = (REFUNDS, 2)
    member.take(PATTERN)
    member.reply(epoch=1, assigned={REFUNDS: [0, 1]})
    member.acknowledge(CallbackKind.ASSIGNED, 0, 1, topic="refunds")

    member.settle()
    assert set(member.fetching()) == {TopicPartition("refunds", 0), TopicPartition("refunds", 1)}


def test_topic_that_was_deleted_is_the_groups_affair() -> None:
    """The coordinator matches now and then: until it takes the partition back nothing is wrong."""
    member = ConsumerDialogue(metadata_max_age_ms=1_000)
    member.topics["refunds"] = (REFUNDS, 1)
    member.take(PATTERN)
    member.reply(epoch=1, assigned={REFUNDS: [0]})
    member.acknowledge(CallbackKind.ASSIGNED, 0, topic="refunds")
    del member.topics["refunds"]
    for _ in range(20):
        member.advance(500)

    assert member.troubles() == []


def test_names_in_place_of_a_pattern_take_it_back() -> None:
    """An empty text; `None` would leave the pattern in force."""
    member = ConsumerDialogue()
    member.take(PATTERN)
    member.reply(epoch=1, assigned=[])

    member.take(Subscribed(topics=("orders",)))

    request = member.heartbeat()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (["orders"], "")


def test_heartbeats_do_not_repeat_the_pattern() -> None:
    """What is not said has not changed."""
    member = ConsumerDialogue()
    member.take(PATTERN)
    member.reply(epoch=1, assigned=[])
    member.advance(5_000)

    request = member.heartbeat()
    assert (request.subscribed_topic_names, request.subscribed_topic_regex) == (None, None)


def test_coordinator_without_patterns_means_the_classic_protocol() -> None:
    """Version 0 of the heartbeat has none: this client matches then."""
    member = ConsumerDialogue()
    member.take(PATTERN)
    member.fail(member.heartbeat(), Failure.UNSUPPORTED)
    member.settle()

    assert member.find(ConsumerGroupHeartbeatRequest) == []
    join = member.expect(JoinGroupRequest)
    assert decode_subscription(join.protocols[0].metadata).topics == ("orders",)


# -- classic: the client matches --------------------------------------------------------------------------------------


def test_classic_member_subscribes_to_what_matches() -> None:
    """Whole names, and none of the broker's own topics."""
    member = ClassicDialogue()
    member.topics |= {"refunds": (REFUNDS, 1), "more-orders": (b"m".ljust(16, b"."), 1)}
    member.take(PATTERN)
    member.settle()

    join = member.expect(JoinGroupRequest)

    assert decode_subscription(join.protocols[0].metadata).topics == ("orders", "refunds")


def test_classic_member_waits_until_it_knows_the_topics() -> None:
    """A subscription to a part of them would move partitions for nothing."""
    member = ClassicDialogue()
    member.by_hand.add(MetadataRequest)
    member.take(PATTERN)
    member.advance(5_000)
    assert member.find(JoinGroupRequest) == []

    member.by_hand.clear()
    request = member.expect(MetadataRequest)
    member.answer(request, member.metadata(request))
    member.settle()

    assert len(member.find(JoinGroupRequest)) == 1


def test_topic_that_is_made_later_is_joined_for() -> None:
    """G6: with the next look at the cluster."""
    member = ClassicDialogue(metadata_max_age_ms=10_000)
    member.take(PATTERN)
    member.settle()
    member.require_member_id()
    member.joined()
    member.synced([])
    assert member.state is MemberState.STABLE

    member.topics["refunds"] = (REFUNDS, 1)
    for _ in range(5):
        member.advance(3_000)
        if member.find(HeartbeatRequest):
            member.beaten()
        member.poll()

    join = member.expect(JoinGroupRequest)
    assert decode_subscription(join.protocols[0].metadata).topics == ("orders", "refunds")


# -- what is a pattern ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("names", "pattern", "meant"),
    [
        (["orders"], None, None),
        ([], None, None),
        ([], "or.*", "or.*"),
        ([], re.compile("or.*"), "or.*"),
        (["^or"], None, "(?:^or).*"),
        (["^or", "a.b"], None, r"(?:^or).*|a\.b"),
    ],
)
def test_what_is_a_pattern(names: list[str], pattern: str | re.Pattern[str] | None, meant: str | None) -> None:
    """No topic's name begins with ^: librdkafka's way to say a pattern does no harm."""
    assert choose_pattern(names, pattern) == meant


@pytest.mark.parametrize(
    ("names", "pattern", "why"),
    [
        (["orders"], "or.*", "not both"),
        ([], "or(", "no pattern of topics"),
        (["^or("], None, "no pattern of topics"),
        ([], re.compile("or", re.IGNORECASE), r"\(\?i\)"),
    ],
)
def test_what_is_none_is_refused(names: list[str], pattern: str | re.Pattern[str] | None, why: str) -> None:
    """Where it is said."""
    with pytest.raises(ConfigError, match=why):
        choose_pattern(names, pattern)
