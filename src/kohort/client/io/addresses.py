"""The brokers that can be reached at present, over all connections to each: log lines and timeouts.

Laws: an address that stays unreachable is one line per reason, and one when it is reached again, however many
connections try. An address that a broker has named and that was never reached gets little time at first: it may be one
that no client reaches.
Source: Kafka's `socket.connection.setup.timeout.ms`, `advertised.listeners`.
"""

from __future__ import annotations

import logging
from typing import Final

from kohort.client.actions import Endpoint
from kohort.client.options import ClientSettings

_LOG: Final = logging.getLogger("kohort.client")
#: Failed attempts of one connection in a row that are worth a line in the log.
_WORTH_A_LINE: Final = 4
#: Timeout of the first attempt to connect to an address that a broker has named.
_NAMED_CONNECT_MS: Final = 3_000
#: Timeout of the first answer over the first connection; doubled by each failure, since a broker may be slow.
_FIRST_ANSWER_MS: Final = 5_000


class Reach:
    """The reachability of one client's brokers."""

    def __init__(self, settings: ClientSettings) -> None:
        self._settings = settings
        #: Addresses at which a broker has answered.
        self._known: set[Endpoint] = set()
        #: Address that is down -> the reasons that were logged; no empty sets.
        self._said: dict[Endpoint, set[str]] = {}

    def connect_timeout_ms(self, to: Endpoint, failures: int) -> int:
        """Return the timeout of an attempt to connect, after so many failures in a row."""
        limit_ms = self._settings.options["socket_connection_setup_timeout_ms"]
        is_doubtful = to not in self._known and to not in self._settings.bootstrap
        return min(limit_ms, _NAMED_CONNECT_MS) if is_doubtful and failures == 0 else limit_ms

    def first_answer_timeout_ms(self, failures: int) -> int:
        """Return the timeout of the answer to ApiVersions, after so many failures in a row."""
        return min(self._settings.options["request_timeout_ms"], _FIRST_ANSWER_MS << min(failures, 8))

    def on_ready(self, to: Endpoint) -> None:
        """Note that a broker has answered at an address."""
        self._known.add(to)
        if self._said.pop(to, None):
            _LOG.warning("broker %s: connected again", to)

    def on_failed(self, to: Endpoint, reason: str, failures: int) -> None:
        """Log that an address cannot be reached, after some failures in a row."""
        if failures >= _WORTH_A_LINE and reason not in self._said.get(to, ()):
            self._said.setdefault(to, set()).add(reason)
            _LOG.warning("broker %s cannot be reached (%s); retrying", to, reason)
