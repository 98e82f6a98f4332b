"""Our bytes against those of Apache Kafka's own classes, for every message and every record of a group."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from kohort.wire.codec import decode, encode
from kohort.wire.schema import Message
from support.builders.wire_messages import messages_and_versions
from support.builders.wire_strategies import drawn_messages
from support.peers.kafka_messages import KafkaMessages, kafka_messages

pytestmark = [pytest.mark.interop, pytest.mark.apache]

PAIRS = [pytest.param(cls, version, id=f"{cls.__name__}-v{version}") for cls, version in messages_and_versions()]


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaMessages]:
    with kafka_messages() as process:
        yield process


@pytest.mark.parametrize(("cls", "version"), PAIRS)
def test_messages_are_the_same(cls: type[Message], version: int, kafka: KafkaMessages) -> None:
    """Same values, same bytes; Kafka understands ours and we understand Kafka's, and the defaults are the same.

    Tagged fields that hold theirs are not written.
    """
    for message in drawn_messages(cls, version, count=6, max_elements=2):
        compare(message, version, kafka)


def compare(message: Message, version: int, kafka: KafkaMessages) -> None:
    ours = encode(message, version)
    answer = kafka.ask(message, version, ours)

    told = f"version {version}: {message}"
    assert answer.built == ours, told
    assert answer.read_back == ours, told
    assert answer.same, told
    assert decode(type(message), version, answer.built) == (message, len(ours)), told
