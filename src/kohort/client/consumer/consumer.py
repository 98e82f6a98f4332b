"""The consumer's blocking door: a machine on a thread of its own, and calls that wait for it.

Source: users@kafka, "New Consumer Design" (July 2014); the consumer threading refactor (CTR).
"""

from __future__ import annotations

import threading
from collections.abc import Awaitable, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Self, TypeVar, Unpack

from kohort.client.consumer.arrow_batches import DEFAULT_MAX_BYTES
from kohort.client.consumer.offset_calls import OffsetCalls
from kohort.client.elsewhere import CONSUMERS, answering
from kohort.client.exchange import GroupMembershipOperation
from kohort.client.io.thread import IoThread
from kohort.client.records import ConsumerRecord
from kohort.client.steps import Pause, Steps, Wait

if TYPE_CHECKING:
    import pyarrow

    from kohort.client.typed_options import ConsumerOptions

T = TypeVar("T")


@answering(CONSUMERS)
class Consumer(OffsetCalls):
    """Reads topics, alone or as a member of a group.

    Options are Kafka's, in snake_case as keywords or by their dotted names in a mapping: `Consumer({"group.id": "a"})`.
    Topics to subscribe to may come first: `Consumer("orders", group_id="billing")`.

    A consumer belongs to one thread at a time; a call from a second one while the first is in `poll` is a `StateError`.
    `wakeup` and `close` may come from any, and so may `commit` with offsets, `committed`, `end_offsets` and the other
    questions. `for record in consumer` reads record by record until the consumer is closed.

    >>> import kohort
    >>> with kohort.Broker() as broker:
    ...     with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
    ...         _ = producer.send("orders", value=b"one").result(10)
    ...     with kohort.Consumer(
    ...         "orders", bootstrap_servers=broker.bootstrap_servers, group_id="billing", auto_offset_reset="earliest"
    ...     ) as consumer:
    ...         for record in consumer:
    ...             print(record.value)
    ...             break
    b'one'
    """

    def __init__(self, *first: Mapping[str, object] | str | None, **options: Unpack[ConsumerOptions]) -> None:
        """Create a consumer; nothing is connected before the first call that needs a broker.

        Args:
            first: options by Kafka's dotted names in a mapping, which may be mixed with keywords; or topics.
            options: options as keywords.

        Raises:
            ConfigError: an option is unknown, has an impossible value, is given twice, or contradicts another.
        """
        self._signal = threading.Event()
        self._set_up(first, options, IoThread, self._signal)
        if self._first_topics:
            self.subscribe(self._first_topics)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception the last records may be half processed: they are not committed, but read again.
        self._run(self._close_steps(30.0, with_progress=error is None))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        record = self._take_one("iteration")
        if record is None:
            record = self._run(self._iteration_steps())
            if record is None:
                raise StopIteration
        return record

    def _subscribe_to_nothing(self) -> None:
        self.unsubscribe()

    def unsubscribe(self, *, timeout: float = 30.0) -> None:
        """Commit (with auto-commit), give every partition up and leave the group."""
        return self._run(self._unsubscribe_steps(timeout))

    def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> list[ConsumerRecord]:
        """Return the records that have arrived; wait up to `timeout` seconds for the first.

        Calling it again says that the records of the call before are processed: auto-commit commits them. Rebalance
        callbacks run in here.

        Raises:
            BrokersUnreachableError: no bootstrap address accepts a connection, and none ever has.
            BrokerError: the group refuses this member, or a partition cannot be read.
            UnknownTopicError: a partition assigned by hand does not exist.
            StateError: the consumer is closed, neither subscribed nor assigned, or in use by another thread.
        """
        return self._run(self._poll_steps(timeout, max_records))

    def poll_one(self, timeout: float = 1.0) -> ConsumerRecord | None:
        """Return the next record, or `None` after `timeout` seconds without one; otherwise like `poll`.

        A record counts as processed when the next is asked for.
        """
        record = self._take_one("poll_one")
        return self._run(self._one_steps("poll_one", timeout)) if record is None else record

    def consume(self, num_messages: int = 1, timeout: float = 1.0) -> list[ConsumerRecord]:
        """Return so many records, or fewer after `timeout` seconds; otherwise like `poll`.

        An error that comes when some have been taken is raised by the next call.
        """
        return self._run(self._consume_steps(num_messages, timeout))

    def poll_arrow(
        self,
        timeout: float = 1.0,
        *,
        columns: Sequence[str] | None = None,
        include_headers: bool = False,
        max_records: int | None = None,
        max_bytes: int = DEFAULT_MAX_BYTES,
    ) -> list[pyarrow.RecordBatch]:
        """Return fetched records as Arrow record batches of one schema, of about 1 MiB each; cf. `poll`.

        Records of several partitions stand in one batch where they are few; those of one partition are in order.

        Args:
            timeout: seconds to wait for the first.
            columns: of key, value, topic, partition, offset, timestamp, timestampType, headers; `None` means all but
                headers. Columns that are left out are not decoded.
            include_headers: add the column headers.
            max_records: rows of all batches together; `None` is no limit. Further rows stay for the next call.
            max_bytes: bytes of the records of all batches together; one record is always handed out, however large.

        Raises:
            MissingDependencyError: pyarrow is not installed.
        """
        return self._run(
            self._arrow_steps(
                timeout, columns, include_headers=include_headers, max_records=max_records, max_bytes=max_bytes
            )
        )

    def close(self, timeout: float = 30.0, *, group_membership: GroupMembershipOperation = "default") -> None:
        """Commit (with auto-commit), leave the group and end the background thread, within `timeout` seconds.

        The records that `poll` returned last count as processed, unless another thread polled them, or an exception has
        come since and is passing: in a `finally` or an `except` block they may be half processed, so they are read
        again, as after a `with` block. An exception that was handled before does not count. May be called from any
        thread and from a signal handler, and twice: a `poll` that waits meanwhile returns at once.

        Args:
            timeout: seconds.
            group_membership: "leave_group" frees the partitions at once, also those of a static member, whose would
                wait for its return otherwise; "remain_in_group" lets those of any member wait until its session ends.

        Source: KIP-1092.
        """
        with_progress = not self._is_interrupted()
        self._run(self._close_steps(timeout, with_progress=with_progress, group_membership=group_membership))

    # -- inside -----------------------------------------------------------------------------------------------------

    def _run(self, steps: Steps[T]) -> T:
        try:
            wait = next(steps)
            while True:
                try:
                    outcome = self._await(wait)
                except BaseException as error:
                    wait = steps.throw(error)
                else:
                    wait = steps.send(outcome)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]

    def _await(self, wait: Wait) -> object:
        match wait:
            case Pause(seconds=seconds, ticket=None):
                return self._signal.wait(seconds)
            case Pause(seconds=seconds, ticket=ticket):
                return self._host.wait(ticket, seconds)
            case Awaitable():
                close = getattr(wait, "close", None)
                if close is not None:
                    close()
                raise TypeError("a rebalance callback is a coroutine function: those are for kohort.aio.Consumer")
