"""The application's side of a consumer: the part that the blocking and the asyncio client share.

Laws: nothing here talks to the network. A call of the application becomes an event. Records have been fetched already,
and are decoded in the application's thread. Rebalance callbacks run inside `poll`, `unsubscribe` and `close`, never
elsewhere. One call at a time, except for `wakeup`, `close` and calls that only ask the background.
Source: users@kafka, "New Consumer Design" (July 2014); the consumer threading refactor (CTR).
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakSet, ref

from kohort.client.arguments import to_seconds
from kohort.client.consumer import application_events as events
from kohort.client.consumer.application_events import ChunkTaken, ConsumerEvent, Polled
from kohort.client.consumer.deliveries import Deliveries, Signal
from kohort.client.consumer.fetch.fetch_handler import FetchHandler
from kohort.client.consumer.rebalancing import Progress, Rebalancing
from kohort.client.options import CONSUMER_OPTIONS, client_settings, consumer_settings
from kohort.client.records import ConsumerRecord
from kohort.client.steps import Pause, Returned, Wait, run
from kohort.errors import ConfigError, DeserializationError, KohortTimeoutError, StateError
from kohort.ids import TopicPartition, format_uuid, random_uuid

if TYPE_CHECKING:
    from kohort.client.core.driver import Machine
    from kohort.client.options import ClientSettings, ConsumerSettings


_LOG: Final = logging.getLogger("kohort.client")
#: Seconds between two notes to the background that the application polls, for max.poll.interval.ms.
_NOTE_S: Final = 1.0
#: Least seconds between two reports of consumed offsets: one costs as much as a dozen records.
_PROGRESS_S: Final = 0.1
#: Least seconds between two reports of freed bytes while more data is ready: each wakes the background.
_RELEASE_S: Final = 0.005
#: Seconds that `close` may take beyond its timeout, to end the thread.
_GRACE_S: Final = 2.0
_GOES_FOR_GOOD: Final[Mapping[events.GroupMembershipOperation, bool | None]] = {
    "default": None,
    "leave_group": True,
    "remain_in_group": False,
}
#: The consumers of this process. In a fork of it they are closed.
_contexts: Final[WeakSet[ConsumerContext]] = WeakSet()


def _close_all_in_child() -> None:
    for context in _contexts:
        context.is_closed = True
        context._why_closed = "this consumer belongs to another process; create a new one after a fork"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all_in_child)


class ConsumerContext:
    """The part of a consumer that all its calls use: the background, its deliveries, the `Turn`, and `close`.

    Args:
        door: the consumer, which callbacks get as an argument; it is not kept alive.
        config: options by Kafka's dotted names.
        named: options as keywords.
        host: class or function that makes the host of the machine.
    """

    def __init__(
        self,
        door: object,
        config: Mapping[str, object] | None,
        named: Mapping[str, object],
        *,
        host: Any,
        signal: Signal,
        is_on_loop: bool,
    ) -> None:
        given = CONSUMER_OPTIONS.gather(config, named)
        values = CONSUMER_OPTIONS.parse(given)
        drawn = random_uuid()
        identity = format_uuid(drawn)
        client = client_settings(values, seed=int.from_bytes(drawn[-4:]))
        #: The consumer, which is there while a call of it is under way.
        self.door: Final = ref(door)
        #: Ends waits for deliveries.
        self._signal: Final[Any] = signal
        #: Whether its calls are awaited. Tasks switch at an await only, so a call without an await disturbs no other
        #: and needs no turn.
        self._is_on_loop = is_on_loop
        self.settings = consumer_settings(values, given)
        options = self.settings.options
        self.default_timeout_s: Final[float] = values["default.api.timeout.ms"] / 1000
        self.handler: Final = _build_handler(self.settings, values)
        self.deliveries: Final = Deliveries(self.handler, member_id=identity, signal=signal)
        self.host: Final[Any] = host(
            _build_machine(client, self.settings, identity),
            client,
            deliver=self.deliveries.deliver,
            what="consumer",
            on_crash=self.deliveries.fail,
            farewell=partial(events.CloseAsked, is_forgotten=True),
            counts_sleep=True,
        )
        self.progress: Final = Progress(self.handler, is_stored=not options["enable_auto_offset_store"])
        told = partial(tell, self.host)
        self.rebalancing: Final = Rebalancing[Any](
            self.handler, self.deliveries, self.progress, told, commits=options["enable_auto_commit"]
        )
        self.turn: Final = Turn()
        self.is_closed = False
        self._why_closed = "this consumer is closed; create a new one"
        _contexts.add(self)
        #: A `poll` that waits, or the next one, is to end at once.
        self.is_woken = False
        #: Timeout of a close that a signal handler asked for inside a call of the same thread; it follows that call.
        self._late_close_s: float | None = None
        self._goes_for_good: bool | None = None
        #: The exception that the application was handling at its latest poll.
        self._handled: BaseException | None = None
        #: The thread of the latest poll.
        self.poller: int | None = None
        self._noted_s = self._released_s = 0.0
        self.note_every_s: Final = min(_NOTE_S, options["max_poll_interval_ms"] / 3000)
        self.progress_every_s: Final = min(_PROGRESS_S, self.note_every_s, options["auto_commit_interval_ms"] / 10_000)

    def wait(self, wait: Wait) -> object:
        """Wait in this thread, as a blocking call does."""
        match wait:
            case Pause(seconds=seconds, ticket=None):
                return self._signal.wait(seconds)
            case Pause(seconds=seconds, ticket=ticket):
                return self.host.wait(ticket, seconds)
            case Returned(awaitable=awaitable):
                close = getattr(awaitable, "close", None)
                if close is not None:
                    close()
                raise TypeError("a rebalance callback is a coroutine function: those are for kohort.aio.Consumer")

    def finish(self, call: Coroutine[Wait, object, None], otherwise: str) -> None:
        """Run a call in this thread; for an asyncio consumer, which cannot wait here, raise `StateError(otherwise)`."""
        if self._is_on_loop:
            call.close()
            raise StateError(otherwise)
        run(call, self.wait)

    def configure(self, changes: Mapping[str, Any]) -> None:
        """Change limits of fetching while it goes on."""
        self.check_open()
        self.settings = self.settings.changed(**changes)
        self.host.post(events.Configured(settings=self.settings))

    # -- waiting ----------------------------------------------------------------------------------------------------

    async def serve(self, ticket: Future[object], until_s: float, *, with_progress: bool) -> None:
        """Run callbacks until a ticket has ended or time is up."""
        # The ticket ends on the I/O thread, which has to end the wait below.
        ticket.add_done_callback(lambda _: self.deliveries.wake())
        while not ticket.done() and time.monotonic() < until_s:
            self.deliveries.drain()
            await self.rebalancing.answer(self.door(), with_progress=with_progress)
            self.report_released()
            if not (ticket.done() or self._has_ended_with(ticket)):
                await Pause(max(0.0, min(until_s - time.monotonic(), 0.5)))
        if ticket.done():
            # Asynchronous commits have ended before the ticket.
            self.deliveries.drain()
            await self.rebalancing.tell_commits()
            ticket.result()

    def _has_ended_with(self, ticket: Future[object]) -> bool:
        """Return whether the background has ended just now, and the ticket with it; otherwise raise its error."""
        try:
            self.host.check()
        except StateError:
            if ticket.done():
                return True
            raise
        return False

    async def ask(self, build: Callable[..., ConsumerEvent], timeout: float | None) -> object:
        """Post an event with a ticket to the background; return the ticket's result, or raise its error."""
        self.check_open()
        seconds = self.default_timeout_s if timeout is None else to_seconds(timeout)
        ticket: Future[object] = Future()
        self.host.post(build(ticket=ticket, deadline_ms=self.host.deadline_ms(seconds)))
        # The machine ends every ticket at its deadline; a moment more lets its own, better error arrive.
        return await Pause(seconds + 0.5, ticket)

    # -- the end ----------------------------------------------------------------------------------------------------

    def is_interrupted(self) -> bool:
        """Return whether an exception raised since the latest `poll` is being handled."""
        passing = sys.exc_info()[1]
        return passing is not None and passing is not self._handled

    async def close(
        self, timeout: float, *, with_progress: bool, group_membership: events.GroupMembershipOperation = "default"
    ) -> None:
        """Commit, leave the group and stop; `with_progress`: the records of the last `poll` count as processed."""
        timeout = to_seconds(timeout)
        if group_membership not in _GOES_FOR_GOOD:
            words = ", ".join(_GOES_FOR_GOOD)
            raise ConfigError(f"group_membership cannot be {group_membership!r}: one of {words} is expected")
        if self.is_closed:
            return
        if self.is_in_callback:
            raise StateError("close cannot be called inside a callback")
        self.is_closed = True
        self._goes_for_good = _GOES_FOR_GOOD[group_membership]
        until_s = time.monotonic() + timeout
        while not self.turn.try_take():
            self.deliveries.wake()
            if self.turn.is_mine and not self._is_on_loop:
                # A call of this thread waits for this one to return: a signal handler runs.
                self._late_close_s = timeout
                return
            # Asked for before the second attempt, so that a `give_back` between the two is not missed.
            free = self.turn.wait()
            if self.turn.try_take():
                break
            try:
                await Pause(max(0.0, until_s - time.monotonic()), free)
            except KohortTimeoutError:
                # The application's thread is elsewhere, perhaps in a callback, and may stay there.
                self.host.retire(_GRACE_S)
                return
        try:
            # Another thread may still be processing the records that it was handed last.
            is_done = self.poller in (None, threading.get_ident())
            await self._finish(max(0.0, until_s - time.monotonic()), with_progress and is_done)
        finally:
            self.turn.give_back()

    async def _finish(self, timeout: float, with_progress: bool) -> None:
        try:
            if not self.host.is_running:
                self.host.raise_failure()
                return
            self.note_progress(but_the_last=not with_progress)
            ticket: Future[object] = Future()
            deadline_ms = self.host.deadline_ms(timeout)
            self.host.post(events.CloseAsked(ticket=ticket, deadline_ms=deadline_ms, goes_for_good=self._goes_for_good))
            await self.serve(ticket, time.monotonic() + timeout + _GRACE_S, with_progress=with_progress)
        finally:
            self.progress.forget(self.handler.assignment)
            self.host.stop(_GRACE_S)
            # Data that has arrived too late is dropped.
            self.deliveries.drain()

    async def give_turn_back(self, *, with_progress: bool) -> None:
        """End a call, and then run the `close` that a signal handler has requested during it, if any."""
        self.turn.give_back()
        if self._late_close_s is not None and self.turn.try_take():
            seconds, self._late_close_s = self._late_close_s, None
            try:
                await self._finish(seconds, with_progress)
            finally:
                self.turn.give_back()

    # -- reports to the background ----------------------------------------------------------------------------------

    def note_poll(self, now_s: float) -> None:
        """Report the poll and the consumed offsets to the background when a report is due."""
        since_s = now_s - self._noted_s
        if since_s >= self.progress_every_s and (self.has_news or since_s >= self.note_every_s):
            self._noted_s = now_s
            self.note_progress()

    @property
    def has_news(self) -> bool:
        """Whether there are new offsets for the next automatic commit."""
        return self.settings.options["enable_auto_commit"] and self.progress.has_news

    def note_progress(self, *, but_the_last: bool = False) -> None:
        """Report a poll and the processed offsets to the background."""
        if self.settings.options["enable_auto_commit"]:
            self.progress.tell(lambda done: self.host.post(Polled(consumed=done)), but_the_last=but_the_last)
        else:
            self.host.post(Polled(consumed={}))

    def report_released(self, taken_s: float | None = None) -> None:
        """Report freed bytes to the background, which may fetch as many again.

        Args:
            taken_s: time of a call that has just taken data, so that the bytes of several such calls are reported
                together; `None` for other calls.
        """
        given_way = self.handler.given_way()
        for partition, start in given_way.items():
            if start.offset is None:
                # The topic was made again, so its stored offset belongs to the old one.
                self.progress.drop(partition)
            tell(self.host, events.Sought(partition=partition, fence=start.fence, offset=start.offset))
        for damage in self.handler.skipped():
            _LOG.warning("%s; it is skipped (on.corrupt.records)", damage)
        if taken_s is not None and not given_way and self.handler.has_data:
            if taken_s < self._released_s + _RELEASE_S:
                return
            self._released_s = taken_s
        released = self.handler.released_bytes()
        if released:
            tell(self.host, ChunkTaken(sizes=released))

    # -- checks before a call ---------------------------------------------------------------------------------------

    @property
    def is_in_callback(self) -> bool:
        """Whether this call is made inside a callback of the application."""
        return self.rebalancing.is_in_callback and self.turn.is_mine

    def check_open(self) -> None:
        """Raise `StateError` if the consumer is closed."""
        # `close` runs callbacks, too, which may commit and ask for offsets.
        if self.is_closed and not self.is_in_callback:
            raise StateError(self._why_closed)

    def begin(self, what: str) -> bool:
        """Begin a call that does not wait; return whether it has taken the turn, to be passed to `end`."""
        self.check_open()
        if self._is_on_loop or self.is_in_callback:
            return False
        self.turn.take(what)
        return True

    def end(self, is_taken: bool = True) -> None:
        """End a call of `begin`; a close that a signal handler has requested meanwhile runs in the background."""
        if is_taken:
            self.turn.give_back()
            if self._late_close_s is not None:
                self.host.retire(self._late_close_s)

    def begin_long(self, what: str) -> None:
        """Begin a call that may run callbacks, and so must not be made inside one."""
        self.check_open()
        if self.is_in_callback:
            raise StateError(f"{what} cannot be called inside a callback")
        self.turn.take(what)
        self._handled = sys.exc_info()[1]

    def check_held(self, partitions: Iterable[TopicPartition]) -> None:
        """Raise `StateError` for the first partition that is not assigned."""
        for each in partitions:
            if each not in self.handler.assignment:
                raise StateError(f"{each} is not assigned to this consumer")


