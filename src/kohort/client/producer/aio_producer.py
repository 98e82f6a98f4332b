"""The asyncio producer: the calls of `kohort.Producer` as coroutines.

Laws: no thread. A `send` cancelled while it waits for buffer space sends nothing; after its return the record is sent.
Source: Kafka's producer; aiokafka's names, where it has them.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from kohort.client.arguments import to_seconds
from kohort.client.core.in_loop import InLoop, Rounds
from kohort.client.foreign_names import PRODUCERS, answering
from kohort.client.producer.buffer_pool import AnyBufferPool
from kohort.client.producer.bulk_send import ManyFuture, TablesFuture
from kohort.client.producer.context import (
    GRACE_S,
    Deliveries,
    HeadersArgument,
    OffsetsArgument,
    OffsetsSource,
    ProducerDoor,
    note_failed_abort,
)
from kohort.client.producer.core.producer_events import ProducerCloseAsked, TransactionStep
from kohort.client.producer.record_future import DeliveryCall, RecordFuture
from kohort.client.records import GroupMetadata, RecordMetadata
from kohort.client.steps import Pause, Wait, run_on_loop
from kohort.errors import KohortError, KohortTimeoutError, StateError, TransactionAbortableError

if TYPE_CHECKING:
    from kohort.client.typed_options import ProducerOptions


class AsyncBufferPool(AnyBufferPool):
    """The `buffer.memory` limit for tasks of a loop; the task that has waited longest is served first."""

    def __init__(self, limit_bytes: int, max_block_s: float) -> None:
        super().__init__(limit_bytes, max_block_s, is_shared=False)
        self._waiting: deque[asyncio.Event] = deque()

    def try_reserve(self, size: int) -> bool:
        """Reserve space for a record if there is some and no task waits for space; return whether it did."""
        if self._waiting or not self._has_room(size):
            return False
        self.held_bytes += size
        return True

    async def reserve(self, size: int, wake: Callable[[], None]) -> None:
        """Reserve space for a record; call `wake` before a wait, so that records held by linger are sent.

        Raises:
            BufferFullError: the buffer stayed full for max.block.ms. A pool that has been shut accepts every record.
        """
        # Waiting calls are served in order: only the first one is woken.
        turn = asyncio.Event()
        self._waiting.append(turn)
        try:
            wake()
            async with asyncio.timeout(self._max_block_s):
                while self._waiting[0] is not turn or not self._has_room(size):
                    turn.clear()
                    await turn.wait()
            self.held_bytes += size
        except TimeoutError:
            raise self._full() from None
        finally:
            # There may be space for the next task, whether this one has got its own or not.
            self._waiting.remove(turn)
            self._call_next()

    def is_wanted(self) -> bool:
        """Return whether a task waits for space."""
        return bool(self._waiting)

    def release(self, size: int) -> None:
        """Free the bytes of records that are stored or have failed."""
        self.held_bytes -= size
        self._call_next()

    def shut(self) -> None:
        """End every wait, because the producer accepts no more records."""
        self.is_shut = True
        self._call_next()

    def _call_next(self) -> None:
        if self._waiting:
            self._waiting[0].set()


@answering(PRODUCERS)
class Producer(ProducerDoor):
    """A Kafka producer for asyncio, with the options of `kohort.Producer`.

    >>> import asyncio, kohort, kohort.aio
    >>> async def store(address):
    ...     async with kohort.aio.Producer(bootstrap_servers=address) as producer:
    ...         return await producer.send_and_wait("orders", value="42", key="customer-7")
    >>> with kohort.Broker() as broker:
    ...     stored = asyncio.run(store(broker.bootstrap_servers))
    >>> stored.topic, stored.partition, stored.offset
    ('orders', 0, 0)
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Unpack[ProducerOptions]) -> None:
        """Create a producer; it connects at the first `send` or `connect`, and needs no running loop before.

        Arguments and errors are those of `kohort.Producer`.
        """
        self._rounds = Rounds()
        self._set_up(config, options, AsyncBufferPool, InLoop, _told_at_once)

    async def start(self) -> None:
        """Wait until a broker responds, as `connect` does; aiokafka's name for the call.

        No other call requires this one: a producer that was not started connects with its first record, which waits for
        a broker for `delivery_timeout_ms`.
        """
        await self.connect()

    async def connect(self, timeout: float | None = None) -> None:
        """Wait until a broker responds; raise an error if every address fails. See `kohort.Producer.connect`."""
        await run_on_loop(self._connected(timeout), self._wait)

    async def stop(self) -> None:
        """Close the producer, as `close` does; aiokafka's name for the call."""
        await self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an exception the program should not wait long for queued records.
        await self._close(30.0 if kind is None else 3.0, is_quiet=kind is not None)

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersArgument = None,
        on_delivery: DeliveryCall | None = None,
    ) -> RecordFuture:
        """Queue a record, waiting only while `buffer_memory` is full; return a future of its `RecordMetadata`.

        Arguments and errors are those of `kohort.Producer.send`; `on_delivery` is called on the loop.
        """
        record = self._encoder.record(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers, on_delivery=on_delivery
        )
        if self._pool.is_shut:
            raise self._refusal()
        if not self._pool.try_reserve(record.size_bytes):
            await self._pool.reserve(record.size_bytes, self._wake)
            if self._pool.is_shut:
                self._pool.release(record.size_bytes)
                raise self._refusal()
        self._submit(record)
        if self._rounds.is_due:
            await self._rounds.let_others_run()
        return record

    async def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        timestamps: Iterable[int] | int | None = None,
        headers: HeadersArgument = None,
    ) -> ManyFuture:
        """Queue many records; return one future of their offsets. See `kohort.Producer.send_many`."""
        pieces = self._encoder.rows(
            topic, values, keys=keys, partition=partition, timestamps=timestamps, headers=headers
        )
        return await self._send_pieces(topic, pieces)

    async def send_arrow(
        self, data: object, topic: str | None = None, *, headers: HeadersArgument = None
    ) -> TablesFuture:
        """Queue the rows of a table; return one future of their offsets. See `kohort.Producer.send_arrow`."""
        return await self._send_tables(data, topic, headers)

    async def _reserve(self, size: int) -> None:
        if not self._pool.try_reserve(size):
            await self._pool.reserve(size, self._wake)

    def transaction(self, timeout: float | None = None) -> AsyncTransaction:
        """Return a transaction, for an `async with` statement. See `kohort.Producer.transaction`."""
        return AsyncTransaction(self, timeout)

    async def init_transactions(self, timeout: float | None = None) -> None:
        """Take over the transactional id. See `kohort.Producer.init_transactions`."""
        await run_on_loop(self._take_step(TransactionStep.INITIALIZE, timeout), self._wait)

    async def begin_transaction(self, timeout: float | None = None) -> None:
        """Begin a transaction. See `kohort.Producer.begin_transaction`."""
        await run_on_loop(self._begin(timeout), self._wait)

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Commit the transaction. See `kohort.Producer.commit_transaction`."""
        await run_on_loop(self._take_step(TransactionStep.COMMIT, timeout), self._wait)
        self._deliveries.serve()

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction. See `kohort.Producer.abort_transaction`."""
        await run_on_loop(self._take_step(TransactionStep.ABORT, timeout), self._wait)
        self._deliveries.serve()

    async def send_offsets_to_transaction(
        self, offsets: OffsetsArgument, group_metadata: GroupMetadata | str, timeout: float | None = None
    ) -> None:
        """Commit offsets of a group with the transaction. See `kohort.Producer.send_offsets_to_transaction`."""
        await run_on_loop(self._send_offsets(offsets, group_metadata, timeout), self._wait)

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersArgument = None,
    ) -> RecordMetadata:
        """Send a record and wait until it is stored; aiokafka's name for the call. See `send`."""
        return await (
            await self.send(topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers)
        )

    async def partitions_for(self, topic: str, timeout: float | None = None) -> list[int]:
        """Return the partition numbers of a topic, ascending; an empty list if the topic does not exist."""
        return await run_on_loop(self._partitions(topic, timeout), self._wait)

    async def flush(self, timeout: float | None = None) -> int:
        """Send queued records without linger; return how many are not acknowledged after `timeout` seconds.

        See `kohort.Producer.flush`.
        """
        left = await run_on_loop(self._flushed(timeout), self._wait)
        self._deliveries.serve()
        return left

    async def close(self, timeout: float = 30.0) -> None:
        """Flush and disconnect; records not stored within `timeout` seconds fail with a `KohortTimeoutError`."""
        await self._close(to_seconds(timeout), is_quiet=False)

    async def _close(self, timeout: float, *, is_quiet: bool) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        self._pool.shut()
        if self._io.is_running:
            deadline = self._io.deadline_ms(timeout)
            try:
                with suppress(KohortTimeoutError, StateError):
                    await self._io.call(
                        lambda ticket: ProducerCloseAsked(ticket=ticket, deadline_ms=deadline, is_quiet=is_quiet),
                        timeout + GRACE_S,
                    )
            finally:
                self._io.stop()
            await self._io.join(GRACE_S)
        self._refuse_the_late()
        self._deliveries.serve()
        if not is_quiet:
            self._io.raise_failure()

    async def _wait(self, wait: Wait) -> object:
        assert isinstance(wait, Pause) and wait.ticket is not None, "calls wait for tickets"
        return await self._io.wait(wait.ticket, wait.seconds)


