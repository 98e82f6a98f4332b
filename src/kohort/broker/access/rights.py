"""What one connection may do.

A connection without an authorizer has `EVERYTHING`; `is_restricted` lets the APIs skip what costs time then.
"""

from __future__ import annotations

from typing import Final

from kohort.broker.authorized_operations import OPERATIONS_OF
from kohort.security.access_control import CLUSTER_NAME, AclOperation, ResourceType
from kohort.security.capabilities.capability import Capability


class Rights:
    """The rights of a connection where nobody is refused anything."""

    __slots__ = ()

    # Each request looks at these; they stay as they are.
    #: Whether anything may be refused.
    is_restricted: bool = False
    #: What the token allows by which the client has logged in; `None`: it came without one.
    capability: Capability | None = None
    #: Whether the client's requests or bytes are counted whatever quotas there are.
    is_metered: bool = False
    #: Whether single partitions of a topic may be refused.
    is_partial: bool = False
    #: Whether the client's token asks for a line about each request.
    tells_requests: bool = False

    @property
    def edition(self) -> int:
        """A number that changes whenever an answer of `allows` may change."""
        return 0

    def allows(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        """Whether the connection's principal may do this to the resource of that name."""
        del operation, resource, name
        return True

    def allows_any(self, operation: AclOperation, resource: ResourceType) -> bool:
        """Whether the principal may do this to at least one resource of that type (KIP-679)."""
        del operation, resource
        return True

    def allows_commit(self, topic: str) -> bool:
        """Whether the principal may commit offsets of a topic."""
        # Kafka has no operation of its own for it.
        return self.allows(AclOperation.READ, ResourceType.TOPIC, topic)

    def allows_partition(self, topic: str, topic_id: bytes, partition: int) -> bool:
        """Whether a partition may be read, written and committed, where its topic may be; asked if `is_partial`."""
        del topic, topic_id, partition
        return True

    def operations(self, resource: ResourceType, name: str = CLUSTER_NAME) -> int:
        """Return the bit field of the allowed operations on a resource (KIP-430)."""
        del name
        return OPERATIONS_OF[resource]


#: The rights of every connection where there is no authorizer.
EVERYTHING: Final = Rights()
