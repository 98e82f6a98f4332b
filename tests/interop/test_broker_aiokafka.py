"""aiokafka against our broker: produce, consume and classic groups on an asyncio loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from kohort.broker.embedded import Broker
from support.waiting import PATIENCE_SECONDS

pytestmark = pytest.mark.interop


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker(config={"group.min.session.timeout.ms": 500}) as broker:
        yield broker


async def create(broker: Broker, partitions: int = 4) -> None:
    admin = AIOKafkaAdminClient(bootstrap_servers=broker.bootstrap_servers)
    await admin.start()
    await admin.create_topics([NewTopic("t", partitions, 1)])
    await admin.close()


async def produce(broker: Broker, values: list[bytes], **config: Any) -> None:
    async with AIOKafkaProducer(bootstrap_servers=broker.bootstrap_servers, **config) as producer:
        sent = [await producer.send("t", value, key=b"key-%d" % number) for number, value in enumerate(values)]
        await producer.flush()
        offsets = [(await each).offset for each in sent]
        assert min(offsets) >= 0


class Member:
    """A consumer of group "g", with what it saw."""

    def __init__(self, consumer: AIOKafkaConsumer) -> None:
        self.consumer = consumer
        self.values: list[bytes] = []

    @property
    def owned(self) -> set[int]:
        return {each.partition for each in self.consumer.assignment()}

    async def poll(self) -> None:
        for records in (await self.consumer.getmany(timeout_ms=50)).values():
            self.values += [record.value for record in records]


@asynccontextmanager
async def member(broker: Broker, **config: Any) -> Any:
    settings: dict[str, Any] = {
        "group_id": "g",
        "auto_offset_reset": "earliest",
        "enable_auto_commit": False,
        "session_timeout_ms": 2_000,
        "heartbeat_interval_ms": 200,
        "metadata_max_age_ms": 500,
    }
    consumer = AIOKafkaConsumer("t", bootstrap_servers=broker.bootstrap_servers, **{**settings, **config})
    async with consumer:
        yield Member(consumer)


async def until(happened: Callable[[], bool], *members: Member) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not happened():
            await asyncio.gather(*(each.poll() for each in members))


def settled(*members: Member, owned: list[int], total: int = 4) -> Callable[[], bool]:
    def is_settled() -> bool:
        sizes = sorted(len(each.owned) for each in members)
        return sizes == sorted(owned) and len(set().union(*(each.owned for each in members))) == total

    return is_settled


def run(dialogue: Awaitable[None]) -> None:
    async def main() -> None:
        await dialogue

    asyncio.run(main())


@pytest.mark.parametrize("codec", [None, "gzip", "snappy", "lz4", "zstd"])
@pytest.mark.parametrize("idempotent", [False, True])
def test_what_is_produced_is_consumed(broker: Broker, codec: str | None, idempotent: bool) -> None:
    async def dialogue() -> None:
        await create(broker, partitions=1)
        values = [b"value %d " % number + b"x" * 100 for number in range(500)]
        await produce(broker, values, compression_type=codec, enable_idempotence=idempotent)
        async with member(broker) as reader:
            await until(lambda: len(reader.values) >= len(values), reader)
            assert reader.values == values

    run(dialogue())


def test_members_join_and_leave_and_every_partition_always_finds_an_owner(broker: Broker) -> None:
    async def dialogue() -> None:
        await create(broker)
        async with AsyncExitStack() as stack:
            first = await stack.enter_async_context(member(broker))
            await until(settled(first, owned=[4]), first)
            async with member(broker) as second:
                await until(settled(first, second, owned=[2, 2]), first, second)
            await until(settled(first, owned=[4]), first)

    run(dialogue())


def test_a_group_goes_on_where_it_has_committed(broker: Broker) -> None:
    async def dialogue() -> None:
        await create(broker, partitions=1)
        await produce(broker, [b"%d" % number for number in range(10)])
        partition = TopicPartition("t", 0)
        async with member(broker) as reader:
            await until(lambda: len(reader.values) >= 10, reader)
            await reader.consumer.commit({partition: 6})
            assert await reader.consumer.committed(partition) == 6
        async with member(broker) as reader:
            await until(lambda: len(reader.values) >= 4, reader)
            assert reader.values == [b"6", b"7", b"8", b"9"]

    run(dialogue())


def test_offsets_at_the_ends(broker: Broker) -> None:
    async def dialogue() -> None:
        await create(broker, partitions=1)
        await produce(broker, [b"a", b"b", b"c"])
        partition = TopicPartition("t", 0)
        async with member(broker) as reader:
            assert await reader.consumer.beginning_offsets([partition]) == {partition: 0}
            assert await reader.consumer.end_offsets([partition]) == {partition: 3}

    run(dialogue())
