"""The longest request of each API that the limits of a broker let through, and one that just exceeds them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

from kohort.broker.limits.requests import (
    MOST_BYTES_OF,
    MOST_EMPTY,
    MOST_LED,
    MOST_NAMED,
    MOST_PARTITIONS,
    MOST_ROWS,
    MOST_ROWS_OF,
)
from kohort.wire.decoder import VALUES_PER_ROW
from kohort.wire.private import PrivateApiKey
from kohort.wire.registry import AnyApiKey, ApiKey, request_class, versions_of
from kohort.wire.schema import fields_of

#: A topic that is there, with some partitions.
WIDE, PARTITIONS = "wide", 2_000
_TOPIC, _GROUP = 2, 32

_ENTRY = {
    "resource_type": _TOPIC, "principal": "User:alice", "host": "*", "operation": 3, "permission_type": 3,
}  # fmt: skip
_ENTRY_FILTER = {
    "resource_type_filter": _TOPIC, "principal_filter": None, "host_filter": None, "operation": 1, "permission_type": 1,
}  # fmt: skip
_NEW_USER = {"mechanism": 1, "iterations": 4096, "salt": b"salt", "salted_password": b"x" * 32}


class Worst(NamedTuple):
    """One kind of request of an API."""

    key: AnyApiKey
    version: int
    #: Makes one of so many rows.
    of: Callable[[int], Any]
    #: How many are let through, and how many are not.
    most: int
    beyond: int


def _rows_of(key: AnyApiKey) -> int:
    return MOST_ROWS_OF.get(key, MOST_ROWS)


def _row_class(key: AnyApiKey, *path: str) -> Callable[..., Any]:
    """The class of the rows of an array, by the names of the fields that lead there."""
    found: Any = request_class(key)
    for name in path:
        kind: Any = next(field.kind for field in fields_of(found) if field.name == name)
        found = kind.element
    cls: Callable[..., Any] = found
    return cls


def _quotas_to_set(count: int) -> Any:
    """One limit of each user."""
    entry = _row_class(ApiKey.ALTER_CLIENT_QUOTAS, "entries")
    part = _row_class(ApiKey.ALTER_CLIENT_QUOTAS, "entries", "entity")
    op = _row_class(ApiKey.ALTER_CLIENT_QUOTAS, "entries", "ops")
    entries = [
        entry(entity=[part(entity_type="user", entity_name=name)], ops=[op(key="producer_byte_rate", value=5.0)])
        for name in _names(count)
    ]
    return request_class(ApiKey.ALTER_CLIENT_QUOTAS)(entries=entries)


def _quotas_to_look_up(count: int) -> Any:
    part = _row_class(ApiKey.DESCRIBE_CLIENT_QUOTAS, "components")
    parts = [part(entity_type=f"t{number}", match_type=2) for number in range(count)]
    return request_class(ApiKey.DESCRIBE_CLIENT_QUOTAS)(components=parts)


def _names(count: int) -> list[str]:
    return [f"n{number:05}" for number in range(count)]


def _worst(key: AnyApiKey, of: Callable[[int], Any], most: int, *, version: int | None = None, step: int = 1) -> Worst:
    return Worst(key, versions_of(key)[1] if version is None else version, of, most, most + step)


def _named(
    key: AnyApiKey,
    array: str,
    name: str,
    *,
    most: int | None = None,
    version: int | None = None,
    row: dict[str, Any] | None = None,
    suffix: str = "",
    **values: Any,
) -> Worst:
    """Rows with a name each."""

    def of(count: int) -> Any:
        cls = _row_class(key, array)
        rows = [cls(**{name: each + suffix}, **(row or {})) for each in _names(count)]
        return request_class(key)(**{array: rows}, **values)

    return _worst(key, of, _rows_of(key) if most is None else most, version=version)


def _texts(key: ApiKey, array: str, most: int, **values: Any) -> Worst:
    """Names and nothing else."""
    return _worst(key, lambda count: request_class(key)(**{array: _names(count)}, **values), most)


def _short_texts(key: ApiKey, array: str) -> Worst:
    """As many words as there are bytes for."""
    most = (MOST_BYTES_OF[key] - 100) // 5
    return _worst(key, lambda count: request_class(key)(**{array: ["word"] * count}), most, step=100)


def _partitions(
    key: ApiKey,
    *,
    most: int | None = None,
    path: Sequence[str] = ("topics", "partitions"),
    name: str = "name",
    number: str = "partition_index",
    version: int | None = None,
    row: dict[str, Any] | None = None,
    **values: Any,
) -> Worst:
    """Partitions of one topic, of which some are there."""

    def of(count: int) -> Any:
        cls = _row_class(key, *path)
        rows = [cls(**{number: each}, **(row or {})) for each in range(count)]
        topic = _row_class(key, path[0])(**{name: WIDE, path[1]: rows})
        return request_class(key)(**{path[0]: [topic]}, **values)

    # The topic is a row as well.
    return _worst(key, of, _rows_of(key) - 1 if most is None else most, version=version)


def _numbers(
    key: ApiKey, array: str, name: str, inner: str, most: int, *, version: int | None = None, **values: Any
) -> Worst:
    """Partitions of one topic that are numbers and nothing else."""

    def of(count: int) -> Any:
        topic = _row_class(key, array)(**{name: WIDE, inner: list(range(count))})
        return request_class(key)(**{array: [topic]}, **values)

    return _worst(key, of, most, version=version)


def _offsets_of_a_group(count: int) -> Any:
    topic = _row_class(ApiKey.OFFSET_FETCH, "groups", "topics")(name=WIDE, partition_indexes=list(range(count)))
    group = _row_class(ApiKey.OFFSET_FETCH, "groups")(group_id="g", topics=[topic])
    return request_class(ApiKey.OFFSET_FETCH)(groups=[group])


def _topics_of_one_partition(count: int) -> Any:
    partition = _row_class(ApiKey.OFFSET_COMMIT, "topics", "partitions")()
    topic = _row_class(ApiKey.OFFSET_COMMIT, "topics")
    topics = [topic(name=name, partitions=[partition]) for name in _names(count)]
    return request_class(ApiKey.OFFSET_COMMIT)(group_id="g", topics=topics)


def _heartbeat(count: int) -> Any:
    return request_class(ApiKey.CONSUMER_GROUP_HEARTBEAT)(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=[f"{name:>9}" for name in _names(count)],
        topic_partitions=[],
    )


def _assignors(count: int) -> Any:
    row = _row_class(ApiKey.CONSUMER_GROUP_HEARTBEAT, "client_assignors")
    return request_class(ApiKey.CONSUMER_GROUP_HEARTBEAT)(
        group_id="g",
        member_id="m",
        rebalance_timeout_ms=1_000,
        subscribed_topic_names=[WIDE],
        topic_partitions=[],
        client_assignors=[row(name=name) for name in _names(count)],
    )


def _markers(count: int) -> Any:
    """The end of one producer's transaction in so many partitions."""
    topic = _row_class(ApiKey.WRITE_TXN_MARKERS, "markers", "topics")(name=WIDE, partition_indexes=list(range(count)))
    marker = _row_class(ApiKey.WRITE_TXN_MARKERS, "markers")(producer_id=1, producer_epoch=0, topics=[topic])
    return request_class(ApiKey.WRITE_TXN_MARKERS)(markers=[marker])


