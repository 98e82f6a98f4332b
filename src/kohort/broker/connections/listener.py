"""Where the clients of one broker connect: its socket, its connections, and how long they are waited for.

Laws: once `finish` was called no request is handled any more; once `close` has returned no connection is open.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
from typing import TYPE_CHECKING, Final

from kohort.broker.connections.connection import Connection

if TYPE_CHECKING:
    from kohort.broker.context import BrokerContext

#: How long a stop waits for clients to take their last answers.
CLOSE_TIMEOUT_SECONDS: Final = 2.0


class Listener:
    """The door of one broker."""

    def __init__(self, context: BrokerContext) -> None:
        self._context: Final = context
        self._backlog: Final[int] = context.settings.values["socket.listen.backlog.size"]
        self._server: asyncio.Server | None = None

    async def start(self, listening: socket.socket) -> None:
        """Accept connections; the socket is closed if that fails."""
        context, leadership = self._context, self._context.leadership
        leadership.host, leadership.port = context.settings.host, listening.getsockname()[1]
        try:
            self._server = await context.loop.create_server(
                lambda: Connection(context), sock=listening, backlog=self._backlog
            )
        except BaseException:
            listening.close()
            raise
        context.patience.start()

    def finish(self) -> None:
        """Accept no connection and handle no request any more; what was handled before is still answered."""
        self._context.patience.stop()
        if self._server is not None:
            self._server.close()
        for connection in self._in_order():
            connection.finish()

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
