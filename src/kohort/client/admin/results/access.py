"""Entries of the access control lists of a cluster, as the admin client takes and returns them.

Source: Kafka's AclBinding and AclBindingFilter; KIP-11, KIP-290 (prefixes).
"""

from __future__ import annotations

from dataclasses import dataclass


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
