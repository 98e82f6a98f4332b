"""Client quotas of the admin client, and the requests about them.

Source: KIP-546, KIP-13 (bytes), KIP-124 (requests), KIP-599 (topics), KIP-612 (connections).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from types import EllipsisType
from typing import Final

from kohort.base.values import value
from kohort.client.arguments import encode
from kohort.errors import ConfigError
from kohort.wire.messages import alter_client_quotas, describe_client_quotas


@value
class ClientQuota:
    """The quotas of one entity: a user, a client id, a client id of a user, or an IP address.

    Args:
        entity: by "user", "client-id" or "ip", its name; `None` means the default of all without a quota of their own.
        values: quotas by name: `producer_byte_rate` and `consumer_byte_rate` (bytes per second and broker),
            `request_percentage` (of a thread), `controller_mutation_rate` (partitions per second),
            `connection_creation_rate` (per second; for IP addresses). `None` removes one (`alter_client_quotas`).

    >>> print(ClientQuota(entity={"user": "alice", "client-id": None}, values={"producer_byte_rate": 1e6}))
    user alice, default client-id: producer_byte_rate=1000000
    """

    entity: Mapping[str, str | None]
    values: Mapping[str, float | None]

    def __str__(self) -> str:
        limits = ", ".join(f"{key}={'-' if value is None else f'{value:.15g}'}" for key, value in self.values.items())
        return f"{show_entity(self.entity)}: {limits}"


def show_entity(entity: Mapping[str, str | None]) -> str:
    """Return an entity as text for people."""
    return ", ".join(f"default {kind}" if name is None else f"{kind} {name}" for kind, name in entity.items())


#: Types of entities.
ENTITY_TYPES: Final = ("user", "client-id", "ip")
#: Kinds of a comparison in a filter: with a name, the default, any name.
_EXACT, _DEFAULT, _SPECIFIED = 0, 1, 2
_EXAMPLE: Final = "kohort.ClientQuota(entity={'user': 'alice'}, values={'producer_byte_rate': 1e6})"


class Entity(tuple[tuple[str, str | None], ...]):
    """An entity as a key of a mapping: its (type, name) parts in a fixed order; `str` gives a text for people."""

    __slots__ = ()

    def __str__(self) -> str:
        return show_entity(dict(self))


def to_quota(value: object) -> tuple[Entity, dict[str, float | None]]:
    """Check a quota; return its entity and its values by name."""
    if not isinstance(value, ClientQuota):
        raise TypeError(f"a quota cannot be {value!r}: {_EXAMPLE} is one")
    entity = _parts(value.entity, "entity")
    if not entity:
        raise ConfigError("a quota needs an entity: entity={'user': 'alice'}, or None in place of a name: all others")
    if not isinstance(value.values, Mapping):
        raise TypeError(f"values cannot be {value.values!r}: a mapping is expected, like {{'producer_byte_rate': 1e6}}")
    checked = Entity((kind, name) for kind, name in entity if not isinstance(name, EllipsisType))
    if len(checked) < len(entity):
        raise ConfigError("a quota is set for one name, or for None: the default; ... is for looking up")
    return checked, {_key(key): _limit(key, limit) for key, limit in value.values.items()}


def describe_request(
    of: Mapping[str, str | EllipsisType | None] | None, *, strict: bool
) -> describe_client_quotas.DescribeClientQuotasRequest:
    """Ask for entities: a name, `None` for the default, `...` for any name and the default."""
    components = []
    for kind, name in _parts(of or {}, "of"):
        how = _SPECIFIED if isinstance(name, EllipsisType) else _DEFAULT if name is None else _EXACT
        match = name if isinstance(name, str) else None
        components.append(describe_client_quotas.ComponentData(entity_type=kind, match_type=how, match=match))
    return describe_client_quotas.DescribeClientQuotasRequest(components=components, strict=strict)


def described(response: describe_client_quotas.DescribeClientQuotasResponse) -> list[ClientQuota]:
    """Read quotas, sorted by entity; a default follows the named entities."""
    rows = {
        entity_of(entry.entity): {each.key: each.value for each in sorted(entry.values, key=lambda each: each.key)}
        for entry in response.entries or []
    }
    order = sorted(rows, key=lambda entity: [(kind, name is None, name or "") for kind, name in entity])
    return [ClientQuota(entity=dict(entity), values=rows[entity]) for entity in order]


def alter_request(
    changes: Iterable[tuple[Entity, Mapping[str, float | None]]], *, validate_only: bool
) -> alter_client_quotas.AlterClientQuotasRequest:
    """Build the request that sets quotas, or removes those whose value is `None`."""
    entries = []
    for entity, limits in changes:
        parts = [describe_client_quotas.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]
        ops = [
            alter_client_quotas.OpData(key=key, value=limit or 0.0, remove=limit is None)
            for key, limit in limits.items()
        ]
        entries.append(alter_client_quotas.EntryData(entity=parts, ops=ops))
    return alter_client_quotas.AlterClientQuotasRequest(entries=entries, validate_only=validate_only)


def entity_of(parts: Iterable[describe_client_quotas.EntityData]) -> Entity:
    """Read an entity of a response as a key, in the order of `_parts`; unknown types come last."""
    known = {kind: place for place, kind in enumerate(ENTITY_TYPES)}
    named = ((part.entity_type, part.entity_name) for part in parts)
    return Entity(sorted(named, key=lambda part: (known.get(part[0], len(known)), part[0])))


def _parts(given: object, what: str) -> tuple[tuple[str, str | EllipsisType | None], ...]:
    if not isinstance(given, Mapping):
        raise TypeError(f"{what} cannot be {given!r}: a mapping is expected, like {{'user': 'alice'}}")
    for kind, name in given.items():
        if kind not in ENTITY_TYPES:
            raise ConfigError(f"{what} cannot be about {kind!r}: {', '.join(ENTITY_TYPES)} are known")
        if not isinstance(name, str | None | EllipsisType):
            raise TypeError(f"the name of a {kind} must be text or None, not {type(name).__name__}")
        if isinstance(name, str):
            if not name:
                raise ConfigError(f"the name of a {kind} is empty: None stands for the default")
            encode(name, f"the name of a {kind}")
    return tuple((kind, given[kind]) for kind in ENTITY_TYPES if kind in given)


def _key(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"the name of a limit must be text, not {type(value).__name__}: 'producer_byte_rate'")
    encode(value, "the name of a limit")
    return value


def _limit(key: object, value: object) -> float | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise TypeError(f"{key} cannot be {value!r}: a number above 0 is expected, or None to take it back")
    try:
        limit = float(value)
    except OverflowError:
        limit = math.inf
    if not 0 < limit < math.inf:
        raise ConfigError(f"{key} cannot be {value}: a number above 0 is expected, or None to take it back")
    return limit
