"""The consumer's asyncio door: the calls of `kohort.Consumer`, awaited.

Laws: no thread. A call that is cancelled has lost nothing: the next call returns its records. Callbacks run inside
`poll`, `unsubscribe` and `close`, and may be coroutine functions.
Source: the consumer threading refactor (CTR); aiokafka's names, where it has them.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar, Unpack

from kohort.client.aio.offset_calls import OffsetCalls
from kohort.client.aio.rounds import Rounds
from kohort.client.consumer.arrow_batches import DEFAULT_MAX_BYTES
from kohort.client.consumer.reading import ITERATION_S
from kohort.client.elsewhere import CONSUMERS, answering
from kohort.client.exchange import GroupMembershipOperation
from kohort.client.io.in_loop import InLoop
from kohort.client.records import ConsumerRecord
from kohort.client.steps import Pause, Steps, Wait
from kohort.errors import StateError
from kohort.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow

    from kohort.client.typed_options import ConsumerOptions

T = TypeVar("T")
#: Seconds for a consumer's connections to close when it has ended.
_JOIN_S: Final = 5.0


@answering(CONSUMERS)
class Consumer(OffsetCalls):
    """Reads topics on the running loop, alone or as a member of a group; options: see `kohort.Consumer`.

    While one task awaits `poll`, a second one that polls gets a `StateError`; pausing, seeking, committing, asking,
    `wakeup` and `close` may come from any task of the loop. Heartbeats need the loop, too: work that holds it up for
    longer than the session timeout belongs into a thread.

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

    def __init__(self, *first: Mapping[str, object] | str | None, **options: Unpack[ConsumerOptions]) -> None:
        """Create a consumer; nothing is connected here, and no loop is needed yet.

        Args:
            first: options by Kafka's dotted names in a mapping, which may be mixed with keywords; or topics.
            options: options as keywords.

        Raises:
            ConfigError: an option is unknown, has an impossible value, is given twice, or contradicts another.
        """
        self._signal = asyncio.Event()
        self._rounds = Rounds()
        self._set_up(first, options, InLoop, self._signal)

    async def start(self) -> None:
        """Subscribe to the topics that were given to the class, if any (as aiokafka has it)."""
        self._check_open()
        topics, self._first_topics = self._first_topics, ()
        if topics:
            self.subscribe(topics)

    async def stop(self) -> None:
        """Close the consumer, as `close` does (as aiokafka has it)."""
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
            record = await self._run(self._iteration_steps())
            if record is None:
                raise StopAsyncIteration
        return record

    async def unsubscribe(self, *, timeout: float = 30.0) -> None:
        """Commit (with auto-commit), give every partition up and leave the group."""
        await self._run(self._unsubscribe_steps(timeout))

    async def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return the records that have arrived; wait up to `timeout` seconds. See `kohort.Consumer.poll`."""
        return await self._run(self._poll_steps(timeout, max_records))

    async def poll_one(self, timeout: float = 1.0) -> ConsumerRecord | None:
        """Return the next record, or `None` after `timeout` seconds without one."""
        record = await self._next_record("poll_one")
        return await self._run(self._one_steps("poll_one", timeout)) if record is None else record

    async def getone(self) -> ConsumerRecord:
        """Return the next record, however long that takes (as aiokafka has it).

        Raises:
            StateError: the consumer was closed meanwhile.
        """
        while True:
            record = await self.poll_one(ITERATION_S)
            if record is not None:
                return record
            self._check_open()

    async def getmany(
        self, *, timeout_ms: int = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[ConsumerRecord]]:
        """Return the records of a `poll` by partition (as aiokafka has it)."""
        found: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in await self.poll(timeout_ms / 1000, max_records=max_records):
            found.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        return found

    async def consume(self, num_messages: int = 1, timeout: float = 1.0) -> list[ConsumerRecord]:
        """Return so many records, or fewer after `timeout` seconds."""
        return await self._run(self._consume_steps(num_messages, timeout))

    async def poll_arrow(
        self,
        timeout: float = 1.0,
        *,
        columns: Sequence[str] | None = None,
        include_headers: bool = False,
        max_records: int | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> list[pyarrow.RecordBatch]:
        """Return fetched records as Arrow record batches. See `kohort.Consumer.poll_arrow`."""
        return await self._run(
            self._arrow_steps(
                timeout, columns, include_headers=include_headers, max_records=max_records, max_bytes=max_bytes
            )
        )

    async def close(self, timeout: float = 30.0, *, group_membership: GroupMembershipOperation = "default") -> None:
        """Commit (with auto-commit), leave the group and end, within `timeout` seconds. Safe to call twice.

        While an exception is passing, the records that were handed out last are read again: see
        `kohort.Consumer.close`.

        Args:
            timeout: seconds.
            group_membership: as for `kohort.Consumer.close`.
        """
        await self._close(timeout, with_progress=not self._is_interrupted(), group_membership=group_membership)

    # -- inside -----------------------------------------------------------------------------------------------------

    async def _close(
        self, timeout: float, *, with_progress: bool, group_membership: GroupMembershipOperation = "default"
    ) -> None:
        await self._run(self._close_steps(timeout, with_progress=with_progress, group_membership=group_membership))
        await self._host.join(_JOIN_S)

    async def _next_record(self, what: str) -> ConsumerRecord | None:
        if self._rounds.is_due:
            await self._rounds.let_others_run()
        return self._take_one(what)

    async def _run(self, steps: Steps[T]) -> T:
        if self._rounds.is_due:
            await self._rounds.let_others_run()
        # The first call subscribes to the topics that were given to the class: `__init__` may have no loop.
        if self._first_topics and not self._is_closed:
            await self.start()
        try:
            wait = next(steps)
            while True:
                try:
                    outcome = await self._await(wait)
                except BaseException as error:
                    wait = steps.throw(error)
                else:
                    wait = steps.send(outcome)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    async def _await(self, wait: Wait) -> object:
        if not isinstance(wait, Pause):
            return await wait
        if wait.ticket is not None:
            return await self._host.wait(wait.ticket, wait.seconds)
        if not self._signal.is_set():
            alarm = asyncio.get_running_loop().call_later(wait.seconds, self._signal.set)
            try:
                await self._signal.wait()
            finally:
                alarm.cancel()
        return None

    def _begin(self, what: str) -> bool:
        # Tasks change places only where they await, so a call that awaits nothing disturbs no other.
        self._check_open()
        return False

    def _is_below_a_call(self) -> bool:
        return False

    def _subscribe_to_nothing(self) -> None:
        raise StateError("subscribe names no topic; await unsubscribe() to read none")
