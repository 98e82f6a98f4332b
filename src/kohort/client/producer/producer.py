"""The blocking producer: any thread sends records, and each call returns a future.

Source: Kafka's producer; C9.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from kohort.client.arguments import to_seconds
from kohort.client.core.thread import IoThread
from kohort.client.foreign_names import PRODUCERS, answering
from kohort.client.producer.buffer_pool import BufferPool
from kohort.client.producer.context import (
    FOREVER_S,
    GRACE_S,
    HeadersArgument,
    OffsetsArgument,
    OffsetsSource,
    ProducerDoor,
    note_failed_abort,
)
from kohort.client.producer.core.producer_events import ProducerCloseAsked, ProducerIdAndEpoch, TransactionStep
from kohort.client.producer.record_future import DeliveryCall, RecordFuture
from kohort.client.records import GroupMetadata, RecordMetadata, SentMany
from kohort.client.steps import Pause, Wait, run
from kohort.errors import KohortError, KohortTimeoutError, StateError, TransactionAbortableError

if TYPE_CHECKING:
    from kohort.client.typed_options import ProducerOptions


@answering(PRODUCERS)
class Producer(ProducerDoor):
    """A Kafka producer; idempotent by default, so that a retry never duplicates or reorders records.

    Options are Kafka's producer configs: keywords in snake_case, e.g. `acks`, `linger_ms`, `batch_size`,
    `compression_type`, `delivery_timeout_ms`; or a mapping of dotted names: `Producer({"linger.ms": 5})`. An unknown
    name raises `UnknownOptionError`, which suggests the nearest one. May be shared by threads.

    >>> import kohort
    >>> with kohort.Broker() as broker:
    ...     with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
    ...         stored = producer.send("orders", value="42", key="customer-7").result(10)
    >>> stored.topic, stored.partition, stored.offset
    ('orders', 0, 0)
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Unpack[ProducerOptions]) -> None:
        """Create a producer; it connects at the first `send` or `connect`.

        Args:
            config: a mapping of Kafka's dotted option names; may be combined with keywords.
            options: options as keywords.

        Raises:
            ConfigError: an option is unknown, has an impossible value, is given twice, or contradicts another.
        """
        self._set_up(
            config,
            options,
            BufferPool,
            lambda machine, *most, **named: IoThread(machine, *most, holds=machine.holds, **named),
        )

    def connect(self, timeout: float | None = None) -> None:
        """Wait until a broker responds; raise an error as soon as every address has failed.

        No other call requires this one: `send` connects by itself, and a record waits for `delivery_timeout_ms`, even
        for a broker that has not started yet. `connect` is for programs that should exit when there is no broker.

        Args:
            timeout: seconds; `None` means `max_block_ms`.

        Raises:
            BrokersUnreachableError: no bootstrap address leads to a broker; its subclasses: no address that a broker
                advertises does (`AdvertisedAddressError`), or no broker accepts the login (`AuthenticationError`).
            KohortTimeoutError: no broker has responded within `timeout`.
            StateError: the producer is closed.
        """
        run(self._connected(timeout), self._wait)

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersArgument = None,
        on_delivery: DeliveryCall | None = None,
    ) -> Future[RecordMetadata]:
        """Queue a record and return a future; its result is the record's `RecordMetadata`, or it raises the error.

        The call waits only while `buffer_memory` is full. A record waits at most `delivery_timeout_ms` for a broker,
        even if none was ever reached; after a second a line in the log says that it waits.

        Args:
            topic: created by the broker if it does not exist and auto.create.topics.enable is on.
            value: bytes, text (sent as UTF-8), `None` (a tombstone), or any value that `value_serializer` accepts.
            key: as `value`; equal keys go to the same partition.
            partition: overrides the key; `None` lets the partitioner choose.
            timestamp_ms: milliseconds since 1970-01-01 UTC; `None` means now.
            headers: (name, value) pairs, or a mapping; a value is bytes, text or `None`.
            on_delivery: called with (error, metadata) once the record is stored (error `None`) or has failed (offset
                -1); inside a later `send`, `poll`, `flush` or `close`, in its thread. Its exceptions are logged.

        Raises:
            TypeError: topic, key, value or headers are of a type that cannot be sent.
            ConfigError: partition or timestamp is out of range, or text cannot be encoded as UTF-8.
            SerializationError: a serializer has raised an exception.
            BrokerError: MESSAGE_TOO_LARGE: the record is larger than `max_request_size`.
            BufferFullError: `buffer_memory` stayed full for `max_block_ms`.
            StateError: the producer is closed or has failed; or `buffer_memory` is full in a callback of a future.
        """
        plain: RecordFuture | None = self._submit_plain(
            topic, value, key, partition, timestamp_ms, headers, on_delivery
        )
        if plain is not None:
            if self._deliveries.ended:
                self._deliveries.serve()
            return plain
        record = self._encoder.record(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers, on_delivery=on_delivery
        )
        pool = self._pool
        if not pool.is_shut:
            pool.reserve(record.size_bytes, self._wake_to_wait)
            if pool.is_shut:
                pool.release(record.size_bytes)
        if pool.is_shut:
            raise self._refusal()
        self._submit(record)
        return record

    def send_many(
        self,
        topic: str,
        values: Iterable[Any],
        *,
        keys: Iterable[Any] | None = None,
        partition: int | None = None,
        timestamps: Iterable[int] | int | None = None,
        headers: HeadersArgument = None,
    ) -> Future[SentMany]:
        """Queue many records and return one future for all; it ends when each record is stored or has failed.

        The call takes a tenth of the time of as many `send` calls, because it makes no object for a record. Records of
        a partition stay in the order of the calls.

        Args:
            topic: as for `send`.
            values: n values; each as for `send`.
            keys: n keys, or `None`; a single key may be `None`, too.
            partition: for all records; `None` lets the partitioner choose by the keys.
            timestamps: n timestamps, or one for all records; milliseconds since 1970. `None` means now.
            headers: the same for all records.

        Returns:
            A future with the number of stored records, and their ranges of offsets in each partition. It raises
            `PartlySentError` if some records are not stored.

        Raises:
            BufferFullError: `buffer_memory` stayed full before the first record; later ones fail in the future.
            Errors: all others are those of `send`; the message has the index of the wrong value, like values[3].
        """
        pieces = self._encoder.rows(
            topic, values, keys=keys, partition=partition, timestamps=timestamps, headers=headers
        )
        return run(self._send_pieces(topic, pieces), self._wait)

    def send_arrow(
        self, data: object, topic: str | None = None, *, headers: HeadersArgument = None
    ) -> Future[tuple[SentMany, ...]]:
        """Queue the rows of a table and return one future; it ends when each row is stored or has failed.

        Args:
            data: a `pyarrow.Table`, a `RecordBatch`, or a data frame that Arrow can read (Polars, pandas). Columns are
                those of Spark's Kafka sink: `value` (binary or string), and optionally `key` (likewise), `topic`,
                `partition` (int), `timestamp` (timestamp, or milliseconds), `headers` (list of structs of key and
                value). For a row without a partition the partitioner chooses by the key; a row without a timestamp
                gets the present time. Serializers are not called.
            topic: for tables without a `topic` column.
            headers: the same for all rows, added after the headers of the row.

        Returns:
            A future with one `SentMany` for each topic, in the order of the first rows. It raises `PartlySentError` if
            some rows are not stored.

        Raises:
            MissingDependencyError: pyarrow is not installed.
            TypeError: `data` is not a table, or a column has a type that cannot be sent.
            ConfigError: a column is missing or unknown, or a value is out of range.
            Errors: all others are those of `send_many`.
        """
        return run(self._send_tables(data, topic, headers), self._wait)

    async def _reserve(self, size: int) -> None:
        self._pool.reserve(size, self._wake_to_wait)

    def transaction(self, timeout: float | None = None) -> Transaction:
        """Return a transaction, to be used in a `with` statement: all its records are stored, or none.

        At the end of the block the transaction is committed. An exception aborts it and is raised. The first block
        initializes the producer: another one of the same `transactional_id` is fenced.

        >>> import kohort
        >>> with kohort.Broker() as broker:
        ...     with kohort.Producer(
        ...         bootstrap_servers=broker.bootstrap_servers, transactional_id="billing"
        ...     ) as producer:
        ...         with producer.transaction() as transaction:
        ...             order = transaction.send("orders", value="42")
        ...             invoice = transaction.send("invoices", value="42")
        >>> order.result().offset, invoice.result().offset
        (0, 0)

        Args:
            timeout: seconds for the begin, and for the end, each; `None` means `max_block_ms`.

        Raises:
            TransactionAbortableError: at the end: a record or an offset is lost, so that the transaction was aborted.
            ProducerFencedError: another producer uses the transactional id, or the transaction took longer than
                `transaction_timeout_ms`.
            KohortTimeoutError: the end was not confirmed in time; the transaction may be committed later.
            ConfigError: the producer has no transactional_id.
            StateError: a transaction is open already, or the producer is closed.
        """
        return Transaction(self, timeout)

    def init_transactions(self, timeout: float | None = None) -> None:
        """Take over the transactional id: another producer of that id is fenced, its open transaction ends.

        The first `begin_transaction` does the same, so a program need not call this. Errors are those of `transaction`.
        """
        run(self._take_step(TransactionStep.INITIALIZE, timeout), self._wait)

    def _initialize(self) -> ProducerIdAndEpoch:
        """Take over the transactional id; return the identity by which others join the next transaction."""
        return run(self._take_step(TransactionStep.INITIALIZE, None), self._wait)

    def _join(self, identity: ProducerIdAndEpoch | None) -> None:
        """Take part in the transaction that another producer has begun; `None`: leave it as it is."""
        run(self._share(identity, None), self._wait)

    def begin_transaction(self, timeout: float | None = None) -> None:
        """Begin a transaction: every record from now on belongs to it. Errors are those of `transaction`."""
        run(self._begin(timeout), self._wait)

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Store each record of the transaction, and commit it; the wait is at most `timeout` seconds.

        After a `KohortTimeoutError` the commit goes on; call this again to wait for it. After a
        `TransactionAbortableError` call `abort_transaction`. Other errors are those of `transaction`.
        """
        self._deliveries.check_outside("commit_transaction()")
        run(self._take_step(TransactionStep.COMMIT, timeout), self._wait)
        self._deliveries.serve(patience_s=GRACE_S)

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Abort the transaction: none of its records is shown to readers with isolation_level=read_committed.

        Records that were not sent yet fail with a `TransactionAbortableError`. Errors are those of `transaction`.
        """
        self._deliveries.check_outside("abort_transaction()")
        run(self._take_step(TransactionStep.ABORT, timeout), self._wait)
        self._deliveries.serve(patience_s=GRACE_S)

    def send_offsets_to_transaction(
        self, offsets: OffsetsArgument, group_metadata: GroupMetadata | str, timeout: float | None = None
    ) -> None:
        """Commit offsets of a group with the transaction; see `Transaction.send_offsets`.

        Args:
            offsets: partition to the next offset to read, as for `Consumer.commit`.
            group_metadata: `Consumer.group_metadata()`; or a group id, with which no member is fenced.
            timeout: seconds; `None` means `max_block_ms`.
        """
        run(self._send_offsets(offsets, group_metadata, timeout), self._wait)

    def produce(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int = -1,
        on_delivery: DeliveryCall | None = None,
        callback: DeliveryCall | None = None,
        timestamp: int = 0,
        headers: HeadersArgument = None,
    ) -> None:
        """Queue a record as confluent-kafka's `produce` does: with a callback instead of a future.

        Args:
            partition: -1 lets the partitioner choose.
            timestamp: milliseconds since 1970-01-01 UTC; 0 means now.
        """
        if on_delivery is not None and callback is not None:
            raise TypeError("callback is another name for on_delivery: leave one of the two out")
        self.send(
            topic,
            value,
            key,
            partition=None if partition == -1 else partition,
            timestamp_ms=timestamp or None,
            headers=headers,
            on_delivery=callback if on_delivery is None else on_delivery,
        )

    def poll(self, timeout: float | None = 0.0) -> int:
        """Call the callbacks of records that are stored or have failed; wait up to `timeout` seconds for the first.

        Only `on_delivery` callbacks depend on it: records are sent without it. `None` waits without a time limit.

        Returns:
            The number of callbacks that were called.
        """
        seconds = FOREVER_S if timeout is None else to_seconds(timeout)
        if seconds:
            self._deliveries.wait(min(seconds, FOREVER_S))
        return self._deliveries.serve()

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[int]:
        """Return the partition numbers of a topic, ascending; an empty list if the topic does not exist.

        Raises:
            KohortTimeoutError: no broker has responded within `timeout` seconds (`None`: `max_block_ms`).
            StateError: the producer is closed.
        """
        return run(self._partitions(topic, timeout), self._wait)

    def flush(self, timeout: float | None = None) -> int:
        """Send queued records without linger, and wait until each record so far is stored or has failed.

        Args:
            timeout: seconds; `None` means no limit. Records left after the timeout are still sent.

        Returns:
            The number of records left, as in confluent-kafka. Failed records are not among them: "record-error-total"
            in `metrics()` counts them, and their futures and callbacks have the errors.

        Raises:
            StateError: called in a callback, or the producer has stopped after an internal error.
        """
        self._deliveries.check_outside("flush()")
        left = run(self._flushed(timeout), self._wait)
        self._deliveries.serve(patience_s=GRACE_S)
        return left

    def close(self, timeout: float = 30.0) -> None:
        """Flush and disconnect; records not stored within `timeout` seconds fail with a `KohortTimeoutError`.

        Failed records whose futures the application never asked are counted in a line of the log, written here or a
        second after the failure.

        Raises:
            StateError: called in a callback, or the producer has stopped after an internal error.
        """
        seconds = to_seconds(timeout)
        self._deliveries.check_outside("close()")
        self._close(seconds, is_quiet=False)

    def _close(self, timeout: float, *, is_quiet: bool) -> None:
        if self._is_closed:
            return
        self._io.check_may_wait()
        self._is_closed = True
        # Ends the `send` calls that wait for space in the buffer.
        self._pool.shut()
        if self._io.is_running:
            deadline = self._io.deadline_ms(timeout)
            try:
                self._io.call(
                    lambda ticket: ProducerCloseAsked(ticket=ticket, deadline_ms=deadline, is_quiet=is_quiet),
                    timeout + GRACE_S,
                )
            except (KohortTimeoutError, StateError):
                self._io.stop()
            self._io.join(GRACE_S)
            # A `send` of another thread may have passed its check before the limit was shut.
            self._refuse_the_late()
        # Another thread's callbacks may take so long.
        self._deliveries.serve(patience_s=GRACE_S)
        if not is_quiet:
            self._io.raise_failure()

    def _wait(self, wait: Wait) -> object:
        assert isinstance(wait, Pause) and wait.ticket is not None, "calls wait for tickets"
        return self._io.wait(wait.ticket, wait.seconds)

    def _check_may_wait(self) -> None:
        self._io.check_may_wait()

    def _wake_to_wait(self) -> None:
        self._io.check_may_wait()
        self._wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an exception the program should not wait long for queued records.
        self._close(30.0 if kind is None else 3.0, is_quiet=kind is not None)


