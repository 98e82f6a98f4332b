"""Timeouts that close silent, slow or stalled connections, to free their resources for other clients.

Laws: a new client sends its first byte within `SILENCE_SECONDS`. The rest of an incomplete request arrives at a minimum
rate; while others wait for memory that rate grows with the memory it holds. The unread responses of all clients are
bounded together. Neither an unanswered request nor a stalled event loop counts against a client. No connection has a
timer of its own: one serves all new connections and incomplete requests, and all connections are checked at intervals.
Source: Kafka's connections.max.idle.ms; Apache httpd's mod_reqtimeout (a first byte, then a least rate).
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter, deque
from collections.abc import Collection
from operator import attrgetter, itemgetter
from typing import Final, Protocol
from weakref import ref

from kohort.broker.connections.buffers import ReceiveBuffer
from kohort.broker.connections.request import Peer
from kohort.broker.limits.memory import ByteBudget

log = logging.getLogger("kohort.broker.connections")

#: A new connection sends its first byte within this time.
SILENCE_SECONDS: Final = 5.0
#: The time between two looks at an incomplete request; a header takes no longer.
LOOK_SECONDS: Final = 10.0
#: Bytes that an incomplete request has to get between two looks: one KB a second.
LEAST_BYTES: Final = 10 * 1024
#: The same while others wait for memory: one part in `LEAST_PART` of the bytes that it holds has to come each time.
#: The longest request then takes a hundred seconds.
SHORT_SECONDS: Final = 1.0
LEAST_PART: Final = 100
#: How long an answer may wait for its client to take it.
STALL_SECONDS: Final = 30.0
#: Unread answers of all clients together, above which connections are closed that hold most of them.
#: Kept are those that take one part in `TAKEN_PART` of theirs in `TAKING_SECONDS`.
MOST_UNTAKEN_BYTES: Final = 256 << 20
TAKING_SECONDS: Final = 1.0
TAKEN_PART: Final = 100
#: Connections that are due within this time are looked at together.
_TOGETHER_SECONDS: Final = 0.25
#: A look that is later than this says that the loop stood still, and nothing about clients.
_LATE_SECONDS: Final = 2.0


class WatchedConnection(Peer, Protocol):
    """The part of a connection that the timeouts and the listener use."""

    #: Bytes received from the client.
    received_bytes: int
    #: Rises with each action of the client.
    progress: int
    #: Whether the rest of an incomplete request is waited for.
    is_watched: bool

    @property
    def input(self) -> ReceiveBuffer:
        """The buffer of received bytes that are not handled yet."""

    @property
    def peer(self) -> str:
        """The client's address and port, for logs."""

    @property
    def is_served(self) -> bool:
        """Whether the client waits for a response of this broker."""

    @property
    def is_stalled(self) -> bool:
        """Whether the client does not read its responses."""

    @property
    def is_muted(self) -> bool:
        """Whether the client is throttled because it has exceeded a quota."""

    @property
    def is_open(self) -> bool:
        """Whether the client is connected."""

    @property
    def is_read(self) -> bool:
        """Whether the broker reads from the client."""

    @property
    def taken_bytes(self) -> int:
        """The response bytes that the transport has passed on to the client."""

    @property
    def untaken_bytes(self) -> int:
        """The response bytes that are buffered because the client does not read them."""

    def finish(self) -> None:
        """Handle no further request."""

    def abort(self) -> None:
        """Close without waiting for a client that does not read."""

    def examine_rights(self) -> None:
        """Refuse the waiting requests that the client's changed rights no longer allow."""

    def give_up(self, reason: str) -> None:
        """Close the connection of a client that does not act in time, and log the reason."""


