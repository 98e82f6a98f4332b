"""The blocking consumer: its protocol runs in a background thread, and its calls wait in the caller's.

Source: users@kafka, "New Consumer Design" (July 2014); the consumer threading refactor (CTR).
"""

from __future__ import annotations

import threading
from collections.abc import Coroutine, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar, Unpack, overload

from kohort.client.consumer.application_events import GroupMembershipOperation
from kohort.client.consumer.door import ConsumerDoor
from kohort.client.consumer.positions import Offsets, Positions
from kohort.client.consumer.reader import Reader
from kohort.client.consumer.subscriptions import Subscriptions
from kohort.client.core.thread import IoThread
from kohort.client.foreign_names import CONSUMERS, answering
from kohort.client.records import ConsumerRecord, OffsetAndMetadata
from kohort.client.steps import blocking, run
from kohort.ids import TopicPartition

if TYPE_CHECKING:
    from kohort.client.typed_options import ConsumerOptions

R = TypeVar("R")


@answering(CONSUMERS)
class Consumer(ConsumerDoor):
    """A Kafka consumer that reads topics as a member of a group, or partitions assigned by hand.

    Options are Kafka's: keywords in snake_case, or a mapping of dotted names, as in `Consumer({"group.id": "a"})`.
    Positional texts are topics to subscribe to: `Consumer("orders", group_id="billing")`.

    A consumer is used by one thread at a time: a call during another thread's `poll` raises `StateError`. Any thread
    may call `wakeup`, `close`, `commit` with offsets, `committed`, `end_offsets` and the other calls that only ask
    the brokers. `for record in consumer` reads record by record until the consumer is closed.

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

    unsubscribe = blocking(Subscriptions.unsubscribe)

    poll = blocking(Reader.poll)
    consume = blocking(Reader.consume)
    poll_arrow = blocking(Reader.poll_arrow)

    position = blocking(Positions.position)
    lag = blocking(Positions.lag)
    current_lag = blocking(Positions.current_lag)

    commit = blocking(Offsets.commit)
    watermarks = blocking(Offsets.watermarks)
    get_watermark_offsets = blocking(Offsets.get_watermark_offsets)
    beginning_offsets = blocking(Offsets.beginning_offsets)
    end_offsets = blocking(Offsets.end_offsets)
    offsets_for_times = blocking(Offsets.offsets_for_times)
    partitions_for = blocking(Offsets.partitions_for)
    list_topics = blocking(Offsets.list_topics)
    describe_topics = blocking(Offsets.describe_topics)
    topics = blocking(Offsets.topics)

    def __init__(self, *first: Mapping[str, object] | str | None, **options: Unpack[ConsumerOptions]) -> None:
        """Create a consumer; it connects at the first call that needs a broker.

        Args:
            first: a mapping of Kafka's dotted option names, which may be combined with keywords; or topics.
            options: options as keywords.

        Raises:
            ConfigError: an option is unknown, has an impossible value, is given twice, or contradicts another.
        """
        self._set_up(first, options, IoThread, threading.Event(), is_on_loop=False)
        if self._first_topics:
            self.subscribe(self._first_topics)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception the last records may be half processed: they are not committed, but read again.
        self._run(self._context.close(30.0, with_progress=error is None))

    def __iter__(self) -> Self:
        return self

    def __next__(self) -> ConsumerRecord:
        record = self._take_one("iteration")
        if record is None:
            record = self._run(self._reader.next())
            if record is None:
                raise StopIteration
        return record

    def poll_one(self, timeout: float = 1.0) -> ConsumerRecord | None:
        """Return the next record, or `None` after `timeout` seconds without one; otherwise like `poll`.

        The next call marks the record as processed, so that auto-commit commits it.
        """
        record = self._take_one("poll_one")
        return self._run(self._reader.one("poll_one", timeout)) if record is None else record

    @overload
    def committed(
        self, partitions: TopicPartition, timeout: float | None = None, *, metadata: Literal[False] = False
    ) -> int | None: ...

    @overload
    def committed(
        self, partitions: TopicPartition, timeout: float | None = None, *, metadata: Literal[True]
    ) -> OffsetAndMetadata | None: ...

    @overload
    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None, *, metadata: Literal[False] = False
    ) -> dict[TopicPartition, int | None]: ...

    @overload
    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None, *, metadata: Literal[True]
    ) -> dict[TopicPartition, OffsetAndMetadata | None]: ...

    def committed(
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
        return self._run(self._calls[Offsets.__name__].committed(partitions, timeout, metadata=metadata))

    def close(self, timeout: float = 30.0, *, group_membership: GroupMembershipOperation = "default") -> None:
        """Commit (with auto-commit), leave the group and end the background thread, within `timeout` seconds.

        The records of the last `poll` count as processed, except in two cases: another thread polled them, or an
        exception raised since that `poll` is still being handled (a `finally` or `except` block, the end of a `with`
        block). They may be half processed then, so they are not committed. May be called from any thread, from a signal
        handler, and twice: a `poll` that is waiting returns at once.

        Args:
            timeout: seconds.
            group_membership: "leave_group" frees the partitions at once, even those of a static member;
                "remain_in_group" keeps them until the session times out. By default only a static member remains.

        Source: KIP-1092.
        """
        with_progress = not self._context.is_interrupted()
        self._run(self._context.close(timeout, with_progress=with_progress, group_membership=group_membership))

    def _run(self, call: Coroutine[Any, Any, R]) -> R:
        return run(call, self._context.wait)
