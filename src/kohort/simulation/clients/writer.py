"""An application with a real producer, and the laws about its partitions' logs.

Laws held here, by name:
- `AcknowledgedIsStored`: an acknowledged record is at the acknowledged offset, with any faults meanwhile.
- `StoredOnce`: with idempotence an acknowledged record is in the log once.
- `OrderKept`: with idempotence acknowledged records of a partition are in the order in which they were sent.
- `EndsInTime`: every future gets a result or an error within the delivery timeout.
- `BrokersAreAwaited`: no record fails because no broker is reachable, not even before the first broker has responded.
Source: KIP-98, KIP-360; Kafka's `delivery.timeout.ms`.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import Future
from contextlib import suppress
from contextvars import copy_context
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final
from unittest.mock import patch

from kohort.client.core.in_loop import InLoop
from kohort.client.producer import producer as door
from kohort.client.producer.core.producer_events import FlushAsked, ProducerCloseAsked
from kohort.client.producer.producer import Producer
from kohort.client.records import RecordMetadata
from kohort.errors import BrokerError, BrokersUnreachableError, KohortError, KohortTimeoutError
from kohort.simulation.clients.network import PROGRAM
from kohort.simulation.clients.plan import FLEETING
from kohort.simulation.trace import LawBroken

if TYPE_CHECKING:
    from kohort.simulation.clients.program_world import ProgramWorld


DELIVERY_TIMEOUT_S: Final = 8.0
#: Longest batch, which is what a fetch may bring beyond its limit.
MOST_BATCH_BYTES: Final = 4_000
#: Grace for requests under way at the delivery timeout: a request timeout, and a moment.
GRACE_S: Final = 4.0


class _ProducerHost(InLoop[Any]):
    """The producer's machine on the loop of the world instead of a thread."""

    def __init__(self, *arguments: Any, holds: object = None, **options: Any) -> None:
        super().__init__(*arguments, **options)

    def check_may_wait(self) -> None:
        """Allow every wait: on a loop no thread blocks another."""


@dataclass(slots=True, kw_only=True)
class Sent:
    """A record that was sent."""

    topic: str
    partition: int
    number: int
    value: bytes
    sent_s: float
    future: Future[RecordMetadata]


