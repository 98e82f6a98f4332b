"""The enumerations of Kafka's ACLs: resource types, pattern types, operations, permissions.

Source: Apache Kafka's ResourceType, PatternType, AclOperation and AclPermissionType; KIP-11, KIP-290.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class ResourceType(IntEnum):
    """Kafka's numbers of resource types."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """Kafka's numbers of the pattern types of resource names."""

    LITERAL = 3
    PREFIXED = 4


class AclOperation(IntEnum):
    """Kafka's numbers of operations; in a bit field of authorized operations, operation n is bit n (KIP-430)."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class AclPermission(IntEnum):
    """Kafka's numbers of permissions."""

    DENY = 2
    ALLOW = 3


#: The only resource of type CLUSTER.
CLUSTER_NAME: Final = "kafka-cluster"
#: The principal of a connection without a login.
ANONYMOUS: Final = "User:ANONYMOUS"
#: The name that stands for every resource of a type, and the host for every address.
WILDCARD: Final = "*"
