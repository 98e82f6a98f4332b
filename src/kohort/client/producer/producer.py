"""The producer: records go in from any thread, futures come back.

Source: Kafka's producer; C9.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from types import TracebackType
from typing import Any, Final, Self

from kohort.client.io.thread import IoThread
from kohort.client.options import PRODUCER_OPTIONS, client_settings
from kohort.client.producer.core.accumulator import BATCH_OVERHEAD_BYTES, RECORD_OVERHEAD_BYTES
from kohort.client.producer.core.producer_events import FlushAsked, ProducerCloseAsked, ProducerEvent, RecordsSubmitted
from kohort.client.producer.core.producer_machine import ProducerMachine
from kohort.client.producer.core.sender import SenderSettings
from kohort.client.producer.core.submissions import PendingRecord, Submissions
from kohort.client.producer.record_arguments import (
    Payload,
    check_partition,
    check_timestamp,
    check_topic,
    to_bytes,
    to_headers,
)
from kohort.client.producer.record_future import RecordFuture
from kohort.client.producer.room import Room
from kohort.client.records import RecordMetadata
from kohort.errors import BrokerError, ConfigError, ErrorCode, KohortTimeoutError, StateError

_SUBMITTED: Final = RecordsSubmitted()
_FOREVER_S: Final = 1e9
#: What a producer that nobody closed has to flush in the background.
_FORGOTTEN_S: Final = 30.0


class Producer:
    """Sends records; idempotent unless told otherwise, so that a retry never doubles or reorders them.

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

    def __init__(self, config: Mapping[str, Any] | None = None, /, **options: Any) -> None:
        """Nothing is sent or connected before the first `send`.

        Args:
            config: options by Kafka's dotted names; may be mixed with keywords.
            options: options as keywords.

        Raises:
            ConfigError: an option is unknown, has an impossible value, is given twice, or contradicts another.
        """
        given = PRODUCER_OPTIONS.gather(config, options)
        values = PRODUCER_OPTIONS.parse(given)
        acks = {"all": -1, "-1": -1, "0": 0, "1": 1}[values["acks"]]
        is_idempotent = values["enable.idempotence"]
        if acks != -1 and is_idempotent:
            if "enable.idempotence" in given:
                raise ConfigError("enable.idempotence needs acks=all; leave one of the two out")
            is_idempotent = False
        max_in_flight = values["max.in.flight.requests.per.connection"]
        if is_idempotent and max_in_flight > 5:
            raise ConfigError("max.in.flight.requests.per.connection cannot be above 5 with enable.idempotence")
        self._max_request_bytes: int = values["max.request.size"]
        self._room = Room(limit_bytes=values["buffer.memory"], max_block_s=values["max.block.ms"] / 1000)
        self._is_closed = False
        #: Names that can be asked for.
        self._checked_topics: set[str] = set()
        self._submissions = Submissions(wake_bytes=values["batch.size"])
        settings = client_settings(values, seed=time.monotonic_ns() & 0xFFFF_FFFF)
        machine = ProducerMachine(
            settings,
            SenderSettings(
                acks=acks,
                compression=values["compression.type"],
                max_in_flight=max_in_flight,
                max_request_bytes=self._max_request_bytes,
                request_timeout_ms=settings.request_timeout_ms,
                delivery_timeout_ms=values["delivery.timeout.ms"],
                retries=values["retries"],
            ),
            submissions=self._submissions,
            batch_bytes=values["batch.size"],
            linger_ms=values["linger.ms"],
            is_idempotent=is_idempotent,
            on_release=self._room.release,
        )
        # Nothing that the thread refers to leads back here: a producer that is forgotten is flushed by `__del__`.
        self._io: IoThread[ProducerEvent] = IoThread(
            machine,
            settings,
            deliver=lambda _: None,
            what="producer",
            on_crash=partial(_abandon, machine, self._room),
            holds=machine.holds,
            farewell=lambda ticket, deadline_ms: ProducerCloseAsked(ticket=ticket, deadline_ms=deadline_ms),
        )
        self._wake: Callable[[], None] = partial(self._io.post, _SUBMITTED)

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """A producer from Kafka's dotted names: `Producer.from_config({"bootstrap.servers": "localhost:9092"})`."""
        return cls(config)

    def send(
        self,
        topic: str,
        value: Payload = None,
        key: Payload = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: Sequence[tuple[str, Payload]] = (),
    ) -> Future[RecordMetadata]:
        """Queue a record and return at once; the future ends when the broker has it, or with the reason why not.

        Args:
            topic: created by the broker if it is missing and the broker allows that.
            value: bytes, or text that is sent as UTF-8; `None` is a tombstone.
            key: as `value`; equal keys go to the same partition.
            partition: goes there whatever the key; `None` lets the key decide.
            timestamp_ms: milliseconds since 1970-01-01 UTC; `None` means now.
            headers: (name, value) pairs; a value as `value`.

        Raises:
            TypeError: topic, key, value or headers are of a type that cannot be sent.
            ConfigError: partition or timestamp is no number that it can be, or text is not fit for UTF-8.
            BrokerError: MESSAGE_TOO_LARGE, the record is above `max_request_size`.
            KohortTimeoutError: `buffer_memory` is full and stayed so for `max_block_ms`.
            StateError: the producer is closed or has stopped after an internal error; or `buffer_memory` is full in a
                callback of a future, where nobody may wait.
        """
        if self._is_closed:
            raise StateError("this producer is closed")
        if topic.__class__ is not str or topic not in self._checked_topics:
            check_topic(topic)
            self._checked_topics.add(topic)
        if partition is not None:
            partition = check_partition(partition)
        key_bytes, value_bytes = to_bytes(key, "key"), to_bytes(value, "value")
        size = RECORD_OVERHEAD_BYTES + len(key_bytes or b"") + len(value_bytes or b"")
        pairs = to_headers(headers) if headers else ()
        for name, content in pairs:
            size += len(name) + len(content or b"") + 10
        if size + BATCH_OVERHEAD_BYTES > self._max_request_bytes:
            text = f"a record of {size} bytes is above max.request.size ({self._max_request_bytes})"
            raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, text, during=f"sending to {topic}")
        timestamp = time.time_ns() // 1_000_000 if timestamp_ms is None else check_timestamp(timestamp_ms)
        self._room.reserve(size, self._wake_to_wait)
        future: RecordFuture[RecordMetadata] = RecordFuture()
        record = PendingRecord(topic, partition, (key_bytes, value_bytes, timestamp, pairs), future, size)
        if self._submissions.append(record):
            self._wake()
        return future

    def flush(self, timeout: float | None = None) -> None:
        """Send what is queued at once, and return when every record so far has its end, good or bad.

        Raises:
            KohortTimeoutError: not within `timeout` seconds (`None`: no limit); sending goes on.
            StateError: called in a callback of a future, or the producer has stopped after an internal error.
        """
        self._io.raise_failure()
        if self._io.is_running:
            self._io.call(lambda ticket: FlushAsked(ticket=ticket), _FOREVER_S if timeout is None else timeout)

    def close(self, timeout: float = 30.0) -> None:
        """Flush and end; what is not acknowledged within `timeout` seconds fails with a `KohortTimeoutError`.

        Records that failed, and whose futures nobody has asked, are counted in a line of the log.

        Raises:
            StateError: called in a callback of a future, or the producer has stopped after an internal error.
        """
        self._close(timeout, is_quiet=False)

    def _close(self, timeout: float, *, is_quiet: bool) -> None:
        if self._is_closed:
            return
        self._io.check_may_wait()
        self._is_closed = True
        if self._io.is_running:
            self._end(timeout, is_quiet=is_quiet)
        if not is_quiet:
            self._io.raise_failure()

    def _end(self, timeout: float, *, is_quiet: bool) -> None:
        deadline = self._io.deadline_ms(timeout)
        try:
            self._io.call(
                lambda ticket: ProducerCloseAsked(ticket=ticket, deadline_ms=deadline, is_quiet=is_quiet),
                timeout + 5.0,
            )
        except (KohortTimeoutError, StateError):
            self._io.stop()
        self._io.join(5.0)

    def _wake_to_wait(self) -> None:
        self._io.check_may_wait()
        self._wake()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # After an error nobody wants to wait long for what was queued.
        self._close(30.0 if kind is None else 3.0, is_quiet=kind is not None)

    def __del__(self) -> None:
        # Also called for one whose options were refused.
        io: IoThread[ProducerEvent] | None = getattr(self, "_io", None)
        if io is not None and not self._is_closed:
            io.retire(_FORGOTTEN_S)
            io.warn_unclosed()


def _abandon(machine: ProducerMachine, room: Room, error: StateError) -> None:
    machine.abandon(error)
    room.close()
