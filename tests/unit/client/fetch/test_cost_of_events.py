"""What an event costs the consumer's machine, counted in steps: the same with a hundred partitions and ten thousand."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from kohort.client.consumer.application_events import (
    ChunkTaken,
    Fence,
    PartitionsAssigned,
    Paused,
    Polled,
    Sought,
    Start,
)
from kohort.client.core.requests import DeadlineReached
from kohort.wire.messages.fetch import FetchRequest
from support.dialogues.consumer_dialogue import ORDERS, ConsumerDialogue, batch, orders
from support.dialogues.fetch_sessions import SessionBroker
from support.work import steps_of

SIZES = (100, 1_000, 10_000)


def reading(count: int, **options: object) -> ConsumerDialogue:
    """A consumer that reads so many partitions in a fetch session that has begun."""
    consumer = ConsumerDialogue(**{"group_id": None, **options})
    consumer.topics["orders"] = (ORDERS, count)
    starts = {each: Start(fence=consumer.new_fence(), offset=0) for each in orders(*range(count))}
    consumer.take(PartitionsAssigned(starts=starts))
    consumer.settle()
    SessionBroker(consumer).serve({})
    consumer.settle()
    return consumer


def deadline(consumer: ConsumerDialogue) -> None:
    consumer.machine.handle(DeadlineReached(), consumer.now_ms)


def poll(consumer: ConsumerDialogue) -> None:
    consumer.machine.handle(Polled(consumed={orders(7)[0]: 3}), consumer.now_ms)


def pause(consumer: ConsumerDialogue) -> None:
    consumer.machine.handle(Paused(partitions=(orders(7)[0],), is_paused=True), consumer.now_ms)


def seek(consumer: ConsumerDialogue) -> None:
    consumer.machine.handle(Sought(partition=orders(7)[0], fence=Fence(99_999), offset=5), consumer.now_ms)


def fetched(consumer: ConsumerDialogue) -> None:
    SessionBroker(consumer).serve({7: batch(0, 3)})


def taken(consumer: ConsumerDialogue) -> None:
    data = batch(0, 3)
    SessionBroker(consumer).serve({7: data})
    consumer.machine.handle(ChunkTaken(sizes={orders(7)[0]: len(data)}), consumer.now_ms)


@pytest.mark.large
@pytest.mark.parametrize("event", [deadline, poll, pause, seek, fetched, taken])
def test_cost_of_an_event_does_not_grow_with_the_partitions(event: Callable[[ConsumerDialogue], None]) -> None:
    """C5: everything was walked over several times per event, which took a consumer of 1,000 partitions two thirds of
    its speed. What travels is another matter: sessions (KIP-227) keep that small."""

    def cost(size: int) -> int:
        consumer = reading(size)

        def act() -> None:
            event(consumer)
            consumer.machine.next_deadline()

        return steps_of(act)

    # What is done once in a process comes first.
    cost(10)
    costs = {size: cost(size) for size in SIZES}

    assert max(costs.values()) <= 1.05 * min(costs.values()), costs


@pytest.mark.parametrize("event", [deadline, poll, fetched])
def test_cost_of_a_members_event_does_not_grow_with_its_partitions(event: Callable[[ConsumerDialogue], None]) -> None:
    """Nor does what a group adds: heartbeats, commits, the topics that are followed."""

    def cost(size: int) -> int:
        consumer = ConsumerDialogue()
        consumer.topics["orders"] = (ORDERS, size)
        consumer.stable(*range(size))
        SessionBroker(consumer).serve({})
        consumer.settle()
        return steps_of(lambda: event(consumer))

    cost(10)
    costs = {size: cost(size) for size in SIZES[:2]}

    assert max(costs.values()) <= 1.05 * min(costs.values()), costs


def test_fetch_of_many_partitions_names_only_what_has_changed() -> None:
    """KIP-227: one partition of ten thousand got data, so one goes into the next request."""
    consumer = reading(10_000)

    fetched(consumer)

    request = consumer.expect(FetchRequest)
    assert [(entry.partition, entry.fetch_offset) for entry in request.topics[0].partitions] == [(7, 3)]
