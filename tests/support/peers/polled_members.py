"""One member of a group by each client that speaks for itself in Python, all to be used in the same way.

What is committed is named, offset by offset: librdkafka refuses to commit what has not changed.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, Protocol, TypeVar

import confluent_kafka
import kafka
from aiokafka import AIOKafkaConsumer
from aiokafka import TopicPartition as AioPartition
from aiokafka.abc import ConsumerRebalanceListener as AioListener
from kafka.structs import OffsetAndMetadata

import kohort
from support.peers.kafka_python_client import subscribe
from support.waiting import PATIENCE_SECONDS

T = TypeVar("T")


class PolledMember(Protocol):
    """A member that reads one topic. `called` has each callback; `done` is the next offset of what was read."""

    called: list[str]
    values: list[bytes]
    done: dict[int, int]

    def poll(self) -> None:
        """Read for a moment."""
        ...

    def owned(self) -> set[int]:
        """Partitions that it has."""
        ...

    def commit(self, done: Mapping[int, int]) -> None:
        """Commit these offsets, and wait for that."""
        ...

    def subscribe(self) -> None:
        """Be a member again."""
        ...

    def unsubscribe(self) -> None:
        """Leave, and stay a client."""
        ...

    def close(self) -> None:
        """Leave."""
        ...


class _Reading:
    """What all of them remember."""

    def __init__(self, topic: str) -> None:
        self.called: list[str] = []
        self.values: list[bytes] = []
        self.done: dict[int, int] = {}
        self._topic: Final = topic

    def _take(self, partition: int, offset: int, value: bytes | None) -> None:
        self.values.append(value or b"")
        self.done[partition] = offset + 1

    def _callback(self, kind: str) -> Callable[..., None]:
        return lambda *_: self.called.append(kind)


class OurMember(_Reading):
    """kohort.Consumer."""

    def __init__(self, address: str, group: str, topic: str, **options: Any) -> None:
        super().__init__(topic)
        options = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **options}
        self._consumer = kohort.Consumer(bootstrap_servers=address, group_id=group, **options)
        self.subscribe()

    def poll(self) -> None:
        for record in self._consumer.poll(0.05):
            self._take(record.partition, record.offset, record.value)

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self, done: Mapping[int, int]) -> None:
        offsets = {kohort.TopicPartition(self._topic, partition): offset for partition, offset in done.items()}
        self._consumer.commit(offsets, timeout=20.0)

    def subscribe(self) -> None:
        said = {f"on_{kind}": self._callback(kind) for kind in ("assigned", "revoked", "lost")}
        self._consumer.subscribe([self._topic], **said)

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    def close(self) -> None:
        self._consumer.close()


class ConfluentMember(_Reading):
    """librdkafka; `config` by its names with underscores. It goes on with what it has not committed of `group`."""

    def __init__(self, address: str, group: str, topic: str, **config: Any) -> None:
        super().__init__(topic)
        fixed = {"bootstrap.servers": address, "group.id": group, "auto.offset.reset": "earliest"}
        named = {name if name == "log_level" else name.replace("_", "."): value for name, value in config.items()}
        self._consumer = confluent_kafka.Consumer({**fixed, "enable.auto.commit": False, **named})
        self.subscribe()

    def poll(self) -> None:
        for message in self._consumer.consume(100, 0.05):
            error = message.error()
            if error is None:
                self._take(message.partition() or 0, message.offset() or 0, message.value())
            elif error.code() == confluent_kafka.KafkaError._FATAL:
                # It will not be a member again, whatever is done.
                raise confluent_kafka.KafkaException(error)

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self, done: Mapping[int, int]) -> None:
        offsets = [confluent_kafka.TopicPartition(self._topic, *place) for place in done.items()]
        for each in self._consumer.commit(offsets=offsets, asynchronous=False) or ():
            if each.error is not None:
                raise confluent_kafka.KafkaException(each.error)

    def subscribe(self) -> None:
        self._consumer.subscribe(
            [self._topic],
            on_assign=self._callback("assigned"),
            on_revoke=self._callback("revoked"),
            on_lost=self._callback("lost"),
        )

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()
        # The application has to say that it gives them up.
        while self._consumer.assignment():
            self._consumer.poll(0.05)

    def close(self) -> None:
        self._consumer.close()


class KafkaPythonMember(_Reading):
    """kafka-python, classic."""

    def __init__(self, address: str, group: str, topic: str, **config: Any) -> None:
        super().__init__(topic)
        config = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **config}
        self._consumer = kafka.KafkaConsumer(bootstrap_servers=address, group_id=group, **config)
        self.subscribe()

    def poll(self) -> None:
        for records in self._consumer.poll(timeout_ms=50).values():
            for record in records:
                self._take(record.partition, record.offset, record.value)

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self, done: Mapping[int, int]) -> None:
        self._consumer.commit(
            {kafka.TopicPartition(self._topic, each): OffsetAndMetadata(done[each], "", -1) for each in done}
        )

    def subscribe(self) -> None:
        assigned, revoked = self._callback("assigned"), self._callback("revoked")

        class Listener(kafka.ConsumerRebalanceListener):  # type: ignore[misc]
            def on_partitions_revoked(self, given: object) -> None:
                revoked(given)

            def on_partitions_assigned(self, gained: object) -> None:
                assigned(gained)

        subscribe(self._consumer, self._topic, listener=Listener())

    def unsubscribe(self) -> None:
        self._consumer.unsubscribe()

    def close(self) -> None:
        self._consumer.close()


class AioMember(_Reading):
    """aiokafka, classic, on a thread of its own.

    Its loop has to turn while nobody polls: a member that joins would wait for another one that is silent.
    """

    def __init__(self, address: str, group: str, topic: str, **config: Any) -> None:
        super().__init__(topic)
        self._runner = asyncio.Runner()
        self._loop = self._runner.get_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="aiokafka", daemon=True)
        self._thread.start()
        config = {"auto_offset_reset": "earliest", "enable_auto_commit": False, **config}

        async def start() -> AIOKafkaConsumer:
            consumer = AIOKafkaConsumer(bootstrap_servers=address, group_id=group, **config)
            self._listen(consumer)
            await consumer.start()
            return consumer

        self._consumer = self._run(start())

    def _listen(self, consumer: AIOKafkaConsumer) -> None:
        assigned, revoked = self._callback("assigned"), self._callback("revoked")

        class Listener(AioListener):  # type: ignore[misc]
            async def on_partitions_revoked(self, given: object) -> None:
                revoked(given)

            async def on_partitions_assigned(self, gained: object) -> None:
                assigned(gained)

        consumer.subscribe([self._topic], listener=Listener())

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(PATIENCE_SECONDS)

    def poll(self) -> None:
        for records in self._run(self._consumer.getmany(timeout_ms=50)).values():
            for record in records:
                self._take(record.partition, record.offset, record.value)

    def owned(self) -> set[int]:
        return {each.partition for each in self._consumer.assignment()}

    def commit(self, done: Mapping[int, int]) -> None:
        offsets = {AioPartition(self._topic, partition): offset for partition, offset in done.items()}
        self._run(self._consumer.commit(offsets))

    def subscribe(self) -> None:
        self._loop.call_soon_threadsafe(self._listen, self._consumer)

    def unsubscribe(self) -> None:
        async def leave() -> None:
            self._consumer.unsubscribe()

        self._run(leave())

    def close(self) -> None:
        try:
            self._run(self._consumer.stop())
        finally:
            self._loop.call_soon_threadsafe(self._loop.stop)
            self._thread.join(PATIENCE_SECONDS)
            self._runner.close()
