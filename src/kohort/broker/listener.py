"""The listening sockets of one broker: they accept connections, keep them, and wait for their end.

Laws: once `finish` was called no request is handled any more; once `wait_closed` has returned no connection is open.
A crowd takes the descriptors of `max.connections` and a few, however many come at once and by which listener.
While the system has no descriptor for a connection no client is let in, connected clients are served, and the loop does
not turn for those that wait. A child that is forked beside a broker has none of its sockets: with them it would keep
the port, and the clients waiting, after the broker has gone.
Source: accept(2); an event loop that is told again and again of a socket from which it cannot accept does nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from kohort.broker.connection import Connection
from kohort.broker.connections.idle_timeouts import WatchedConnection
from kohort.broker.connections.sockets import plain_host
from kohort.broker.context import BrokerContext
from kohort.broker.dispatch import Routes
from kohort.broker.options.listeners import ListenerSettings

if TYPE_CHECKING:
    from kohort.broker.connections.handshakes import Handshakes

log = logging.getLogger("kohort.broker.connections")

#: Errors by which the system has no room for a connection, and the pause in which none is accepted then.
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
PAUSE_SECONDS: Final = 1.0
#: Connections that are accepted in one turn of the loop; with one a turn, a crowd would wait for as many turns.
ACCEPTED_AT_ONCE: Final = 64
#: Connections above the rate of their address that a listener keeps open for a while; beyond, the first is closed.
MOST_REFUSED: Final = 100
#: How long a stop waits for clients to take their last answers.
CLOSE_TIMEOUT_SECONDS: Final = 2.0


class Listener:
    """One listening socket: lets clients in."""

    def __init__(
        self, context: BrokerContext, routes: Routes, settings: ListenerSettings, accepted: WeakSet[socket.socket]
    ) -> None:
        """Create a listener; `accepted` has the sockets of all connections of the broker, as long as they are open."""
        self._context: Final = context
        self._routes: Final = routes
        self._settings: Final = settings
        self._backlog: Final[int] = settings.values["socket.listen.backlog.size"]
        self._listening: socket.socket | None = None
        self._server: asyncio.Server | None = None
        #: The timer that accepts connections again, while none are accepted.
        self._again: asyncio.TimerHandle | None = None
        #: The connection that is let in then, if it was above the rate of the listener.
        self._late: socket.socket | None = None
        #: Connections above the rate of their address, until they are closed; the one that was accepted first first.
        self._refused: Final[dict[socket.socket, asyncio.TimerHandle]] = {}
        #: Connections on their way from the socket to their transport.
        self._entering: Final[set[asyncio.Task[object]]] = set()
        self._accepted: Final = accepted
        #: The TLS of its connections; `None`: it has none.
        self._handshakes: Final = self._load_tls() if settings.protocol.has_tls else None

    def _load_tls(self) -> Handshakes:
        # A broker without TLS does not pay for this import.
        from kohort.broker.connections.handshakes import Handshakes

        context = self._context
        return Handshakes(context.loop, self._settings, admission=context.connection_quotas, connect=self._connect)

    @property
    def listening(self) -> socket.socket | None:
        """The socket, while it is open."""
        return self._listening

    async def start(self, listening: socket.socket) -> None:
        """Accept connections; the socket is closed if that fails."""
        context, name = self._context, self._settings.name
        context.leadership.addresses[name] = self._settings.host, listening.getsockname()[1]
        try:
            if hasattr(listening, "accept"):
                listening.setblocking(False)
                listening.listen(self._backlog)
                context.loop.add_reader(listening, self._accept)
                self._listening = listening
            else:
                # A simulated network has no descriptors: it lets clients in by itself.
                self._server = await context.loop.create_server(self._protocol, sock=listening)
        except BaseException:
            listening.close()
            raise
        if self._handshakes is not None:
            self._handshakes.start()

    def finish(self) -> None:
        """Accept no connection any more."""
        if self._handshakes is not None:
            self._handshakes.stop()
        if self._again is not None:
            self._again.cancel()
        if self._late is not None:
            self._late.close()
            self._late = None
        for refused in list(self._refused):
            self._close_refused(refused)
        if self._listening is not None:
            self._context.loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        if self._server is not None:
            self._server.close()
        for entering in self._entering:
            entering.cancel()

    def _protocol(self) -> asyncio.BufferedProtocol:
        """Create the protocol of a client that comes in."""
        if self._handshakes is not None:
            return self._handshakes.protocol()
        return Connection(self._context, self._routes, self._settings)

    def _connect(self, principal: str | None) -> Connection:
        """Create the connection of a client that TLS is spoken with; `principal`: that of its certificate."""
        connection = Connection(self._context, self._routes, self._settings)
        # Kafka: of a SASL_SSL listener the login alone says it.
        if principal is not None and not self._settings.protocol.has_sasl:
            connection.principal = principal
        return connection

    def _accept(self) -> None:
        """Accept waiting clients, as many as one turn and the limits allow."""
        listening, rates = self._listening, self._context.connection_rates
        assert listening is not None
        # Connections that are closed for new ones, and those without a transport yet, still have their descriptors.
        # With more of them at once the process would have none left for its files.
        # One is always accepted, since silent connections are closed for it.
        room = self._context.connection_quotas.limit - len(self._accepted)
        for _ in range(max(1, min(ACCEPTED_AT_ONCE, room))):
            try:
                accepted, address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as why:
                if why.errno not in _NO_ROOM:
                    raise
                self._context.reached["descriptors"] += 1
                log.warning("event=accept_failed reason=%r pause_ms=%d", str(why), PAUSE_SECONDS * 1000)
                self._pause(PAUSE_SECONDS)
                return
            if rates.is_on:
                admission = rates.admit(self._settings.name, plain_host(str(address[0])), self._context.monotonic_ms())
                if admission.is_refused:
                    self._close_later(accepted, admission.wait_ms / 1000)
                    continue
                if admission.wait_ms:
                    self._late = accepted
                    self._pause(admission.wait_ms / 1000)
                    return
            self._let_in(accepted)

    def _pause(self, seconds: float) -> None:
        """Accept no connection for that time."""
        assert self._listening is not None
        self._context.loop.remove_reader(self._listening)
        self._again = self._context.loop.call_later(seconds, self._accept_again)

    def _close_later(self, accepted: socket.socket, seconds: float) -> None:
        """Close a connection above the rate of its address: a client that tries again at once is no faster for it."""
        self._accepted.add(accepted)
        while len(self._refused) >= MOST_REFUSED:
            self._close_refused(next(iter(self._refused)))
        self._refused[accepted] = self._context.loop.call_later(seconds, self._close_refused, accepted)

    def _close_refused(self, accepted: socket.socket) -> None:
        self._refused.pop(accepted).cancel()
        accepted.close()

    def _let_in(self, accepted: socket.socket) -> None:
        loop = self._context.loop
        accepted.setblocking(False)
        with contextlib.suppress(OSError):
            # A client that is gone already is found out by its transport.
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._accepted.add(accepted)
        entering: asyncio.Task[object] = loop.create_task(self._enter(accepted))
        self._entering.add(entering)
        entering.add_done_callback(partial(self._on_entered, accepted))

    def _accept_again(self) -> None:
        self._again = None
        late, self._late = self._late, None
        if late is not None:
            self._let_in(late)
        if self._listening is not None:
            self._context.loop.add_reader(self._listening, self._accept)

    async def _enter(self, accepted: socket.socket) -> None:
        """Create the transport of an accepted socket; the socket closes with it."""
        await self._context.loop.connect_accepted_socket(self._protocol, accepted)

    def _on_entered(self, accepted: socket.socket, entering: asyncio.Task[object]) -> None:
        """Close an accepted socket that got no transport, even if its task never ran."""
        self._entering.discard(entering)
        if entering.cancelled() or entering.exception() is not None:
            accepted.close()


class Listeners:
    """The listeners of one broker, with the connections of them all."""

    def __init__(self, context: BrokerContext) -> None:
        self._context: Final = context
        #: The sockets of all connections, as long as they are open.
        self._accepted: Final[WeakSet[socket.socket]] = WeakSet()
        #: Returns the sockets of the same broker that are no listener's.
        self.further_sockets: Callable[[], Iterable[socket.socket]] = tuple
        #: Those of every connection.
        self.routes: Final = Routes()
        self._listeners: Final = [
            Listener(context, self.routes, each, self._accepted) for each in context.settings.listeners
        ]
        # Forked children give up the sockets of all listeners.
        _ALL.add(self)

    async def start(self, bound: Sequence[socket.socket]) -> None:
        """Accept connections on a socket for each listener; all are closed if one fails."""
        for number, (listener, listening) in enumerate(zip(self._listeners, bound, strict=True)):
            try:
                await listener.start(listening)
            except BaseException:
                for each in bound[number:]:
                    each.close()
                raise
        self._context.idle_timeouts.start()
        self._context.logins.start()

    def finish(self) -> None:
        """Accept no connection and handle no request any more; handled requests are still answered."""
        self._context.idle_timeouts.stop()
        self._context.logins.stop()
        for listener in self._listeners:
            listener.finish()
        for connection in self._in_order():
            connection.finish()

    def leave_to_parent(self) -> None:
        """Give up all sockets in a forked child, and keep their numbers in use."""
        # A number that stays in use cannot become another file, which a later close of the socket would close.
        nothing = os.open(os.devnull, os.O_RDWR)
        for each in (*(listener.listening for listener in self._listeners), *self._accepted, *self.further_sockets()):
            if each is not None and each.fileno() >= 0:
                os.dup2(nothing, each.fileno(), inheritable=False)
        os.close(nothing)

    def abort(self) -> None:
        """Close everything at once, as a crash would."""
        self.finish()
        for connection in self._in_order():
            connection.abort()

    def close_connections(self) -> None:
        """Write the ready answers and close; leave unanswered requests unanswered."""
        for connection in self._in_order():
            connection.close()

    async def wait_closed(self) -> None:
        """Wait until every client has taken its last answers, for `CLOSE_TIMEOUT_SECONDS` at most."""
        context = self._context
        context.all_closed.clear()
        if context.connections:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(context.all_closed.wait(), CLOSE_TIMEOUT_SECONDS)
        for connection in self._in_order():
            connection.abort()

    def _in_order(self) -> list[WatchedConnection]:
        return sorted(self._context.connections, key=lambda connection: connection.number)


#: Those of this process.
_ALL: Final[WeakSet[Listeners]] = WeakSet()


def _leave_all_to_parent() -> None:
    for listeners in _ALL:
        listeners.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_parent)
