"""The listeners of a broker: their names, protocols, addresses, and the options that hold for one of them.

Source: Apache Kafka's `listeners`, `advertised.listeners`, `listener.security.protocol.map`, `listener.name.<name>.*`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class SecurityProtocol(Enum):
    """Kafka's security protocols, with whether they encrypt and whether they have a login."""

    PLAINTEXT = (False, False)
    SSL = (True, False)
    SASL_PLAINTEXT = (False, True)
    SASL_SSL = (True, True)

    @property
    def has_tls(self) -> bool:
        """Whether connections are encrypted."""
        return self.value[0]

    @property
    def has_sasl(self) -> bool:
        """Whether clients log in by SASL."""
        return self.value[1]


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSettings:
    """One listener; clients are told the address listened on where `advertised_host`, `advertised_port` are `None`."""

    name: str
    protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT
    host: str
    port: int
    advertised_host: str | None = None
    advertised_port: int | None = None
    #: Every option of the broker by its name, those given for this listener in their place; also
    #: `<mechanism>.sasl.jaas.config` by the mechanism in lower case. Passwords are among them.
    values: Mapping[str, Any] = field(default_factory=dict, repr=False)
