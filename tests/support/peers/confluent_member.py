"""A stock member of group "g": confluent-kafka (librdkafka), polled by the test itself."""

from __future__ import annotations

import logging
from typing import Protocol

from confluent_kafka import Consumer, TopicPartition

from kohort.broker.embedded import Broker
from support.waiting import until


class Polled(Protocol):
    """A member that a test polls itself."""

    @property
    def owned(self) -> set[int]:
        """Its partitions of topic "t"."""
        ...

    def poll(self) -> object:
        """Let it do a little."""
        ...


class Lines:
    """What librdkafka writes of its requests and answers."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self.logger = logging.Logger("librdkafka")
        self.logger.addFilter(lambda record: self.texts.append(record.getMessage()))

    def count(self, text: str) -> int:
        return sum(text in each for each in self.texts)


class Member:
    """A consumer of group "g", with what it saw."""

    def __init__(self, broker: Broker, protocol: str, **config: object) -> None:
        settings: dict[str, object] = {
            "bootstrap.servers": broker.bootstrap_servers,
            "group.id": "g",
            "group.protocol": protocol,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
        if protocol == "classic":
            # Longer than this process may stand still on a busy machine, and its broker with it.
            settings |= {"session.timeout.ms": 10_000, "heartbeat.interval.ms": 200}
        self.consumer = Consumer({**settings, **config})
        self.values: list[bytes | None] = []
        self.revoked: list[int] = []
        self.is_subscribed = False

    def __enter__(self) -> Member:
        """With topic "t", unless it has subscribed already."""
        return self if self.is_subscribed else self.subscribe("t")

    def __exit__(self, *_: object) -> None:
        self.consumer.close()

    def subscribe(self, *topics: str) -> Member:
        self.is_subscribed = True
        self.consumer.subscribe(list(topics), on_revoke=self._on_revoke)
        return self

    def _on_revoke(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        del consumer
        self.revoked += [each.partition for each in partitions]

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    @property
    def held(self) -> set[tuple[str, int]]:
        """By topic and partition."""
        return {(each.topic, each.partition) for each in self.consumer.assignment()}

    def poll(self) -> None:
        for message in self.consumer.consume(500, 0.05):
            assert message.error() is None, message.error()
            self.values.append(message.value())


def settle(*members: Polled, owned: list[int] | None = None, total: int = 4) -> None:
    """Poll until the members own every partition once, and as many each as `owned` says."""

    def is_settled() -> bool:
        sizes = sorted(len(member.owned) for member in members)
        union = set().union(*(member.owned for member in members))
        return sum(sizes) == len(union) == total and (owned is None or sizes == sorted(owned))

    def step() -> None:
        for member in members:
            member.poll()

    until(is_settled, what=f"ownership {[member.owned for member in members]}", step=step)
