"""The admission of connections: by their number and that of an address, within the descriptors.

Laws: each connection is counted from its admission until it leaves, once; one that has never had a request carried out
gives way to a newcomer when there is no room, the oldest first, so that silence keeps no client out; the last tenth is
for addresses that are at work already.
Source: Kafka's max.connections and max.connections.per.ip; of the connections of a listener without room, Kafka closes
the one that was idle for longest in favour of a listener that is protected.
"""

from __future__ import annotations

import contextlib
import logging
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

log = logging.getLogger("kohort.broker.connections")

#: One in so many connections is reserved for addresses that have had a request carried out.
KEPT_PART: Final = 10
#: Refusals are logged no more often than that, with their number.
LOG_EVERY_SECONDS: Final = 1.0


class Guest(Protocol):
    """A connection, as far as admission counts it."""

    #: The client's address, and the port it connects from.
    peer_host: str
    peer_port: int

    def abort(self) -> None:
        """Close without waiting for the client."""


class ConnectionQuotas:
    """Counts the connections of one broker."""

    def __init__(self, now_s: Callable[[], float], *, limit: int, limit_per_host: int) -> None:
        """Create the counter; `now_s` is a clock that never goes back."""
        self._now_s: Final = now_s
        self.limit: Final = limit
        self._limit_per_host: Final = limit_per_host
        #: Address -> its connections.
        self._by_host: Final[Counter[str]] = Counter()
        #: Connections without a carried-out request, oldest first.
        self._newcomers: Final[dict[Guest, None]] = {}
        #: Connections with a carried-out request, and their number by address.
        self._at_work: Final[set[Guest]] = set()
        self._at_work_by_host: Final[Counter[str]] = Counter()
        #: All refusals since the start.
        self.refused = 0
        #: The option that left no room -> how often since the start.
        self.reached: Final[Counter[str]] = Counter()
        #: Refusals that were not logged yet, and the time of the last logged one, `None` before the first.
        self._unlogged = 0
        self._logged_at_s: float | None = None

    def __len__(self) -> int:
        return len(self._newcomers) + len(self._at_work)

    def enter(self, guest: Guest) -> bool:
        """Admit a connection, if need be in the place of a silent one; `False` if it has to be closed."""
        host = guest.peer_host
        if self._by_host[host] >= self._limit_per_host:
            return self._refuse(guest, "max.connections.per.ip", "max.connections.per.ip")
        if len(self) >= self._room_for(host):
            if not self._newcomers:
                return self._refuse(guest, "max.connections", "max.connections")
            # A connection that has asked nothing yet gives way, so that silence keeps no client out.
            self._give_up_oldest()
        self._newcomers[guest] = None
        self._by_host[host] += 1
        return True

    def prove(self, guest: Guest) -> None:
        """Note that a request of this connection was carried out."""
        if guest in self._newcomers:
            del self._newcomers[guest]
            self._at_work.add(guest)
            self._at_work_by_host[guest.peer_host] += 1

    def leave(self, guest: Guest) -> None:
        """Forget a closed connection; one that is not counted is ignored."""
        if guest in self._newcomers:
            del self._newcomers[guest]
        elif guest in self._at_work:
            self._at_work.remove(guest)
            _count_down(self._at_work_by_host, guest.peer_host)
        else:
            return
        _count_down(self._by_host, guest.peer_host)

    def _room_for(self, host: str) -> int:
        """Return how many connections there may be when one of `host` comes."""
        # The last tenth of the connections is for addresses that are at work already.
        is_kept = self._at_work and not self._at_work_by_host[host]
        return self.limit - self.limit // KEPT_PART if is_kept else self.limit

    def _give_up_oldest(self) -> None:
        oldest = next(iter(self._newcomers))
        self._refuse(oldest, "max.connections", "max.connections, and it has asked nothing yet")
        self.leave(oldest)
        oldest.abort()

    def _refuse(self, guest: Guest, limit: str, why: str) -> bool:
        self.refused += 1
        self.reached[limit] += 1
        self._unlogged += 1
        now_s = self._now_s()
        if self._logged_at_s is None or now_s - self._logged_at_s >= LOG_EVERY_SECONDS:
            peer = f"{guest.peer_host}:{guest.peer_port}"
            log.warning("event=connection_refused peer=%s reason=%r times=%d", peer, why, self._unlogged)
            self._logged_at_s, self._unlogged = now_s, 0
        return False


def _count_down(counts: Counter[str], host: str) -> None:
    """Count a connection of `host` down, and forget a host without connections."""
    counts[host] -= 1
    if not counts[host]:
        del counts[host]


# The shares of connections and log files in the file descriptors of the process.
#
# Laws: connections and files of logs together leave a fifth of the descriptors for everything else; neither can take
# the other's share, so that clients do not end a broker whose log has to open a file.
# Source: the JVM raises its soft limit to the hard one as it starts (MaxFDLimit).

try:
    import resource
except ImportError:  # A system without limits of this kind.
    resource = None  # type: ignore[assignment]

#: The number of descriptors where the system tells no limit.
_ANY: Final = 1 << 20
#: No broker needs more files of its log open at a time.
MOST_FILES: Final = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Shares:
    """The numbers of connections and files that a broker may have open."""

    connections: int
    files: int


def raise_limit() -> None:
    """Raise the soft limit of descriptors to the hard one, in a process that is a broker's own."""
    if resource is None:
        return
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    # macOS refuses a soft limit without end.
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def shares(most_connections: int, *, has_files: bool) -> Shares:
    """Divide this process's descriptors: half for connections, unless these need less or no files exist."""
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
