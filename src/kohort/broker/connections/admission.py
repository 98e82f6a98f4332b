"""Connection limits from the broker's options: those of all listeners, and those of single listeners.

Source: Apache Kafka's `ConnectionQuotas`, which finds the addresses of names in `max.connections.per.ip.overrides` at
its start as well.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Mapping
from typing import Any, Final

from kohort.broker.connections.idle_timeouts import IdleTimeouts
from kohort.broker.connections.sockets import BrokerStartError, plain_host
from kohort.broker.limits.client_quotas import QuotaLimits
from kohort.broker.limits.connection_quotas import ConnectionQuotas, Limits
from kohort.broker.limits.connection_rates import ConnectionRates
from kohort.broker.options.security_options import numbers_by_host
from kohort.broker.options.settings import BrokerSettings

#: The options of which a listener may have its own.
_OPTIONS: Final = ("max.connections", "max.connections.per.ip", "max.connections.per.ip.overrides")


def quotas_of(
    settings: BrokerSettings, now_s: Callable[[], float], most: int, idle_timeouts: IdleTimeouts
) -> ConnectionQuotas:
    """Build a broker's connection quotas; `most`: `max.connections`, or fewer for lack of descriptors."""
    values = settings.values
    own = {
        each.name: _limits(each.values)
        for each in settings.listeners
        if any(each.values[name] != values[name] for name in _OPTIONS)
    }
    return ConnectionQuotas(
        now_s,
        _limits({**values, "max.connections": most}),
        by_listener=own,
        protected=settings.protected_listener,
        idle_since=idle_timeouts.idle_since,
    )


def rates_of(settings: BrokerSettings, quotas: QuotaLimits) -> ConnectionRates:
    """Build the rate limits for a broker's new connections; `quotas` has the limits of addresses."""
    return ConnectionRates(quotas, settings.values, {each.name: each.values for each in settings.listeners})


def _limits(values: Mapping[str, Any]) -> Limits:
    by_host: dict[str, int] = {}
    for name, number in numbers_by_host(values["max.connections.per.ip.overrides"]).items():
        for host in _addresses_of(name):
            by_host[host] = number
    return Limits(most=values["max.connections"], per_host=values["max.connections.per.ip"], by_host=by_host)


def _addresses_of(name: str) -> set[str]:
    """Return every IP address of a host, in the canonical form of `plain_host`."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise BrokerStartError(f"max.connections.per.ip.overrides has {name!r}, a host without an address") from None
    return {plain_host(str(address[0])) for *_, address in found}
