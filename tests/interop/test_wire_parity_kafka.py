"""Our bytes against those of Apache Kafka's own classes, for every message and every record of a group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kohort.wire.codec import decode, encode
from kohort.wire.schema import Message
from support.builders.wire_messages import messages_and_versions
from support.builders.wire_strategies import message_strategy
from support.peers.kafka_messages import KafkaMessages, kafka_messages

pytestmark = [pytest.mark.interop, pytest.mark.apache]

PAIRS = [pytest.param(cls, version, id=f"{cls.__name__}-v{version}") for cls, version in messages_and_versions()]


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaMessages]:
    with kafka_messages() as process:
        yield process


@pytest.mark.parametrize(("cls", "version"), PAIRS)
def test_untouched_messages_are_the_same(cls: type[Message], version: int, kafka: KafkaMessages) -> None:
    """Defaults are Kafka's, and those of tagged fields are not written."""
    compare(cls(), version, kafka)


@pytest.mark.parametrize(("cls", "version"), PAIRS)
@settings(max_examples=6, derandomize=True, database=None, suppress_health_check=list(HealthCheck))
@given(data=st.data())
def test_arbitrary_messages_are_the_same(
    cls: type[Message], version: int, kafka: KafkaMessages, data: st.DataObject
) -> None:
    """Same values, same bytes; Kafka understands ours and we understand Kafka's."""
    compare(data.draw(message_strategy(cls, version, max_elements=2)), version, kafka)


def compare(message: Message, version: int, kafka: KafkaMessages) -> None:
    ours = encode(message, version)
    answer = kafka.ask(message, version, ours)

    assert answer.built == ours
    assert answer.read_back == ours
    assert answer.same
    assert decode(type(message), version, answer.built) == (message, len(ours))
