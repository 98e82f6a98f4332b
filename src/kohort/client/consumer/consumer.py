"""The consumer's blocking door: a machine on a thread of its own, and calls that wait for it.

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
        """Create a consumer; nothing is connected before the first call that needs a broker.

        Args:
            first: options by Kafka's dotted names in a mapping, which may be mixed with keywords; or topics.
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

        A record counts as processed when the next is asked for.
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
            partitions: of several the answer is a dictionary, of one its value.
            timeout: seconds; `None` means default.api.timeout.ms.
            metadata: answer with `OffsetAndMetadata` in place of numbers.
        """
        return self._run(self._calls[Offsets.__name__].committed(partitions, timeout, metadata=metadata))

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
        with_progress = not self._context.is_interrupted()
        self._run(self._context.close(timeout, with_progress=with_progress, group_membership=group_membership))

    def _run(self, call: Coroutine[Any, Any, R]) -> R:
        return run(call, self._context.wait)
