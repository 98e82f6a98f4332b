"""The asyncio consumer: the calls of `kohort.Consumer` as coroutines.

Laws: no thread. A cancelled call loses no records: the next call returns them. Callbacks run inside `poll`,
`unsubscribe` and `close`, and may be coroutine functions.
Source: the consumer threading refactor (CTR); aiokafka's names, where it has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Literal, Self, TypeVar, Unpack, overload

from kohort.client.consumer.application_events import GroupMembershipOperation
from kohort.client.consumer.door import ConsumerDoor
from kohort.client.consumer.positions import Offsets, Positions
from kohort.client.consumer.reader import ITERATION_S, Reader
from kohort.client.consumer.subscriptions import Subscriptions
from kohort.client.core.in_loop import InLoop, Rounds
from kohort.client.foreign_names import CONSUMERS, answering
from kohort.client.records import ConsumerRecord, OffsetAndMetadata
from kohort.client.steps import Returned, Wait, awaited, run_on_loop
from kohort.ids import TopicPartition

if TYPE_CHECKING:
    from kohort.client.typed_options import ConsumerOptions


R = TypeVar("R")
#: Seconds that a closed consumer's remaining tasks and connections may take to end.
_JOIN_S: Final = 5.0


@answering(CONSUMERS)
class Consumer(ConsumerDoor):
    """A Kafka consumer for asyncio, with the options of `kohort.Consumer`.

    A `poll` while another task awaits one raises `StateError`. Any task of the loop may pause, seek, commit, ask for
    offsets, or call `wakeup` and `close`. Heartbeats are sent by the loop, too: run work in a thread if it would block
    the loop for longer than the session timeout.

    >>> import asyncio, kohort, kohort.aio
    >>> async def read(address):
    ...     async with kohort.aio.Consumer(
    ...         "orders", bootstrap_servers=address, group_id="billing", auto_offset_reset="earliest"
    ...     ) as consumer:
    ...         async for record in consumer:
    ...             return record.value
    >>> with kohort.Broker() as broker:
    ...     with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
    ...         _ = producer.send("orders", value=b"one").result(10)
    ...     asyncio.run(read(broker.bootstrap_servers))
    b'one'
    """

    unsubscribe = awaited(Subscriptions.unsubscribe)

    poll = awaited(Reader.poll)
    consume = awaited(Reader.consume)
    poll_arrow = awaited(Reader.poll_arrow)

    position = awaited(Positions.position)
    lag = awaited(Positions.lag)
    current_lag = awaited(Positions.current_lag)

    commit = awaited(Offsets.commit)
    watermarks = awaited(Offsets.watermarks)
    get_watermark_offsets = awaited(Offsets.get_watermark_offsets)
    beginning_offsets = awaited(Offsets.beginning_offsets)
    end_offsets = awaited(Offsets.end_offsets)
    offsets_for_times = awaited(Offsets.offsets_for_times)
    partitions_for = awaited(Offsets.partitions_for)
    list_topics = awaited(Offsets.list_topics)
    describe_topics = awaited(Offsets.describe_topics)
    topics = awaited(Offsets.topics)

    def __init__(self, *first: Mapping[str, object] | str | None, **options: Unpack[ConsumerOptions]) -> None:
        """Create a consumer, with the arguments of `kohort.Consumer`; it needs no running loop yet."""
        self._signal = asyncio.Event()
        self._rounds = Rounds()
        self._set_up(first, options, InLoop, self._signal, is_on_loop=True)

    async def start(self) -> None:
        """Subscribe to the topics that were passed to the constructor, if any; aiokafka's name for the call."""
        self._context.check_open()
        topics, self._first_topics = self._first_topics, ()
        if topics:
            self.subscribe(topics)

    async def stop(self) -> None:
        """Close the consumer, as `close` does; aiokafka's name for the call."""
        await self.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception the last records may be half processed: they are not committed, but read again.
        await self._close(30.0, with_progress=error is None)

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> ConsumerRecord:
        record = await self._next_record("iteration")
        if record is None:
            record = await self._run(self._reader.next())
            if record is None:
                raise StopAsyncIteration
        return record

    async def poll_one(self, timeout: float = 1.0) -> ConsumerRecord | None:
        """Return the next record, or `None` after `timeout` seconds without one."""
        record = await self._next_record("poll_one")
        return await self._run(self._reader.one("poll_one", timeout)) if record is None else record

    async def getone(self) -> ConsumerRecord:
        """Return the next record, and wait for it without a time limit; aiokafka's name for the call.

        Raises:
            StateError: the consumer was closed during the wait.
        """
        while True:
            record = await self.poll_one(ITERATION_S)
            if record is not None:
                return record
            self._context.check_open()

    async def getmany(
        self, *, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the records of a `poll` by partition; aiokafka's name for the call."""
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in await self.poll(timeout_ms / 1000, max_records=max_records):
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        return found

    @overload
    async def committed(
        self, partitions: TopicPartition, timeout: float | None = None, *, metadata: Literal[False] = False
    ) -> int | None: ...

    @overload
    async def committed(
        self, partitions: TopicPartition, timeout: float | None = None, *, metadata: Literal[True]
    ) -> OffsetAndMetadata | None: ...

    @overload
    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None, *, metadata: Literal[False] = False
    ) -> dict[TopicPartition, int | None]: ...

    @overload
    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None, *, metadata: Literal[True]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    async def committed(
        self,
        partitions: Iterable[TopicPartition] | TopicPartition,
        timeout: float | None = None,
        *,
        metadata: bool = False,
    ) -> Any:
        """Return the group's committed offsets; `None` for a partition without one.

        Args:
            partitions: several, for a dictionary by partition; or one, for its offset alone.
            timeout: seconds; `None` means default.api.timeout.ms.
            metadata: return `OffsetAndMetadata` instead of numbers.
        """
        return await self._run(self._calls[Offsets.__name__].committed(partitions, timeout, metadata=metadata))

    async def close(self, timeout: float = 30.0, *, group_membership: GroupMembershipOperation = "default") -> None:
        """Commit (with auto-commit), leave the group and disconnect, within `timeout` seconds. Safe to call twice.

        While an exception is being handled, the records that were returned last are not committed: see
        `kohort.Consumer.close`.

        Args:
            timeout: seconds.
            group_membership: as for `kohort.Consumer.close`.
        """
        await self._close(timeout, with_progress=not self._context.is_interrupted(), group_membership=group_membership)

    # -- inside -----------------------------------------------------------------------------------------------------

    async def _close(
        self, timeout: float, *, with_progress: bool, group_membership: GroupMembershipOperation = "default"
    ) -> None:
        await self._run(self._context.close(timeout, with_progress=with_progress, group_membership=group_membership))
        await self._context.host.join(_JOIN_S)

    async def _next_record(self, what: str) -> ConsumerRecord | None:
        if self._rounds.is_due:
            await self._rounds.let_others_run()
        return self._take_one(what)

    async def _run(self, call: Coroutine[Any, Any, R]) -> R:
        try:
            if self._rounds.is_due:
                await self._rounds.let_others_run()
            if self._first_topics and not self._context.is_closed:
                await self.start()
            return await run_on_loop(call, self._wait)
        finally:
            # One that is cancelled before it has begun is given up as well.
            call.close()

    async def _wait(self, wait: Wait) -> object:
        if isinstance(wait, Returned):
            return await wait.awaitable
        if wait.ticket is not None:
            return await self._context.host.wait(wait.ticket, wait.seconds)
        if not self._signal.is_set():
            alarm = asyncio.get_running_loop().call_later(wait.seconds, self._signal.set)
            try:
                await self._signal.wait()
            finally:
                alarm.cancel()
        return None