class IdleTimeouts:
    """The time limits of the connections of one broker."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        connections: Collection[WatchedConnection],
        budget: ByteBudget,
        *,
        max_idle_ms: int,
    ) -> None:
        self._loop: Final = loop
        self._connections: Final = connections
        self._budget: Final = budget
        self._max_idle: Final = max_idle_ms / 1000
        self._stall: Final = min(STALL_SECONDS, self._max_idle)
        self._silence: Final = min(SILENCE_SECONDS, self._max_idle)
        #: New connections, and when their first byte is due; oldest first.
        self._new: Final[deque[tuple[float, ref[WatchedConnection]]]] = deque()
        #: Connections with an incomplete request: next look, bytes received and bytes handled at the last look.
        self._halves: Final[deque[tuple[float, ref[WatchedConnection], int, int]]] = deque()
        self._look_timer: asyncio.TimerHandle | None = None
        #: The timer of the look at connections that hold memory for which others wait.
        self._short_timer: asyncio.TimerHandle | None = None
        budget.on_short = self._on_short
        #: Connection -> (its progress and taken bytes at the last look, when these last changed).
        self._seen: dict[object, tuple[int, float]] = {}
        self._sweep_timer: asyncio.TimerHandle | None = None
        #: Connections whose clients do not read at once -> bytes that they had taken at the last look.
        self._untaken: Final[dict[WatchedConnection, int]] = {}
        self._taking_timer: asyncio.TimerHandle | None = None
        #: Limit -> connections that were closed by it since the start.
        self.reached: Final[Counter[str]] = Counter()

    @property
    def given_up(self) -> int:
        """The number of connections that were closed since the start."""
        return self.reached.total()

    def start(self) -> None:
        """Start the periodic check for idle connections."""
        self._sweep_timer = self._loop.call_later(self._stall / 2, self._sweep)

    def stop(self) -> None:
        """Stop all timers."""
        self._budget.on_short = lambda: None
        for timer in (self._sweep_timer, self._look_timer, self._short_timer, self._taking_timer):
            if timer is not None:
                timer.cancel()

    def idle_since(self, connection: object) -> float:
        """Return the last activity that a check has seen, in loop seconds; the present time without one."""
        return self._seen[connection][1] if connection in self._seen else self._loop.time()

    def expect_first_byte(self, connection: WatchedConnection) -> None:
        """Close a new connection unless its first byte arrives within `SILENCE_SECONDS`."""
        self._new.append((self._loop.time() + self._silence, ref(connection)))
        self._arm()

    def expect_rest(self, connection: WatchedConnection) -> None:
        """Close `connection` if the rest of its incomplete request arrives too slowly."""
        connection.is_watched = True
        self._watch(connection)
        self._arm()

    def expect_taking(self, connection: WatchedConnection) -> None:
        """Check that the client of `connection` reads, after it did not take all its responses at once."""
        if connection not in self._untaken:
            self._untaken[connection] = connection.taken_bytes
        if self._taking_timer is None:
            due = self._loop.time() + TAKING_SECONDS
            self._taking_timer = self._loop.call_at(due, self._look_at_untaken, due)

    def _look_at_untaken(self, due: float) -> None:
        self._taking_timer = None
        before = dict(self._untaken)
        self._untaken.clear()
        sizes = {connection: size for connection in before if (size := connection.untaken_bytes)}
        beyond = sum(sizes.values()) - MOST_UNTAKEN_BYTES
        is_late = self._loop.time() - due > _LATE_SECONDS
        for connection, size in sorted(sizes.items(), key=itemgetter(1), reverse=True):
            taken = connection.taken_bytes - before[connection]
            # If the loop stood still, the clients had no chance to be read: a late look closes nothing.
            if beyond > 0 and taken < size // TAKEN_PART and not is_late:
                beyond -= size
                self._give_up(connection, "untaken", "answers are not taken, and the memory is short")
            else:
                self.expect_taking(connection)

    def _watch(self, connection: WatchedConnection) -> None:
        due = self._loop.time() + min(LOOK_SECONDS, self._max_idle)
        self._halves.append((due, ref(connection), connection.received_bytes, _handled(connection)))

    def _arm(self) -> None:
        if self._look_timer is None:
            due = min(queue[0][0] for queue in (self._new, self._halves) if queue)
            self._look_timer = self._loop.call_at(due + _TOGETHER_SECONDS, self._look)

    def _look(self) -> None:
        self._look_timer = None
        now = self._loop.time()
        while self._new and self._new[0][0] <= now:
            due, known = self._new.popleft()
            connection = known()
            if connection is None or connection.received_bytes or not connection.is_open:
                continue
            if now - due > _LATE_SECONDS:
                self._new.append((now + self._silence, known))
            else:
                self._give_up(connection, "silence", "nothing was said by a new connection")
        while self._halves and self._halves[0][0] <= now:
            due, known, received, handled = self._halves.popleft()
            connection = known()
            if connection is None or not connection.is_open:
                continue
            if not connection.input.have:
                connection.is_watched = False
            elif (
                now - due > _LATE_SECONDS
                or not connection.is_read
                or _handled(connection) > handled
                or connection.received_bytes - received >= LEAST_BYTES
            ):
                self._watch(connection)
            else:
                self._give_up(connection, "slowness", "half a request came, and the rest too slowly")
        if self._new or self._halves:
            self._arm()

    def _give_up(self, connection: WatchedConnection, limit: str, reason: str) -> None:
        self.reached[limit] += 1
        connection.give_up(reason)

    def _on_short(self) -> None:
        """Check the progress of the connections that hold memory while others wait for some."""
        if self._short_timer is None:
            due = self._loop.time() + SHORT_SECONDS
            holders = {
                each: (each.received_bytes, _handled(each))
                for each in sorted(self._connections, key=attrgetter("number"))
                if each.input.granted and each.is_read
            }
            self._short_timer = self._loop.call_at(due, self._look_at_holders, due, holders)

    def _look_at_holders(self, due: float, holders: dict[WatchedConnection, tuple[int, int]]) -> None:
        self._short_timer = None
        if not self._budget.is_short:
            return
        is_late = self._loop.time() - due > _LATE_SECONDS
        for connection, (received, handled) in holders.items():
            least = connection.input.granted // LEAST_PART
            is_idle = _handled(connection) == handled and connection.received_bytes - received < least
            if is_idle and connection.is_open and connection.is_read and connection.input.have and not is_late:
                self._give_up(connection, "slowness", "half a request came, and the rest too slowly")
        self._on_short()

    def _sweep(self) -> None:
        now = self._loop.time()
        before, self._seen = self._seen, {}
        for connection in list(self._connections):
            progress, since = before.get(connection, (-1, now))
            if (moved := connection.progress + connection.taken_bytes) != progress or connection.is_served:
                progress, since = moved, now
            self._seen[connection] = progress, since
            limit = self._stall if connection.is_stalled else self._max_idle
            if now - since >= limit:
                log.info("event=connection_closed peer=%s reason='idle for %.0f s'", connection.peer, now - since)
                self.reached["stall" if connection.is_stalled else "connections.max.idle.ms"] += 1
                connection.abort()
        self._sweep_timer = self._loop.call_later(self._stall / 2, self._sweep)


def _handled(connection: WatchedConnection) -> int:
    """Return the bytes of a connection's handled requests."""
    return connection.received_bytes - connection.input.have
