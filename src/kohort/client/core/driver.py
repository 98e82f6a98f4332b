"""The driver of a client's machine (protocol logic without I/O): connections, clock and timers.

A machine is any object with `handle` and `next_deadline` (see `Machine`). A machine has no clock, no loop and no
thread. A new machine consists of these:

- Events of the application, as frozen values. An event may have a *ticket*, the handle of a waiting call. The machine
  returns it in `Complete(ticket, value)` or `Fail(ticket, error)`. Deadlines are in milliseconds of the driver's clock.
- `requests.Requests`, the outbox: `requests.send(endpoint, lane, request, then)` calls `then` once with the response.
  The driver opens the connection, negotiates the version and encodes. A field that the version lacks is dropped.
- `cluster.Cluster`: metadata, leaders, bootstrap. A machine of many parts has a `timers.Schedule`.
- `handle` ends with `return requests.drain()`, and has handled every deadline that was due. `Stop()` ends the driver.
- A public API (blocking or async) with a host (`thread.IoThread`, `in_loop.InLoop`): `post(event)` expects no result,
  `call` waits for one.

Laws: a machine handles one event at a time. Actions are carried out in order. A request ends in exactly one event. An
exception of the machine is a bug: it is logged and the driver stops. Every open ticket ends with the driver.
Source: architecture rules 1, 2 and 6.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from concurrent.futures import InvalidStateError
from dataclasses import field
from functools import partial
from typing import Final, Generic, Protocol, TypeVar, assert_never

from kohort.base.clock import Clock
from kohort.base.values import value
from kohort.client.core.actions import Action, Complete, Deliver, Disconnect, Endpoint, Fail, Lane, Send, Stop, Warn
from kohort.client.core.authenticator import Authenticator
from kohort.client.core.connection import POOL_BYTES, BodyPool, Connection, Opener, Unopened, UnsupportedError
from kohort.client.core.requests import DeadlineReached, DriverEvent, Failure, RequestFailed, ResponseReceived
from kohort.client.metrics import Traffic
from kohort.client.options import ClientSettings
from kohort.errors import LocalProtocolError, StateError
from kohort.wire.schema import Message

_LOG: Final = logging.getLogger("kohort.client")
#: Longest response that is received: more than fetch.max.bytes, less than a corrupt length could say.
_FRAME_LIMIT_BYTES: Final = 512 * 1024 * 1024
_OVERDUE: Final = "no answer in time"

E = TypeVar("E")
E_contra = TypeVar("E_contra", contravariant=True)


class Machine(Protocol[E_contra]):
    """The methods of a machine that the driver calls; `E_contra`: the events of the application."""

    def handle(self, event: E_contra | DriverEvent, now_ms: int) -> list[Action]:
        """Take one event; return the actions that follow from it."""
        ...

    def next_deadline(self) -> int | None:
        """Return the time of the next `DeadlineReached`, milliseconds of the driver's clock; `None`: none."""
        ...


