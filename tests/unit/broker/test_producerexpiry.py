"""Idempotent producers that are silent are forgotten, and all partitions together remember so many."""

from __future__ import annotations

import asyncio

import pytest

from kohort.base.clock import SystemClock
from kohort.broker import producer_ids
from kohort.broker.producer_ids import ProducerExpiry
from kohort.errors import ErrorCode
from kohort.ids import TopicId
from kohort.records.batch import build_batch
from kohort.storage.store import Store
from kohort.testing.broker import Broker
from kohort.wire.registry import ApiKey
from support.dialogues.broker_wire import RawClient, produce_request
from support.waiting import until


def store_of(partitions: int) -> Store:
    store = Store.in_memory()
    store.create_topic("t", partitions, topic_id=TopicId(b"1" * 16))
    return store


def write(store: Store, partition: int, producer_id: int, *, now_ms: int = 1_000) -> None:
    batch = build_batch([(None, b"v", 1_000, ())], producer_id=producer_id, producer_epoch=0, base_sequence=0)
    store.topics["t"].partitions[partition].append(batch, now_ms=now_ms)


def test_round_goes_through_every_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    """So many in one turn of the loop; what is deleted meanwhile counts no more."""
    monkeypatch.setattr(producer_ids, "PRODUCERS_AT_ONCE", 3)
    monkeypatch.setattr(producer_ids, "PARTITIONS_AT_ONCE", 2)
    store, now_ms = store_of(7), SystemClock().now_ms()
    for partition in range(7):
        write(store, partition, partition, now_ms=now_ms - 10_000)
        write(store, partition, 100 + partition, now_ms=now_ms)
    logs = store.topics["t"].partitions

    async def run() -> None:
        expiry = ProducerExpiry(asyncio.get_running_loop(), store, SystemClock(), limit=100)
        assert expiry.remembered == 14
        expiry.start(expiration_ms=5_000, interval_ms=1)
        async with asyncio.timeout(5):
            while expiry.remembered > 7:  # noqa: ASYNC110
                await asyncio.sleep(0)
        expiry.stop()

    asyncio.run(run())
    assert [[row.producer_id for row in log.producers.rows()] for log in logs] == [
        [100 + partition] for partition in range(7)
    ]


def test_partition_with_a_new_producer_gives_one_up_where_there_are_too_many() -> None:
    store = store_of(2)
    first, second = store.topics["t"].partitions

    async def run() -> None:
        expiry = ProducerExpiry(asyncio.get_running_loop(), store, SystemClock(), limit=3)
        for partition, producer_id in ((0, 1), (0, 2), (0, 3), (0, 4), (1, 5), (0, 6)):
            write(store, partition, producer_id)
            expiry.on_new(store.topics["t"].partitions[partition])

    asyncio.run(run())
    assert [row.producer_id for row in first.producers.rows()] == [3, 4, 6]
    assert [row.producer_id for row in second.producers.rows()] == [5], "the only one stays"


def test_broker_forgets_a_silent_producer() -> None:
    """It may go on at any sequence then, which is a gap as long as it is remembered."""
    config = {"producer.id.expiration.ms": 60_000, "producer.id.expiration.check.interval.ms": 5}

    def produce(client: RawClient, sequence: int) -> int:
        batch = build_batch([(b"k", b"v", 1, ())], producer_id=9, producer_epoch=0, base_sequence=sequence)
        code: int = (
            client.ask(ApiKey.PRODUCE, 9, produce_request("t", batch)).responses[0].partition_responses[0].error_code
        )
        return code

    with Broker(config=config) as broker, RawClient(broker.port) as client:
        client.create_topic("t")
        assert produce(client, 0) == 0
        assert produce(client, 5) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        broker.clock.advance(61)
        until(lambda: produce(client, 5) == 0, what="the producer is forgotten")