class AsyncTransaction:
    """One transaction of an asyncio producer, made by `kohort.aio.Producer.transaction`."""

    def __init__(self, producer: Producer, timeout: float | None) -> None:
        self._producer = producer
        self._timeout = timeout

    async def __aenter__(self) -> Self:
        try:
            await self._producer.begin_transaction(self._timeout)
        except asyncio.CancelledError:
            self._producer._take_back_begin()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            await self._abort(error)
            return
        try:
            await self._producer.commit_transaction(self._timeout)
        except TransactionAbortableError as why:
            await self._abort(why)
            raise

    async def _abort(self, error: BaseException) -> None:
        try:
            await self._producer.abort_transaction(self._timeout)
        except KohortError as why:
            note_failed_abort(error, why)

    async def send(self, topic: str, value: Any = None, key: Any = None, **more: Any) -> RecordFuture:
        """Send a record in this transaction; arguments and errors are those of `Producer.send`."""
        return await self._producer.send(topic, value, key, **more)

    async def send_many(self, topic: str, values: Iterable[Any], **more: Any) -> ManyFuture:
        """Send many records in this transaction; arguments and errors are those of `Producer.send_many`."""
        return await self._producer.send_many(topic, values, **more)

    async def send_arrow(
        self, data: object, topic: str | None = None, *, headers: HeadersArgument = None
    ) -> TablesFuture:
        """Send the rows of a table in this transaction; arguments and errors are those of `Producer.send_arrow`."""
        return await self._producer.send_arrow(data, topic, headers=headers)

    async def send_offsets(
        self, consumer: OffsetsSource, offsets: OffsetsArgument | None = None, timeout: float | None = None
    ) -> None:
        """Commit a consumer's offsets with this transaction; see `Transaction.send_offsets`."""
        chosen = consumer.processed_offsets() if offsets is None else offsets
        await self._producer.send_offsets_to_transaction(chosen, consumer.group_metadata(), timeout)


def _told_at_once(deliveries: Deliveries) -> Callable[[Any], None]:
    """Make a function that schedules `on_delivery` callbacks on the loop, without a call of the application."""

    def put(records: Any) -> None:
        deliveries.put(records)
        asyncio.get_running_loop().call_soon(deliveries.serve)

    return put
