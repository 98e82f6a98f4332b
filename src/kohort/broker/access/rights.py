"""The rights of one connection.

Without an authorizer a connection has `EVERYTHING`. APIs skip their checks of rights unless `is_restricted`.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.authorized_operations import OPERATIONS_OF
from kohort.security.access_control import CLUSTER_NAME, AclOperation, ResourceType
from kohort.security.capabilities.capability import Capability


class Rights:
    """The rights of a connection that may do everything; the base class of restricted rights."""

    __slots__ = ()

    # Each request reads these attributes; they never change.
    #: Whether an operation may be refused.
    is_restricted: bool = False
    #: The rights of the capability token that the client has logged in with; `None`: it has none.
    capability: Capability | None = None
    #: Whether the client's requests or bytes are counted even without quotas, because its token has a rate.
    is_metered: bool = False
    #: Whether single partitions of a topic may be refused.
    is_partial: bool = False
    #: Whether the client's token has a log level at which each request is logged.
    tells_requests: bool = False

    @property
    def edition(self) -> int:
        """A number that changes whenever the result of `allows` may change."""
        return 0

    def allows(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Return whether the connection's principal may perform an operation on a resource."""
        del operation, resource, name
        return True

    def allows_any(self, operation: AclOperation, resource: ResourceType) -> bool:
        """Return whether the principal may perform an operation on at least one resource of a type (KIP-679)."""
        del operation, resource
        return True

    def allows_commit(self, topic: str) -> bool:
        """Return whether the principal may commit offsets of a topic."""
        # Kafka has no separate operation for commits.
        return self.allows(AclOperation.READ, ResourceType.TOPIC, topic)

    def allows_partition(self, topic: str, topic_id: bytes, partition: int) -> bool:
        """Return whether a partition of an allowed topic is allowed, too; called only if `is_partial`."""
        del topic, topic_id, partition
        return True

    def operations(self, resource: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the bit field of the allowed operations on a resource (KIP-430)."""
        del name
        return OPERATIONS_OF[resource]


#: The rights of every connection if the broker has no authorizer.
EVERYTHING: Final = Rights()