class Transaction:
    """One transaction of a blocking producer, made by `Producer.transaction`: a block that commits or aborts.

    Laws: an exception out of the block is raised after the abort, whether that succeeds or not. The transaction ends
    with the block, unless a call has timed out or the producer is fenced.
    """

    def __init__(self, producer: Producer, timeout: float | None) -> None:
        self._producer = producer
        self._timeout = timeout

    def __enter__(self) -> Self:
        try:
            self._producer.begin_transaction(self._timeout)
        except KohortError:
            raise
        except BaseException:
            self._producer._take_back_begin()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if error is not None:
            self._abort(error)
            return
        try:
            self._producer.commit_transaction(self._timeout)
        except TransactionAbortableError as why:
            self._abort(why)
            raise

    def _abort(self, error: BaseException) -> None:
        try:
            self._producer.abort_transaction(self._timeout)
        except KohortError as why:
            note_failed_abort(error, why)

    @property
    def send(self) -> Callable[..., Future[RecordMetadata]]:
        """The call that sends a record in this transaction; arguments and errors are those of `Producer.send`."""
        return self._producer.send

    def send_many(self, topic: str, values: Iterable[Any], **more: Any) -> Future[SentMany]:
        """Send many records in this transaction; arguments and errors are those of `Producer.send_many`."""
        return self._producer.send_many(topic, values, **more)

    def send_arrow(
        self, data: object, topic: str | None = None, *, headers: HeadersArgument = None
    ) -> Future[tuple[SentMany, ...]]:
        """Send the rows of a table in this transaction; arguments and errors are those of `Producer.send_arrow`."""
        return self._producer.send_arrow(data, topic, headers=headers)

    def send_offsets(
        self, consumer: OffsetsSource, offsets: OffsetsArgument | None = None, timeout: float | None = None
    ) -> None:
        """Commit a consumer's offsets with this transaction: they count when its records do.

        Args:
            consumer: a member of a group, with `enable_auto_commit=False`; its member id and epoch go with the offsets,
                so that a member that has lost the partitions meanwhile cannot commit. Call this once for each `poll`:
                a later one may give partitions away.
            offsets: as for `Consumer.commit`; `None` means every record that `poll` has returned.
            timeout: seconds; `None` means `max_block_ms`.

        Raises:
            ConfigError: the consumer commits its offsets by itself.
            TransactionAbortableError: the group has removed the member, or this client may not write to the group.
        """
        chosen = consumer.processed_offsets() if offsets is None else offsets
        self._producer.send_offsets_to_transaction(chosen, consumer.group_metadata(), timeout)
