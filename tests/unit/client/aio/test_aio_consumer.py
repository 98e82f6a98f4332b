"""The consumer on an event loop: same names, no thread, nothing lost by cancelling."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

import kohort
from kohort import Admin, Broker, Producer, TopicPartition
from kohort.aio import Consumer
from kohort.errors import ConfigError, KohortTimeoutError, StateError
from support.waiting import PATIENCE_SECONDS

ORDERS = TopicPartition("orders", 0)
CONFIG = {"group.consumer.heartbeat.interval.ms": 100, "group.consumer.min.heartbeat.interval.ms": 50}


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config=CONFIG) as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topic("orders", 2)
        yield running


def fill(broker: Broker, count: int) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send("orders", value=b"%d" % number, partition=0)


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run an application; what it leaves running is an error."""

    async def alone() -> Any:
        async with asyncio.timeout(PATIENCE_SECONDS):
            result = await main()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        assert not others
        return result

    return asyncio.run(alone())


@asynccontextmanager
async def reader(broker: Broker) -> AsyncIterator[Consumer]:
    async with Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([ORDERS])
        yield consumer


def member(broker: Broker, *topics: str, **options: Any) -> Consumer:
    return Consumer(
        *topics, bootstrap_servers=broker.bootstrap_servers, group_id="billing", auto_offset_reset="earliest", **options
    )


def test_reads_without_a_thread(broker: Broker) -> None:
    fill(broker, 3)
    before = threading.active_count()

    async def main() -> list[bytes | None]:
        async with member(broker, "orders") as consumer:
            records = await consumer.poll(PATIENCE_SECONDS)
            assert threading.active_count() == before
            return [record.value for record in records]

    assert run(main) == [b"0", b"1", b"2"]


def test_iterates_and_ends_with_the_consumer(broker: Broker) -> None:
    fill(broker, 5)

    async def main() -> list[int]:
        seen = []
        async with reader(broker) as consumer:
            async for record in consumer:
                seen.append(record.offset)
                if record.offset == 3:
                    await consumer.close()
        return seen

    assert run(main) == [0, 1, 2, 3]


def test_has_the_names_of_aiokafka(broker: Broker) -> None:
    fill(broker, 4)

    async def main() -> None:
        consumer = member(broker, "orders")
        await consumer.start()
        try:
            assert (await consumer.getone()).offset == 0
            found = await consumer.getmany(timeout_ms=10_000, max_records=2)
            assert {each: [record.offset for record in records] for each, records in found.items()} == {ORDERS: [1, 2]}
            await consumer.commit()
            assert await consumer.committed([ORDERS]) == {ORDERS: 3}
            assert await consumer.position(ORDERS) == 3
            assert await consumer.end_offsets([ORDERS]) == {ORDERS: 4}
            assert await consumer.beginning_offsets([ORDERS]) == {ORDERS: 0}
            assert await consumer.partitions_for("orders") == [0, 1]
        finally:
            await consumer.stop()

    run(main)


def test_callbacks_may_be_coroutine_functions(broker: Broker) -> None:
    fill(broker, 1)
    calls: list[tuple[str, list[TopicPartition]]] = []
    both = [ORDERS, TopicPartition("orders", 1)]

    async def on_assigned(consumer: Consumer, partitions: list[TopicPartition]) -> None:
        await asyncio.sleep(0)
        calls.append(("assigned", partitions))
        assert await consumer.position(ORDERS) == 0

    def on_revoked(_: Consumer, partitions: list[TopicPartition]) -> None:
        calls.append(("revoked", partitions))

    async def main() -> None:
        async with member(broker) as consumer:
            consumer.subscribe(["orders"], on_assigned=on_assigned, on_revoked=on_revoked)
            assert len(await consumer.poll(PATIENCE_SECONDS)) == 1

    run(main)
    assert calls == [("assigned", both), ("revoked", both)]


