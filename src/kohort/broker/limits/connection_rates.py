"""The limits on the rate of new connections: of the broker, of a listener, and of an IP address.

Laws: nothing here reads a clock. A connection above the rate of its address is closed after a delay, so that a client
does not connect faster by trying again at once. Such a connection is not counted. A connection above the rate of its
listener or of the broker is accepted later, and so are the connections behind it. Without a limit nothing is measured.
The number of stored addresses is bounded.
Source: Apache Kafka's ConnectionQuotas; KIP-402, KIP-612.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kohort.broker.limits.client_quotas import CONNECTION_CREATION_RATE, QuotaLimits, canonical
from kohort.broker.limits.quota_windows import RateWindow

#: The option of broker and listeners, and its value for "no limit".
OPTION: Final = "max.connection.creation.rate"
NO_LIMIT: Final = (1 << 31) - 1
#: The most addresses that are stored; above it the least recently used one is removed.
MOST_ADDRESSES: Final = 10_000


class Admission(NamedTuple):
    """The decision about a new connection: a delay, and whether the connection is closed after it."""

    wait_ms: int = 0
    is_refused: bool = False


#: The decision about nearly all connections: accepted at once.
ADMITTED: Final = Admission()


class ConnectionRates:
    """The rates of new connections to one broker."""

    def __init__(
        self, limits: QuotaLimits, values: Mapping[str, Any], of_listener: Mapping[str, Mapping[str, Any]]
    ) -> None:
        """Create the counters; `of_listener` maps the name of each listener to the listener's options."""
        self._limits: Final = limits
        self._window_ms: Final[int] = values["quota.window.size.seconds"] * 1000
        self._windows: Final[int] = values["quota.window.num"]
        self._limit: Final[int] = values[OPTION]
        self._rate: Final = self._new_rate()
        #: Listener -> (limit, rate).
        self._listeners: Final = {
            name: (own[OPTION], self._new_rate()) for name, own in of_listener.items() if own[OPTION] != NO_LIMIT
        }
        self._has_options: Final = self._limit != NO_LIMIT or bool(self._listeners)
        #: Address -> its rate; the least recently used address first.
        self._addresses: Final[dict[str, RateWindow]] = {}
        #: Limit -> connections that the limit delayed or refused, since the start.
        self.reached: Final[Counter[str]] = Counter()

    @property
    def is_on(self) -> bool:
        """Whether any limit on the rate of connections is set."""
        return self._has_options or bool(self._limits.by_address)

    def __len__(self) -> int:
        return len(self._addresses)

    def admit(self, listener: str, host: str, now_ms: int) -> Admission:
        """Count a new connection, and decide whether and when it is accepted."""
        wait_ms = self._wait_of_address(host, now_ms)
        if wait_ms:
            # A refused connection is not counted, neither by the broker nor by its listener.
            self.reached[CONNECTION_CREATION_RATE] += 1
            return Admission(min(wait_ms, self._window_ms), is_refused=True)
        if not self._has_options:
            return ADMITTED
        wait_ms = _take(self._rate, self._limit, now_ms)
        if listener in self._listeners:
            limit, rate = self._listeners[listener]
            wait_ms = max(wait_ms, _take(rate, limit, now_ms))
        if not wait_ms:
            return ADMITTED
        self.reached[OPTION] += 1
        return Admission(min(wait_ms, self._window_ms))

    def _wait_of_address(self, host: str, now_ms: int) -> int:
        by_address = self._limits.by_address
        if not by_address:
            return 0
        address = canonical(host)
        limit = by_address.get(address, by_address.get(None))
        if limit is None:
            return 0
        rates = self._addresses
        rate = rates.pop(address, None)
        if rate is None:
            rate = self._new_rate()
            if len(rates) >= MOST_ADDRESSES:
                del rates[next(iter(rates))]
        rates[address] = rate
        wait_ms = _take(rate, limit, now_ms)
        if wait_ms:
            rate.record(-1.0, now_ms)
        return wait_ms

    def _new_rate(self) -> RateWindow:
        return RateWindow(windows=self._windows, window_ms=self._window_ms)


def _take(rate: RateWindow, limit: float, now_ms: int) -> int:
    rate.record(1.0, now_ms)
    return rate.throttle_ms(limit, now_ms)
