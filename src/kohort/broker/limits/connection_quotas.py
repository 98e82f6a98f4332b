"""Connection quotas: how many connections the broker, a listener and an IP address may have.

Laws: each connection is counted once, from its admission until it is closed. At the limit the oldest connection that
has never had a request carried out is closed for a new one, so that silent clients keep no other client out. The last
tenth of the limit is reserved for addresses that have had a request carried out. A new connection of the protected
listener is always admitted if another listener has a connection: the one that was idle for longest is closed.
Source: Kafka's max.connections, also of one listener, and max.connections.per.ip, with its overrides; its
`ConnectionQuotas.maxConnectionsExceeded`, and `Selector.lowestPriorityChannel`.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import field
from typing import Final, Protocol

from kohort.base.values import value

log = logging.getLogger("kohort.broker.connections")

#: One in so many connections is reserved for addresses that have had a request carried out.
KEPT_PART: Final = 10
#: The least time between two log lines about refusals; a line has the number of refusals.
LOG_EVERY_SECONDS: Final = 1.0


class Listener(Protocol):
    """The part of a listener that the connection quotas use."""

    @property
    def name(self) -> str:
        """The listener's name."""


class CountedConnection(Protocol):
    """The part of a connection that the connection quotas use."""

    #: The client's address, and the port it connects from.
    peer_host: str
    peer_port: int

    @property
    def listener(self) -> Listener:
        """The listener that accepted the connection."""

    def abort(self) -> None:
        """Close without waiting for the client."""


@value
class Limits:
    """The most connections: of all addresses together, of each address, and of addresses with overrides."""

    most: int
    per_host: int
    by_host: Mapping[str, int] = field(default_factory=dict)


