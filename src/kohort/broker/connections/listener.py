"""Where the clients of one broker connect: its socket, its connections, and how long they are waited for.

Laws: once `finish` was called no request is handled any more; once `wait_closed` has returned no connection is open.
A crowd takes the descriptors of `max.connections` and a few, however many come at once.
While the system has no descriptor for a connection nobody is let in, those who are in are served, and the loop does
not turn for those who wait. A child that is forked beside a broker has none of its sockets: with them it would keep the
port, and the clients waiting, after the broker has gone.
Source: accept(2); an event loop that is told again and again of a socket from which it cannot accept does nothing else.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import logging
import os
import socket
from functools import partial
from typing import TYPE_CHECKING, Final
from weakref import WeakSet

from kohort.broker.connections.connection import Connection

if TYPE_CHECKING:
    from kohort.broker.context import BrokerContext

log = logging.getLogger("kohort.broker")

#: What says that the system has no room for a connection, and how long nobody is let in then.
_NO_ROOM: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
PAUSE_SECONDS: Final = 1.0
#: Clients that are let in in one turn of the loop: of a crowd each would wait for as many turns as there are before it.
ACCEPTED_AT_ONCE: Final = 64
#: How long a stop waits for clients to take their last answers.
CLOSE_TIMEOUT_SECONDS: Final = 2.0


class Listener:
    """The door of one broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._context: Final = context
        self._backlog: Final[int] = context.settings.values["socket.listen.backlog.size"]
        self._listening: socket.socket | None = None
        self._server: asyncio.Server | None = None
        #: Lets clients in again, while nobody is.
        self._again: asyncio.TimerHandle | None = None
        #: Connections on their way from the socket to their transport.
        self._entering: Final[set[asyncio.Task[object]]] = set()
        #: Those of all connections, as long as they are open.
        self._accepted: Final[WeakSet[socket.socket]] = WeakSet()
        _LISTENERS.add(self)

    async def start(self, listening: socket.socket) -> None:
        """Accept connections; the socket is closed if that fails."""
        context, leadership = self._context, self._context.leadership
        leadership.host, leadership.port = context.settings.host, listening.getsockname()[1]
        try:
            if hasattr(listening, "accept"):
                listening.setblocking(False)
                listening.listen(self._backlog)
                context.loop.add_reader(listening, self._accept)
                self._listening = listening
            else:
                # A simulated network has no descriptors: it lets clients in by itself.
                self._server = await context.loop.create_server(lambda: Connection(context), sock=listening)
        except BaseException:
            listening.close()
            raise
        context.patience.start()

    def finish(self) -> None:
        """Accept no connection and handle no request any more; what was handled before is still answered."""
        self._context.patience.stop()
        if self._again is not None:
            self._again.cancel()
        if self._listening is not None:
            self._context.loop.remove_reader(self._listening)
            self._listening.close()
            self._listening = None
        if self._server is not None:
            self._server.close()
        for entering in self._entering:
            entering.cancel()
        for connection in self._in_order():
            connection.finish()

    def leave_to_parent(self) -> None:
        """Let go of all sockets, in a child; their numbers stay in use, so that nothing else is closed by them."""
        nothing = os.open(os.devnull, os.O_RDWR)
        for each in (self._listening, *self._accepted):
            if each is not None and each.fileno() >= 0:
                os.dup2(nothing, each.fileno(), inheritable=False)
        os.close(nothing)

    def _accept(self) -> None:
        """Let in those that wait, as many as a turn has, and as there is room for."""
        loop, listening = self._context.loop, self._listening
        assert listening is not None
        # Those that go for the ones that come, and those without a transport yet, have their descriptors still: with
        # more of them at once the process would have none left for its files. One comes always, since silent ones go.
        room = self._context.admission.limit - len(self._accepted)
        for _ in range(max(1, min(ACCEPTED_AT_ONCE, room))):
            try:
                accepted, _address = listening.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as why:
                if why.errno not in _NO_ROOM:
                    raise
                self._context.reached["descriptors"] += 1
                log.warning("event=accept_failed reason=%r pause_ms=%d", str(why), PAUSE_SECONDS * 1000)
                loop.remove_reader(listening)
                self._again = loop.call_later(PAUSE_SECONDS, self._accept_again)
                return
            self._let_in(accepted)

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
        if self._listening is not None:
            self._context.loop.add_reader(self._listening, self._accept)

    async def _enter(self, accepted: socket.socket) -> None:
        """Give a connection its transport, with which the socket closes."""
        await self._context.loop.connect_accepted_socket(lambda: Connection(self._context), accepted)

    def _on_entered(self, accepted: socket.socket, entering: asyncio.Task[object]) -> None:
        """A socket without a transport closes here, also one whose task never had its first turn."""
        self._entering.discard(entering)
        if entering.cancelled() or entering.exception() is not None:
            accepted.close()

    def abort(self) -> None:
        """Close at once, as a crash would."""
        self.finish()
        for connection in self._in_order():
            connection.abort()

    def close_connections(self) -> None:
        """Write what is ready and close; what is unanswered stays so."""
        for connection in self._in_order():
            connection.close()

    async def wait_closed(self) -> None:
        """Return when every client has taken its last answers, or has had enough time to."""
        context = self._context
        context.all_closed.clear()
        if context.connections:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(context.all_closed.wait(), CLOSE_TIMEOUT_SECONDS)
        for connection in self._in_order():
            connection.abort()

    def _in_order(self) -> list[Connection]:
        return sorted(self._context.connections, key=lambda connection: connection.number)


#: Those of this process.
_LISTENERS: Final[WeakSet[Listener]] = WeakSet()


def _leave_all_to_parent() -> None:
    for listener in _LISTENERS:
        listener.leave_to_parent()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_leave_all_to_parent)
