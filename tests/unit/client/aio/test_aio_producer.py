"""The producer on an event loop: same names, no thread, nothing lost by cancelling."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pyarrow as pa
import pytest

import kohort
from kohort import Admin, Broker, RecordMetadata, TopicPartition
from kohort.aio import Producer
from kohort.errors import (
    BrokersUnreachableError,
    BufferFullError,
    ConfigError,
    KohortError,
    KohortTimeoutError,
    StateError,
)
from support.dialogues.virtual_broker import beside_a_broker
from support.ports import quiet_port
from support.waiting import PATIENCE_SECONDS, until

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def broker() -> Iterator[Broker]:
    with Broker() as running:
        with Admin(bootstrap_servers=running.bootstrap_servers) as admin:
            admin.create_topic("orders", 2)
        yield running


def run(main: Callable[[], Awaitable[Any]]) -> Any:
    """Run an application; what it leaves running is an error."""

    async def alone() -> Any:
        async with asyncio.timeout(PATIENCE_SECONDS):
            result = await main()
        assert asyncio.all_tasks() == {asyncio.current_task()}
        return result

    return asyncio.run(alone())


def stored(broker: Broker) -> list[bytes | None]:
    with kohort.Consumer(bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([ORDERS])
        end = consumer.end_offsets([ORDERS])[ORDERS]
        found: list[bytes | None] = []
        until(
            lambda: len(found) >= end,
            what="every record",
            step=lambda: found.extend(record.value for record in consumer.poll(1.0)),
        )
        return found


def test_sends_without_a_thread(broker: Broker) -> None:
    before = threading.active_count()

    async def main() -> list[RecordMetadata]:
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            sent = [await producer.send("orders", b"%d" % number, partition=0) for number in range(100)]
            assert threading.active_count() == before
            return [await record for record in sent]

    assert [each.offset for each in run(main)] == list(range(100))
    assert stored(broker) == [b"%d" % number for number in range(100)]


def test_has_the_names_of_aiokafka(broker: Broker) -> None:
    async def main() -> None:
        producer = Producer(bootstrap_servers=broker.bootstrap_servers)
        await producer.start()
        try:
            assert (await producer.send_and_wait("orders", b"one", partition=0)).offset == 0
            assert sorted(await producer.partitions_for("orders")) == [0, 1]
        finally:
            await producer.stop()
        with pytest.raises(StateError, match="closed"):
            await producer.send("orders", b"late")
        with pytest.raises(StateError, match="closed"):
            await producer.partitions_for("orders")

    run(main)


def test_start_says_at_once_that_nobody_is_there() -> None:
    """As aiokafka's; a producer that is not started waits."""

    async def main() -> None:
        nowhere = f"127.0.0.1:{quiet_port()}"
        producer = Producer(bootstrap_servers=nowhere, max_block_ms=3_600_000)
        with pytest.raises(BrokersUnreachableError, match=nowhere):
            await producer.start()
        await producer.close()
        with pytest.raises(StateError, match="closed"):
            await producer.connect()

    run(main)


def test_a_record_a_second_is_stored_though_the_broker_starts_after_three() -> None:
    """As in a composition of containers; its topic is made by the first of them."""

    async def application(address: str) -> list[int]:
        async with Producer(bootstrap_servers=address) as producer:
            sent = []
            for number in range(8):
                sent.append(await producer.send("early", b"%d" % number, partition=0))
                await asyncio.sleep(1)
            assert await producer.flush(20) == 0
            assert (producer.metrics()["record-send-total"], producer.metrics()["record-error-total"]) == (8, 0)
            return [(await record).offset for record in sent]

    assert beside_a_broker(application, topics={}, late_s=3.0) == list(range(8))


def test_flush_says_how_many_are_left_and_metrics_how_many_have_failed() -> None:
    async def application(address: str) -> None:
        producer = Producer(bootstrap_servers=address, delivery_timeout_ms=60_000, request_timeout_ms=30_000)
        for number in range(5):
            await producer.send("early", b"%d" % number)
        assert await producer.flush(0) == 5
        assert await producer.flush(50) == 5
        assert await producer.flush(20) == 0
        assert producer.metrics()["record-error-total"] == 5
        await producer.close()

    beside_a_broker(application, topics={}, late_s=100.0)


def test_flush_and_the_end_wait_for_every_record(broker: Broker) -> None:
    async def main() -> None:
        async with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
            first = await producer.send("orders", b"one", partition=0)
            assert await producer.flush() == 0
            assert first.done()
            await producer.send("orders", b"two", partition=0)

    run(main)
    assert stored(broker) == [b"one", b"two"]


def test_callbacks_run_on_the_loop(broker: Broker) -> None:
    async def main() -> None:
        told: asyncio.Queue[tuple[KohortError | None, RecordMetadata, int]] = asyncio.Queue()

        def on_delivery(error: KohortError | None, metadata: RecordMetadata) -> None:
            told.put_nowait((error, metadata, threading.get_ident()))

        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            await producer.send("orders", b"one", partition=0, on_delivery=on_delivery)
            error, metadata, thread = await told.get()
        assert error is None
        assert metadata is not None
        assert metadata.offset == 0
        assert thread == threading.get_ident()

    run(main)


