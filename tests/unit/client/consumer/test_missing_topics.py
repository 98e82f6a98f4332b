"""A topic that is subscribed to and does not exist: created where the options of both sides say so, and said so."""

from __future__ import annotations

import pytest

from kohort.wire.messages.metadata import MetadataRequest
from support.dialogues.consumer_dialogue import ORDERS, ConsumerDialogue
from support.dialogues.protocol_dialogue import MODES, build


class Creating:
    """A cluster that creates what it is asked for, if it may."""

    def __init__(self, member: ConsumerDialogue, *, is_willing: bool = True) -> None:
        self.asked: list[bool] = []
        member.topics.clear()
        answer = member.metadata

        def metadata(request: MetadataRequest) -> object:
            self.asked.append(request.allow_auto_topic_creation)
            found = answer(request)
            if request.allow_auto_topic_creation and is_willing:
                # As Apache Kafka: this answer still says that it is missing, the next one shows it.
                member.topics["orders"] = (ORDERS, 2)
            return found

        member.metadata = metadata  # type: ignore[method-assign,assignment]


@pytest.mark.parametrize("mode", MODES)
def test_missing_topic_is_created_and_that_is_said(mode: str) -> None:
    """Kafka's default creates it silently, and a misspelt name reads nothing for ever."""
    member = build(mode)
    cluster = Creating(member)
    member.subscribe()
    member.advance(2_000)

    assert cluster.asked[:2] == [False, True], "it is looked at before it is created"
    (said,) = [line for line in member.warnings() if "topic orders" in line]
    assert said.startswith("created topic orders (2 partitions) by subscribing to it")


@pytest.mark.parametrize("mode", MODES)
def test_broker_that_creates_nothing_is_told_of_once(mode: str) -> None:
    """auto.create.topics.enable is the broker's word."""
    member = build(mode)
    Creating(member, is_willing=False)
    member.subscribe()
    member.advance(10_000)

    assert [line for line in member.warnings() if "orders" in line] == [
        "topic orders does not exist (yet); it is read as soon as it does"
    ]


@pytest.mark.parametrize("mode", MODES)
def test_consumer_that_may_not_create_never_asks_for_it(mode: str) -> None:
    """allow.auto.create.topics=false."""
    member = build(mode, allow_auto_create_topics=False)
    cluster = Creating(member)
    member.subscribe()
    member.advance(10_000)

    assert set(cluster.asked) == {False}
    assert [line for line in member.warnings() if "does not exist (yet)" in line]


@pytest.mark.parametrize("mode", MODES)
def test_topic_that_was_there_is_not_created_again(mode: str) -> None:
    """It was deleted, and its name may be wanted for another one; a topic that never was is created beside it."""
    member = build(mode)
    cluster = Creating(member)
    member.topics["orders"] = (ORDERS, 2)
    member.subscribe("orders", "paid")
    created = {
        topic.name
        for send in member.sent(MetadataRequest)
        if send.request.allow_auto_topic_creation  # type: ignore[attr-defined]
        for topic in send.request.topics or ()  # type: ignore[attr-defined]
    }
    assert created == {"paid"}
    cluster.asked.clear()
    member.topics.clear()
    member.topics["paid"] = (b"paid".ljust(16, b"."), 1)
    member.machine._cluster.refresh_now(member.now_ms)
    member.advance(10_000)

    assert set(cluster.asked) == {False}
    assert "topic orders does not exist (yet); it is read as soon as it does" in member.warnings()
