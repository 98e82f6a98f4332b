"""Consume, transform, produce: the records of each poll are transformed in one transaction, with their offsets.

Laws: what the function sends, and the offsets of the records that it was given, are committed together or not at all.
No transaction is open during a poll, so the group revokes partitions between two transactions. After an abort the next
poll returns the records again. Offsets are sent for the membership in which the records were polled: a member that the
group has removed meanwhile, or a producer that another one has replaced, commits nothing.
Source: KIP-98, KIP-447; the loop in the documentation of Kafka's producer.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from inspect import isawaitable
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kohort.client.arguments import to_callback
from kohort.client.consumer.consumer import Consumer
from kohort.client.consumer.reader import DEFAULT_MAX_BYTES
from kohort.client.producer.producer import Producer, Transaction
from kohort.client.records import ConsumerRecord, GroupMetadata
from kohort.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    KohortError,
    KohortTimeoutError,
    TransactionAbortableError,
)
from kohort.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow

#: Called with the records of a poll and the transaction, by which it sends what they become.
Transforming: TypeAlias = "Callable[[list[ConsumerRecord], Transaction], object]"
#: The same with Arrow record batches.
TransformingArrow: TypeAlias = "Callable[[list[pyarrow.RecordBatch], Transaction], object]"

_LOG: Final = logging.getLogger("kohort.client")
#: Transactions in a row that are aborted for one of the reasons below, after which the call gives up.
MOST_ATTEMPTS: Final = 10
#: Seconds without the records after the first of them; each further pause is twice as long: a member that an
#: administrator has removed learns it by its next heartbeat.
_FIRST_PAUSE_S: Final = 0.05
#: Reasons for an abort after which the same work can succeed: the group has changed, or the coordinator asks for it.
_PASSING: Final = frozenset(
    {
        ErrorCode.TRANSACTION_ABORTABLE,
        ErrorCode.UNKNOWN_PRODUCER_ID,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.REBALANCE_IN_PROGRESS,
    }
)


def transform(
    consumer: Consumer,
    producer: Producer,
    function: Transforming,
    *,
    timeout: float = 1.0,
    max_records: int | None = None,
    until: Callable[[], bool] | None = None,
) -> int:
    """Transform records exactly once: poll, call `function`, and commit its records with their offsets.

    The call goes on until the consumer is closed, by a signal handler or another thread, or `until` returns true. Each
    poll that returns records has one transaction. If the group takes the partitions away meanwhile, the transaction is
    aborted, and their next owner begins at the same records. The call can be repeated after an error of the function.

    >>> import kohort
    >>> def enlarge(records, transaction):
    ...     for record in records:
    ...         transaction.send("large", value=record.value.upper(), key=record.key)
    >>> with kohort.Broker() as broker:
    ...     address = broker.bootstrap_servers
    ...     with kohort.Producer(bootstrap_servers=address) as feed:
    ...         _ = feed.send("small", value=b"one").result(10)
    ...     with (
    ...         kohort.Consumer(
    ...             "small",
    ...             bootstrap_servers=address,
    ...             group_id="enlarging",
    ...             auto_offset_reset="earliest",
    ...             enable_auto_commit=False,
    ...             isolation_level="read_committed",
    ...         ) as consumer,
    ...         kohort.Producer(bootstrap_servers=address, transactional_id="enlarging-1") as producer,
    ...     ):
    ...         partition = kohort.TopicPartition("small", 0)
    ...         kohort.transform(consumer, producer, enlarge, until=lambda: consumer.committed(partition) == 1)
    1

    Args:
        consumer: with `enable_auto_commit=False` and `isolation_level="read_committed"`, subscribed or assigned.
        producer: with a `transactional_id` of its own: two producers of one name fence each other.
        function: called with the records of one poll and the transaction; it sends by the calls of the transaction.
        timeout: seconds to wait for records before `until` is asked again.
        max_records: most records of one transaction; `None` means max.poll.records.
        until: asked before each poll; true ends the call.

    Returns:
        The number of records that were transformed, and whose offsets are committed.

    Raises:
        ConfigError: an option of the consumer or the producer contradicts exactly once.
        TransactionAbortableError: the transaction was aborted for a reason that would come back, e.g. a record that is
            too large for the broker; or it was aborted ten times in a row because the group changed.
        ProducerFencedError: another producer has the transactional id, or the function took `transaction_timeout_ms`.
        Exception: the function has raised it; the transaction is aborted, and the next poll returns the records again.
    """
    check_clients(consumer, producer, (Consumer, Producer))
    poll = partial(consumer.poll, max_records=max_records)
    return _run(Loop(consumer, producer, poll, function, timeout=timeout, until=until, count=len).run())


def transform_arrow(
    consumer: Consumer,
    producer: Producer,
    function: TransformingArrow,
    *,
    timeout: float = 1.0,
    columns: Sequence[str] | None = None,
    include_headers: bool = False,
    max_records: int | None = None,
    max_bytes: int = DEFAULT_MAX_BYTES,
    until: Callable[[], bool] | None = None,
) -> int:
    """Transform records as Arrow record batches; otherwise like `transform`.

    >>> import kohort
    >>> def copy(batches, transaction):
    ...     for batch in batches:
    ...         transaction.send_arrow(batch, "copies")
    >>> def copy_all(consumer, producer):
    ...     return kohort.transform_arrow(consumer, producer, copy, columns=["key", "value"])

    Args:
        function: called with the record batches of one poll and the transaction, e.g. for `transaction.send_arrow`.
        consumer, producer, timeout, until: as for `transform`.
        columns, include_headers, max_records, max_bytes: as for `Consumer.poll_arrow`.
    """
    check_clients(consumer, producer, (Consumer, Producer))
    poll = partial(
        consumer.poll_arrow,
        columns=columns,
        include_headers=include_headers,
        max_records=max_records,
        max_bytes=max_bytes,
    )
    return _run(Loop(consumer, producer, poll, function, timeout=timeout, until=until, count=count_rows).run())


def count_rows(batches: list[pyarrow.RecordBatch]) -> int:
    """Return the rows of all batches together."""
    return sum(batch.num_rows for batch in batches)


class Loop:
    """The loop of both doors. A call of an asyncio client is awaited; one of a blocking client has ended already."""

    def __init__(
        self,
        consumer: Any,
        producer: Any,
        poll: Callable[..., Any],
        function: Callable[..., object],
        *,
        timeout: float,
        until: Callable[[], bool] | None,
        count: Callable[[Any], int],
        is_on_loop: bool = False,
    ) -> None:
        self._consumer = consumer
        self._producer = producer
        self._poll = poll
        self._timeout = timeout
        if not callable(function):
            raise TypeError(f"function cannot be {function!r}: a function of records and a transaction is expected")
        self._function = function
        self._until = to_callback(until, "until")
        self._count = count
        self._is_on_loop = is_on_loop
        self._context = consumer._context
        #: Transactions that were aborted since the last commit.
        self._attempts = 0
        #: Partitions that the next poll leaves out, so that the consumer hears from its group before it reads them.
        self._held_back: list[TopicPartition] = []

    async def run(self) -> int:
        """Transform records until the consumer is closed, or `until` says so; return their number."""
        done = 0
        # Before the first poll: it ends the open transaction of a producer of that name, and with it its offsets.
        await _end_of(self._producer.init_transactions())
        while not self._context.is_closed and not (self._until is not None and self._until()):
            records = await (self._poll_held_back() if self._held_back else _end_of(self._poll(self._timeout)))
            if records and await self._take(records):
                done += self._count(records)
        return done

    async def _poll_held_back(self) -> Any:
        """Poll for a moment without the partitions of an aborted transaction; records of others may be returned."""
        held, self._held_back = self._held_back, []
        chosen = set(held) - self._consumer.paused()
        self._consumer.pause(chosen)
        try:
            return await _end_of(self._poll(_FIRST_PAUSE_S * 2 ** (self._attempts - 1)))
        finally:
            if not self._context.is_closed:
                # The group may have taken some away meanwhile.
                self._consumer.resume(chosen & self._consumer.paused())

    async def _take(self, records: Any) -> bool:
        """Transform the records of one poll; return whether they are committed, and not to be polled again."""
        begun = self._context.handler.in_work()
        group = self._consumer.group_metadata()
        is_ending = False
        try:
            await _end_of(self._producer.begin_transaction())
        except BaseException:
            self._go_back(begun)
            raise
        try:
            await self._call(records)
            self._post_offsets(begun, group)
            is_ending = True
            await self._commit()
        except BaseException as error:
            if is_ending and not isinstance(error, KohortError):
                error.add_note(
                    "the last transaction may be committed or not: close the consumer and the producer; the group's "
                    "committed offsets say where to go on"
                )
                raise
            try:
                await self._abort(error)
            finally:
                self._go_back(begun)
            if isinstance(error, TransactionAbortableError) and self._can_pass(error):
                self._held_back = list(begun)
                return False
            raise
        self._attempts = 0
        return True

    async def _call(self, records: Any) -> None:
        returned = self._function(records, self._producer.transaction())
        if self._is_on_loop:
            await _end_of(returned)
        elif isinstance(returned, Coroutine):
            returned.close()
            raise TypeError("the function is a coroutine function: those are for kohort.aio.transform")

    def _post_offsets(self, begun: dict[TopicPartition, int], polled: GroupMetadata) -> None:
        handler = self._context.handler
        offsets = {each: handler.with_epoch(each, at) for each, at in handler.positions(begun).items()}
        if self._context.is_closed or offsets.keys() != begun.keys():
            raise self._removed()
        group = self._consumer.group_metadata()
        if self._consumer._subscriptions.is_assigned_by_hand:
            group = group.group_id
        elif group.member_id != polled.member_id or not 0 < polled.generation_id <= group.generation_id:
            # It joins again in the next poll, where the application hears of its loss.
            raise self._removed()
        # The commit waits for them, and says if they are refused.
        self._producer._post_offsets(offsets, group)

    def _removed(self) -> TransactionAbortableError:
        error = TransactionAbortableError(
            self._producer._transactional_id, "the consumer has left the group since it polled the records"
        )
        error.__cause__ = BrokerError(ErrorCode.UNKNOWN_MEMBER_ID)
        return error

    async def _commit(self) -> None:
        while True:
            try:
                await _end_of(self._producer.commit_transaction())
            except KohortTimeoutError as late:
                # The commit goes on, and only its end says whether the records are to be transformed again.
                _LOG.warning("%s", late)
                if self._context.is_closed:
                    raise
            else:
                return

    async def _abort(self, error: BaseException) -> None:
        if getattr(error, "fatal", False):
            return
        try:
            await _end_of(self._producer.abort_transaction())
        except KohortError as why:
            if why.fatal and isinstance(error, KohortError):
                # A leader tells a producer that was replaced less than the coordinator does.
                raise why from error
            if why is not error:
                error.add_note(f"the transaction could not be aborted: {why}")

    def _go_back(self, begun: dict[TopicPartition, int]) -> None:
        if self._context.is_closed:
            # Its next owner begins at the committed offsets.
            return
        for partition, offset in begun.items():
            self._consumer.seek(partition, offset)

    def _can_pass(self, error: TransactionAbortableError) -> bool:
        """Return whether the aborted transaction's work is to be tried again."""
        self._attempts += 1
        cause = error.__cause__
        if not isinstance(cause, BrokerError) or cause.code not in _PASSING or self._attempts >= MOST_ATTEMPTS:
            return False
        if self._attempts == 1:
            _LOG.warning("the records of an aborted transaction are read again: %s", error)
        return True


