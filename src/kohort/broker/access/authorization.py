"""The rights of connections to a broker with an authorizer; decisions are cached until ACLs change.

Laws: connections of one principal and host share their decisions. The number of decisions of all principals together
is bounded. No decision outlives a change of the ACLs. Open connections are examined in the same turn of the loop.
Source: architecture: decisions are kept per (connection, resource) until the edition of the ACLs changes.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final
from weakref import WeakValueDictionary

from kohort.broker.access.rights import EVERYTHING, Rights
from kohort.broker.authorized_operations import OPERATIONS_OF
from kohort.security.access_control import CLUSTER_NAME, AclOperation, ResourceType
from kohort.security.authorizer import Authorizer, whos_of

log = logging.getLogger("kohort.authorizer")

#: The most cached decisions of all principals together; one takes some 150 bytes with its name.
MOST_KEPT: Final = 200_000
#: The longest name whose decision is cached: the longest name of a topic. Names of groups may be longer.
LONGEST_KEPT: Final = 249


class AuthorizedRights(Rights):
    """The rights of a principal that connects from one host, by the ACLs in force."""

    __slots__ = ("__weakref__", "_any", "_authorization", "_authorizer", "_granted", "_whos", "host", "principal")

    is_restricted = True

    def __init__(self, authorization: Authorization, authorizer: Authorizer, principal: str, host: str) -> None:
        self._authorization: Final = authorization
        self._authorizer: Final = authorizer
        self._whos: Final = whos_of(principal, host)
        self.principal: Final = principal
        self.host: Final = host
        #: By the number of a resource type: name -> the bit field of the allowed operations.
        self._granted: Final[list[dict[str, int]]] = [{} for _ in range(max(ResourceType) + 1)]
        #: Operation and resource type -> whether the operation is allowed on at least one resource of the type.
        self._any: Final[dict[tuple[AclOperation, ResourceType], bool]] = {}

    @property
    def edition(self) -> int:
        """A number that changes whenever the result of `allows` may change."""
        return self._authorizer.edition

    def allows(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether the connection's principal may perform an operation on a resource."""
        granted = self._granted[resource].get(name)
        if granted is None:
            granted = self._decide(resource, name)
        return granted >> operation & 1 != 0

    def allows_any(self, operation: AclOperation, resource: ResourceType) -> bool:
        """Return whether the principal may perform an operation on at least one resource of a type (KIP-679)."""
        answer = self._any.get((operation, resource))
        if answer is None:
            answer = self._any[operation, resource] = self._authorizer.allows_any(self._whos, operation, resource)
        return answer

    def operations(self, resource: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the bit field of the allowed operations on a resource (KIP-430)."""
        granted = self._granted[resource].get(name)
        if granted is None:
            granted = self._decide(resource, name)
        return granted & OPERATIONS_OF[resource]

    def forget(self) -> None:
        """Drop every cached decision."""
        for granted in self._granted:
            granted.clear()
        self._any.clear()

    def _decide(self, resource: ResourceType, name: str) -> int:
        granted = self._authorizer.grants(self._whos, resource, name)
        log.debug(
            "event=decided principal=%r host=%s resource=%s name=%r operations=%#x",
            self.principal, self.host, resource.name, name[:LONGEST_KEPT], granted,
        )  # fmt: skip
        # A client chooses the names, so the cached decisions about them have to be bounded.
        if len(name) <= LONGEST_KEPT:
            self._authorization.count_kept()
            self._granted[resource][name] = granted
        return granted


class Authorization:
    """The authorizer of a broker, if it has one, and the rights of its connections."""

    def __init__(self, authorizer: Authorizer | None = None) -> None:
        """Use this authorizer; `None`: every connection may do everything."""
        self.authorizer: Final = authorizer
        #: Called after each change of the ACLs, to examine connections and subscriptions again.
        self.examiners: Final[list[Callable[[], None]]] = []
        self._kept = 0
        #: Principal and host -> their rights, as long as a connection uses them.
        self._rights: Final[WeakValueDictionary[tuple[str, str], AuthorizedRights]] = WeakValueDictionary()

    @property
    def is_on(self) -> bool:
        """Whether the broker has an authorizer."""
        return self.authorizer is not None

    def rights_of(self, principal: str, host: str) -> Rights:
        """Return the rights of a connection by its principal, such as `User:alice`, and its client's address."""
        authorizer = self.authorizer
        # A super user needs no decisions: it has the rights of a broker without an authorizer.
        if authorizer is None or principal in authorizer.super_users:
            return EVERYTHING
        known = self._rights.get((principal, host))
        if known is None:
            known = self._rights[principal, host] = AuthorizedRights(self, authorizer, principal, host)
        return known

    def changed(self) -> None:
        """Drop all decisions after a change of the ACLs, and call the examiners."""
        self._forget()
        for examine in self.examiners:
            examine()

    def count_kept(self) -> None:
        """Count one more cached decision; drop all of them first if there are too many."""
        if self._kept >= MOST_KEPT:
            self._forget()
        self._kept += 1

    def _forget(self) -> None:
        self._kept = 0
        for rights in list(self._rights.values()):
            rights.forget()
