"""AlterClientQuotas (key 49), KIP-546: set and remove quotas of users, client ids and addresses.

Each entity is checked for itself; those that may be changed are changed together, by one record of the catalog.
An address is written as one: a name of a host is refused, since a server of names would have to be asked for it, but
for localhost.
Source: Apache Kafka's ClientQuotaControlManager: its rules, in its words.
"""

from __future__ import annotations

import ipaddress
import math
from collections.abc import Sequence
from typing import Final

from kohort.broker.chunked_responses import answer_rows, rows_at_once
from kohort.broker.context import BrokerContext, Request
from kohort.broker.limits.client_quotas import CONNECTION_CREATION_RATE, LOCALHOST, LONGEST_NAME, Quota
from kohort.broker.topics.topic_operations import Outcome, code_of
from kohort.errors import ErrorCode, Refused, StorageError
from kohort.security.access_control import AclOperation, ResourceType
from kohort.storage.client_quotas import CLIENT_ID, ENTITY_TYPES, IP, USER, QuotaChange, entity_of
from kohort.wire.messages import alter_client_quotas as wire
from kohort.wire.messages.describe_client_quotas import EntityData

#: Limits of users and client ids, and of addresses -> (Kafka's name of their type, the largest value); both `None`:
#: any number, also with a fraction. The values are doubles, in which Java compares: its largest long is 2^63 then.
_LONG: Final = ("a LONG", 2.0**63)
_ANY: Final = (None, None)
_OF_CLIENTS: Final = {
    Quota.PRODUCER_BYTE_RATE.value: _LONG,
    Quota.CONSUMER_BYTE_RATE.value: _LONG,
    Quota.REQUEST_PERCENTAGE.value: _ANY,
    Quota.CONTROLLER_MUTATION_RATE.value: _ANY,
}
_OF_ADDRESSES: Final = {CONNECTION_CREATION_RATE: ("an INT", 2.0**31 - 1)}
#: A fraction that is taken for none.
_WHOLE: Final = 1e-6

#: The parts of an entity by type, as a request names them.
_Parts = dict[str, str | None]
#: An entity, and why it is not changed; `None` if it is.
_Row = tuple[_Parts, Outcome]


def handle(context: BrokerContext, request: Request, message: wire.AlterClientQuotasRequest) -> None:
    """Change each entity independently; a refused one does not hold up the others."""
    if request.rights.allows(AclOperation.ALTER_CONFIGS, ResourceType.CLUSTER):
        changes, rows = _check(message.entries)
    else:
        why = Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
        changes, rows = (
            [],
            [({each.entity_type: each.entity_name for each in row.entity}, why) for row in message.entries],
        )

    def answer(failure: Outcome) -> None:
        if isinstance(failure, StorageError):
            context.disk_full.refused("quotas", failure)
        told = [(parts, why if why is not None or failure is None else failure) for parts, why in rows]
        answer_rows(
            context,
            request,
            told,
            rows_at_once(_row),
            lambda entries: wire.AlterClientQuotasResponse(entries=entries),
        )

    if message.validate_only or not changes:
        answer(None)
        return
    context.cluster.work.ask([context.cluster.quota_change(changes, answer)])


def _check(entries: Sequence[wire.EntryData]) -> tuple[list[QuotaChange], list[_Row]]:
    """Return the changes that can be made, and a row for each entity."""
    rows: dict[tuple[tuple[str, str | None], ...], _Row] = {}
    changes = []
    for entry in entries:
        # An entity of two parts of one type has the last of them, as in Kafka.
        parts: _Parts = {each.entity_type: each.entity_name for each in entry.entity}
        key = tuple(sorted(parts.items(), key=lambda part: part[0]))
        keys = [op.key for op in entry.ops]
        if key in rows or len(set(keys)) < len(keys):
            rows[key] = parts, _refuse(f"Ignoring duplicate entity {_show(parts)}")
            continue
        try:
            limits = _checked(parts, {op.key: None if op.remove else op.value for op in entry.ops})
        except Refused as why:
            rows[key] = parts, why
        else:
            rows[key] = parts, None
            changes.append(QuotaChange(entity=entity_of(parts), limits=limits))
    return changes, list(rows.values())


def _checked(parts: _Parts, limits: dict[str, float | None]) -> dict[str, float | None]:
    """Refuse an entity or a limit that cannot be."""
    known = _limits_of(parts)
    for key, value in limits.items():
        if value is not None:
            _check_limit(known, key, value)
    # To remove a limit that there cannot be changes nothing, and is no mistake.
    return {key: value for key, value in limits.items() if key in known}


def _limits_of(parts: _Parts) -> dict[str, tuple[str | None, float | None]]:
    """Return the limits that an entity of these parts may have."""
    if not parts:
        raise _refuse("Invalid empty client quota entity")
    for kind, name in parts.items():
        if kind not in ENTITY_TYPES:
            raise _refuse(f"Unhandled client quota entity type: {kind}")
        if name is not None and not name:
            raise _refuse(f"Empty {kind} not supported")
        if name is not None and len(name) > LONGEST_NAME:
            raise _refuse(f"a {kind} of {len(name)} characters; {LONGEST_NAME} are allowed")
    if IP not in parts:
        return dict(_OF_CLIENTS)
    if USER in parts or CLIENT_ID in parts:
        raise _refuse("Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
    if not _is_address(parts[IP]):
        raise _refuse(f"{parts[IP]} is not a valid IP or resolvable host.")
    return dict(_OF_ADDRESSES)


def _is_address(name: str | None) -> bool:
    if name is None or name == LOCALHOST:
        return True
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _check_limit(known: dict[str, tuple[str | None, float | None]], key: str, value: float) -> None:
    if key not in known:
        raise _refuse(f"Invalid configuration key {key}")
    if value <= 0.0:
        raise _refuse(f"Quota {key} must be greater than 0")
    kind, most = known[key]
    if most is not None and value > most:
        raise _refuse(f"Proposed value for {key} is too large for {kind}.")
    if not math.isfinite(value):
        # Kafka takes them, and compares rates with no number.
        raise _refuse(f"Quota {key} must be a finite number")
    if most is not None and value % 1.0 > _WHOLE:
        raise _refuse(f"{key} cannot be a fractional value.")


def _row(each: _Row) -> wire.AlterClientQuotasResponse.EntryData:
    parts, why = each
    return wire.AlterClientQuotasResponse.EntryData(
        error_code=ErrorCode.NONE if why is None else code_of(why),
        error_message=None if why is None else str(why),
        entity=[EntityData(entity_type=kind, entity_name=name) for kind, name in parts.items()],
    )


def _refuse(text: str) -> Refused:
    return Refused(ErrorCode.INVALID_REQUEST, text)


def _show(parts: _Parts) -> str:
    entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in parts.items())
    return f"ClientQuotaEntity(entries={{{entries}}})"
