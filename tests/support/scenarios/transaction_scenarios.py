"""What our transactional producer does at any broker; the topics that a scenario writes to have three partitions."""

from __future__ import annotations

import asyncio
import random
from contextlib import suppress
from typing import Any

import pytest

import kohort
import kohort.aio
from kohort import TopicPartition
from kohort.errors import ProducerFencedError, StateError, TransactionAbortableError
from kohort.wire.registry import ApiKey
from support.peers.lossy_proxy import LossyProxy
from support.scenarios.client_scenarios import new_topic
from support.waiting import until


def values(address: str, topic: str, partitions: int = 3, *, isolation_level: str = "read_committed") -> list[bytes]:
    """The values of a topic, as a reader of that isolation level sees them."""
    with kohort.Consumer(
        bootstrap_servers=address, isolation_level=isolation_level, auto_offset_reset="earliest"
    ) as consumer:
        chosen = [TopicPartition(topic, number) for number in range(partitions)]
        consumer.assign(chosen)
        found: list[bytes] = []

        def is_at_end() -> bool:
            found.extend(record.value for record in consumer.poll(0.05))
            lags = consumer.lag()
            return all(lags[each] == 0 for each in chosen)

        until(is_at_end, what="the reader is at the end")
        return sorted(found)


def committed_and_aborted(address: str, topic: str) -> None:
    """A block commits; an exception aborts and is raised; records outside of a transaction are refused."""
    with kohort.Producer(bootstrap_servers=address, transactional_id=topic) as producer:
        with pytest.raises(StateError, match="no transaction"):
            producer.send(topic, b"outside")
        for turn in range(3):
            with producer.transaction() as transaction:
                futures = [transaction.send(topic, b"%d-%d" % (turn, n), partition=n) for n in range(3)]
            assert all(future.done() for future in futures)
            with pytest.raises(ZeroDivisionError), producer.transaction() as transaction:
                transaction.send(topic, b"aborted", partition=turn)
                producer.flush()
                1 / 0  # noqa: B018
        with producer.transaction():
            pass
        with producer.transaction() as transaction:
            transaction.send_many(topic, [b"%d" % n for n in range(100)], partition=0).result(20)
        producer.begin_transaction()
        producer.send(topic, b"left open").result(20)
    assert values(address, topic) == sorted(
        [b"%d-%d" % (t, n) for t in range(3) for n in range(3)] + [b"%d" % n for n in range(100)]
    )
    assert b"left open" in values(address, topic, isolation_level="read_uncommitted")


def zombie_is_fenced(address: str, topic: str) -> None:
    """Another producer of the id takes over: the open transaction of the first is aborted, and it is over."""
    with kohort.Producer(bootstrap_servers=address, transactional_id=topic) as zombie:
        zombie.begin_transaction()
        zombie.send(topic, b"zombie").result(20)
        with kohort.Producer(bootstrap_servers=address, transactional_id=topic) as producer:
            with producer.transaction() as transaction:
                transaction.send(topic, b"living")
            with pytest.raises((ProducerFencedError, TransactionAbortableError)):
                zombie.send(topic, b"later").add_done_callback(lambda _: None)
                zombie.commit_transaction()
            with pytest.raises(ProducerFencedError):
                zombie.abort_transaction()
            with pytest.raises(ProducerFencedError):
                zombie.begin_transaction()
            with producer.transaction() as transaction:
                transaction.send(topic, b"still living")
    assert values(address, topic) == [b"living", b"still living"]


def offsets_and_records_together(address: str, source: str, target: str, **options: Any) -> None:
    """Consume, transform, produce: an aborted turn is read again, a committed one is not."""
    with kohort.Producer(bootstrap_servers=address) as producer:
        producer.send_many(source, [b"%d" % n for n in range(30)], partition=0).result(20)
    with (
        kohort.Consumer(
            source,
            bootstrap_servers=address,
            group_id=source,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            max_poll_records=10,
            **options,
        ) as consumer,
        kohort.Producer(bootstrap_servers=address, transactional_id=source) as producer,
    ):
        done, is_first = 0, True
        while done < 30:
            records = consumer.poll(1.0)
            if not records:
                continue
            try:
                with producer.transaction() as transaction:
                    for record in records:
                        transaction.send(target, b"out-" + record.value)
                    transaction.send_offsets(consumer)
                    if is_first:
                        raise RuntimeError("in the middle")
            except RuntimeError:
                assert consumer.committed(TopicPartition(source, 0)) is None
                is_first = False
                consumer.seek(TopicPartition(source, 0), records[0].offset)
                continue
            done += len(records)
            assert consumer.committed(TopicPartition(source, 0)) == done
        stranger = kohort.GroupMetadata(source, consumer.group_epoch + 7, "stranger", None)
        producer.begin_transaction()
        with pytest.raises(TransactionAbortableError):
            producer.send_offsets_to_transaction({TopicPartition(source, 0): 1}, stranger)
        producer.abort_transaction()
        assert consumer.committed(TopicPartition(source, 0)) == 30
    assert values(address, target) == sorted(b"out-%d" % n for n in range(30))


