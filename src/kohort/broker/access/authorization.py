"""The rights of connections where there is an authorizer, with their decisions kept until the entries change.

Laws: connections of one principal and host share their decisions, whose number is bounded for all together; no
decision outlives a change of the entries. The connections under way hear of a change in the same turn of the loop.
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

#: Decisions that are kept for all principals together, some 150 bytes each with their names.
MOST_KEPT: Final = 200_000
#: The longest name whose decision is kept: the longest of a topic. Names of groups may be longer.
LONGEST_KEPT: Final = 249


class AuthorizedRights(Rights):
    """The rights of a principal that comes from one host, as the entries have them at each moment."""

    __slots__ = ("__weakref__", "_any", "_authorization", "_authorizer", "_granted", "_whos", "host", "principal")

    is_restricted = True

    def __init__(self, authorization: Authorization, authorizer: Authorizer, principal: str, host: str) -> None:
        self._authorization: Final = authorization
        self._authorizer: Final = authorizer
        self._whos: Final = whos_of(principal, host)
        self.principal: Final = principal
        self.host: Final = host
        #: By the number of a type of resource: name -> the bit field of the operations that are allowed.
        self._granted: Final[list[dict[str, int]]] = [{} for _ in range(max(ResourceType) + 1)]
        #: Operation and type of resource -> whether it is allowed on any resource of the type.
        self._any: Final[dict[tuple[AclOperation, ResourceType], bool]] = {}

    @property
    def edition(self) -> int:
        """A number that changes whenever an answer of `allows` may change."""
        return self._authorizer.edition

    def allows(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the connection's principal may do this to the resource of that name."""
        granted = self._granted[resource].get(name)
        if granted is None:
            granted = self._decide(resource, name)
        return granted >> operation & 1 != 0

    def allows_any(self, operation: AclOperation, resource: ResourceType) -> bool:
        """Whether the principal may do this to at least one resource of that type (KIP-679)."""
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
        """Forget every decision."""
        for granted in self._granted:
            granted.clear()
        self._any.clear()

    def _decide(self, resource: ResourceType, name: str) -> int:
        granted = self._authorizer.grants(self._whos, resource, name)
        log.debug(
            "event=decided principal=%r host=%s resource=%s name=%r operations=%#x",
            self.principal, self.host, resource.name, name[:LONGEST_KEPT], granted,
        )  # fmt: skip
        # A client chooses the names: what is kept of them has to have an end.
        if len(name) <= LONGEST_KEPT:
            self._authorization.count_kept()
            self._granted[resource][name] = granted
        return granted


class Authorization:
    """The authorizer of a broker, if it has one, and the rights that were given out."""

    def __init__(self, authorizer: Authorizer | None = None) -> None:
        """Create the part; without an authorizer every connection may do everything."""
        self.authorizer: Final = authorizer
        #: Called after each change, to examine what connections have under way.
        self.examiners: Final[list[Callable[[], None]]] = []
        self._kept = 0
        #: Principal and host -> their rights, as long as a connection has them.
        self._rights: Final[WeakValueDictionary[tuple[str, str], AuthorizedRights]] = WeakValueDictionary()

    @property
    def is_on(self) -> bool:
        """Whether the broker has an authorizer."""
        return self.authorizer is not None

    def rights_of(self, principal: str, host: str) -> Rights:
        """Return the rights of a connection by its principal, such as `User:alice`, and its client's address."""
        authorizer = self.authorizer
        # A super user costs no decisions: its rights are those of a broker without an authorizer.
        if authorizer is None or principal in authorizer.super_users:
            return EVERYTHING
        known = self._rights.get((principal, host))
        if known is None:
            known = self._rights[principal, host] = AuthorizedRights(self, authorizer, principal, host)
        return known

    def changed(self) -> None:
        """Forget all decisions after a change of rights, and examine what connections have under way."""
        self._forget()
        for examine in self.examiners:
            examine()

    def count_kept(self) -> None:
        """Count one more decision that is kept; forget all where they would be too many."""
        if self._kept >= MOST_KEPT:
            self._forget()
        self._kept += 1

    def _forget(self) -> None:
        self._kept = 0
        for rights in list(self._rights.values()):
            rights.forget()
