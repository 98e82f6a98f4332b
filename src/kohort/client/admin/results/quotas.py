"""How much clients may send, fetch and ask, as the admin client takes and returns it.

Source: KIP-546, KIP-13 (bytes), KIP-124 (requests), KIP-599 (topics), KIP-612 (connections).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuota:
    """The limits of one entity: a user, a client id, both of them together, or an address.

    Args:
        entity: "user", "client-id" or "ip" -> name; `None` is the default, for all that have no limit of their own.
        values: limit -> how much: `producer_byte_rate` and `consumer_byte_rate` (bytes a second and broker),
            `request_percentage` (of a thread), `controller_mutation_rate` (partitions a second),
            `connection_creation_rate` (a second; of addresses). To a call that alters, `None` takes one back.

    >>> print(ClientQuota(entity={"user": "alice", "client-id": None}, values={"producer_byte_rate": 1e6}))
    user alice, default client-id: producer_byte_rate=1000000
    """

    entity: Mapping[str, str | None]
    values: Mapping[str, float | None]

    def __str__(self) -> str:
        limits = ", ".join(f"{key}={'-' if value is None else f'{value:.15g}'}" for key, value in self.values.items())
        return f"{show_entity(self.entity)}: {limits}"


def show_entity(entity: Mapping[str, str | None]) -> str:
    """What limits are about, for people."""
    return ", ".join(f"default {kind}" if name is None else f"{kind} {name}" for kind, name in entity.items())
