"""The producer's blocking door: records go in from any thread, futures come back.

Source: Kafka's producer; C9.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, Unpack

from kohort.client.arguments import to_seconds
from kohort.client.core.thread import IoThread
from kohort.client.foreign_names import PRODUCERS, answering
from kohort.client.producer.buffer_pool import BufferPool
from kohort.client.producer.context import FOREVER_S, GRACE_S, HeadersArgument, ProducerDoor
from kohort.client.producer.core.producer_events import ProducerCloseAsked
from kohort.client.producer.record_future import DeliveryCall
from kohort.client.records import RecordMetadata, SentMany
from kohort.client.steps import Pause, Wait, run
from kohort.errors import KohortTimeoutError, StateError

if TYPE_CHECKING:
    from kohort.client.typed_options import ProducerOptions


@answering(PRODUCERS)
class Producer(ProducerDoor):
    """A client that sends records; idempotent by default, so that a retry never doubles or reorders them.

    Options are Kafka's producer configs in snake_case, e.g. `acks`, `linger_ms`, `batch_size`, `compression_type`,
    `delivery_timeout_ms`, or by their dotted names in a mapping: `Producer({"linger.ms": 5})`; an unknown one is an
    `UnknownOptionError` that names the nearest. May be shared by threads.

    >>> import kohort
    >>> with kohort.Broker() as broker:
    ...     with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
    ...         stored = producer.send("orders", value="42", key="customer-7").result(10)
    >>> stored.topic, stored.partition, stored.offset
    ('orders', 0, 0)
    """

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Unpack[ProducerOptions]) -> None:
        """Create a producer; nothing is connected before the first `send` or `connect`.

        Args:
            config: options by Kafka's dotted names; may be mixed with keywords.
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
        """Wait until a broker has answered; raise as soon as every address was tried in vain.

        No other call needs it: `send` connects, and a record waits `delivery_timeout_ms` for its broker, also for one
        that has not started yet. `connect` is for programs that shall end when there is no broker.

        Args:
            timeout: how long the brokers may take, in seconds; `None`: `max_block_ms`.

        Raises:
            BrokersUnreachableError: no address leads to a broker, or (`AdvertisedAddressError`) none that a broker has
                named; or no broker lets this client in (`AuthenticationError`).
            KohortTimeoutError: no broker has answered within `timeout`.
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
        """Queue a record and return at once; the future ends with its place, or with the error.

        The record waits for a broker for `delivery_timeout_ms`, whether there has ever been one or not. The log says so
        after a second.

        Args:
            topic: created by the broker if it is missing and the broker allows that.
            value: bytes, text (sent as UTF-8), `None` (a tombstone), or any value that `value_serializer` takes.
            key: as `value`; equal keys go to the same partition.
            partition: overrides the key; `None` lets the key decide.
            timestamp_ms: milliseconds since 1970-01-01 UTC; `None` means now.
            headers: (name, value) pairs, or a mapping; a value is bytes, text or `None`.
            on_delivery: called with error and metadata, one of which is `None`, when the record has its end; by a later
                call of `send`, `poll`, `flush` or `close`, in that call's thread. An exception of it is logged.

        Raises:
            TypeError: topic, key, value or headers are of a type that cannot be sent.
            ConfigError: partition or timestamp is no number that it can be, or text is not fit for UTF-8.
            SerializationError: a serializer has failed.
            BrokerError: MESSAGE_TOO_LARGE, the record is above `max_request_size`.
            BufferFullError: `buffer_memory` is full and stayed so for `max_block_ms`.
            StateError: the producer is closed or has failed; or there is no room, in a callback of a future.
        """
        record = None
        if partition is None and timestamp_ms is None and headers is None and on_delivery is None:
            record = self._encoder.plain(topic, value, key)
        if record is None:
            record = self._encoder.record(
                topic,
                value,
                key,
                partition=partition,
                timestamp_ms=timestamp_ms,
                headers=headers,
                on_delivery=on_delivery,
            )
        pool = self._pool
        if not pool.is_shut:
            pool.reserve(record.size_bytes, self._wake_to_wait)
        if pool.is_shut:
            raise self._refusal()
        # As `_submit`, without the cost of its call.
        if self._submissions.append(record):
            self._wake()
        if self._deliveries.ended:
            self._deliveries.serve()
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
        """Queue many records at once; the future ends when all are stored, or with an error for the rest.

        It costs a tenth of as many `send`: no object is made of a record. The records of a partition stay in order,
        also among those of other calls.

        Args:
            topic: as of `send`.
            values: n of them; each as of `send`.
            keys: n of them, or `None`; a key may be `None`, too.
            partition: for all of them; `None` lets each key decide.
            timestamps: n of them, or one for all; milliseconds since 1970. `None` means now.
            headers: the same for all.

        Returns:
            The number of stored records, and their ranges of offsets in each partition. The future raises
            `PartlySentError` if some are not stored. `on_delivery` callbacks are for single records.

        Raises:
            BufferFullError: there was no room for the first of them; for later ones the future tells.
            Errors: all others are those of `send`, with the place of the wrong value, like values[3].
        """
        pieces = self._encoder.rows(
            topic, values, keys=keys, partition=partition, timestamps=timestamps, headers=headers
        )
        return run(self._send_pieces(topic, pieces), self._wait)

    def send_arrow(
        self, data: object, topic: str | None = None, *, headers: HeadersArgument = None
    ) -> Future[tuple[SentMany, ...]]:
        """Queue the rows of a table; the future ends when all are stored, or with an error for the rest.

        Args:
            data: a `pyarrow.Table`, a `RecordBatch`, or a data frame that Arrow can read (Polars, pandas). Columns as
                Spark's Kafka sink has them: `value` (binary or string), and optionally `key` (the same), `topic`,
                `partition` (int), `timestamp` (timestamp, or milliseconds), `headers` (list of structs of key and
                value). A row without a partition goes where its key says, one without a timestamp gets the present
                time. Serializers are not called.
            topic: for tables without such a column.
            headers: the same for all, behind those of the row.

        Returns:
            For each topic, in the order in which they come up, the places of its rows; the future raises
            `PartlySentError` if some are not stored.

        Raises:
            MissingDependencyError: pyarrow is not installed.
            TypeError: it is no table, or a column has a type that cannot be sent.
            ConfigError: a column is missing or unknown, or a value is one that cannot be.
            Errors: all others are those of `send_many`.
        """
        return run(self._send_tables(data, topic, headers), self._wait)

    async def _reserve(self, size: int) -> None:
        self._pool.reserve(size, self._wake_to_wait)

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
        """Send a record as confluent-kafka's `produce` does: no future, but a callback by either name.

        Args:
            partition: -1 lets the key decide.
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
        """Call the callbacks of ended records; wait up to `timeout` seconds for the first.

        Only callbacks need it: records are sent and acknowledged without it. `None` waits as long as it takes.

        Returns:
            The number of called callbacks.
        """
        seconds = FOREVER_S if timeout is None else to_seconds(timeout)
        if seconds:
            self._deliveries.wait(min(seconds, FOREVER_S))
        return self._deliveries.serve()

    def partitions_for(self, topic: str, timeout: float | None = None) -> list[int]:
        """Return the partitions of a topic, ascending; none if there is no such topic.

        Raises:
            KohortTimeoutError: no broker has answered within `timeout` seconds (`None`: `max_block_ms`).
            StateError: the producer is closed.
        """
        return run(self._partitions(topic, timeout), self._wait)

    def flush(self, timeout: float | None = None) -> int:
        """Send queued records at once, and wait until every one so far has its end, good or bad.

        Args:
            timeout: seconds; `None`: no limit. Sending goes on behind it.

        Returns:
            The number of records without an end, as in confluent-kafka. The number of all failed records of this
            producer is "record-error-total" in `metrics()`; their errors are in their futures and callbacks.

        Raises:
            StateError: called in a callback, or the producer has stopped after an internal error.
        """
        self._deliveries.check_outside("flush()")
        left = run(self._flushed(timeout), self._wait)
        self._deliveries.serve(patience_s=GRACE_S)
        return left

    def close(self, timeout: float = 30.0) -> None:
        """Flush and end; records without an end after `timeout` seconds fail with a `KohortTimeoutError`.

        Failed records whose futures were not asked are counted in a line of the log: here, or a second after they
        failed.

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
        # Ends the `send` calls that wait for room.
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