class _Room:
    """The connections that share one limit; those without a carried-out request are kept apart."""

    def __init__(self, limit: int) -> None:
        self.limit: Final = limit
        #: Connections without a carried-out request, oldest first.
        self.newcomers: Final[dict[CountedConnection, None]] = {}
        #: Connections with a carried-out request, oldest first, and their number by address.
        self.at_work: Final[dict[CountedConnection, None]] = {}
        self._at_work_by_host: Final[Counter[str]] = Counter()

    def __len__(self) -> int:
        return len(self.newcomers) + len(self.at_work)

    def has_place_for(self, host: str, *, is_protected: bool = False) -> bool:
        """Return whether one more connection of `host` is within this limit."""
        # The last tenth of the connections is for addresses that have had a request carried out.
        is_kept = self.at_work and not self._at_work_by_host[host] and not is_protected
        return len(self) < (self.limit - self.limit // KEPT_PART if is_kept else self.limit)

    def prove(self, connection: CountedConnection) -> None:
        """Move a connection to those that have had a request carried out."""
        del self.newcomers[connection]
        self.at_work[connection] = None
        self._at_work_by_host[connection.peer_host] += 1

    def leave(self, connection: CountedConnection) -> bool:
        """Stop counting a closed connection; return `False` if it was not counted."""
        if connection in self.newcomers:
            del self.newcomers[connection]
        elif connection in self.at_work:
            del self.at_work[connection]
            _count_down(self._at_work_by_host, connection.peer_host)
        else:
            return False
        return True


class _Hosts:
    """The number of connections of each address, for the listeners that share these limits."""

    def __init__(self, limits: Limits) -> None:
        self._limits: Final = limits
        self.by_host: Final[Counter[str]] = Counter()

    def has_place_for(self, host: str) -> bool:
        """Return whether one more connection of `host` is within the limit of that address."""
        return self.by_host[host] < self._limits.by_host.get(host, self._limits.per_host)


class ConnectionQuotas:
    """The counters of one broker's connections."""

    def __init__(
        self,
        now_s: Callable[[], float],
        limits: Limits,
        *,
        by_listener: Mapping[str, Limits] | None = None,
        protected: str | None = None,
        idle_since: Callable[[CountedConnection], float] = lambda _: 0.0,
    ) -> None:
        """Create the counter.

        Args:
            now_s: a clock that never goes back.
            limits: the broker's limits. `most` counts all listeners together; the limits of addresses apply to
                listeners without limits of their own.
            by_listener: listener -> the listener's own limits.
            protected: the listener for whose new connections those of other listeners are closed.
            idle_since: returns the time, in any unit, of a connection's last action.
        """
        self._now_s: Final = now_s
        self.limit: Final = limits.most
        self._room: Final = _Room(limits.most)
        self._hosts: Final = _Hosts(limits)
        self._own_rooms: Final = {name: _Room(each.most) for name, each in (by_listener or {}).items()}
        self._own_hosts: Final = {name: _Hosts(each) for name, each in (by_listener or {}).items()}
        self._protected: Final = protected
        self._idle_since: Final = idle_since
        #: All refusals since the start.
        self.refused = 0
        #: The option whose limit was reached -> refusals since the start.
        self.reached: Final[Counter[str]] = Counter()
        #: Refusals that were not logged yet, and the time of the last logged one, `None` before the first.
        self._unlogged = 0
        self._logged_at_s: float | None = None

    def __len__(self) -> int:
        return len(self._room)

    def enter(self, connection: CountedConnection) -> bool:
        """Admit a connection, and close another one if necessary; return `False` if it is refused."""
        host, name = connection.peer_host, connection.listener.name
        hosts = self._own_hosts.get(name, self._hosts)
        if not hosts.has_place_for(host):
            return self._refuse(connection, "max.connections.per.ip", "max.connections.per.ip")
        own = self._own_rooms.get(name)
        if own is not None and not own.has_place_for(host) and not self._make_room(own, f" of listener {name}"):
            return self._refuse(connection, "max.connections", f"max.connections of listener {name}")
        is_protected = name == self._protected
        if not self._room.has_place_for(host, is_protected=is_protected) and not (
            self._make_room(self._room) or (is_protected and self._give_up_idlest())
        ):
            return self._refuse(connection, "max.connections", "max.connections")
        for room in self._rooms_of(name):
            room.newcomers[connection] = None
        hosts.by_host[host] += 1
        return True

    def prove(self, connection: CountedConnection) -> None:
        """Record that a request of this connection was carried out."""
        if connection in self._room.newcomers:
            for room in self._rooms_of(connection.listener.name):
                room.prove(connection)

    def leave(self, connection: CountedConnection) -> None:
        """Stop counting a closed connection; do nothing if the connection is not counted."""
        name = connection.listener.name
        if not self._room.leave(connection):
            return
        if name in self._own_rooms:
            self._own_rooms[name].leave(connection)
        _count_down(self._own_hosts.get(name, self._hosts).by_host, connection.peer_host)

    def _rooms_of(self, name: str) -> list[_Room]:
        own = self._own_rooms.get(name)
        return [self._room] if own is None else [self._room, own]

    def _make_room(self, room: _Room, of_listener: str = "") -> bool:
        """Close the oldest connection without a carried-out request; return `False` if there is none."""
        if not room.newcomers:
            return False
        self._give_up(next(iter(room.newcomers)), f"max.connections{of_listener}, and it has asked nothing yet")
        return True

    def _give_up_idlest(self) -> bool:
        """Close the longest idle connection outside the protected listener; `False`: there is none."""
        others = [each for each in self._room.at_work if each.listener.name != self._protected]
        if not others:
            return False
        why = f"max.connections, and listener {self._protected} has a newcomer"
        self._give_up(min(others, key=self._idle_since), why)
        return True

    def _give_up(self, connection: CountedConnection, why: str) -> None:
        self._refuse(connection, "max.connections", why)
        self.leave(connection)
        connection.abort()

    def _refuse(self, connection: CountedConnection, limit: str, why: str) -> bool:
        self.refused += 1
        self.reached[limit] += 1
        self._unlogged += 1
        now_s = self._now_s()
        if self._logged_at_s is None or now_s - self._logged_at_s >= LOG_EVERY_SECONDS:
            peer = f"{connection.peer_host}:{connection.peer_port}"
            log.warning("event=connection_refused peer=%s reason=%r times=%d", peer, why, self._unlogged)
            self._logged_at_s, self._unlogged = now_s, 0
        return False


def _count_down(counts: Counter[str], host: str) -> None:
    """Subtract one connection of `host`, and remove a host without connections."""
    counts[host] -= 1
    if not counts[host]:
        del counts[host]


# The shares of connections and log files in the file descriptors of the process.
#
# Laws: connections and log files together leave a fifth of the descriptors for everything else. Neither can use the
# share of the other, so that connections of clients never keep the broker from opening a log file.
# Source: the JVM raises its soft limit to the hard one as it starts (MaxFDLimit).

try:
    import resource
except ImportError:  # A system without limits of this kind.
    resource = None  # type: ignore[assignment]

#: The number of descriptors if the system has no limit.
_ANY: Final = 1 << 20
#: The most open log files; no broker needs more at a time.
MOST_FILES: Final = 16_384


@value
class Shares:
    """The numbers of connections and files that a broker may have open."""

    connections: int
    files: int


def raise_limit() -> None:
    """Raise the soft limit of file descriptors to the hard limit, for a process that only runs a broker."""
    if resource is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS refuses a soft limit without end.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def shares(most_connections: int, *, has_files: bool) -> Shares:
    """Divide this process's descriptors: connections get half at most, or all if the broker has no files."""
    return divide(_soft_limit(), most_connections, has_files=has_files)


def divide(descriptors: int, most_connections: int, *, has_files: bool) -> Shares:
    """Divide descriptors between connections and files, see `shares`.

    >>> divide(1024, 10_000, has_files=True)
    Shares(connections=409, files=410)
    >>> divide(1024, 100, has_files=True)
    Shares(connections=100, files=719)
    """
    # A fifth is left for sockets in transition, pipes, libraries and files outside the log.
    usable = descriptors * 4 // 5
    connections = max(1, min(most_connections, usable // 2 if has_files else usable))
    return Shares(connections=connections, files=max(1, min(MOST_FILES, usable - connections)))


def _soft_limit() -> int:
    if resource is None:
        return _ANY
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _ANY if soft == resource.RLIM_INFINITY else min(soft, _ANY)
