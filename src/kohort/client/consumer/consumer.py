"""The consumer's door: a blocking API over a machine that runs on a thread of its own.

Laws: nothing here talks to the network; what the application calls becomes an event, what it gets has been fetched and
is decoded in its own thread; rebalance callbacks run inside `poll`, `unsubscribe` and `close`, never elsewhere.
Source: users@kafka, "New Consumer Design" (July 2014); the consumer threading refactor (CTR).
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self, TypeVar
from uuid import uuid4

from kohort.client.arguments import to_partitions, to_seconds, to_topics
from kohort.client.consumer.arrow_batches import choose_columns, take_batches
from kohort.client.consumer.core.consumer_machine import ConsumerMachine
from kohort.client.consumer.core.exchange import (
    ChunkTaken,
    CloseAsked,
    ConsumerEvent,
    PartitionsAssigned,
    Paused,
    Polled,
    Sought,
    Subscribed,
    Unsubscribed,
)
from kohort.client.consumer.deliveries import Deliveries
from kohort.client.consumer.offset_calls import OffsetCalls
from kohort.client.consumer.patterns import choose_pattern
from kohort.client.consumer.rebalancing import Callbacks, Rebalancing
from kohort.client.fetch.fetch_handler import FetchHandler
from kohort.client.io.thread import IoThread
from kohort.client.options import CONSUMER_OPTIONS, client_settings, consumer_settings
from kohort.client.records import ConsumerRecord
from kohort.errors import ConfigError, StateError
from kohort.ids import TopicPartition

if TYPE_CHECKING:
    import pyarrow

T = TypeVar("T")
#: Called with the consumer and the partitions that it is about, in order.
Callback = Callable[["Consumer", list[TopicPartition]], None]
#: A poll that waits says so once in a while, for max.poll.interval.ms.
_NOTE_S: Final = 1.0
#: What `close` may take beyond its timeout, to end the thread.
_GRACE_S: Final = 2.0
#: What a consumer that nobody closed has to leave its group in the background.
_FORGOTTEN_S: Final = 30.0


class Consumer(OffsetCalls):
    """Reads topics, alone or as a member of a group.

    Options are Kafka's, in snake_case as keywords or by their dotted names in a mapping: `Consumer({"group.id": "a"})`.
    `subscribe`, `poll`, `seek` and the like belong to one thread; `commit` with offsets, `committed`, `end_offsets` and
    the other questions may come from any.

    >>> import kohort
    >>> with kohort.Broker() as broker:
    ...     with kohort.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
    ...         _ = producer.send("orders", value=b"one").result(10)
    ...     with kohort.Consumer(
    ...         bootstrap_servers=broker.bootstrap_servers, group_id="billing", auto_offset_reset="earliest"
    ...     ) as consumer:
    ...         consumer.subscribe(["orders"])
    ...         records = []
    ...         while not records:
    ...             records = consumer.poll(1.0)
    ...         records[0].value
    b'one'
    """

    def __init__(self, config: Mapping[str, object] | None = None, /, **options: object) -> None:
        """Nothing is connected before the first call that needs a broker.

        Args:
            config: options by Kafka's dotted names; may be mixed with keywords.
            options: options as keywords.

        Raises:
            ConfigError: an option is unknown, has an impossible value, is given twice, or contradicts another.
        """
        given = CONSUMER_OPTIONS.gather(config, options)
        values = CONSUMER_OPTIONS.parse(given)
        identity = uuid4()
        client = client_settings(values, seed=identity.int & 0xFFFFFFFF)
        self._settings = consumer_settings(values, given)
        self._default_timeout_s = values["default.api.timeout.ms"] / 1000
        self._handler = FetchHandler(
            check_crcs=self._settings.check_crcs, is_read_committed=self._settings.is_read_committed
        )
        self._deliveries = Deliveries(self._handler, member_id=str(identity))
        self._thread: IoThread[ConsumerEvent] = IoThread(
            ConsumerMachine(client, self._settings, member_id=str(identity)),
            client,
            deliver=self._deliveries.deliver,
            what="consumer",
            on_crash=self._deliveries.wake,
            farewell=lambda ticket, deadline_ms: CloseAsked(ticket=ticket, deadline_ms=deadline_ms, is_forgotten=True),
        )
        self._rebalancing = Rebalancing[Consumer](
            self._handler, self._deliveries, self._thread.post, commits=self._settings.enable_auto_commit
        )
        self._topics: tuple[str, ...] = ()
        self._pattern: str | None = None
        self._is_assigned_by_hand = False
        self._is_closed = False
        self._noted_s = 0.0

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """A consumer from Kafka's dotted option names.

        >>> Consumer.from_config({"bootstrap.servers": "127.0.0.1:9092", "group.id": "billing"}).close()
        """
        return cls(config)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # After an exception the last records may be half processed: they are not committed, but read again.
        self._close(30.0, with_progress=error is None)

    def __del__(self) -> None:
        # Also called for one whose options were refused.
        thread: IoThread[ConsumerEvent] | None = getattr(self, "_thread", None)
        if thread is not None and not self._is_closed:
            thread.retire(_FORGOTTEN_S)
            thread.warn_unclosed()

    # -- what to read -------------------------------------------------------------------------------------------------

    def subscribe(
        self,
        topics: Sequence[str] | str = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        on_assigned: Callback | None = None,
        on_revoked: Callback | None = None,
        on_lost: Callback | None = None,
    ) -> None:
        """Read topics as a member of the group, in place of those before.

        Args:
            topics: names; none at all means `unsubscribe`. One that does not exist is read once it does. Texts that
                begin with ^ are patterns of how names begin, as librdkafka has them.
            pattern: in place of names, a regular expression that whole names have to match; topics that are made
                later count, too. KIP-848: the coordinator matches, by RE2; classic: this client does.
            on_assigned: called with partitions that were gained, before they are read.
            on_revoked: called with partitions that have to go; the group waits for it, for max.poll.interval.ms.
            on_lost: called with partitions that belong to others already; left out, `on_revoked` is called.

        Raises:
            ConfigError: there is no group_id, or the pattern is none.
            StateError: partitions were assigned by hand.
        """
        names = to_topics(topics)
        chosen = choose_pattern(names, pattern)
        self._check_callable("subscribe")
        if self._settings.group_id is None:
            raise ConfigError("subscribe needs the option group_id; assign reads partitions without a group")
        if self._is_assigned_by_hand:
            raise StateError("partitions are assigned by hand; unsubscribe before subscribing to topics")
        if not names and chosen is None:
            self.unsubscribe()
            return
        self._rebalancing.callbacks = Callbacks(on_assigned, on_revoked, on_lost or on_revoked)
        self._topics = () if chosen is not None else tuple(sorted(set(names)))
        self._pattern = chosen
        self._deliveries.forget_trouble()
        self._thread.post(Subscribed(topics=self._topics, pattern=chosen))

    def unsubscribe(self, *, timeout: float = 30.0) -> None:
        """Commit (with auto-commit), give every partition up and leave the group."""
        self._check_callable("unsubscribe")
        if self._is_subscribed or self._is_assigned_by_hand:
            self._note_progress()
            ticket: Future[object] = Future()
            self._thread.post(Unsubscribed(ticket=ticket, deadline_ms=self._thread.deadline_ms(timeout)))
            self._serve_until(ticket, time.monotonic() + timeout, with_progress=True)
        self._handler.forget(self._handler.assignment)
        self._topics, self._pattern, self._is_assigned_by_hand = (), None, False
        self._deliveries.forget_trouble()
        self._report_released()

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read exactly these partitions, without membership; those that are read already go on where they are.

        A partition whose topic does not exist makes the next `poll` raise `UnknownTopicError`.

        Raises:
            StateError: topics are subscribed to.
        """
        self._check_callable("assign")
        if self._is_subscribed:
            raise StateError("topics are subscribed to; unsubscribe before assigning partitions by hand")
        chosen = set(to_partitions(partitions))
        self._deliveries.drain()
        self._note_progress()
        self._handler.forget(self._handler.assignment - chosen)
        self._handler.hold(sorted(chosen))
        self._is_assigned_by_hand = bool(chosen)
        self._deliveries.forget_trouble()
        self._thread.post(PartitionsAssigned(starts=self._handler.starts(sorted(chosen))))
        self._report_released()

    def assignment(self) -> set[TopicPartition]:
        """The partitions that are being read."""
        return self._handler.assignment

    def subscription(self) -> set[str]:
        """The topics that are subscribed to; with a pattern, those of which something is assigned."""
        if self._pattern is not None:
            return {partition.topic for partition in self._handler.assignment}
        return set(self._topics)

    @property
    def _is_subscribed(self) -> bool:
        return bool(self._topics) or self._pattern is not None

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Stay the owner of partitions but hand out nothing of them."""
        self._pause(partitions, is_paused=True)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Hand out paused partitions again."""
        self._pause(partitions, is_paused=False)

    def paused(self) -> set[TopicPartition]:
        """The partitions that are paused."""
        return self._handler.paused()

    @property
    def member_id(self) -> str:
        """The id of this member; empty before a classic group has given one."""
        return self._deliveries.identity.member_id

    @property
    def group_epoch(self) -> int:
        """The epoch (classic: generation) of this member; -1 while it is none."""
        return self._deliveries.identity.epoch

    @property
    def has_assignment(self) -> bool:
        """Whether the group has said what this member reads, be it nothing."""
        return self._deliveries.identity.has_assignment or self._is_assigned_by_hand

    # -- reading ------------------------------------------------------------------------------------------------------

    def poll(self, timeout: float = 1.0, *, max_records: int | None = None) -> list[ConsumerRecord]:
        """Records that have arrived; waits up to `timeout` seconds for the first.

        Calling it again says that the records of the call before are processed: auto-commit commits them. Rebalance
        callbacks run in here.

        Raises:
            BrokersUnreachableError: no bootstrap address accepts a connection, and none ever has.
            BrokerError: the group refuses this member, or a partition cannot be read.
            UnknownTopicError: a partition assigned by hand does not exist.
            StateError: the consumer is closed, or neither subscribed nor assigned.
        """
        limit = self._settings.max_poll_records if max_records is None else max_records
        return self._poll(timeout, lambda: self._handler.take(limit))

    def poll_arrow(
        self, timeout: float = 1.0, *, columns: Sequence[str] | None = None, include_headers: bool = False
    ) -> list[pyarrow.RecordBatch]:
        """Everything that has arrived as Arrow record batches, one per fetched piece of a partition.

        Args:
            timeout: seconds to wait for the first.
            columns: of key, value, topic, partition, offset, timestamp, timestampType, headers; `None` means all but
                headers. What is left out is not decoded.
            include_headers: add the column headers.

        Raises:
            MissingDependencyError: pyarrow is not installed.
        """
        include = choose_columns(columns, include_headers=include_headers)
        return self._poll(timeout, lambda: take_batches(self._handler, include, self._report_released))

    # -- the end ------------------------------------------------------------------------------------------------------

    def close(self, timeout: float = 30.0) -> None:
        """Commit (with auto-commit), leave the group and end the background thread, within `timeout` seconds.

        What `poll` returned last counts as processed. Safe to call twice.
        """
        self._close(timeout, with_progress=True)

    def _close(self, timeout: float, *, with_progress: bool) -> None:
        if self._is_closed:
            return
        if self._rebalancing.is_in_callback:
            raise StateError("close cannot be called inside a rebalance callback")
        self._is_closed = True
        if not self._thread.is_running:
            self._thread.stop()
            return
        try:
            if with_progress:
                self._note_progress()
            ticket: Future[object] = Future()
            self._thread.post(CloseAsked(ticket=ticket, deadline_ms=self._thread.deadline_ms(timeout)))
            self._serve_until(ticket, time.monotonic() + timeout + _GRACE_S, with_progress=with_progress)
        except StateError:
            # The thread has ended by itself; there is nothing left to close.
            pass
        finally:
            self._handler.forget(self._handler.assignment)
            self._thread.stop(_GRACE_S)

    # -- inside -------------------------------------------------------------------------------------------------------

    def _poll(self, timeout: float, take: Callable[[], list[T]]) -> list[T]:
        self._check_callable("poll")
        timeout = to_seconds(timeout)
        if not self._is_subscribed and not self._is_assigned_by_hand:
            raise StateError("nothing to read: subscribe to topics or assign partitions first")
        until = time.monotonic() + timeout
        self._note_poll(self._handler.consumed())
        while True:
            self._deliveries.drain()
            self._rebalancing.answer(self, with_progress=True)
            self._deliveries.raise_trouble()
            found = take() if self._handler.has_data else []
            self._report_released()
            remaining = until - time.monotonic()
            if found or remaining <= 0:
                return found
            self._thread.check()
            self._deliveries.wait(min(remaining, _NOTE_S))
            self._note_poll({})

    def _note_poll(self, consumed: Mapping[TopicPartition, int]) -> None:
        now_s = time.monotonic()
        every_s = min(_NOTE_S, self._settings.max_poll_interval_ms / 3000)
        news = consumed if self._settings.enable_auto_commit else {}
        if news or now_s - self._noted_s >= every_s:
            self._noted_s = now_s
            self._thread.post(Polled(consumed=news))

    def _note_progress(self) -> None:
        self._thread.post(Polled(consumed=self._handler.consumed() if self._settings.enable_auto_commit else {}))

    def _report_released(self) -> None:
        for partition, start in self._handler.given_way().items():
            assert start.offset is not None, "what gives way has a position"
            self._thread.post(Sought(partition=partition, fence=start.fence, offset=start.offset))
        released = self._handler.released_bytes()
        if released:
            self._thread.post(ChunkTaken(sizes=released))

    def _serve_until(self, ticket: Future[object], until_s: float, *, with_progress: bool) -> None:
        """Run callbacks until a ticket has ended or time is up."""
        ticket.add_done_callback(lambda _: self._deliveries.wake())
        while not ticket.done() and time.monotonic() < until_s:
            self._deliveries.drain()
            self._rebalancing.answer(self, with_progress=with_progress)
            self._report_released()
            if not ticket.done():
                self._thread.check()
                self._deliveries.wait(max(0.0, min(until_s - time.monotonic(), 0.5)))
        if ticket.done():
            ticket.result()

    def _ask(self, build: Callable[[Future[object], int], ConsumerEvent], timeout: float | None) -> object:
        self._check_open()
        seconds = self._default_timeout_s if timeout is None else to_seconds(timeout)
        deadline_ms = self._thread.deadline_ms(seconds)
        # The machine ends every ticket at its deadline; a moment more lets its own, better error arrive.
        return self._thread.call(lambda ticket: build(ticket, deadline_ms), seconds + 0.5)

    def _pause(self, partitions: Iterable[TopicPartition], *, is_paused: bool) -> None:
        self._check_open()
        chosen = to_partitions(partitions)
        self._check_held(chosen)
        self._handler.pause(chosen, is_paused=is_paused)
        self._thread.post(Paused(partitions=chosen, is_paused=is_paused))

    def _check_open(self) -> None:
        if self._is_closed:
            raise StateError("this consumer is closed; create a new one")

    def _check_callable(self, what: str) -> None:
        self._check_open()
        if self._rebalancing.is_in_callback:
            raise StateError(f"{what} cannot be called inside a rebalance callback")