def _build_handler(settings: ConsumerSettings, values: Mapping[str, Any]) -> FetchHandler:
    functions = values["key.deserializer"], values["value.deserializer"]
    return FetchHandler(
        check_crcs=settings.options["check_crcs"],
        is_read_committed=settings.is_read_committed,
        skips_corrupt=values["on.corrupt.records"] == "skip",
        deserialize=Deserializing(*functions).read if any(functions) else None,
    )


def _build_machine(client: ClientSettings, settings: ConsumerSettings, member_id: str) -> Machine[ConsumerEvent]:
    # The machine's modules are imported when the first consumer is created, not with its class.
    from kohort.client.consumer.core.consumer_machine import ConsumerMachine

    return ConsumerMachine(client, settings, member_id=member_id)


def tell(host: Any, event: ConsumerEvent) -> None:
    """Post an event unless the background has ended, after which nothing depends on it."""
    try:
        host.post(event)
    except StateError:
        if host.is_running:
            raise


class Turn:
    """The lock on the consumer, which one thread at a time may use.

    Laws: taking and giving back never wait. A call during another thread's turn is refused, not queued.
    Source: Kafka's consumer, which is not safe for threads except for `wakeup`.
    """

    def __init__(self) -> None:
        self._lock: Final = threading.Lock()
        #: The thread that has the turn; `None`: no thread has.
        self._owner: int | None = None
        #: Done when the turn is given back; made for a `close` that waits.
        self._waiting: Future[object] | None = None

    @property
    def is_mine(self) -> bool:
        """Whether the calling thread has the turn."""
        return self._owner == threading.get_ident()

    @property
    def is_free(self) -> bool:
        """Whether no thread has the turn."""
        return self._owner is None

    @property
    def owner(self) -> int | None:
        """The thread that has the turn; `None`: no thread has."""
        return self._owner

    def take(self, what: str) -> None:
        """Take the turn for the call `what`.

        Raises:
            StateError: another call has the turn.
        """
        # Two threads that wait for each other to poll would divide the records between them without knowing.
        if not self.try_take():
            raise StateError(
                f"{what} was called while another call of this consumer is under way, in another thread or task, or "
                "around this one: a consumer belongs to one, though wakeup and close may come from any; an assignor "
                "computes from what it is handed"
            )

    def try_take(self) -> bool:
        """Take the turn if it is free; return whether it was."""
        if not self._lock.acquire(blocking=False):
            return False
        self._owner = threading.get_ident()
        return True

    def give_back(self) -> None:
        """Give the turn back, and wake a `close` that waits for it."""
        self._owner = None
        self._lock.release()
        waiting, self._waiting = self._waiting, None
        if waiting is not None:
            waiting.set_result(None)

    def wait(self) -> Future[object]:
        """Return a future that ends with the next `give_back`; call `try_take` again after asking for it."""
        if self._waiting is None:
            self._waiting = Future()
        return self._waiting