def _known(key: ApiKey) -> Callable[[int], Any]:
    """What a member says that it knows, of topics of one partition each; nothing else is asked."""
    word: Any = next(field.kind for field in fields_of(request_class(key)) if field.name == "member")
    rows_of: Any = next(field.kind for field in fields_of(word) if field.name == "topic_partitions")
    row = rows_of.element

    def of(count: int) -> Any:
        rows = [row(topic_id=number.to_bytes(16), partitions=[0]) for number in range(1, count + 1)]
        return request_class(key)(member=word(group_id="g", member_id="m", member_epoch=1, topic_partitions=rows))

    return of


_VALUES: Final = MOST_ROWS * VALUES_PER_ROW
#: Of ten bytes each, as far as a heartbeat may be long.
_LONG_NAMES: Final = (MOST_BYTES_OF[ApiKey.CONSUMER_GROUP_HEARTBEAT] - 200) // 10
_NEW_TOPIC: Final = {"num_partitions": 1, "replication_factor": 1}

#: What the request is, and it.
WORST: Final[dict[str, Worst]] = {
    "batches that are empty": _partitions(
        ApiKey.PRODUCE, path=("topic_data", "partition_data"), number="index", version=12, acks=1
    ),
    "partitions to read": _partitions(
        ApiKey.FETCH, name="topic", number="partition", version=12, row={"partition_max_bytes": 100}, max_bytes=1_000
    ),
    "topics to read nothing of": _named(ApiKey.FETCH, "topics", "topic", version=12, most=MOST_EMPTY),
    "what a member knows, by a fetch": _worst(ApiKey.FETCH, _known(ApiKey.FETCH), MOST_PARTITIONS),
    "what a member knows, by a commit": _worst(ApiKey.OFFSET_COMMIT, _known(ApiKey.OFFSET_COMMIT), MOST_PARTITIONS),
    "ends of partitions": _partitions(ApiKey.LIST_OFFSETS, row={"timestamp": -1}),
    "topics that nobody knows": _named(ApiKey.METADATA, "topics", "name", allow_auto_topic_creation=False),
    "topics of no name": _named(ApiKey.METADATA, "topics", "name", suffix="?"),
    "commits of a topic": _partitions(ApiKey.OFFSET_COMMIT, most=MOST_PARTITIONS, version=9, group_id="g"),
    "commits of topics": _worst(ApiKey.OFFSET_COMMIT, _topics_of_one_partition, MOST_ROWS // 2, version=9),
    "offsets of a group": _worst(ApiKey.OFFSET_FETCH, _offsets_of_a_group, MOST_PARTITIONS, version=9),
    "offsets of a group, of old": _numbers(
        ApiKey.OFFSET_FETCH, "topics", "name", "partition_indexes", MOST_PARTITIONS, version=7, group_id="g"
    ),
    "offsets of groups": _named(
        ApiKey.OFFSET_FETCH, "groups", "group_id", most=MOST_NAMED, version=9, row={"topics": None}
    ),
    "keys of coordinators": _texts(ApiKey.FIND_COORDINATOR, "coordinator_keys", MOST_NAMED),
    "protocols of a member": _named(
        ApiKey.JOIN_GROUP, "protocols", "name", group_id="g", session_timeout_ms=10_000, protocol_type="consumer"
    ),
    "members that leave": _named(ApiKey.LEAVE_GROUP, "members", "member_id", group_id="g"),
    "assignments": _named(
        ApiKey.SYNC_GROUP,
        "assignments",
        "member_id",
        most=MOST_NAMED,
        group_id="g",
        protocol_type="t",
        protocol_name="p",
    ),
    "groups to describe": _texts(ApiKey.DESCRIBE_GROUPS, "groups", MOST_NAMED),
    "states of groups": _short_texts(ApiKey.LIST_GROUPS, "states_filter"),
    "new topics of no size": _named(ApiKey.CREATE_TOPICS, "topics", "name", row={"num_partitions": 0}),
    "new topics to check": _named(ApiKey.CREATE_TOPICS, "topics", "name", row=_NEW_TOPIC, validate_only=True),
    "entries of access lists": _named(ApiKey.CREATE_ACLS, "creations", "resource_name", row=_ENTRY),
    "filters of access lists": _named(ApiKey.DELETE_ACLS, "filters", "resource_name_filter", row=_ENTRY_FILTER),
    "users to describe": _named(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, "users", "name"),
    "users to make": _named(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, "upsertions", "name", row=_NEW_USER),
    "topics to delete": _named(ApiKey.DELETE_TOPICS, "topics", "name", timeout_ms=60_000),
    "records to delete": _partitions(ApiKey.DELETE_RECORDS, row={"offset": 0}),
    "ends of epochs": _partitions(ApiKey.OFFSET_FOR_LEADER_EPOCH, name="topic", number="partition"),
    "configs of groups": _named(
        ApiKey.DESCRIBE_CONFIGS, "resources", "resource_name", row={"resource_type": _GROUP, "configuration_keys": None}
    ),
    "configs to set": _named(ApiKey.ALTER_CONFIGS, "resources", "resource_name", row={"resource_type": _GROUP}),
    "configs of topics to set": _named(
        ApiKey.ALTER_CONFIGS, "resources", "resource_name", row={"resource_type": _TOPIC}
    ),
    "configs to change": _named(
        ApiKey.INCREMENTAL_ALTER_CONFIGS, "resources", "resource_name", row={"resource_type": _GROUP}
    ),
    "quotas to set": _worst(ApiKey.ALTER_CLIENT_QUOTAS, _quotas_to_set, _rows_of(ApiKey.ALTER_CLIENT_QUOTAS) // 3),
    "quotas to look up": _worst(ApiKey.DESCRIBE_CLIENT_QUOTAS, _quotas_to_look_up, MOST_ROWS),
    "partitions on the disk": _numbers(ApiKey.DESCRIBE_LOG_DIRS, "topics", "topic", "partitions", _VALUES),
    "topics to grow": _named(
        ApiKey.CREATE_PARTITIONS, "topics", "name", row={"count": 3, "assignments": None}, timeout_ms=60_000
    ),
    "partitions of a transaction": _numbers(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        "v3_and_below_topics",
        "name",
        "partitions",
        MOST_PARTITIONS,
        version=3,
        v3_and_below_transactional_id="x",
    ),
    "offsets of a transaction": _partitions(
        ApiKey.TXN_OFFSET_COMMIT, most=MOST_PARTITIONS, group_id="g", transactional_id="x"
    ),
    "markers": _worst(ApiKey.WRITE_TXN_MARKERS, _markers, MOST_LED),
    "partitions with producers": _numbers(
        ApiKey.DESCRIBE_PRODUCERS, "topics", "name", "partition_indexes", MOST_PARTITIONS
    ),
    "transactions to describe": _texts(ApiKey.DESCRIBE_TRANSACTIONS, "transactional_ids", MOST_NAMED),
    "states of transactions": _short_texts(ApiKey.LIST_TRANSACTIONS, "state_filters"),
    "groups to delete": _texts(ApiKey.DELETE_GROUPS, "groups_names", MOST_NAMED),
    "partitions to elect": _numbers(ApiKey.ELECT_LEADERS, "topic_partitions", "topic", "partitions", MOST_LED),
    "partitions to move": _partitions(ApiKey.ALTER_PARTITION_REASSIGNMENTS, row={"replicas": None}),
    "partitions that move": _numbers(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, "topics", "name", "partition_indexes", _VALUES
    ),
    "offsets to delete": _partitions(ApiKey.OFFSET_DELETE, most=MOST_PARTITIONS, group_id="g"),
    "quorums": _partitions(ApiKey.DESCRIBE_QUORUM, name="topic_name"),
    "topics that a member reads": _worst(ApiKey.CONSUMER_GROUP_HEARTBEAT, _heartbeat, _LONG_NAMES, step=200),
    "assignors of a member": _worst(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, _assignors, MOST_ROWS_OF[ApiKey.CONSUMER_GROUP_HEARTBEAT]
    ),
    "owners that a member gives": _worst(
        PrivateApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT,
        lambda count: request_class(PrivateApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT)(owners=list(range(count))),
        _VALUES,
    ),
    "members to which one says something": _named(
        PrivateApiKey.CONSUMER_GROUP_INSTALL_ASSIGNMENT, "members", "member_id", group_id="g"
    ),
    "consumer groups to describe": _texts(ApiKey.CONSUMER_GROUP_DESCRIBE, "group_ids", MOST_NAMED),
    "topics to describe": _named(ApiKey.DESCRIBE_TOPIC_PARTITIONS, "topics", "name", response_partition_limit=2_000),
    "types of resources": _worst(
        ApiKey.LIST_CONFIG_RESOURCES,
        lambda count: request_class(ApiKey.LIST_CONFIG_RESOURCES)(resource_types=[2] * count),
        MOST_BYTES_OF[ApiKey.LIST_CONFIG_RESOURCES] - 100,
        step=200,
    ),
}
#: One that has no array: nothing in it grows but texts, which have a length of their own.
WITHOUT_ROWS: Final = frozenset(
    {
        ApiKey.HEARTBEAT,
        ApiKey.ADD_OFFSETS_TO_TXN,
        ApiKey.END_TXN,
        ApiKey.SASL_HANDSHAKE,
        ApiKey.SASL_AUTHENTICATE,
        ApiKey.API_VERSIONS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_ACLS,
    }
)
