"""Commits on an event loop: the same shapes, and callbacks that may be coroutine functions."""

from __future__ import annotations

import asyncio

import pytest

import kohort
from kohort import OffsetAndMetadata, TopicPartition
from kohort.aio import Consumer, Producer
from kohort.errors import KohortError, PartlyDoneError, UnknownTopicError
from support.dialogues.virtual_broker import beside_a_broker
from support.waiting import PATIENCE_SECONDS

ORDERS, PAID = TopicPartition("orders", 0), TopicPartition("paid", 0)


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


@pytest.mark.parametrize(("kind", "expected"), [(ValueError, 0), (asyncio.CancelledError, 0), (None, 1)])
def test_close_commits_no_record_in_work_while_an_exception_passes(
    kind: type[BaseException] | None, expected: int
) -> None:
    async def work(consumer: Consumer) -> None:
        try:
            assert await consumer.getone()
            await asyncio.sleep(0)
            if kind is not None:
                raise kind
        finally:
            await consumer.close()

    async def main(address: str) -> None:
        async with Producer(bootstrap_servers=address) as producer:
            await producer.send_and_wait("orders", b"one")
        consumer = Consumer(bootstrap_servers=address, group_id="billing", auto_offset_reset="earliest")
        consumer.assign([ORDERS])
        (end,) = await asyncio.gather(asyncio.ensure_future(work(consumer)), return_exceptions=True)
        assert type(end) is (kind or type(None))
        async with Consumer(bootstrap_servers=address, group_id="billing") as other:
            assert await other.committed(ORDERS) == expected

    beside_a_broker(main, topics={"orders": 1})


def test_commit_says_of_each_partition_what_became_of_it() -> None:
    """One of two topics was deleted: the other one's offset is stored, and told to those who wait and to callbacks."""
    told: list[KohortError | None] = []

    async def main(address: str) -> None:
        async with Consumer(bootstrap_servers=address, group_id="billing") as consumer:
            consumer.assign([ORDERS, PAID])
            await consumer.poll(0.1)
            with kohort.Admin(bootstrap_servers=address) as admin:
                admin.delete_topics(["paid"])
            with pytest.raises(PartlyDoneError) as partly:
                await consumer.commit({ORDERS: 3, PAID: 4}, timeout=PATIENCE_SECONDS)
            assert partly.value.done == {ORDERS: OffsetAndMetadata(3)}
            assert isinstance(partly.value.failed[PAID], UnknownTopicError)
            consumer.commit_async({ORDERS: 5, PAID: 6}, lambda error, _: told.append(error))
            await consumer.commit({ORDERS: 7})
            assert await consumer.committed(ORDERS) == 7

    with kohort.Broker() as broker:
        with kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topic("orders", 1)
            admin.create_topic("paid", 1)
        asyncio.run(main(broker.bootstrap_servers))

    (error,) = told
    assert isinstance(error, PartlyDoneError)
    assert list(error.failed) == [PAID]