async def on_a_loop(address: str, source: str, target: str, **options: Any) -> None:
    """The same calls as coroutines: a commit with offsets, an abort by an exception, a cancelled block."""
    async with (
        kohort.aio.Producer(bootstrap_servers=address, transactional_id=f"aio-{source}") as producer,
        kohort.aio.Consumer(
            source,
            bootstrap_servers=address,
            group_id=f"aio-{source}",
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            **options,
        ) as consumer,
    ):
        with pytest.raises(StateError, match="no transaction"):
            await producer.send(target, b"outside")
        while not (records := await consumer.poll(1.0)):
            pass
        async with producer.transaction() as transaction:
            for record in records:
                await transaction.send(target, b"aio-" + record.value)
            await transaction.send_offsets(consumer)
        assert await consumer.committed(TopicPartition(source, 0)) == len(records)
        with pytest.raises(ZeroDivisionError):
            async with producer.transaction() as transaction:
                await transaction.send(target, b"aio-aborted")
                await producer.flush()
                1 / 0  # noqa: B018

        async def sends_for_ever() -> None:
            async with producer.transaction() as transaction:
                while True:
                    await (await transaction.send(target, b"aio-cancelled"))

        task = asyncio.create_task(sends_for_ever())
        await producer.partitions_for(target)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await producer.begin_transaction()
        await producer.send(target, b"aio-last")
        await producer.commit_transaction()
        expected = [b"aio-" + record.value for record in records] + [b"aio-last"]
    found = await asyncio.to_thread(values, address, target)
    assert [value for value in found if value.startswith(b"aio-")] == sorted(expected)


#: Requests whose answers are lost in the scenario below.
ASKED = (
    ApiKey.PRODUCE,
    ApiKey.END_TXN,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
)


def lost_answers(proxy: LossyProxy, topic: str, *, turns: int, seed: int = 0) -> None:
    """Connections break when an answer comes: each block is stored once and whole, or it was aborted and is not."""
    address, chance = f"127.0.0.1:{proxy.port}", random.Random(seed)
    expected: list[bytes] = []
    committed = -1
    with kohort.Producer(
        bootstrap_servers=address,
        transactional_id=topic,
        retry_backoff_ms=10,
        reconnect_backoff_ms=5,
        batch_size=200,
    ) as producer:
        for turn in range(turns):
            sent = [b"%d-%d" % (turn, n) for n in range(chance.randrange(1, 8))]
            for api in chance.sample(ASKED, chance.randrange(3)):
                proxy.lose_answers(api, 1)
            is_aborted, with_offsets = chance.random() < 0.25, chance.random() < 0.5
            with suppress(ZeroDivisionError), producer.transaction() as transaction:
                for value in sent:
                    transaction.send(topic, value, key=value)
                if with_offsets:
                    producer.send_offsets_to_transaction({TopicPartition(topic, 0): turn}, topic)
                if chance.random() < 0.3:
                    producer.flush()
                if is_aborted:
                    1 / 0  # noqa: B018
            if not is_aborted:
                expected += sent
                committed = turn if with_offsets else committed
    assert proxy.lost > 0
    assert values(address, topic) == sorted(expected)
    with kohort.Admin(bootstrap_servers=address) as admin:
        assert [row.committed for row in admin.group_offsets(topic)] == [committed]


def whole(address: str, **options: Any) -> None:
    """All of them; `options` are those of the consumer."""
    for scenario in (committed_and_aborted, zombie_is_fenced):
        with new_topic(address, "transactions", 3) as topic:
            scenario(address, topic)
    with new_topic(address, "transactions-in", 1) as source, new_topic(address, "transactions-out", 3) as target:
        offsets_and_records_together(address, source, target, **options)
        asyncio.run(on_a_loop(address, source, target, **options))