def check_clients(consumer: Any, producer: Any, kinds: tuple[type, type]) -> None:
    """Refuse a consumer or producer that is not of these kinds, or whose options do not fit."""
    for client, kind in zip((consumer, producer), kinds, strict=True):
        if not isinstance(client, kind):
            raise TypeError(f"transform cannot use {client!r}: a {kind.__name__} of the same module is expected")
    options = consumer._context.settings.options
    if options["group_id"] is None:
        raise ConfigError("transform needs a consumer with group_id: its offsets are committed for a group")
    if options["enable_auto_commit"]:
        raise ConfigError("transform needs a consumer with enable_auto_commit=False: transactions commit its offsets")
    if options["isolation_level"] != "read_committed":
        raise ConfigError(
            "transform needs a consumer with isolation_level=read_committed: records of aborted transactions would be "
            "transformed"
        )


async def _end_of(returned: Any) -> Any:
    return await returned if isawaitable(returned) else returned


def _run(call: Coroutine[Any, Any, int]) -> int:
    """Run a loop of blocking calls: nothing in it waits but these calls."""
    try:
        call.send(None)
    except StopIteration as end:
        return end.value  # type: ignore[no-any-return]
    finally:
        call.close()
    raise AssertionError("a blocking client's loop awaits nothing")