#: Converts the bytes of a key or a value to an object of the application's.
Deserializer = Callable[[bytes], Any]


class Deserializing:
    """The key and value deserializers of a consumer; `None` leaves bytes as they are.

    Source: Kafka's key.deserializer and value.deserializer; KIP-334 for the content of the error.
    """

    def __init__(self, key: Deserializer | None, value: Deserializer | None) -> None:
        self._key = key
        self._value = value

    def read(self, records: Sequence[ConsumerRecord]) -> tuple[list[ConsumerRecord], DeserializationError | None]:
        """Deserialize records up to the first that fails; return them, and the error."""
        done: list[ConsumerRecord] = []
        for record in records:
            try:
                done.append(self._read(record))
            except DeserializationError as why:
                return done, why
        return done, None

    def _read(self, record: ConsumerRecord) -> ConsumerRecord:
        topic, partition, offset, time, time_kind, key, value, headers, epoch = record
        # `None`, a missing key or a tombstone, stays `None`.
        if self._key is not None and key is not None:
            key = _applied(self._key, key, record, "key")
        if self._value is not None and value is not None:
            value = _applied(self._value, value, record, "value")
        # Not `_replace`, which takes longer than all the rest of this.
        return ConsumerRecord(topic, partition, offset, time, time_kind, key, value, headers, epoch)


def _applied(function: Deserializer, data: bytes, record: ConsumerRecord, what: str) -> Any:
    try:
        return function(data)
    except Exception as why:
        partition = TopicPartition(record.topic, record.partition)
        raise DeserializationError(partition, record.offset, what, repr(why)) from why
