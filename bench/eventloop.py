"""The doors for event loops: what one task reads and sends.

Peer: aiokafka by `getmany` and `send`, through the same broker.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from functools import partial
from typing import Any

from load import RawConnection
from report import Row, Table, alternate, compare, warmed
from servers import start_both
from topics import create_writable_topic, fill

PARTITIONS = 4
RECORDS, SENT = 500_000, 50_000
VALUE = b"x" * 100


async def read_with_kohort(bootstrap: str) -> float:
    """Records per second, from the first call to the last record."""
    import kohort
    import kohort.aio

    async with kohort.aio.Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([kohort.TopicPartition("read", number) for number in range(PARTITIONS)])
        return await _read(consumer)


async def read_with_aiokafka(bootstrap: str) -> float:
    """The same by aiokafka."""
    from aiokafka import AIOKafkaConsumer, TopicPartition

    consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest", enable_auto_commit=False)
    await consumer.start()
    try:
        consumer.assign([TopicPartition("read", number) for number in range(PARTITIONS)])
        return await _read(consumer)
    finally:
        await consumer.stop()


async def _read(consumer: Any) -> float:
    began = time.perf_counter()
    seen = 0
    while seen < RECORDS:
        found = await consumer.getmany(timeout_ms=5000, max_records=10_000)
        seen += sum(len(records) for records in found.values())
    return seen / (time.perf_counter() - began)


async def send_with_kohort(bootstrap: str) -> float:
    """Records per second, from the first send to the last that is stored; each has a future."""
    import kohort.aio

    async with kohort.aio.Producer(bootstrap_servers=bootstrap) as producer:
        return await _send(producer, "sent", VALUE)


async def send_with_aiokafka(bootstrap: str, topic: str = "sent", size: int = len(VALUE)) -> float:
    """The same by aiokafka."""
    from aiokafka import AIOKafkaProducer

    producer = AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=True)
    await producer.start()
    try:
        return await _send(producer, topic, b"x" * size)
    finally:
        await producer.stop()


async def _send(producer: Any, topic: str, value: bytes) -> float:
    await producer.send_and_wait(topic, value)
    began = time.perf_counter()
    sent = [await producer.send(topic, value) for _ in range(SENT)]
    await producer.flush()
    took = time.perf_counter() - began
    assert all(record.done() and record.exception() is None for record in sent)
    return SENT / took


def measure(runs: int) -> list[Table]:
    rows: list[Row] = []
    with ExitStack() as stack:
        servers, left_out = start_both(stack)
        for server in servers:
            fill(server, "read", partitions=PARTITIONS, records=RECORDS, value=VALUE, key=b"k" * 8)
            connection = RawConnection(server.port)
            create_writable_topic(connection, "sent", PARTITIONS)
            connection.close()
            address = server.bootstrap_servers
            for what, ours, theirs, call in (
                ("getmany", read_with_kohort, read_with_aiokafka, "getmany(max_records=10000)"),
                ("send", send_with_kohort, send_with_aiokafka, "send()"),
            ):
                found = alternate(runs, partial(_run, ours, address), partial(_run, theirs, address))
                rows.append(
                    compare(
                        f"{what}, 100 B, {'from' if what == 'getmany' else 'to'} {server.name}",
                        *found,
                        unit="rec/s",
                        reach=">= 2x",
                        peer_name=f"aiokafka {call}",
                        how=warmed(runs),
                        settings="aiokafka: enable_idempotence" if what == "send" else "",
                    )
                )
    return [Table("eventloop", "On an event loop", rows, left_out)]


def _run(side: Callable[[str], Coroutine[Any, Any, float]], bootstrap: str) -> float:
    return asyncio.run(side(bootstrap))