class Driver(Generic[E]):
    """Carries out the actions of one machine; every method runs on the event loop."""

    def __init__(
        self,
        machine: Machine[E],
        settings: ClientSettings,
        *,
        clock: Clock,
        traffic: Traffic,
        deliver: Callable[[object], None],
        on_stopped: Callable[[BaseException | None], None],
        refusal: Callable[[], StateError],
    ) -> None:
        self._machine = machine
        self._settings = settings
        self._clock = clock
        self._traffic = traffic
        self._pool = BodyPool(limit_bytes=POOL_BYTES)
        self._deliver = deliver
        #: Called once when the driver stops, with the bug that has stopped it, or `None`.
        self._on_stopped = on_stopped
        #: Creates the error for each ticket that is open when the driver stops, or arrives later.
        self._refusal = refusal
        self._tickets = Tickets()
        self._connections: dict[tuple[Endpoint, Lane], BrokerConnection] = {}
        self._addresses = Addresses(settings)
        self._opener = Opener(settings)
        #: Events that the machine has not handled yet.
        self._events: deque[E | DriverEvent] = deque()
        self._is_handling = False
        self._is_stopped = False
        #: The timer that fires at `_timer_ms`, or at once if that has passed.
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0
        self._loop: asyncio.AbstractEventLoop = asyncio.get_running_loop()

    # -- events ---------------------------------------------------------------------------------------------------

    def handle(self, event: E | DriverEvent) -> None:
        """Pass an event to the machine, and all events that follow from it."""
        # The ticket is recorded first, so that it ends even if the machine fails while it handles the event.
        if (ticket := getattr(event, "ticket", None)) is not None:
            self._tickets.open[id(ticket)] = ticket
        if self._is_stopped:
            self._tickets.refuse(self._refusal)
            return
        self._events.append(event)
        # An event that an action causes is handled after the present one, by the loop in `_run`.
        if not self._is_handling:
            self._run()

    def stop(self, bug: BaseException | None = None) -> None:
        """Close every connection and end."""
        if self._is_stopped:
            return
        self._is_stopped = True
        self._events.clear()
        if self._timer is not None:
            self._timer.cancel()
        for link in self._connections.values():
            for task in (link.opening, link.renewing):
                if task is not None:
                    task.cancel()
            if link.connection is not None:
                link.connection.close("the client is closing")
        self._pool.clear()
        try:
            self._on_stopped(bug)
        finally:
            self._tickets.refuse(self._refusal)

    def _on_bug(self, bug: BaseException) -> None:
        _LOG.error("the client stops: its machine failed", exc_info=bug)
        self.stop(bug)

    def _run(self) -> None:
        self._is_handling = True
        try:
            while self._events and not self._is_stopped:
                for action in self._machine.handle(self._events.popleft(), self._clock.now_ms()):
                    self._execute(action)
            due_ms = None if self._is_stopped else self._machine.next_deadline()
            if due_ms is not None and (self._timer is None or due_ms < self._timer_ms):
                self._wake_by(due_ms)
        except BaseException as bug:
            self._on_bug(bug)
            if not isinstance(bug, Exception):
                # A callback of a future has called sys.exit. The exit ends the thread, and no caller waits for it.
                raise
        finally:
            self._is_handling = False

    def _execute(self, action: Action) -> None:
        match action:
            case Send():
                self._send(action)
            case Deliver():
                self._deliver(action.item)
            case Complete():
                self._tickets.end(action.ticket, action.value, None)
            case Fail():
                self._tickets.end(action.ticket, None, action.error)
            case Warn():
                _LOG.log(logging.WARNING if action.is_warning else logging.INFO, "%s", action.text)
            case Disconnect():
                self._disconnect(action.to, action.lane)
            case Stop():
                self.stop()
            case _:
                assert_never(action)

    # -- time -----------------------------------------------------------------------------------------------------

    def _wake_by(self, instant_ms: int | None) -> None:
        """Let the timer fire at `instant_ms` at the latest; `None` changes nothing."""
        if instant_ms is None or self._is_stopped:
            return
        if self._timer is not None:
            # A timer that fires for a deadline that was moved is set to the next deadline.
            if self._timer_ms <= instant_ms:
                return
            self._timer.cancel()
        self._timer_ms = instant_ms
        # At least a millisecond: a machine that forgets to move a deadline must not take the whole processor.
        delay_ms = max(1, instant_ms - self._clock.now_ms())
        self._timer = self._loop.call_later(delay_ms / 1000, self._on_timer)

    def _rearm(self) -> None:
        """Set the timer to the earliest deadline of the machine and of all requests."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        due_ms = self._next_deadline()
        if self._is_stopped:
            return
        deadlines = [due_ms]
        for link in self._connections.values():
            if link.connection is not None:
                deadlines.append(link.connection.next_deadline())
                deadlines.append(link.renew_at_ms)
            deadlines.extend(deadline for _, deadline in link.queue)
        self._wake_by(min((deadline for deadline in deadlines if deadline is not None), default=None))

    def _next_deadline(self) -> int | None:
        try:
            return None if self._is_stopped else self._machine.next_deadline()
        except Exception as bug:
            self._on_bug(bug)
            return None

    def _on_timer(self) -> None:
        self._timer = None
        now_ms = self._clock.now_ms()
        for link in list(self._connections.values()):
            if link.connection is not None and link.connection.is_overdue(now_ms):
                patience_ms = self._addresses.first_answer_timeout_ms(link.failures)
                was_ready = link.connection.was_ready
                link.connection.close(
                    _OVERDUE if was_ready else f"none within {patience_ms / 1000:g} s, is it HTTP or TLS?"
                )
            if link.connection is not None and link.renew_at_ms is not None and link.renew_at_ms <= now_ms:
                link.renew_at_ms = None
                link.renewing = self._loop.create_task(self._renew(link, link.connection))
            overdue = [send for send, deadline in link.queue if deadline <= now_ms]
            if overdue:
                link.queue = deque(entry for entry in link.queue if entry[1] > now_ms)
                self._fail(overdue, Failure.TIMED_OUT, f"{link.to} did not accept the request in time")
        deadline = self._next_deadline()
        if deadline is not None and deadline <= now_ms:
            self.handle(DeadlineReached())
        self._rearm()

    # -- requests -------------------------------------------------------------------------------------------------

    def _send(self, send: Send) -> None:
        link = self._connections.get((send.to, send.lane))
        if link is None:
            link = self._connections[(send.to, send.lane)] = BrokerConnection(to=send.to, lane=send.lane)
        deadline_ms = self._clock.now_ms() + send.timeout_ms
        # Queued requests go first: a request without a response may cause the next one at once.
        if link.connection is not None and link.connection.is_ready and not link.queue:
            self._write(link.connection, send, deadline_ms)
            return
        link.queue.append((send, deadline_ms))
        self._wake_by(deadline_ms)
        if link.connection is None and link.opening is None:
            link.opening = self._loop.create_task(self._open(link))

    def _write(self, connection: Connection, send: Send, deadline_ms: int) -> None:
        if self._timer is None or deadline_ms < self._timer_ms:
            self._wake_by(deadline_ms)
        try:
            connection.send(send, deadline_ms=deadline_ms)
        except UnsupportedError as error:
            self._fail([send], Failure.UNSUPPORTED, f"{send.to} {error}")
        except LocalProtocolError as error:
            self._fail([send], Failure.UNENCODABLE, str(error))

    def _fail(self, sends: list[Send], failure: Failure, detail: str) -> None:
        for send in sends:
            self.handle(RequestFailed(token=send.token, failure=failure, detail=detail))

    def _on_response(self, link: BrokerConnection, token: int, version: int, message: Message) -> None:
        connection = link.connection
        if connection is None:
            received = ResponseReceived(token=token, version=version, message=message)
        else:
            received = ResponseReceived(
                token=token,
                version=version,
                message=message,
                is_kohort=connection.is_kohort,
                login_ms=connection.login_ms,
                transaction_version=connection.transaction_version,
            )
        self.handle(received)

    # -- connections ----------------------------------------------------------------------------------------------

    async def _open(self, link: BrokerConnection) -> None:
        pause_ms = link.not_before_ms - self._clock.now_ms()
        # There is a pause between attempts to reconnect (reconnect.backoff.ms).
        if pause_ms > 0:
            await asyncio.sleep(pause_ms / 1000)
        try:
            timeout_ms = self._addresses.connect_timeout_ms(link.to, link.failures)
            connection = await self._opener.open(link.to, partial(self._build_connection, link), timeout_ms=timeout_ms)
        except Unopened as why:
            link.opening = None
            self._on_unopened(link, why.failure, why.reason)
            return
        except asyncio.CancelledError:
            # The task was cancelled with the tasks of other code on this loop. Queued requests are sent all the same.
            link.opening = None if self._is_stopped else self._loop.create_task(self._open(link))
            raise
        link.opening = None
        link.connection = connection
        patience_ms = self._addresses.first_answer_timeout_ms(link.failures)
        connection.negotiate_versions(deadline_ms=self._clock.now_ms() + patience_ms)
        self._rearm()

    def _build_connection(self, link: BrokerConnection, sign_in: Authenticator | None) -> Connection:
        return Connection(
            client_id=self._settings.options["client_id"],
            frame_limit_bytes=_FRAME_LIMIT_BYTES,
            pool=self._pool,
            traffic=self._traffic,
            sign_in=sign_in,
            on_ready=partial(self._on_ready, link),
            on_response=partial(self._on_response, link),
            on_closed=partial(self._on_closed, link),
        )

    async def _renew(self, link: BrokerConnection, connection: Connection) -> None:
        """Renew the login of a connection before its session ends."""
        try:
            sign_in = await self._opener.sign_in()
        except Unopened as why:
            _LOG.warning("broker %s: the login cannot be renewed: %s", link.to, why.reason)
            if link.connection is connection:
                link.renew_at_ms = connection.renew_again_ms(self._clock.now_ms())
                self._rearm()
            return
        finally:
            link.renewing = None
        if connection.is_ready and sign_in is not None:
            connection.sign_in_again(
                sign_in, deadline_ms=self._clock.now_ms() + self._settings.options["request_timeout_ms"]
            )
            self._rearm()

    def _on_ready(self, link: BrokerConnection) -> None:
        link.failures = 0
        self._addresses.on_ready(link.to)
        if link.connection is not None:
            link.renew_at_ms = link.connection.renew_at_ms
        while link.queue and link.connection is not None:
            send, deadline_ms = link.queue.popleft()
            self._write(link.connection, send, deadline_ms)
        self._rearm()

    def _on_unopened(self, link: BrokerConnection, failure: Failure, reason: str) -> None:
        """Fail the queued requests after an attempt that has made no ready connection."""
        self._back_off(link)
        self._addresses.on_failed(link.to, reason, link.failures)
        queued = [send for send, _ in link.queue]
        link.queue.clear()
        self._fail(queued, failure, reason)

    def _on_closed(self, link: BrokerConnection, connection: Connection, reason: str, lost: list[Send]) -> None:
        if connection.is_refused:
            self._opener.on_refused()
        # A connection that was closed on purpose was removed before: queued requests wait for the next connection.
        if link.connection is connection:
            link.connection, link.renew_at_ms = None, None
            if not (connection.was_ready or self._is_stopped):
                failure = Failure.NOT_AUTHENTICATED if connection.is_refused else Failure.NO_BROKER
                unsaid = "" if connection.is_refused else "connected, but no Kafka answer: "
                self._on_unopened(link, failure, unsaid + reason)
                self._rearm()
                return
            self._back_off(link)
            lost = lost + [send for send, _ in link.queue]
            link.queue.clear()
        if self._is_stopped:
            return
        failure = Failure.TIMED_OUT if reason == _OVERDUE else Failure.DISCONNECTED
        self._fail(lost, failure, f"{link.to}: {reason}")
        self._rearm()

    def _disconnect(self, to: Endpoint, lane: Lane) -> None:
        link = self._connections.get((to, lane))
        if link is not None and link.connection is not None:
            connection, link.connection = link.connection, None
            connection.close("not needed any more")

    def _back_off(self, link: BrokerConnection) -> None:
        link.not_before_ms = self._clock.now_ms() + self._settings.reconnect.delay_ms(link.failures)
        link.failures += 1


class Tickets:
    """The tickets of calls that have not ended: each ends once, by the machine or with the driver."""

    def __init__(self) -> None:
        #: The id of a ticket -> the ticket, which need not be hashable.
        self.open: dict[int, object] = {}

    def end(self, ticket: object, value: object, error: Exception | None) -> None:
        """End a ticket with its value, or with `error` if that is not `None`."""
        self.open.pop(id(ticket), None)
        try:
            # The type of a ticket is `object`, because machines do not use tickets themselves.
            if error is None:
                ticket.set_result(value)  # type: ignore[attr-defined]
            else:
                ticket.set_exception(error)  # type: ignore[attr-defined]
        except InvalidStateError:
            _LOG.debug("the end of a call came after its caller had given up")

    def refuse(self, build: Callable[[], Exception]) -> None:
        """End every open ticket, oldest first, each with another error that `build` returns."""
        tickets, self.open = self.open, {}
        for ticket in tickets.values():
            self.end(ticket, None, build())


#: Failed attempts of one connection in a row after which a line is logged.
_WORTH_A_LINE: Final = 4
#: Timeout of the first attempt to connect to an advertised address.
_NAMED_CONNECT_MS: Final = 3_000
#: Timeout of the first response on the first connection; doubled by each failure, because a broker may be slow.
_FIRST_ANSWER_MS: Final = 5_000


class Addresses:
    """The addresses that are reachable at present, for log lines and timeouts of all connections to them.

    Laws: an address that stays unreachable is logged once per reason, and once when it is reached again, however many
    connections try.
    Source: Kafka's `socket.connection.setup.timeout.ms`, `advertised.listeners`.
    """

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        #: Addresses at which a broker has responded.
        self._known: set[Endpoint] = set()
        #: Unreachable address -> the reasons that were logged; no empty sets.
        self._said: dict[Endpoint, set[str]] = {}

    def connect_timeout_ms(self, to: Endpoint, failures: int) -> int:
        """Return the timeout of an attempt to connect, after so many failures in a row."""
        limit_ms = self._settings.options["socket_connection_setup_timeout_ms"]
        # No client may be able to reach an advertised address that was never reached.
        is_doubtful = to not in self._known and to not in self._settings.bootstrap
        return min(limit_ms, _NAMED_CONNECT_MS) if is_doubtful and failures == 0 else limit_ms

    def first_answer_timeout_ms(self, failures: int) -> int:
        """Return the timeout of the response to ApiVersions, after so many failures in a row."""
        return min(self._settings.options["request_timeout_ms"], _FIRST_ANSWER_MS << min(failures, 8))

    def on_ready(self, to: Endpoint) -> None:
        """Record that a broker has responded at an address."""
        self._known.add(to)
        if self._said.pop(to, None):
            _LOG.warning("broker %s: connected again", to)

    def on_failed(self, to: Endpoint, reason: str, failures: int) -> None:
        """Log that an address cannot be reached, after some failures in a row."""
        if failures >= _WORTH_A_LINE and reason not in self._said.get(to, ()):
            self._said.setdefault(to, set()).add(reason)
            _LOG.warning("broker %s cannot be reached (%s); retrying", to, reason)


@value(frozen=False, eq=False)
class BrokerConnection:
    """The broker and lane of a connection, with its state over all reconnects."""

    to: Endpoint
    lane: Lane
    #: The one connection that is open or being negotiated; `None`: there is none.
    connection: Connection | None = None
    #: The task that opens the connection; `None`: none is being opened.
    opening: asyncio.Task[None] | None = None
    #: (request, time at which it times out), in order, until the connection is ready.
    queue: deque[tuple[Send, int]] = field(default_factory=deque)
    #: Attempts in a row that did not become ready.
    failures: int = 0
    #: No attempt before this time.
    not_before_ms: int = 0
    #: The time at which the login of the connection has to be renewed; `None`: it need not be renewed.
    renew_at_ms: int | None = None
    #: The task that renews the login.
    renewing: asyncio.Task[None] | None = None
