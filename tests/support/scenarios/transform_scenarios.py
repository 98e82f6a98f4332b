"""What `kohort.transform` does at any broker: each record of the source is in the target once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

import kohort
from kohort import TopicPartition
from kohort.errors import ProducerFencedError
from support.scenarios.client_scenarios import new_topic
from support.scenarios.transaction_scenarios import values

COUNT = 60


@contextmanager
def clients(address: str, source: str, **options: Any) -> Iterator[tuple[kohort.Consumer, kohort.Producer]]:
    """A consumer and a producer as `transform` needs them."""
    with (
        kohort.Consumer(
            source,
            bootstrap_servers=address,
            group_id=source,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            **options,
        ) as consumer,
        kohort.Producer(bootstrap_servers=address, transactional_id=source) as producer,
    ):
        yield consumer, producer


def fill(address: str, source: str) -> None:
    """Write the numbers to the source."""
    with kohort.Producer(bootstrap_servers=address) as producer:
        producer.send_many(source, [b"%d" % n for n in range(COUNT)], partition=0).result(20)


def check(address: str, source: str, target: str) -> None:
    """Each record is in the target once, and the group is at the end of the source."""
    assert values(address, target, 1) == sorted(b"out-%d" % n for n in range(COUNT))
    with kohort.Consumer(bootstrap_servers=address, group_id=source) as reader:
        assert reader.committed(TopicPartition(source, 0)) == COUNT


class Transform:
    """A function for `transform` that does something else once, at the records from an offset on."""

    def __init__(self, target: str, at: int, then: Any) -> None:
        self.target = target
        self.at: int | None = at
        self.then = then
        self.done = 0

    def __call__(self, records: list[kohort.ConsumerRecord], transaction: Any) -> None:
        for record in records:
            transaction.send(self.target, b"out-" + (record.value or b""))
        if records[0].offset == self.at:
            self.at = None
            self.then()
        self.done = records[-1].offset + 1

    def is_over(self) -> bool:
        return self.done == COUNT


def function_fails(address: str, source: str, target: str, **options: Any) -> None:
    """The error is raised, its transaction aborted; the next call begins at the same records."""
    function = Transform(target, 20, lambda: 1 / 0)
    with clients(address, source, max_poll_records=10, **options) as (consumer, producer):
        with pytest.raises(ZeroDivisionError):
            kohort.transform(consumer, producer, function, until=function.is_over)
        assert consumer.committed(TopicPartition(source, 0)) == 20
        assert kohort.transform(consumer, producer, function, until=function.is_over) == COUNT - 20


def member_is_removed(address: str, source: str, target: str, **options: Any) -> None:
    """Nothing is committed for a member that the group has removed; it joins again and goes on."""
    with (
        clients(address, source, max_poll_records=20, **options) as (consumer, producer),
        kohort.Admin(bootstrap_servers=address) as admin,
    ):
        function = Transform(target, 20, lambda: admin.remove_members(source))
        assert kohort.transform(consumer, producer, function, until=function.is_over) == COUNT


def producer_is_replaced(address: str, source: str, target: str, **options: Any) -> None:
    """A zombie of the transactional id commits nothing."""
    with (
        clients(address, source, max_poll_records=20, **options) as (consumer, producer),
        kohort.Producer(bootstrap_servers=address, transactional_id=source) as other,
    ):
        function = Transform(target, 20, other.init_transactions)
        with pytest.raises(ProducerFencedError):
            kohort.transform(consumer, producer, function, until=function.is_over)
        assert kohort.transform(consumer, other, function, until=function.is_over) == COUNT - 20


SCENARIOS = (function_fails, member_is_removed, producer_is_replaced)


def whole(address: str, **options: Any) -> None:
    """All of them; `options` are those of the consumer."""
    for scenario in SCENARIOS:
        with new_topic(address, "transform-in", 1) as source, new_topic(address, "transform-out", 1) as target:
            fill(address, source)
            scenario(address, source, target, **options)
            check(address, source, target)
