"""Entries of the access control lists of a cluster, as the admin client takes and returns them.

Source: Kafka's AclBinding and AclBindingFilter; KIP-11, KIP-290 (prefixes).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields
from typing import Any, Final

from kohort.client.arguments import encode
from kohort.client.core.refusals import refused
from kohort.errors import BrokerError, ConfigError, ErrorCode
from kohort.wire.messages.create_acls import AclCreation, CreateAclsRequest
from kohort.wire.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsMatchingAcl,
    DeleteAclsRequest,
)
from kohort.wire.messages.describe_acls import AclDescription, DescribeAclsRequest, DescribeAclsResponse
from kohort.wire.messages.metadata import OPERATIONS_NOT_REQUESTED


@dataclass(frozen=True, slots=True, kw_only=True)
class Acl:
    """One entry: who may or may not do what, from where.

    Args:
        resource_type: "topic", "group", "cluster", "transactional_id", "delegation_token" or "user".
        name: of the resource, `*` for all of the type; the cluster is called "kafka-cluster".
        pattern_type: "literal", or "prefixed": all whose names begin with `name`.
        principal: who, such as "User:alice"; "User:*" is everybody.
        host: the address that it is about; `*` for all.
        operation: "read", "write", "create", "delete", "alter", "describe", "cluster_action", "describe_configs",
            "alter_configs", "idempotent_write", "create_tokens", "describe_tokens", "two_phase_commit" or "all".
        permission: "allow" or "deny"; what is denied is not allowed by any other entry.

    >>> print(Acl(resource_type="topic", name="orders", principal="User:alice", operation="read"))
    allow User:alice to read topic orders
    """

    resource_type: str
    name: str
    pattern_type: str = "literal"
    principal: str
    host: str = "*"
    operation: str
    permission: str = "allow"

    def __str__(self) -> str:
        what = f"{self.resource_type} {self.name}" + ("*" if self.pattern_type == "prefixed" else "")
        where = "" if self.host == "*" else f" from {self.host}"
        return f"{self.permission} {self.principal} to {self.operation} {what}{where}"


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Which entries are meant; `None` lets everything through.

    Args:
        pattern_type: "literal", "prefixed", or "match": every entry that says something of the resource `name`,
            also those for all resources and for prefixes of it.

    >>> print(AclFilter(principal="User:alice", resource_type="topic"))
    entries with resource_type=topic, principal=User:alice
    """

    resource_type: str | None = None
    name: str | None = None
    pattern_type: str | None = None
    principal: str | None = None
    host: str | None = None
    operation: str | None = None
    permission: str | None = None

    def __str__(self) -> str:
        given = {name: getattr(self, name) for name in self.__slots__}
        said = ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)
        return f"entries with {said}" if said else "all entries"


# Access control lists as the admin client asks for them: words to numbers and back, requests and answers.
#
# Laws: what passes the checks here can be asked; a number that is not known here is "unknown", which nobody can ask
# for.
# Source: Kafka's ResourceType, PatternType, AclOperation and AclPermissionType.

#: What a filter lets through where it says nothing.
_ANY: Final = 1
_UNKNOWN: Final = "unknown"
RESOURCE_TYPES: Final = {
    "topic": 2, "group": 3, "cluster": 4, "transactional_id": 5, "delegation_token": 6, "user": 7,
}  # fmt: skip
PATTERN_TYPES: Final = {"literal": 3, "prefixed": 4}
#: As filters have them.
PATTERN_FILTERS: Final = {"any": 1, "match": 2, **PATTERN_TYPES}
OPERATIONS: Final = {
    "all": 2, "read": 3, "write": 4, "create": 5, "delete": 6, "alter": 7, "describe": 8, "cluster_action": 9,
    "describe_configs": 10, "alter_configs": 11, "idempotent_write": 12, "create_tokens": 13, "describe_tokens": 14,
    "two_phase_commit": 15,
}  # fmt: skip
PERMISSIONS: Final = {"deny": 2, "allow": 3}
#: The only resource of its type.
CLUSTER_NAME: Final = "kafka-cluster"
_LONGEST_BYTES: Final = 2**15 - 1
_NO_LISTS: Final = "the cluster keeps no access lists; set authorizer.class.name of its brokers and controllers"
_EXAMPLE: Final = "Acl(resource_type='topic', name='orders', principal='User:alice', operation='read')"


def known_word(given: object, table: dict[str, int], what: str) -> str:
    """A word of a table, however it is spelt: `idempotent_write`, `IdempotentWrite`, `idempotent-write`."""
    if not isinstance(given, str):
        raise TypeError(f"{what} cannot be {given!r}: one of {', '.join(table)} is expected")
    plain = _letters(given)
    found = next((word for word in table if _letters(word) == plain), None)
    if found is None:
        raise ConfigError(f"{what} cannot be {given!r}: one of {', '.join(table)} is expected")
    return found


def to_acl(value: object) -> Acl:
    """An entry that a broker may be asked to add, its words spelt as ours."""
    if not isinstance(value, Acl):
        raise TypeError(f"an entry cannot be {value!r}: {_EXAMPLE} is one")
    kind = known_word(value.resource_type, RESOURCE_TYPES, "resource_type")
    name = _text(value.name, "name")
    if kind == "cluster" and name != CLUSTER_NAME:
        raise ConfigError(f"name cannot be {name!r}: the resource of type cluster is called {CLUSTER_NAME}")
    return Acl(
        resource_type=kind,
        name=name,
        pattern_type=known_word(value.pattern_type, PATTERN_TYPES, "pattern_type"),
        principal=_principal(value.principal),
        host=_text(value.host, "host"),
        operation=known_word(value.operation, OPERATIONS, "operation"),
        permission=known_word(value.permission, PERMISSIONS, "permission"),
    )


