"""The application's side of a consumer: the part that the blocking and the asyncio door share.

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
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import Future
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Self, Unpack
from weakref import WeakSet

from kohort.client.arguments import to_seconds, to_topics
from kohort.client.consumer.deliveries import Deliveries, Signal
from kohort.client.consumer.deserializing import Deserializing
from kohort.client.consumer.progress import Progress
from kohort.client.consumer.rebalancing import Rebalancing
from kohort.client.consumer.steps import Pause, Steps
from kohort.client.consumer.turn import Turn
from kohort.client.exchange import (
    ChunkTaken,
    CloseAsked,
    Configured,
    ConsumerEvent,
    GroupMembershipOperation,
    Polled,
    Sought,
)
from kohort.client.fetch.fetch_handler import FetchHandler
from kohort.client.io.host import OneProcess
from kohort.client.metrics import consumer_metrics
from kohort.client.options import CONSUMER_OPTIONS, changed_limits, client_settings, consumer_settings
from kohort.errors import ConfigError, KohortTimeoutError, StateError
from kohort.ids import TopicPartition

if TYPE_CHECKING:
    from kohort.client.io.driver import Machine
    from kohort.client.options import ClientSettings, ConsumerSettings
    from kohort.client.typed_options import ConsumerOptions

_LOG: Final = logging.getLogger("kohort.client")
#: Seconds between two notes to the background that the application polls, for max.poll.interval.ms.
_NOTE_S: Final = 1.0
#: Least seconds between two reports of consumed offsets: one costs as much as a dozen records.
_PROGRESS_S: Final = 0.1
#: Least seconds between two reports of freed bytes while more data is ready: each wakes the background.
_RELEASE_S: Final = 0.005
#: Seconds that `close` may take beyond its timeout, to end the thread.
_GRACE_S: Final = 2.0
#: Seconds in which the background leaves the group for a consumer that was dropped without `close`.
_FORGOTTEN_S: Final = 5.0


_GOES_FOR_GOOD: Final[Mapping[GroupMembershipOperation, bool | None]] = {
    "default": None,
    "leave_group": True,
    "remain_in_group": False,
}
#: The consumers of this process. In a fork of it they are closed.
_sides: Final[WeakSet[ConsumerSide]] = WeakSet()


def _close_all_in_child() -> None:
    for side in _sides:
        side._is_closed = True
        side._why_closed = "this consumer belongs to another process; create a new one after a fork"


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_all_in_child)


class ConsumerSide(OneProcess):
    """The application's side of a consumer: its parts, the turn of its calls, and its end."""

    #: The exception that the application was handling at its latest poll.
    _handled: BaseException | None = None

    def _set_up(self, first: tuple[object, ...], options: Mapping[str, object], host: Any, signal: Signal) -> None:
        """Build the parts of the consumer; nothing is connected.

        Args:
            first: positional arguments: a mapping of options by Kafka's dotted names, or topics.
            host: class or function that makes the host of the machine.
            signal: ends the waits for deliveries.
        """
        from uuid import uuid4

        config, self._first_topics = _divide(first)
        given = CONSUMER_OPTIONS.gather(config, options)
        values = CONSUMER_OPTIONS.parse(given)
        identity = uuid4()
        client = client_settings(values, seed=identity.int & 0xFFFFFFFF)
        self._settings = consumer_settings(values, given)
        own = self._settings.options
        self._default_timeout_s = own["default_api_timeout_ms"] / 1000
        functions = values["key.deserializer"], values["value.deserializer"]
        self._handler = FetchHandler(
            check_crcs=own["check_crcs"],
            is_read_committed=self._settings.is_read_committed,
            skips_corrupt=own["on_corrupt_records"] == "skip",
            deserialize=Deserializing(*functions).read if any(functions) else None,
        )
        self._deliveries = Deliveries(self._handler, member_id=str(identity), signal=signal)
        self._host = host(
            _build_machine(client, self._settings, str(identity)),
            client,
            deliver=self._deliveries.deliver,
            what="consumer",
            on_crash=self._deliveries.fail,
            farewell=lambda ticket, deadline_ms: CloseAsked(ticket=ticket, deadline_ms=deadline_ms, is_forgotten=True),
            counts_sleep=True,
        )
        self._progress = Progress(self._handler, is_stored=not own["enable_auto_offset_store"])
        told = self._handler, self._deliveries, self._progress, partial(tell, self._host)
        self._rebalancing = Rebalancing[Any](*told, commits=own["enable_auto_commit"])
        self._topics: tuple[str, ...] = ()
        self._pattern: str | None = None
        self._is_assigned_by_hand = False
        self._turn = Turn()
        self._is_closed = False
        self._why_closed = "this consumer is closed; create a new one"
        _sides.add(self)
        self._is_woken = False
        #: Timeout of a close that a signal handler asked for inside a call of the same thread; it follows that call.
        self._late_close_s: float | None = None
        self._goes_for_good: bool | None = None
        #: The thread of the latest poll.
        self._poller: int | None = None
        self._noted_s = self._released_s = 0.0
        #: Until then `poll` may hand out ready records without looking at anything else.
        self._quick_until_s = 0.0
        self._note_every_s = min(_NOTE_S, own["max_poll_interval_ms"] / 3000)
        self._progress_every_s = min(_PROGRESS_S, self._note_every_s, own["auto_commit_interval_ms"] / 10_000)

    @classmethod
    def from_config(cls, config: Mapping[str, object]) -> Self:
        """Create a consumer from Kafka's dotted option names.

        >>> import kohort
        >>> kohort.Consumer.from_config({"bootstrap.servers": "127.0.0.1:9092", "group.id": "billing"}).close()
        """
        return cls(config)  # type: ignore[call-arg]  # what doors take

    def __del__(self) -> None:
        # Also called for one whose options were refused.
        host = getattr(self, "_host", None)
        if host is not None and not self._is_closed:
            host.retire(_FORGOTTEN_S)
            host.warn_unclosed()

    def wakeup(self) -> None:
        """End a `poll` that waits, or the next one, at once; it returns the records that are there, if any.

        May be called from any thread and from a signal handler.
        """
        self._is_woken = True
        self._deliveries.wake()

    def configure(self, config: Mapping[str, object] | None = None, /, **options: Unpack[ConsumerOptions]) -> None:
        """Change limits of fetching; they hold from the next fetch and the next `poll` on.

        Data beyond a smaller fetch.buffer.bytes is kept until it was handed out. May be called from any thread.

        Args:
            config: options by Kafka's dotted names; may be mixed with keywords.
            options: fetch_buffer_bytes, fetch_max_bytes, fetch_max_wait_ms, fetch_min_bytes, max_partition_fetch_bytes
                and max_poll_records; options that are left out stay as they are.

        Raises:
            ConfigError: an option is unknown, is none of these, or has an impossible value.
        """
        changes = changed_limits(config, options)
        self._check_open()
        self._settings = self._settings.changed(**changes)
        self._host.post(Configured(settings=self._settings))

    def metrics(self) -> dict[str, float]:
        """Return this consumer's counters by Kafka's names (docs/client.md); may be called from any thread."""
        return consumer_metrics(self._host.traffic, self._handler, self._rebalancing.count)

    # -- waiting ----------------------------------------------------------------------------------------------------

    def _serve_steps(self, ticket: Future[object], until_s: float, *, with_progress: bool) -> Steps[None]:
        """Run callbacks until a ticket has ended or time is up."""
        # The ticket ends on the I/O thread, which has to end the wait below.
        ticket.add_done_callback(lambda _: self._deliveries.wake())
        while not ticket.done() and time.monotonic() < until_s:
            self._deliveries.drain()
            yield from self._rebalancing.answer(self, with_progress=with_progress)
            self._report_released()
            if not (ticket.done() or self._has_ended_with(ticket)):
                yield Pause(max(0.0, min(until_s - time.monotonic(), 0.5)))
        if ticket.done():
            # Asynchronous commits have ended before the ticket.
            self._deliveries.drain()
            yield from self._rebalancing.tell_commits()
            ticket.result()

    def _has_ended_with(self, ticket: Future[object]) -> bool:
        """Return whether the background has ended just now, with the ticket; raise if it ended otherwise."""
        try:
            self._host.check()
        except StateError:
            if ticket.done():
                return True
            raise
        return False

    def _ask_steps(self, build: Callable[[Future[object], int], ConsumerEvent], timeout: float | None) -> Steps[object]:
        """Post the event that `build` makes of a ticket and a deadline; return or raise the ticket's result."""
        self._check_open()
        seconds = self._default_timeout_s if timeout is None else to_seconds(timeout)
        ticket: Future[object] = Future()
        self._host.post(build(ticket, self._host.deadline_ms(seconds)))
        # The machine ends every ticket at its deadline; a moment more lets its own, better error arrive.
        return (yield Pause(seconds + 0.5, ticket))

    # -- the end ----------------------------------------------------------------------------------------------------

    def _is_interrupted(self) -> bool:
        """Return whether an exception that is being handled has ended the work on the latest records."""
        passing = sys.exc_info()[1]
        return passing is not None and passing is not self._handled

    def _close_steps(
        self, timeout: float, *, with_progress: bool, group_membership: GroupMembershipOperation = "default"
    ) -> Steps[None]:
        timeout = to_seconds(timeout)
        if group_membership not in _GOES_FOR_GOOD:
            words = ", ".join(_GOES_FOR_GOOD)
            raise ConfigError(f"group_membership cannot be {group_membership!r}: one of {words} is expected")
        if self._is_closed:
            return
        if self._is_in_callback:
            raise StateError("close cannot be called inside a callback")
        self._is_closed = True
        self._goes_for_good = _GOES_FOR_GOOD[group_membership]
        until_s = time.monotonic() + timeout
        while not self._turn.try_take():
            self._deliveries.wake()
            if self._turn.is_mine and self._is_below_a_call():
                self._late_close_s = timeout
                return
            # Asked for before the second attempt, so that a `give_back` between the two is not missed.
            free = self._turn.wait()
            if self._turn.try_take():
                break
            try:
                yield Pause(max(0.0, until_s - time.monotonic()), free)
            except KohortTimeoutError:
                # The application's thread is elsewhere, perhaps in a callback, and may stay there.
                self._host.retire(_GRACE_S)
                return
        try:
            # Another thread may still be processing the records that it was handed last.
            is_done = self._poller in (None, threading.get_ident())
            yield from self._finish_steps(max(0.0, until_s - time.monotonic()), with_progress and is_done)
        finally:
            self._turn.give_back()

    def _finish_steps(self, timeout: float, with_progress: bool) -> Steps[None]:
        try:
            if not self._host.is_running:
                self._host.raise_failure()
                return
            self._note_progress(but_the_last=not with_progress)
            ticket: Future[object] = Future()
            deadline_ms = self._host.deadline_ms(timeout)
            self._host.post(CloseAsked(ticket=ticket, deadline_ms=deadline_ms, goes_for_good=self._goes_for_good))
            yield from self._serve_steps(ticket, time.monotonic() + timeout + _GRACE_S, with_progress=with_progress)
        finally:
            self._progress.forget(self._handler.assignment)
            self._host.stop(_GRACE_S)
            # Data that has arrived too late is dropped.
            self._deliveries.drain()

    def _is_below_a_call(self) -> bool:
        """Return whether a call of this thread waits for this one to return, as in a signal handler."""
        return True

    def _give_turn_back(self, *, with_progress: bool) -> Steps[None]:
        """End a call; carry out the close that a signal handler has asked for meanwhile."""
        self._turn.give_back()
        if self._late_close_s is not None and self._turn.try_take():
            seconds, self._late_close_s = self._late_close_s, None
            try:
                yield from self._finish_steps(seconds, with_progress)
            finally:
                self._turn.give_back()

    # -- telling the background -------------------------------------------------------------------------------------

    def _note_poll(self, now_s: float) -> None:
        """Report the poll and the consumed offsets to the background when a report is due."""
        since_s = now_s - self._noted_s
        if since_s >= self._progress_every_s and (self._has_news or since_s >= self._note_every_s):
            self._noted_s = now_s
            self._note_progress()

    @property
    def _has_news(self) -> bool:
        return self._settings.options["enable_auto_commit"] and self._progress.has_news

    def _note_progress(self, *, but_the_last: bool = False) -> None:
        if self._settings.options["enable_auto_commit"]:
            self._progress.tell(lambda done: self._host.post(Polled(consumed=done)), but_the_last=but_the_last)
        else:
            self._host.post(Polled(consumed={}))

    def _report_released(self, taken_s: float | None = None) -> None:
        """Give the bytes of used data back to the background.

        Args:
            taken_s: time of the call that has just taken data, `None` for other calls: bytes of calls in a row are
                given back
                together.
        """
        given_way = self._handler.given_way()
        for partition, start in given_way.items():
            if start.offset is None:
                # The topic was made again, so its stored offset belongs to the old one.
                self._progress.drop(partition)
            tell(self._host, Sought(partition=partition, fence=start.fence, offset=start.offset))
        for damage in self._handler.skipped():
            _LOG.warning("%s; it is skipped (on.corrupt.records)", damage)
        if taken_s is not None and not given_way and self._handler.has_data:
            if taken_s < self._released_s + _RELEASE_S:
                return
            self._released_s = taken_s
        released = self._handler.released_bytes()
        if released:
            tell(self._host, ChunkTaken(sizes=released))

    # -- checks before a call ---------------------------------------------------------------------------------------

    @property
    def _is_in_callback(self) -> bool:
        """Whether a callback of the application makes this call."""
        return self._rebalancing.is_in_callback and self._turn.is_mine

    def _check_open(self) -> None:
        # `close` runs callbacks, too, which may commit and ask for offsets.
        if self._is_closed and not self._is_in_callback:
            raise StateError(self._why_closed)

    def _begin(self, what: str) -> bool:
        """Begin a short call; return whether it has taken the turn, for `_end`."""
        self._check_open()
        if self._is_in_callback:
            return False
        self._turn.take(what)
        return True

    def _end(self, is_taken: bool = True) -> None:
        """End a short call; a close that a signal handler has asked for meanwhile runs in the background."""
        if is_taken:
            self._turn.give_back()
            if self._late_close_s is not None:
                self._host.retire(self._late_close_s)

    def _begin_long(self, what: str) -> None:
        """Begin a call that may run callbacks itself."""
        self._check_open()
        if self._is_in_callback:
            raise StateError(f"{what} cannot be called inside a callback")
        self._turn.take(what)
        self._handled = sys.exc_info()[1]

    def _check_held(self, partitions: Iterable[TopicPartition]) -> None:
        for each in partitions:
            if each not in self._handler.assignment:
                raise StateError(f"{each} is not assigned to this consumer")


def _build_machine(client: ClientSettings, settings: ConsumerSettings, member_id: str) -> Machine[ConsumerEvent]:
    # The machine's modules are imported when the first consumer is created, not with its class.
    from kohort.client.consumer.core.consumer_machine import ConsumerMachine

    return ConsumerMachine(client, settings, member_id=member_id)


def tell(host: Any, event: ConsumerEvent) -> None:
    """Post an event that only matters while the background runs; a close may have ended it."""
    try:
        host.post(event)
    except StateError:
        if host.is_running:
            raise


def _divide(first: tuple[Any, ...]) -> tuple[Mapping[str, object] | None, tuple[str, ...]]:
    """Divide the positional arguments into options and topics; an address is refused as no mapping."""
    if first and all(isinstance(each, str) and ":" not in each for each in first):
        return None, to_topics(first)
    if len(first) > 1:
        raise ConfigError(
            "options are given as keywords or as one mapping, topics as texts: "
            "Consumer({'bootstrap.servers': '127.0.0.1:9092'}), Consumer('orders', group_id='billing')"
        )
    return (first[0] if first else None), ()