def test_a_full_buffer_holds_up_the_task_and_not_the_loop(broker: Broker) -> None:
    async def main() -> None:
        async with Producer(bootstrap_servers=broker.bootstrap_servers, buffer_memory=5_000, linger_ms=0) as producer:
            sent = await asyncio.gather(*(producer.send("orders", bytes(1_000), partition=0) for _ in range(200)))
            await asyncio.gather(*sent)

    run(main)
    assert len(stored(broker)) == 200


def test_a_full_buffer_sends_what_lingers(broker: Broker) -> None:
    """Otherwise everybody would wait for the linger, or for max.block.ms."""

    async def main() -> None:
        async with Producer(
            bootstrap_servers=broker.bootstrap_servers, buffer_memory=2_000, linger_ms=600_000
        ) as producer:
            for _ in range(5):
                await producer.send("orders", bytes(1_500), partition=0)

    run(main)
    with kohort.Producer(
        bootstrap_servers=broker.bootstrap_servers, buffer_memory=2_000, linger_ms=600_000
    ) as producer:
        for _ in range(5):
            producer.send("orders", bytes(1_500), partition=0)
    assert len(stored(broker)) == 10


@pytest.fixture
def silent() -> Iterator[str]:
    """An address where connections are accepted and nothing is ever answered."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"127.0.0.1:{listening.getsockname()[1]}"


def test_a_full_buffer_raises_when_the_time_is_over(silent: str) -> None:
    async def main() -> None:
        async with Producer(
            bootstrap_servers=silent, buffer_memory=2_000, max_block_ms=50, delivery_timeout_ms=40_000
        ) as producer:
            first = await producer.send("orders", bytes(1_500))
            with pytest.raises(BufferFullError):
                await producer.send("orders", bytes(1_500))
            assert not first.done()
            await producer.close(timeout=0.1)
            with pytest.raises(KohortTimeoutError):
                await first

    run(main)


def test_cancelling_a_send_that_waits_sends_nothing_and_holds_up_nobody(broker: Broker) -> None:
    async def main() -> None:
        async with Producer(bootstrap_servers=broker.bootstrap_servers, buffer_memory=1_500, linger_ms=50) as producer:
            first = await producer.send("orders", b"a" * 1_000, partition=0)
            waiting = [asyncio.create_task(producer.send("orders", b"b" * 1_000, partition=0)) for _ in range(3)]
            await asyncio.sleep(0)
            waiting[0].cancel()
            waiting[2].cancel()
            assert (await (await waiting[1])).offset == 1
            assert (await first).offset == 0

    run(main)
    assert [value and value[:1] for value in stored(broker)] == [b"a", b"b"]


def test_cancelling_who_awaits_a_record_takes_nothing_back(broker: Broker) -> None:
    async def main() -> None:
        async with Producer(bootstrap_servers=broker.bootstrap_servers, linger_ms=60_000) as producer:
            record = await producer.send("orders", b"one", partition=0)
            waiting = asyncio.create_task(asyncio.wait_for(record, PATIENCE_SECONDS))
            await asyncio.sleep(0)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
            await producer.flush()
            assert (await record).offset == 0

    run(main)


def test_sending_does_not_starve_the_loop(broker: Broker) -> None:
    async def main() -> int:
        rounds = 0

        async def count() -> None:
            nonlocal rounds
            while True:
                rounds += 1
                await asyncio.sleep(0)

        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            other = asyncio.create_task(count())
            for _ in range(20_000):
                await producer.send("orders", b"x")
            other.cancel()
        return rounds

    assert run(main) > 3


def test_what_cannot_be_sent_is_refused_at_the_call(broker: Broker) -> None:
    with pytest.raises(ConfigError):
        Producer(linger_ms=-5)

    async def main() -> None:
        async with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            with pytest.raises(TypeError):
                await producer.send("orders", 5)
            with pytest.raises(ConfigError):
                await producer.send("orders", b"x", partition=-1)
            assert (await producer.send_and_wait("orders", b"x", partition=0)).offset == 0

    run(main)


def test_a_blocking_producers_records_can_be_awaited(broker: Broker) -> None:
    async def main() -> int:
        with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            return (await producer.send("orders", b"one", partition=0)).offset

    assert run(main) == 0


def test_many_records_by_one_call(broker: Broker) -> None:
    """A list and a table; a buffer that is smaller than either is waited for."""

    async def main() -> None:
        async with Producer(bootstrap_servers=broker.bootstrap_servers, buffer_memory=20_000) as producer:
            stored = await (await producer.send_many("many", [bytes(100)] * 1_000))
            (table,) = await (await producer.send_arrow(pa.table({"value": [b"x"] * 3_000}), "many"))
            assert (await (await producer.send_many("many", []))).record_count == 0
            assert await (await producer.send_arrow(pa.table({"value": pa.array([], pa.binary())}), "many")) == ()
        assert (stored.record_count, table.record_count) == (1_000, 3_000)
        with pytest.raises(StateError, match="closed"):
            await producer.send_many("many", [b"x"])

    asyncio.run(main())