def to_filter(value: object) -> AclFilter:
    """What is looked for, its words spelt as ours; an entry stands for itself, `None` for everything."""
    if value is None:
        return AclFilter()
    if isinstance(value, Acl):
        acl = to_acl(value)
        return AclFilter(**{each.name: getattr(acl, each.name) for each in fields(acl)})
    if not isinstance(value, AclFilter):
        raise TypeError(f"a filter cannot be {value!r}: AclFilter(principal='User:alice') is one")
    pattern = value.pattern_type and known_word(value.pattern_type, PATTERN_FILTERS, "pattern_type")
    if pattern == "match" and value.name is None:
        raise ConfigError("pattern_type 'match' says which entries are about a resource: name says which")
    return AclFilter(
        resource_type=value.resource_type and known_word(value.resource_type, RESOURCE_TYPES, "resource_type"),
        name=None if value.name is None else _text(value.name, "name"),
        pattern_type=pattern,
        principal=None if value.principal is None else _principal(value.principal),
        host=None if value.host is None else _text(value.host, "host"),
        operation=value.operation and known_word(value.operation, OPERATIONS, "operation"),
        permission=value.permission and known_word(value.permission, PERMISSIONS, "permission"),
    )


def create_request(acls: Iterable[Acl]) -> CreateAclsRequest:
    """Entries to add."""
    return CreateAclsRequest(
        creations=[
            AclCreation(
                resource_type=RESOURCE_TYPES[acl.resource_type],
                resource_name=acl.name,
                resource_pattern_type=PATTERN_TYPES[acl.pattern_type],
                principal=acl.principal,
                host=acl.host,
                operation=OPERATIONS[acl.operation],
                permission_type=PERMISSIONS[acl.permission],
            )
            for acl in acls
        ]
    )


def describe_request(of: AclFilter) -> DescribeAclsRequest:
    """Entries to look for."""
    return DescribeAclsRequest(**_filter_fields(of))


def delete_request(filters: Iterable[AclFilter]) -> DeleteAclsRequest:
    """Filters for what is to be removed."""
    return DeleteAclsRequest(filters=[DeleteAclsFilter(**_filter_fields(each)) for each in filters])


def described(response: DescribeAclsResponse) -> list[Acl]:
    """What was found, by resource and principal."""
    return in_order(
        _acl(resource.resource_type, resource.resource_name, resource.pattern_type, entry)
        for resource in response.resources
        for entry in resource.acls
    )


def deleted(result: DeleteAclsFilterResult) -> list[Acl]:
    """What one filter has removed, by resource and principal."""
    return in_order(
        _acl(entry.resource_type, entry.resource_name, entry.pattern_type, entry)
        for entry in result.matching_acls
        if entry.error_code == 0
    )


def in_order(acls: Iterable[Acl]) -> list[Acl]:
    """By resource and principal."""
    return sorted(
        acls,
        key=lambda acl: (
            acl.resource_type, acl.name, acl.pattern_type, acl.principal, acl.permission, acl.operation, acl.host
        ),
    )  # fmt: skip


def error_of(code: int, message: str | None, during: str, operation: str) -> BrokerError | None:
    """What a code of an answer means; `operation` is the right on the cluster that was needed for it."""
    found = ErrorCode.of(code)
    if found is ErrorCode.NONE:
        return None
    if found is ErrorCode.SECURITY_DISABLED:
        return BrokerError(found, _NO_LISTS, during=during)
    return refused(found, message, during=during, operation=operation)


def authorized_operations(bits: int) -> tuple[str, ...] | None:
    """The operations of a bit field, in the order of their numbers; "all" is none. `None` where none were asked for."""
    if bits == OPERATIONS_NOT_REQUESTED:
        return None
    return tuple(word for word, number in OPERATIONS.items() if word != "all" and bits >> number & 1)


def _filter_fields(of: AclFilter) -> dict[str, Any]:
    return {
        "resource_type_filter": RESOURCE_TYPES.get(of.resource_type or "", _ANY),
        "resource_name_filter": of.name,
        "pattern_type_filter": PATTERN_FILTERS.get(of.pattern_type or "", _ANY),
        "principal_filter": of.principal,
        "host_filter": of.host,
        "operation": OPERATIONS.get(of.operation or "", _ANY),
        "permission_type": PERMISSIONS.get(of.permission or "", _ANY),
    }


def _acl(resource_type: int, name: str, pattern_type: int, entry: AclDescription | DeleteAclsMatchingAcl) -> Acl:
    return Acl(
        resource_type=_word(resource_type, RESOURCE_TYPES),
        name=name,
        pattern_type=_word(pattern_type, PATTERN_TYPES),
        principal=entry.principal,
        host=entry.host,
        operation=_word(entry.operation, OPERATIONS),
        permission=_word(entry.permission_type, PERMISSIONS),
    )


def _word(number: int, table: dict[str, int]) -> str:
    return next((word for word, known in table.items() if known == number), _UNKNOWN)


def _letters(text: str) -> str:
    return text.replace("_", "").replace("-", "").lower()


def _principal(value: object) -> str:
    text = _text(value, "principal")
    kind, colon, name = text.partition(":")
    if not (kind and colon and name):
        raise ConfigError(
            f"principal cannot be {text!r}: a kind and a name are expected, like 'User:{text or 'alice'}'"
        )
    return text


def _text(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{what} must be text, not {type(value).__name__}: {_EXAMPLE}")
    if not 0 < len(encode(value, what)) <= _LONGEST_BYTES:
        raise ConfigError(f"{what} has {len(value)} characters: 1 to {_LONGEST_BYTES} are expected")
    return value