class Writer:
    """One process that sends records, now and then a burst of them."""

    def __init__(self, world: ProgramWorld, name: str) -> None:
        self.world: Final = world
        self.name: Final = name
        self.random = Random(world.random.random())
        self.sent: list[Sent] = []
        self.producer: Producer | None = None
        self._task: asyncio.Task[None] | None = None
        self._number = 0
        #: So many of the first ones that were sent are known to have ended.
        self._ended = 0

    def start(self) -> None:
        """Start the writer as a program of its own, if it has not started."""
        if self._task is not None:
            return
        context = copy_context()
        context.run(PROGRAM.set, self.name)
        self._task = asyncio.get_running_loop().create_task(self._live(), name=self.name, context=context)
        self._task.add_done_callback(self.world.on_task_done)

    async def end(self) -> None:
        """Flush and close the producer, and check that no record is left open."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])
        await self.close()
        self.check_ended()

    def send(self, topic: str, partition: int) -> Sent | None:
        """Queue a record with its sender's name and its sequence number in the partition."""
        if self.producer is None:
            self._open()
        assert self.producer is not None
        self._number += 1
        value = b"%s %d " % (self.name.encode(), self._number)
        value += b"." * (self.world.plan.value_bytes - len(value))
        try:
            future = self.producer.send(topic, value, partition=partition)
        except KohortTimeoutError:
            return None
        except BrokerError as error:
            self.world.tell(self.name, f"send: {error}")
            return None
        now_s = asyncio.get_running_loop().time()
        sent = Sent(topic=topic, partition=partition, number=self._number, value=value, sent_s=now_s, future=future)
        self.sent.append(sent)
        return sent

    async def flush(self) -> None:
        """Wait until every sent record has its result."""
        if self.producer is not None and self.producer._io.is_running:
            host: Any = self.producer._io
            limit_s = DELIVERY_TIMEOUT_S + GRACE_S
            try:
                await host.call(lambda ticket: FlushAsked(ticket=ticket), limit_s)
            except KohortTimeoutError:
                raise LawBroken("EndsInTime", f"flush of {self.name} has not ended after {limit_s:g} s") from None

    async def settle(self) -> None:
        """Wait until no further record is being sent, and every sent record has its result."""
        if self._task is not None:
            await asyncio.wait([self._task])
        await self.flush()

    async def close(self) -> None:
        """Flush and close."""
        producer, self.producer = self.producer, None
        opened = self.world.opened[self.name]
        if producer is None:
            return
        host: Any = producer._io
        producer._is_closed = True
        if host.is_running:
            deadline_ms = host.deadline_ms(DELIVERY_TIMEOUT_S)
            try:
                await host.call(
                    lambda ticket: ProducerCloseAsked(ticket=ticket, deadline_ms=deadline_ms), DELIVERY_TIMEOUT_S + 1.0
                )
            except KohortTimeoutError:
                raise LawBroken("EndsInTime", f"close of {self.name} has not ended") from None
            await host.join(5.0)
        self.world.check_closed(self.name, opened)

    def check_ended(self, *, now_s: float | None = None) -> None:
        """Check that every record sent long enough ago has its result; without a time, every record."""
        while self._ended < len(self.sent) and self.sent[self._ended].future.done():
            sent = self.sent[self._ended]
            self._ended += 1
            if isinstance(error := sent.future.exception(), BrokersUnreachableError):
                raise LawBroken("BrokersAreAwaited", f"record {sent.number} of {self.name} has ended: {error}")
        for sent in self.sent[self._ended :]:
            if now_s is not None and now_s - sent.sent_s <= DELIVERY_TIMEOUT_S + GRACE_S:
                break
            if not sent.future.done():
                raise LawBroken("EndsInTime", f"record {sent.number} of {self.name} has no end")

    def check_log(self, topic: str, partition: int, values: list[bytes]) -> None:
        """Compare a partition's log with the acknowledged records."""
        mine = [each for each in self.sent if (each.topic, each.partition) == (topic, partition)]
        last = -1
        counts: dict[bytes, int] = {}
        for value in values:
            counts[value] = counts.get(value, 0) + 1
        for sent in mine:
            if sent.future.exception() is not None:
                continue
            offset, what = sent.future.result().offset, f"record {sent.number} of {self.name} to {topic}-{partition}"
            if not 0 <= offset < len(values) or values[offset] != sent.value:
                raise LawBroken("AcknowledgedIsStored", f"{what} is not at offset {offset}, as was acknowledged")
            if self.world.plan.idempotent:
                if counts[sent.value] > 1:
                    raise LawBroken("StoredOnce", f"{what} is there {counts[sent.value]} times")
                if offset < last:
                    raise LawBroken("OrderKept", f"{what} stands at {offset}, before one that was sent earlier")
                last = offset

    def _open(self) -> None:
        self.world.opened[self.name] += 1
        with patch.object(door, "IoThread", _ProducerHost):
            self.producer = Producer(
                bootstrap_servers=self.world.bootstrap,
                client_id=self.name,
                enable_idempotence=self.world.plan.idempotent,
                linger_ms=self.random.choice((0, 5, 100)),
                batch_size=1_500,
                max_request_size=MOST_BATCH_BYTES,
                delivery_timeout_ms=int(DELIVERY_TIMEOUT_S * 1000),
                request_timeout_ms=3_000,
                max_block_ms=0,
                socket_connection_setup_timeout_ms=1_000,
                retry_backoff_max_ms=500,
            )

    async def _live(self) -> None:
        while not self.world.is_healed:
            topic, partition = self.world.draw_partition(self.random)
            for _ in range(self.random.choice((1, 3, 10, 40))):
                self.send(topic, partition)
            match self.random.randint(0, 9):
                case 0:
                    with suppress(KohortError):
                        await self.flush()
                case 1:
                    await self.close()
                case _:
                    await asyncio.sleep(self.random.choice((0.01, 0.1, 0.5)))
            self.check_ended(now_s=asyncio.get_running_loop().time())


def is_checked(topic: str) -> bool:
    """Return whether a topic's log can be compared: a recreated topic has lost acknowledged records."""
    return topic != FLEETING
