"""Three brokers of Apache Kafka behind TLS and logins, read and written on every way in, one restarted meanwhile.

`make soak ONLY=secured` runs it; one broker and all ways are in `test_secured_brokers.py`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

import kohort
import kohort.aio
from support.peers.secured import WAYS, SecuredKafka, options_of
from support.waiting import until

pytestmark = [pytest.mark.interop, pytest.mark.apache]

RECORDS: Final = 300
PARTITIONS: Final = 6
PATIENCE_S: Final = 120.0


@pytest.fixture(scope="module")
def kafka() -> Iterator[SecuredKafka]:
    """Brokers speak TLS to each other as well; sessions of every kind end while a test looks."""
    mechanisms = ("plain", "scram-sha-256", "scram-sha-512", "oauthbearer")
    properties: dict[str, object] = {
        "inter.broker.listener.name": "SSL",
        "default.replication.factor": 3,
        "min.insync.replicas": 1,
        "offsets.topic.replication.factor": 3,
        "offsets.topic.num.partitions": 6,
        **{f"listener.name.sasl_ssl.{each}.connections.max.reauth.ms": 3_000 for each in mechanisms},
    }
    with SecuredKafka(properties, count=3) as made:
        yield made


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
@pytest.mark.parametrize("way", WAYS)
def test_broker_restarts_while_a_group_reads_and_a_producer_writes(
    kafka: SecuredKafka, way: str, protocol: str
) -> None:
    """Everything that was stored is read once, by the member that was there from the beginning."""
    options, topic = options_of(kafka, way), f"{way}-{protocol}".lower()
    group = {"group_id": topic, "group_protocol": protocol, "auto_offset_reset": "earliest"}
    with kohort.Admin(**options) as admin:
        admin.create_topic(topic, PARTITIONS)
        with (
            kohort.Producer(**options) as producer,
            kohort.Consumer(**options, **group) as consumer,
        ):
            consumer.subscribe([topic])
            results, found = [], []
            # Another one for each way: leader of some partitions, perhaps the group's coordinator.
            broker = kafka.brokers[1 + WAYS.index(way) % 2]

            def go_on() -> None:
                if len(results) < RECORDS:
                    results.append(producer.send(topic, str(len(results)).encode()))
                if len(results) == RECORDS // 3:
                    broker.stop()
                if len(results) == 2 * RECORDS // 3:
                    broker.start()
                found.extend(int(record.value or b"") for record in consumer.poll(0.05))

            until(lambda: len(found) >= RECORDS, what="all records are read", step=go_on, seconds=PATIENCE_S)
            for result in results:
                result.result(PATIENCE_S)
            consumer.commit()
            places = [kohort.TopicPartition(topic, number) for number in range(PARTITIONS)]
            committed = consumer.committed(places)
        assert sorted(found) == list(range(RECORDS))
        assert sum(offset or 0 for offset in committed.values()) == RECORDS
        assert topic in [group.group_id for group in admin.list_groups()]


@pytest.mark.parametrize("way", WAYS)
def test_clients_of_event_loops_write_and_read(kafka: SecuredKafka, way: str) -> None:
    options, topic = options_of(kafka, way), f"{way}-aio".lower()

    async def pass_on() -> list[Any]:
        async with kohort.aio.Admin(**options) as admin:
            await admin.create_topic(topic, PARTITIONS)
        async with kohort.aio.Producer(**options) as producer:
            for number in range(RECORDS):
                await producer.send(topic, str(number).encode())
            await producer.flush()
        async with kohort.aio.Consumer(**options, group_id=topic, auto_offset_reset="earliest") as consumer:
            consumer.subscribe([topic])
            found: list[Any] = []
            while len(found) < RECORDS:
                found += [record.value for record in await consumer.poll(5.0)]
            return found

    found = asyncio.run(asyncio.wait_for(pass_on(), PATIENCE_S))
    assert sorted(map(int, found)) == list(range(RECORDS))
