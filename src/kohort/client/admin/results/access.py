"""ACL entries and filters of the admin client, and the requests about them.

Laws: a value that passes the checks here is valid in a request. A number in a response that is not known here is shown
as "unknown", which no call accepts.
Source: Kafka's AclBinding, AclBindingFilter, ResourceType, PatternType, AclOperation and AclPermissionType; KIP-11,
KIP-290 (prefixes).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields
from operator import attrgetter
from typing import Any, Final

from kohort.base.values import from_row, value
from kohort.client.arguments import encode
from kohort.errors import ConfigError
from kohort.wire.messages import create_acls, delete_acls, describe_acls
from kohort.wire.messages.metadata import OPERATIONS_NOT_REQUESTED

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
#: Field of an entry -> its words and their numbers.
_WORDS: Final = {
    "resource_type": RESOURCE_TYPES,
    "pattern_type": PATTERN_TYPES,
    "operation": OPERATIONS,
    "permission": PERMISSIONS,
}
#: The only resource of its type.
CLUSTER_NAME: Final = "kafka-cluster"
_LONGEST_BYTES: Final = 2**15 - 1
_ORDER: Final[Callable[[Acl], Any]] = attrgetter(
    "resource_type", "name", "pattern_type", "principal", "permission", "operation", "host"
)
_EXAMPLE: Final = "Acl(resource_type='topic', name='orders', principal='User:alice', operation='read')"


@value
class Acl:
    """An ACL entry: it allows or denies a principal an operation on a resource.

    Args:
        resource_type: "topic", "group", "cluster", "transactional_id", "delegation_token" or "user".
        name: resource name; `*` means all resources of the type; the cluster's name is "kafka-cluster".
        pattern_type: "literal", or "prefixed" for all resources whose names begin with `name`.
        principal: such as "User:alice"; "User:*" means every user.
        host: the address from which the principal connects; `*` means any.
        operation: "read", "write", "create", "delete", "alter", "describe", "cluster_action", "describe_configs",
            "alter_configs", "idempotent_write", "create_tokens", "describe_tokens", "two_phase_commit" or "all".
        permission: "allow" or "deny"; a deny entry takes precedence over every allow entry.

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


@value
class AclFilter:
    """A filter for ACL entries; a field that is `None` matches every value.

    Args:
        pattern_type: "literal", "prefixed", or "match": every entry that applies to the resource `name`, including
            those for all resources and for prefixes of the name.

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
        given = {name: getattr(self, name) for name in self.__annotations__}
        said = ", ".join(f"{name}={value}" for name, value in given.items() if value is not None)
        return f"entries with {said}" if said else "all entries"


def known_word(given: object, table: dict[str, int], what: str) -> str:
    """Find a word of a table in any spelling: `idempotent_write`, `IdempotentWrite`, `idempotent-write`."""
    if not isinstance(given, str):
        raise TypeError(f"{what} cannot be {given!r}: one of {', '.join(table)} is expected")
    plain = _letters(given)
    found = next((word for word in table if _letters(word) == plain), None)
    if found is None:
        raise ConfigError(f"{what} cannot be {given!r}: one of {', '.join(table)} is expected")
    return found


def to_acl(value: object) -> Acl:
    """Check an entry to be added, and convert its words to this module's spelling."""
    if not isinstance(value, Acl):
        raise TypeError(f"an entry cannot be {value!r}: {_EXAMPLE} is one")
    acl = Acl(**{each.name: _checked(each.name, getattr(value, each.name), _WORDS) for each in fields(value)})
    if acl.resource_type == "cluster" and acl.name != CLUSTER_NAME:
        raise ConfigError(f"name cannot be {acl.name!r}: the resource of type cluster is called {CLUSTER_NAME}")
    return acl


def to_filter(value: object) -> AclFilter:
    """Check a filter, and convert its words to this module's spelling; an `Acl` matches itself, `None` every entry."""
    if value is None:
        return AclFilter()
    if isinstance(value, Acl):
        return from_row(AclFilter, to_acl(value))
    if not isinstance(value, AclFilter):
        raise TypeError(f"a filter cannot be {value!r}: AclFilter(principal='User:alice') is one")
    given = {each.name: getattr(value, each.name) for each in fields(value)}
    words = {**_WORDS, "pattern_type": PATTERN_FILTERS}
    # An empty word matches any, as `None` does; an empty text is refused.
    said = {name for name, each in given.items() if (each if name in words else each is not None)}
    chosen = AclFilter(**{name: _checked(name, each, words) if name in said else each for name, each in given.items()})
    if chosen.pattern_type == "match" and chosen.name is None:
        raise ConfigError("pattern_type 'match' says which entries are about a resource: name says which")
    return chosen


def _checked(name: str, value: object, words: Mapping[str, dict[str, int]]) -> str:
    if name in words:
        return known_word(value, words[name], name)
    return _principal(value) if name == "principal" else _text(value, name)


def create_request(acls: Iterable[Acl]) -> create_acls.CreateAclsRequest:
    """Build the request that adds entries."""
    rows = [
        from_row(
            create_acls.AclCreation,
            acl,
            resource_type=RESOURCE_TYPES[acl.resource_type],
            resource_name=acl.name,
            resource_pattern_type=PATTERN_TYPES[acl.pattern_type],
            operation=OPERATIONS[acl.operation],
            permission_type=PERMISSIONS[acl.permission],
        )
        for acl in acls
    ]
    return create_acls.CreateAclsRequest(creations=rows)


def described(response: describe_acls.DescribeAclsResponse) -> list[Acl]:
    """Return the entries that were found, by resource and principal."""
    return in_order(_acl(resource, entry) for resource in response.resources for entry in resource.acls)


def deleted(result: delete_acls.DeleteAclsFilterResult) -> list[Acl]:
    """Return the entries that one filter has removed, by resource and principal."""
    return in_order(_acl(entry, entry) for entry in result.matching_acls if entry.error_code == 0)


def in_order(acls: Iterable[Acl]) -> list[Acl]:
    """Sort entries by resource and principal."""
    return sorted(acls, key=_ORDER)


def authorized_operations(bits: int) -> tuple[str, ...] | None:
    """Read the operations of a bit field, by their numbers, without "all"; `None`: they were not asked for."""
    if bits == OPERATIONS_NOT_REQUESTED:
        return None
    return tuple(word for word, number in OPERATIONS.items() if word != "all" and bits >> number & 1)


def filter_fields(of: AclFilter) -> dict[str, Any]:
    """Return the fields of a filter in a request."""
    return {
        "resource_type_filter": RESOURCE_TYPES.get(of.resource_type or "", _ANY),
        "resource_name_filter": of.name,
        "pattern_type_filter": PATTERN_FILTERS.get(of.pattern_type or "", _ANY),
        "principal_filter": of.principal,
        "host_filter": of.host,
        "operation": OPERATIONS.get(of.operation or "", _ANY),
        "permission_type": PERMISSIONS.get(of.permission or "", _ANY),
    }


def _acl(
    resource: describe_acls.DescribeAclsResource | delete_acls.DeleteAclsMatchingAcl,
    entry: describe_acls.AclDescription | delete_acls.DeleteAclsMatchingAcl,
) -> Acl:
    return from_row(
        Acl,
        entry,
        resource_type=_word(resource.resource_type, RESOURCE_TYPES),
        name=resource.resource_name,
        pattern_type=_word(resource.pattern_type, PATTERN_TYPES),
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
