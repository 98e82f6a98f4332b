"""Closes connections that nobody uses, and those that hold memory without going on.

Laws: a connection with a request that this broker has not answered yet is in use; one that sent half a request, or
does not take its answers, is not, and gets less patience because it holds what others wait for.
Source: Kafka's connections.max.idle.ms; requirement B4 (bounded memory under hostile input).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kohort.broker.connection import Connection

log = logging.getLogger("kohort.broker")

#: How long half a request or an answer that is not taken may stand still.
STALL_SECONDS: Final = 30.0


class IdleSweep:
    """Looks at every connection now and then."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, connections: Collection[Connection], *, max_idle_ms: int
    ) -> None:
        self._loop: Final = loop
        self._connections: Final = connections
        self._max_idle: Final = max_idle_ms / 1000
        self._stall: Final = min(STALL_SECONDS, self._max_idle)
        #: Connection -> (its progress at the last look, when that was new).
        self._seen: dict[Connection, tuple[int, float]] = {}
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Look from now on."""
        self._timer = self._loop.call_later(self._stall / 2, self._sweep)

    def stop(self) -> None:
        """Look no more."""
        if self._timer is not None:
            self._timer.cancel()

    def _sweep(self) -> None:
        now = self._loop.time()
        before, self._seen = self._seen, {}
        for connection in list(self._connections):
            progress, since = before.get(connection, (-1, now))
            if connection.progress != progress or connection.is_served:
                progress, since = connection.progress, now
            self._seen[connection] = progress, since
            limit = self._stall if connection.is_stalled else self._max_idle
            if now - since >= limit:
                log.info("event=connection_closed peer=%s reason='idle for %.0f s'", connection.peer, now - since)
                connection.abort()
        self.start()