def test_a_cancelled_poll_loses_nothing(broker: Broker) -> None:
    """Wherever it is cancelled: each record is returned once, in order."""

    async def main() -> list[int]:
        seen: list[int] = []
        async with reader(broker) as consumer:
            for number in range(40):
                poll = asyncio.create_task(consumer.poll(PATIENCE_SECONDS, max_records=3))
                for _ in range(number % 7):
                    await asyncio.sleep(0)
                if number == 10:
                    await asyncio.to_thread(fill, broker, 20)
                poll.cancel()
                (found,) = await asyncio.gather(poll, return_exceptions=True)
                if not isinstance(found, BaseException):
                    seen += [record.offset for record in found]
            while len(seen) < 20:
                seen += [record.offset for record in await consumer.poll(PATIENCE_SECONDS)]
        return seen

    assert run(main) == list(range(20))


def test_a_second_task_in_poll_is_refused_but_may_pause_and_wake(broker: Broker) -> None:
    async def main() -> None:
        async with reader(broker) as consumer:
            waiting = asyncio.create_task(consumer.poll(PATIENCE_SECONDS))
            await asyncio.sleep(0)
            with pytest.raises(StateError, match="another thread or task"):
                await consumer.poll(0)
            consumer.pause([ORDERS])
            assert consumer.paused() == {ORDERS}
            assert await consumer.end_offsets([ORDERS]) == {ORDERS: 0}
            consumer.wakeup()
            assert await waiting == []

    run(main)


def test_another_task_may_close(broker: Broker) -> None:
    async def main() -> None:
        consumer = member(broker, "orders")
        while not consumer.assignment():
            await consumer.poll(0.1)
        waiting = asyncio.create_task(consumer.poll(PATIENCE_SECONDS))
        await asyncio.sleep(0)
        await consumer.close()
        assert await waiting == []
        with pytest.raises(StateError, match="closed"):
            await consumer.poll(0)

    run(main)
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        assert admin.describe_group("billing").members == ()


def test_records_that_are_there_do_not_starve_the_loop(broker: Broker) -> None:
    """Other tasks get their rounds although nothing here waits."""
    fill(broker, 50_000)

    async def main() -> int:
        rounds = 0

        async def count() -> None:
            nonlocal rounds
            while True:
                rounds += 1
                await asyncio.sleep(0)

        async with reader(broker) as consumer:
            other = asyncio.create_task(count())
            read = 0
            async for _ in consumer:
                read += 1
                if read == 50_000:
                    break
            other.cancel()
        return rounds

    assert run(main) > 3


def test_what_cannot_be_done_says_what_can(broker: Broker) -> None:
    with pytest.raises(ConfigError, match="group_id"):
        Consumer(bootstrap_servers=broker.bootstrap_servers).subscribe(["orders"])
    with pytest.raises(StateError, match="event loop"):
        member(broker).subscribe(["orders"])

    async def main() -> None:
        async with member(broker) as consumer:
            with pytest.raises(StateError, match="await unsubscribe"):
                consumer.subscribe([])
            with pytest.raises(StateError, match="nothing to read"):
                await consumer.poll(0)
            with pytest.raises(ConfigError):
                await consumer.poll(-1)
            consumer.subscribe(["orders"])
            with pytest.raises(KohortTimeoutError):
                await consumer.committed([ORDERS], timeout=0.0)
            await consumer.unsubscribe()
            assert consumer.subscription() == set()

    run(main)


def test_a_blocking_consumer_refuses_coroutine_functions(broker: Broker) -> None:
    async def on_assigned(_: object, __: object) -> None: ...

    with kohort.Consumer(bootstrap_servers=broker.bootstrap_servers, group_id="billing") as consumer:
        consumer.subscribe(["orders"], on_assigned=on_assigned)
        with pytest.raises(TypeError, match=r"kohort\.aio"):
            consumer.poll(PATIENCE_SECONDS)
