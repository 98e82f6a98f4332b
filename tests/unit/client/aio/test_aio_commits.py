"""Commits on an event loop: the same shapes, and callbacks that may be coroutine functions."""

from __future__ import annotations

import asyncio

import kohort
from kohort import OffsetAndMetadata, TopicPartition
from kohort.aio import Consumer
from kohort.errors import KohortError
from support.waiting import PATIENCE_SECONDS

ORDERS = TopicPartition("orders", 0)


def test_callback_of_a_commit_is_awaited() -> None:
    """Inside `poll`, in order; a coroutine function may commit and ask."""
    seen: list[object] = []

    async def main(address: str) -> None:
        async with Consumer(bootstrap_servers=address, group_id="billing") as consumer:

            async def note(error: KohortError | None, offsets: dict[TopicPartition, OffsetAndMetadata]) -> None:
                seen.append((error, offsets[ORDERS].offset))
                seen.append(await consumer.committed(ORDERS, metadata=True))

            consumer.assign([ORDERS])
            consumer.commit_async({ORDERS: OffsetAndMetadata(3, "half of it")}, note)
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(seen) < 2:
                    await consumer.poll(0.1)
            consumer.commit_async({ORDERS: 4}, lambda error, offsets: seen.append((error, offsets[ORDERS].offset)))

    with kohort.Broker() as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 1)
        asyncio.run(main(broker.bootstrap_servers))

    assert seen == [(None, 3), OffsetAndMetadata(3, "half of it"), (None, 4)]
