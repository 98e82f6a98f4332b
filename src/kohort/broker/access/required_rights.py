"""The table of the rights that each API needs, and of the results for denied resources.

Handlers check exactly these rights, in this order, and docs are generated from `rows`. A right is checked for each
resource of its type that a request names, so that one denied topic does not affect the others.

Laws: every served API is in the table, also kohort's own ones. A test calls each API and compares the checked rights.
Source: Apache Kafka's KafkaApis and ControllerApis of 4.3; KIP-11, KIP-430, KIP-679, KIP-848 (KAFKA-18813).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from enum import StrEnum
from typing import Final, NamedTuple

from kohort.errors import ErrorCode
from kohort.security.access_control import AclOperation, ResourceType
from kohort.wire.private import PrivateApiKey
from kohort.wire.registry import AnyApiKey, ApiKey

#: An operation on a resource type.
Right = tuple[AclOperation, ResourceType]


class Unnamed(StrEnum):
    """The result for a denied resource if the response has no error code for it."""

    LEFT_OUT = "left out"
    NOT_RETURNED = "not shown"


class Need(NamedTuple):
    """One right that an API needs.

    `of`: the resources. `denied`: the error code of a denied resource, or the result without an error code. `instead`:
    a right that is enough as well; it is checked first or last, as Kafka does.
    """

    operation: AclOperation
    resource: ResourceType
    of: str
    denied: ErrorCode | Unnamed
    instead: Right | None = None


_TOPIC, _GROUP, _CLUSTER = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER
_TRANSACTIONAL_ID: Final = ResourceType.TRANSACTIONAL_ID
_NO_ID: Final = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
_NO_TOPIC: Final = ErrorCode.TOPIC_AUTHORIZATION_FAILED
_NO_GROUP: Final = ErrorCode.GROUP_AUTHORIZATION_FAILED
_NO_CLUSTER: Final = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
_EACH_TOPIC: Final = "each topic"
_THE_GROUP: Final = "the group"
_THE_CLUSTER: Final = "the cluster"
_THE_ID: Final = "the transactional id"

_READ_GROUP: Final = Need(AclOperation.READ, _GROUP, _THE_GROUP, _NO_GROUP)
_DESCRIBE_GROUP: Final = Need(AclOperation.DESCRIBE, _GROUP, "each group", _NO_GROUP)
_DESCRIBE_TOPIC: Final = Need(AclOperation.DESCRIBE, _TOPIC, _EACH_TOPIC, _NO_TOPIC)
_WRITE_ID: Final = Need(AclOperation.WRITE, _TRANSACTIONAL_ID, _THE_ID, _NO_ID)
_CLUSTER_OPERATIONS: Final = Need(
    AclOperation.DESCRIBE, _CLUSTER, "the cluster, for its authorized operations", Unnamed.NOT_RETURNED
)


def _cluster(operation: AclOperation) -> tuple[Need, ...]:
    return (Need(operation, _CLUSTER, _THE_CLUSTER, _NO_CLUSTER),)


def _configs(operation: AclOperation) -> tuple[Need, ...]:
    return (
        Need(operation, _TOPIC, "each topic that is named", _NO_TOPIC),
        Need(operation, _GROUP, "each group that is named", _NO_GROUP),
        Need(operation, _CLUSTER, "the cluster, for configs of brokers", _NO_CLUSTER),
    )


#: API -> the rights that it needs; empty: none, because a client uses the API before or during its login.
REQUIRED_RIGHTS: Final[Mapping[AnyApiKey, tuple[Need, ...]]] = {
    ApiKey.API_VERSIONS: (),
    ApiKey.SASL_HANDSHAKE: (),
    ApiKey.SASL_AUTHENTICATE: (),
    ApiKey.PRODUCE: (
        Need(AclOperation.WRITE, _TOPIC, _EACH_TOPIC, _NO_TOPIC),
        # CVE-2018-17196: a batch within a transaction needs the right to it, whatever the request says.
        Need(AclOperation.WRITE, _TRANSACTIONAL_ID, "the transactional id, for a batch of a transaction", _NO_ID),
    ),
    ApiKey.FETCH: (
        # CVE-2018-1288: a client that calls itself a replica is none.
        Need(AclOperation.CLUSTER_ACTION, _CLUSTER, "the cluster, for a fetch as a replica", _NO_TOPIC),
        Need(AclOperation.READ, _TOPIC, _EACH_TOPIC, _NO_TOPIC),
        Need(AclOperation.READ, _GROUP, "the group whose news it asks for", Unnamed.LEFT_OUT),
    ),
    ApiKey.LIST_OFFSETS: (_DESCRIBE_TOPIC,),
    ApiKey.METADATA: (
        Need(AclOperation.DESCRIBE, _TOPIC, "each topic that is named; of all topics, the others", _NO_TOPIC),
        Need(AclOperation.CREATE, _TOPIC, "each topic to create", _NO_TOPIC, (AclOperation.CREATE, _CLUSTER)),
        _CLUSTER_OPERATIONS,
    ),
    ApiKey.OFFSET_COMMIT: (_READ_GROUP, Need(AclOperation.READ, _TOPIC, _EACH_TOPIC, _NO_TOPIC)),
    ApiKey.OFFSET_FETCH: (
        _DESCRIBE_GROUP,
        Need(AclOperation.DESCRIBE, _TOPIC, "each topic that is named; of all offsets, the others", _NO_TOPIC),
    ),
    ApiKey.FIND_COORDINATOR: (
        _DESCRIBE_GROUP,
        Need(AclOperation.DESCRIBE, _TRANSACTIONAL_ID, "each transactional id", _NO_ID),
    ),
    ApiKey.JOIN_GROUP: (_READ_GROUP,),
    ApiKey.HEARTBEAT: (_READ_GROUP,),
    ApiKey.LEAVE_GROUP: (_READ_GROUP,),
    ApiKey.SYNC_GROUP: (_READ_GROUP,),
    ApiKey.DESCRIBE_GROUPS: (_DESCRIBE_GROUP,),
    ApiKey.LIST_GROUPS: (
        Need(AclOperation.DESCRIBE, _GROUP, "each group", Unnamed.LEFT_OUT, (AclOperation.DESCRIBE, _CLUSTER)),
    ),
    ApiKey.CREATE_TOPICS: (
        Need(AclOperation.CREATE, _TOPIC, _EACH_TOPIC, _NO_TOPIC, (AclOperation.CREATE, _CLUSTER)),
        Need(AclOperation.DESCRIBE_CONFIGS, _TOPIC, "each topic, for its configs", Unnamed.NOT_RETURNED),
    ),
    ApiKey.DELETE_TOPICS: (
        Need(AclOperation.DESCRIBE, _TOPIC, _EACH_TOPIC, _NO_TOPIC, (AclOperation.DELETE, _CLUSTER)),
        Need(AclOperation.DELETE, _TOPIC, _EACH_TOPIC, _NO_TOPIC, (AclOperation.DELETE, _CLUSTER)),
    ),
    ApiKey.DELETE_RECORDS: (Need(AclOperation.DELETE, _TOPIC, _EACH_TOPIC, _NO_TOPIC),),
    # KIP-679: a producer of any topic may be idempotent.
    ApiKey.INIT_PRODUCER_ID: (
        Need(AclOperation.IDEMPOTENT_WRITE, _CLUSTER, _THE_CLUSTER, _NO_CLUSTER, (AclOperation.WRITE, _TOPIC)),
        Need(AclOperation.WRITE, _TRANSACTIONAL_ID, "the transactional id, of a producer that has one", _NO_ID),
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: (
        Need(AclOperation.DESCRIBE, _TOPIC, _EACH_TOPIC, _NO_TOPIC, (AclOperation.CLUSTER_ACTION, _CLUSTER)),
    ),
    ApiKey.ADD_PARTITIONS_TO_TXN: (
        # From version 4 on brokers ask.
        Need(AclOperation.CLUSTER_ACTION, _CLUSTER, "the cluster, for a request of a broker", _NO_CLUSTER),
        _WRITE_ID,
        Need(AclOperation.WRITE, _TOPIC, _EACH_TOPIC, _NO_TOPIC),
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: (_WRITE_ID, _READ_GROUP),
    ApiKey.END_TXN: (_WRITE_ID,),
    ApiKey.WRITE_TXN_MARKERS: (
        Need(AclOperation.ALTER, _CLUSTER, _THE_CLUSTER, _NO_CLUSTER, (AclOperation.CLUSTER_ACTION, _CLUSTER)),
    ),
    ApiKey.TXN_OFFSET_COMMIT: (_WRITE_ID, _READ_GROUP, Need(AclOperation.READ, _TOPIC, _EACH_TOPIC, _NO_TOPIC)),
    ApiKey.DESCRIBE_ACLS: _cluster(AclOperation.DESCRIBE),
    ApiKey.CREATE_ACLS: _cluster(AclOperation.ALTER),
    ApiKey.DELETE_ACLS: _cluster(AclOperation.ALTER),
    ApiKey.DESCRIBE_CONFIGS: _configs(AclOperation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CONFIGS: _configs(AclOperation.ALTER_CONFIGS),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _configs(AclOperation.ALTER_CONFIGS),
    ApiKey.DESCRIBE_LOG_DIRS: _cluster(AclOperation.DESCRIBE),
    ApiKey.CREATE_PARTITIONS: (Need(AclOperation.ALTER, _TOPIC, _EACH_TOPIC, _NO_TOPIC),),
    ApiKey.DELETE_GROUPS: (Need(AclOperation.DELETE, _GROUP, "each group", _NO_GROUP),),
    ApiKey.ELECT_LEADERS: _cluster(AclOperation.ALTER),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _cluster(AclOperation.ALTER),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _cluster(AclOperation.DESCRIBE),
    ApiKey.OFFSET_DELETE: (
        Need(AclOperation.DELETE, _GROUP, _THE_GROUP, _NO_GROUP),
        Need(AclOperation.READ, _TOPIC, _EACH_TOPIC, _NO_TOPIC),
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _cluster(AclOperation.DESCRIBE_CONFIGS),
    ApiKey.ALTER_CLIENT_QUOTAS: _cluster(AclOperation.ALTER_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _cluster(AclOperation.DESCRIBE),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _cluster(AclOperation.ALTER),
    ApiKey.DESCRIBE_QUORUM: _cluster(AclOperation.DESCRIBE),
    ApiKey.DESCRIBE_CLUSTER: (_CLUSTER_OPERATIONS,),
    ApiKey.DESCRIBE_PRODUCERS: (Need(AclOperation.READ, _TOPIC, _EACH_TOPIC, _NO_TOPIC),),
    ApiKey.DESCRIBE_TRANSACTIONS: (
        Need(AclOperation.DESCRIBE, _TRANSACTIONAL_ID, "each transactional id", _NO_ID),
        Need(AclOperation.DESCRIBE, _TOPIC, "each topic of the transaction", Unnamed.LEFT_OUT),
    ),
    ApiKey.LIST_TRANSACTIONS: (
        Need(AclOperation.DESCRIBE, _TRANSACTIONAL_ID, "each transactional id", Unnamed.LEFT_OUT),
    ),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: (
        _READ_GROUP,
        # KAFKA-18813: one denied name refuses the whole request; what a pattern matches is left out.
        Need(AclOperation.DESCRIBE, _TOPIC, "each topic that is subscribed to; of a pattern, the others", _NO_TOPIC),
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: (
        _DESCRIBE_GROUP,
        Need(AclOperation.DESCRIBE, _TOPIC, "each topic of the group's assignments", _NO_TOPIC),
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _cluster(AclOperation.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: (
        Need(AclOperation.DESCRIBE, _TOPIC, "each topic that is named; of all topics, the others", _NO_TOPIC),
    ),
    # Ours, as the API of Kafka's that is nearest to each.
    PrivateApiKey.GROUP_HISTORY: (
        Need(AclOperation.DESCRIBE, _GROUP, _THE_GROUP, _NO_GROUP),
        Need(AclOperation.DESCRIBE, _TOPIC, "each topic that a row names", Unnamed.LEFT_OUT),
        Need(AclOperation.DESCRIBE, _TRANSACTIONAL_ID, "the transactional id, for its rows", _NO_ID),
    ),
    # A submitted move outlives the request, as a config of the group does. A member may not assign itself partitions.
    PrivateApiKey.SUBMIT_MOVES: (
        Need(AclOperation.ALTER_CONFIGS, _GROUP, _THE_GROUP, _NO_GROUP),
        Need(AclOperation.DESCRIBE, _TOPIC, _EACH_TOPIC, _NO_TOPIC),
    ),
    PrivateApiKey.DESCRIBE_MOVES: (
        Need(AclOperation.DESCRIBE, _GROUP, _THE_GROUP, _NO_GROUP),
        Need(AclOperation.DESCRIBE, _TOPIC, "each topic", Unnamed.LEFT_OUT),
    ),
    PrivateApiKey.DESCRIBE_BROKER: _cluster(AclOperation.DESCRIBE),
    PrivateApiKey.CONSUMER_GROUP_PREPARE_ASSIGNMENT: (
        _READ_GROUP,
        Need(AclOperation.DESCRIBE, _TOPIC, "each topic of the group", _NO_TOPIC),
    ),
    PrivateApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT: (_READ_GROUP,),
    PrivateApiKey.REVOKE_TOKENS: _cluster(AclOperation.ALTER),
    PrivateApiKey.DESCRIBE_TOKENS: _cluster(AclOperation.DESCRIBE),
}


def rights_of(key: AnyApiKey) -> set[Right]:
    """Return every right that an API may check."""
    needs = REQUIRED_RIGHTS[key]
    return {(need.operation, need.resource) for need in needs} | {need.instead for need in needs if need.instead}


class RightRow(NamedTuple):
    """A row for the docs; `number`: the API key; `needs`: the right, or two of which one is enough."""

    number: int
    api: str
    needs: str
    of: str
    denied: str


def rows() -> Iterator[RightRow]:
    """Yield the table for the docs, by API; an API that needs no right has one row with empty texts."""
    for key in sorted(REQUIRED_RIGHTS):
        name = "".join(word.capitalize() for word in key.name.split("_"))
        for need in REQUIRED_RIGHTS[key]:
            needs = _say((need.operation, need.resource))
            if need.instead is not None:
                needs = f"{needs} or {_say(need.instead)}"
            denied = need.denied.name if isinstance(need.denied, ErrorCode) else need.denied.value
            yield RightRow(int(key), name, needs, need.of, denied)
        if not REQUIRED_RIGHTS[key]:
            yield RightRow(int(key), name, "", "", "")


def _say(right: Right) -> str:
    operation, resource = right
    return f"{operation.name} {resource.name}"
