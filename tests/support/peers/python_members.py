"""Members of a group that use the pure Python clients, which speak the classic protocol only."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

import aiokafka
import kafka

from kohort import TopicPartition
from support.peers.group_members import Ledger, ThreadMember
from support.peers.kafka_python_client import subscribe

_OPTIONS: dict[str, Any] = {
    "group_id": "g",
    "auto_offset_reset": "earliest",
    "enable_auto_commit": False,
    "session_timeout_ms": 30_000,
    "heartbeat_interval_ms": 200,
}


class KafkaPythonMember(ThreadMember):
    """kafka-python's consumer; `options` by its own names."""

    def __init__(self, ledger: Ledger, name: str, address: str, *, topic: str = "t", **options: Any) -> None:
        super().__init__(ledger, name)
        self._topic = topic
        self._options = {"bootstrap_servers": address, **_OPTIONS, **options}

    def _read(self) -> None:
        consumer = kafka.KafkaConsumer(**self._options)
        try:
            subscribe(consumer, self._topic, listener=_KafkaPythonListener(self._ledger, self.name))
            while not self._is_leaving.is_set():
                found = consumer.poll(timeout_ms=500)
                if found:
                    self._ledger.note_processed(self.name, _rows(found.values()))
                    consumer.commit()
        finally:
            consumer.close()


class AiokafkaMember(ThreadMember):
    """aiokafka's consumer on a loop of its own; `options` by its own names."""

    def __init__(self, ledger: Ledger, name: str, address: str, *, topic: str = "t", **options: Any) -> None:
        super().__init__(ledger, name)
        self._topic = topic
        self._options = {"bootstrap_servers": address, **_OPTIONS, **options}

    def _read(self) -> None:
        asyncio.run(self._poll())

    async def _poll(self) -> None:
        consumer = aiokafka.AIOKafkaConsumer(**self._options)
        consumer.subscribe([self._topic], listener=_AiokafkaListener(self._ledger, self.name))
        await consumer.start()
        try:
            while not self._is_leaving.is_set():
                found = await consumer.getmany(timeout_ms=100)
                if found:
                    self._ledger.note_processed(self.name, _rows(found.values()))
                    await consumer.commit()
        finally:
            await consumer.stop()


def _rows(batches: Iterable[Iterable[Any]]) -> list[tuple[str, int, int]]:
    return [(record.topic, record.partition, record.offset) for batch in batches for record in batch]


def _partitions(rows: Iterable[Any]) -> list[TopicPartition]:
    return [TopicPartition(row.topic, row.partition) for row in rows]


class _KafkaPythonListener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger = ledger
        self._name = name

    def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._ledger.note_callback(self._name, "assigned", _partitions(assigned))

    def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._ledger.note_callback(self._name, "revoked", _partitions(revoked))


class _AiokafkaListener(aiokafka.ConsumerRebalanceListener):  # type: ignore[misc]
    def __init__(self, ledger: Ledger, name: str) -> None:
        self._ledger = ledger
        self._name = name

    async def on_partitions_assigned(self, assigned: Iterable[Any]) -> None:
        self._ledger.note_callback(self._name, "assigned", _partitions(assigned))

    async def on_partitions_revoked(self, revoked: Iterable[Any]) -> None:
        self._ledger.note_callback(self._name, "revoked", _partitions(revoked))
