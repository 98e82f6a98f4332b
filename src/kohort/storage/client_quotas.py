"""Quotas of clients as the catalog keeps them: entities, their limits, and changes of both.

Laws: an entity is there while it has a limit. A change names what differs and nothing else, so that one limit costs one
short record, however many entities there are.
Source: Apache Kafka's ClientQuotaRecord and ClientQuotasImage (KIP-546).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import Final

from kohort.base import values

#: Types of an entity's parts, in the order in which an entity has them.
USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
ENTITY_TYPES: Final = (USER, CLIENT_ID, IP)

#: An entity with limits: pairs of type and name, in the order of `ENTITY_TYPES`; a name `None` is the default.
QuotaEntity = tuple[tuple[str, str | None], ...]
#: Entity -> limit -> its value.
Quotas = Mapping[QuotaEntity, Mapping[str, float]]


@values.value
class QuotaChange:
    """The change of one entity's limits."""

    entity: QuotaEntity
    #: Limit -> its new value; `None` removes it.
    limits: Mapping[str, float | None]

    def document(self) -> dict[str, object]:
        """Return the change as JSON."""
        return {"entity": dict(self.entity), "limits": dict(self.limits)}

    @classmethod
    def of(cls, document: Mapping[str, object]) -> QuotaChange:
        """Read a change from its JSON; `ValueError`, `TypeError` or `KeyError`: `document` did not write it."""
        parts, limits = document["entity"], document["limits"]
        if not isinstance(parts, dict) or not isinstance(limits, dict):
            raise TypeError("a quota is no table")
        return cls(
            entity=entity_of({str(kind): None if name is None else str(name) for kind, name in parts.items()}),
            limits={str(key): None if value is None else _read_limit(value) for key, value in limits.items()},
        )


def _read_limit(value: object) -> float:
    limit = float(str(value))
    if not 0 < limit < math.inf:
        raise ValueError(f"a quota cannot be {value}")
    return limit


def entity_of(parts: Mapping[str, str | None]) -> QuotaEntity:
    """Return the entity with these parts.

    >>> entity_of({"client-id": None, "user": "bob"})
    (('user', 'bob'), ('client-id', None))
    """
    if not parts or not parts.keys() <= set(ENTITY_TYPES):
        raise ValueError(f"an entity cannot be of {list(parts)}")
    return tuple((kind, parts[kind]) for kind in ENTITY_TYPES if kind in parts)


def changed_quotas(quotas: Quotas, changes: Iterable[QuotaChange]) -> Quotas:
    """Return the quotas after `changes`.

    >>> bob = entity_of({"user": "bob"})
    >>> quotas = changed_quotas({}, [QuotaChange(entity=bob, limits={"producer_byte_rate": 5.0})])
    >>> quotas
    {(('user', 'bob'),): {'producer_byte_rate': 5.0}}
    >>> changed_quotas(quotas, [QuotaChange(entity=bob, limits={"producer_byte_rate": None})])
    {}
    """
    after = dict(quotas)
    for change in changes:
        limits: dict[str, float] = dict(after.get(change.entity, {}))
        for key, value in change.limits.items():
            if value is None:
                limits.pop(key, None)
            else:
                limits[key] = value
        if limits:
            after[change.entity] = limits
        else:
            after.pop(change.entity, None)
    return after


def differences(quotas: Quotas, wanted: Iterable[QuotaChange]) -> tuple[QuotaChange, ...]:
    """Return the limits of `wanted` that differ from those of `quotas`."""
    found = []
    for change in wanted:
        present = quotas.get(change.entity, {})
        limits = {key: value for key, value in change.limits.items() if present.get(key) != value}
        if limits:
            found.append(QuotaChange(entity=change.entity, limits=limits))
    return tuple(found)
