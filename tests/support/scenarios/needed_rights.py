"""Requests of every API that ask for all the rights that it needs, and rights that a test decides on and that remember.

The requests name two topics, "seen" and "hidden", and two groups of those names; the group "seen" reads both topics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any, Final

from kohort.broker.access.rights import Rights
from kohort.broker.context import BrokerContext
from kohort.ids import OFFSETS_TOPIC
from kohort.records.batch import build_batch
from kohort.security.access_control import CLUSTER_NAME, AclOperation, ResourceType
from kohort.wire.messages.consumer_group_heartbeat import ClientAssignor
from kohort.wire.private import SOFTWARE_NAME, PrivateApiKey
from kohort.wire.registry import UNSERVED, AnyApiKey, ApiKey, versions_of
from support.dialogues.broker_wire import batch_of, make, produce_request
from support.dialogues.wired_connection import WiredConnection

SEEN: Final = "seen"
HIDDEN: Final = "hidden"
#: The topics of the requests.
TOPICS: Final = (SEEN, HIDDEN)
#: A transactional id with an open transaction in both topics.
OPEN: Final = "open"
_NUMBERS: Final = count()
#: An operation, a type of resource, and its name.
Question = tuple[AclOperation, ResourceType, str]
#: The name of `allows_any`.
ANY: Final = "*"


class TestedRights(Rights):
    """The rights that a test gives; it can ask which were asked for."""

    __test__ = False
    is_restricted = True

    def __init__(self, allows: Callable[[AclOperation, ResourceType, str], bool]) -> None:
        self.decide = allows
        self.asked: list[Question] = []
        self.number = 0

    @property
    def edition(self) -> int:
        return self.number

    def allows(self, operation: AclOperation, resource: ResourceType, name: str = CLUSTER_NAME) -> bool:
        self.asked.append((operation, resource, name))
        return self.decide(operation, resource, name)

    def allows_any(self, operation: AclOperation, resource: ResourceType) -> bool:
        self.asked.append((operation, resource, ANY))
        return self.decide(operation, resource, ANY)

    def operations(self, resource: ResourceType, name: str = CLUSTER_NAME) -> int:
        found = (1 << operation for operation in AclOperation if self.decide(operation, resource, name))
        return sum(found) & super().operations(resource, name)


def requests_of(key: AnyApiKey, ids: dict[str, bytes]) -> Iterator[tuple[int, Any]]:
    """Requests of an API with their versions; `ids`: those of the topics."""
    first, last = versions_of(key)
    for version in sorted({first, last, *_BETWEEN.get(key, ())}):
        for message in _REQUESTS[key](version, ids):
            yield version, message


def has_requests(key: AnyApiKey) -> bool:
    """Whether there are requests of an API."""
    return key in _REQUESTS


#: Versions with another form than the first and the last.
_BETWEEN: Final[dict[int, tuple[int, ...]]] = {
    ApiKey.METADATA: (8, 12),
    ApiKey.OFFSET_FETCH: (2, 8),
    ApiKey.DESCRIBE_LOG_DIRS: (3,),
    ApiKey.FETCH: (12,),
    ApiKey.PRODUCE: (12,),
    ApiKey.ADD_PARTITIONS_TO_TXN: (3,),
}


def _rows(name: str, ids: dict[str, bytes], *, by_id: bool, **values: Any) -> list[dict[str, Any]]:
    """One row for each topic, by name or by id."""
    return [({"topic_id": ids[each]} if by_id else {name: each}) | values for each in TOPICS]


def _produce(version: int, ids: dict[str, bytes]) -> Iterator[Any]:
    data = [{"index": 0, "records": batch_of(b"x")}]
    rows = _rows("name", ids, by_id=version >= 13, partition_data=data)
    yield make(ApiKey.PRODUCE, acks=-1, timeout_ms=1_000, topic_data=rows)
    of_transaction = build_batch([(None, b"x", 0, ())], producer_id=1, producer_epoch=0, is_transactional=True)
    rows = _rows("name", ids, by_id=version >= 13, partition_data=[{"index": 0, "records": of_transaction}])
    yield make(ApiKey.PRODUCE, transactional_id=SEEN, acks=-1, timeout_ms=1_000, topic_data=rows)


def _fetch(version: int, ids: dict[str, bytes]) -> Iterator[Any]:
    rows = _rows(
        "topic",
        ids,
        by_id=version >= 13,
        partitions=[{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000}],
    )
    yield make(ApiKey.FETCH, max_wait_ms=0, min_bytes=1, max_bytes=1_000, session_epoch=-1, topics=rows)
    replica = make(ApiKey.FETCH, max_wait_ms=0, min_bytes=1, max_bytes=1_000, session_epoch=-1, topics=rows)
    if version < 15:
        replica.replica_id = 0
    else:
        replica.replica_state.replica_id = 0
    yield replica
    if version >= 12:
        from kohort.wire.messages.membership import KnownMembership

        known = make(ApiKey.FETCH, max_wait_ms=0, min_bytes=1, max_bytes=1_000, session_epoch=-1, topics=rows)
        known.member = KnownMembership(group_id=SEEN, member_id="m", member_epoch=1, topic_partitions=[])
        yield known


def _metadata(version: int, ids: dict[str, bytes]) -> Iterator[Any]:
    operations: dict[str, Any] = {"include_topic_authorized_operations": True} if version >= 8 else {}
    if 8 <= version <= 10:
        operations["include_cluster_authorized_operations"] = True
    # Each request names a topic that no earlier one has made.
    names: list[dict[str, Any]] = [{"name": each} for each in (*TOPICS, f"new{next(_NUMBERS)}")]
    may_create = {"allow_auto_topic_creation": True} if version >= 4 else {}
    yield make(ApiKey.METADATA, topics=[] if version == 0 else None, **operations, **may_create)
    yield make(ApiKey.METADATA, topics=names, **operations, **may_create)
    if version >= 12:
        yield make(ApiKey.METADATA, topics=[{"topic_id": ids[each], "name": None} for each in TOPICS], **may_create)


def _offset_commit(version: int, ids: dict[str, bytes]) -> Iterator[Any]:
    partitions = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
    rows = _rows("name", ids, by_id=version >= 10, partitions=partitions)
    yield make(ApiKey.OFFSET_COMMIT, group_id="offsets", topics=rows)


def _offset_fetch(version: int, ids: dict[str, bytes]) -> Iterator[Any]:
    rows = _rows("name", ids, by_id=version >= 10, partition_indexes=[0])
    if version < 8:
        yield make(ApiKey.OFFSET_FETCH, group_id=SEEN, topics=rows)
        if version >= 2:
            yield make(ApiKey.OFFSET_FETCH, group_id=SEEN, topics=None)
        return
    groups = [{"group_id": each, "topics": rows} for each in (SEEN, HIDDEN)]
    yield make(ApiKey.OFFSET_FETCH, groups=[*groups, {"group_id": "all", "topics": None}])


def _find_coordinator(version: int, _: dict[str, bytes]) -> Iterator[Any]:
    if version >= 1:
        named: dict[str, Any] = {"coordinator_keys": [SEEN]} if version >= 4 else {"key": SEEN}
        yield make(ApiKey.FIND_COORDINATOR, key_type=1, **named)
    if version >= 4:
        yield make(ApiKey.FIND_COORDINATOR, coordinator_keys=[SEEN, HIDDEN])
    else:
        yield make(ApiKey.FIND_COORDINATOR, key=HIDDEN)


def _group_history(version: int, _: dict[str, bytes]) -> Iterator[Any]:
    yield make(_OWN.GROUP_HISTORY, group_id=SEEN, after_sequence=0)
    if version >= 2:
        yield make(_OWN.GROUP_HISTORY, group_id="", transactional_id=SEEN, after_sequence=0)


def _join(version: int, _: dict[str, bytes]) -> Iterator[Any]:
    more: dict[str, Any] = {"rebalance_timeout_ms": 10_000} if version >= 1 else {}
    yield make(
        ApiKey.JOIN_GROUP, group_id="classic", session_timeout_ms=10_000, member_id="nobody", protocol_type="consumer",
        protocols=[{"name": "range", "metadata": b""}], **more,
    )  # fmt: skip


def _sync(version: int, _: dict[str, bytes]) -> Iterator[Any]:
    more: dict[str, Any] = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
    yield make(ApiKey.SYNC_GROUP, group_id=SEEN, generation_id=1, member_id="nobody", assignments=[], **more)


def _heartbeat(_: int, __: dict[str, bytes]) -> Iterator[Any]:
    yield make(ApiKey.HEARTBEAT, group_id=SEEN, generation_id=1, member_id="nobody")


def _leave(version: int, _: dict[str, bytes]) -> Iterator[Any]:
    who: dict[str, Any] = {"members": [{"member_id": "nobody"}]} if version >= 3 else {"member_id": "nobody"}
    yield make(ApiKey.LEAVE_GROUP, group_id=SEEN, **who)


def _describe_groups(version: int, _: dict[str, bytes]) -> Iterator[Any]:
    more = {"include_authorized_operations": True} if version >= 3 else {}
    yield make(ApiKey.DESCRIBE_GROUPS, groups=[SEEN, HIDDEN], **more)


def _create_topics(_: int, __: dict[str, bytes]) -> Iterator[Any]:
    rows = [{"name": each, "num_partitions": 1, "replication_factor": 1} for each in (SEEN, HIDDEN, "made")]
    yield make(ApiKey.CREATE_TOPICS, topics=rows, timeout_ms=1_000, validate_only=True)


def _delete_topics(version: int, ids: dict[str, bytes]) -> Iterator[Any]:
    # The one that is there is the broker's own, which nobody deletes, whatever the rights.
    names = ["missing", "gone", OFFSETS_TOPIC]
    if version >= 6:
        yield make(ApiKey.DELETE_TOPICS, topics=[{"name": each} for each in names], timeout_ms=1_000)
    else:
        yield make(ApiKey.DELETE_TOPICS, topic_names=names, timeout_ms=1_000)


def _delete_records(_: int, __: dict[str, bytes]) -> Iterator[Any]:
    rows = [{"name": each, "partitions": [{"partition_index": 0, "offset": 0}]} for each in TOPICS]
    yield make(ApiKey.DELETE_RECORDS, topics=rows, timeout_ms=1_000)


def _list_offsets(_: int, __: dict[str, bytes]) -> Iterator[Any]:
    rows = [{"name": each, "partitions": [{"partition_index": 0, "timestamp": -1}]} for each in TOPICS]
    yield make(ApiKey.LIST_OFFSETS, replica_id=-1, topics=rows)


def _leader_epoch(_: int, __: dict[str, bytes]) -> Iterator[Any]:
    rows = [{"topic": each, "partitions": [{"partition": 0, "leader_epoch": 0}]} for each in TOPICS]
    yield make(ApiKey.OFFSET_FOR_LEADER_EPOCH, topics=rows)


#: Kafka's numbers of the kinds of resources with configs.
_TOPIC, _BROKER, _GROUP = 2, 4, 32


def _resources(**values: Any) -> list[dict[str, Any]]:
    named = [(_TOPIC, SEEN), (_TOPIC, HIDDEN), (_GROUP, SEEN), (_GROUP, HIDDEN), (_BROKER, "")]
    return [{"resource_type": kind, "resource_name": name, **values} for kind, name in named]


def _describe_configs(_: int, __: dict[str, bytes]) -> Iterator[Any]:
    yield make(ApiKey.DESCRIBE_CONFIGS, resources=_resources(configuration_keys=None))


def _alter_configs(_: int, __: dict[str, bytes]) -> Iterator[Any]:
    yield make(ApiKey.ALTER_CONFIGS, resources=_resources(configs=[]), validate_only=True)


def _incremental(_: int, __: dict[str, bytes]) -> Iterator[Any]:
    yield make(ApiKey.INCREMENTAL_ALTER_CONFIGS, resources=_resources(configs=[]), validate_only=True)


def _create_partitions(_: int, __: dict[str, bytes]) -> Iterator[Any]:
    rows = [{"name": each, "count": 9, "assignments": None} for each in TOPICS]
    yield make(ApiKey.CREATE_PARTITIONS, topics=rows, timeout_ms=1_000, validate_only=True)


def _elect(version: int, _: dict[str, bytes]) -> Iterator[Any]:
    rows = [{"topic": each, "partitions": [0]} for each in TOPICS]
    yield make(ApiKey.ELECT_LEADERS, topic_partitions=rows, timeout_ms=1_000)


def _reassign(_: int, __: dict[str, bytes]) -> Iterator[Any]:
    rows = [{"name": each, "partitions": [{"partition_index": 0, "replicas": None}]} for each in TOPICS]
    yield make(ApiKey.ALTER_PARTITION_REASSIGNMENTS, topics=rows)


def _offset_delete(_: int, __: dict[str, bytes]) -> Iterator[Any]:
    rows = [{"name": each, "partitions": [{"partition_index": 0}]} for each in TOPICS]
    yield make(ApiKey.OFFSET_DELETE, group_id="offsets", topics=rows)


def _quorum(_: int, __: dict[str, bytes]) -> Iterator[Any]:
    rows = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    yield make(ApiKey.DESCRIBE_QUORUM, topics=rows)


def _member(_: int, __: dict[str, bytes]) -> Iterator[Any]:
    yield make(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, group_id="joined", member_id="m", member_epoch=0, rebalance_timeout_ms=10_000,
        subscribed_topic_names=[SEEN, HIDDEN], topic_partitions=[],
    )  # fmt: skip


_PRODUCER: Final[dict[str, Any]] = {"transactional_id": SEEN, "producer_id": 1, "producer_epoch": 0}


def _init_producer_id(_: int, __: dict[str, bytes]) -> Iterator[Any]:
    for transactional_id in (None, SEEN):
        yield make(ApiKey.INIT_PRODUCER_ID, transactional_id=transactional_id, transaction_timeout_ms=1_000)


def _add_partitions(version: int, _: dict[str, bytes]) -> Iterator[Any]:
    topics = [{"name": each, "partitions": [0]} for each in TOPICS]
    if version >= 4:
        yield make(ApiKey.ADD_PARTITIONS_TO_TXN, transactions=[_PRODUCER | {"verify_only": True, "topics": topics}])
    else:
        former = {f"v3_and_below_{name}": value for name, value in (_PRODUCER | {"topics": topics}).items()}
        yield make(ApiKey.ADD_PARTITIONS_TO_TXN, **former)


def _txn_offset_commit(_: int, __: dict[str, bytes]) -> Iterator[Any]:
    partitions = [{"partition_index": 0, "committed_offset": 0, "committed_metadata": ""}]
    rows = [{"name": each, "partitions": partitions} for each in TOPICS]
    yield make(ApiKey.TXN_OFFSET_COMMIT, group_id="offsets", topics=rows, **_PRODUCER)


def _describe_transactions(_: int, __: dict[str, bytes]) -> Iterator[Any]:
    yield make(ApiKey.DESCRIBE_TRANSACTIONS, transactional_ids=[OPEN])


def _one(key: AnyApiKey, **values: Any) -> Callable[[int, dict[str, bytes]], Iterator[Any]]:
    return lambda _, __: iter([make(key, **values)])


_OWN = PrivateApiKey
#: API -> a function of the version and the topics' ids.
_REQUESTS: Final[dict[AnyApiKey, Callable[[int, dict[str, bytes]], Iterator[Any]]]] = {
    ApiKey.PRODUCE: _produce,
    ApiKey.FETCH: _fetch,
    ApiKey.LIST_OFFSETS: _list_offsets,
    ApiKey.METADATA: _metadata,
    ApiKey.OFFSET_COMMIT: _offset_commit,
    ApiKey.OFFSET_FETCH: _offset_fetch,
    ApiKey.FIND_COORDINATOR: _find_coordinator,
    ApiKey.JOIN_GROUP: _join,
    ApiKey.HEARTBEAT: _heartbeat,
    ApiKey.LEAVE_GROUP: _leave,
    ApiKey.SYNC_GROUP: _sync,
    ApiKey.DESCRIBE_GROUPS: _describe_groups,
    ApiKey.LIST_GROUPS: _one(ApiKey.LIST_GROUPS),
    ApiKey.SASL_HANDSHAKE: _one(ApiKey.SASL_HANDSHAKE, mechanism="PLAIN"),
    ApiKey.SASL_AUTHENTICATE: _one(ApiKey.SASL_AUTHENTICATE, auth_bytes=b""),
    ApiKey.API_VERSIONS: _one(ApiKey.API_VERSIONS, client_software_name=SOFTWARE_NAME, client_software_version="1"),
    ApiKey.CREATE_TOPICS: _create_topics,
    ApiKey.DELETE_TOPICS: _delete_topics,
    ApiKey.DELETE_RECORDS: _delete_records,
    ApiKey.INIT_PRODUCER_ID: _init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: _add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: _one(ApiKey.ADD_OFFSETS_TO_TXN, group_id=SEEN, **_PRODUCER),
    ApiKey.END_TXN: _one(ApiKey.END_TXN, committed=True, **_PRODUCER),
    ApiKey.WRITE_TXN_MARKERS: _one(
        ApiKey.WRITE_TXN_MARKERS,
        markers=[{"producer_id": 1, "topics": [{"name": each, "partition_indexes": [9]} for each in TOPICS]}],
    ),
    ApiKey.TXN_OFFSET_COMMIT: _txn_offset_commit,
    ApiKey.DESCRIBE_PRODUCERS: _one(
        ApiKey.DESCRIBE_PRODUCERS, topics=[{"name": each, "partition_indexes": [0]} for each in TOPICS]
    ),
    ApiKey.DESCRIBE_TRANSACTIONS: _describe_transactions,
    ApiKey.LIST_TRANSACTIONS: _one(ApiKey.LIST_TRANSACTIONS),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _leader_epoch,
    ApiKey.DESCRIBE_CONFIGS: _describe_configs,
    ApiKey.ALTER_CONFIGS: _alter_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _incremental,
    ApiKey.DESCRIBE_LOG_DIRS: _one(ApiKey.DESCRIBE_LOG_DIRS, topics=None),
    ApiKey.CREATE_PARTITIONS: _create_partitions,
    ApiKey.DELETE_GROUPS: _one(ApiKey.DELETE_GROUPS, groups_names=["missing", "gone"]),
    ApiKey.ELECT_LEADERS: _elect,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _reassign,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _one(
        ApiKey.LIST_PARTITION_REASSIGNMENTS, topics=[{"name": SEEN, "partition_indexes": [0]}]
    ),
    ApiKey.OFFSET_DELETE: _offset_delete,
    ApiKey.DESCRIBE_QUORUM: _quorum,
    ApiKey.DESCRIBE_CLUSTER: _one(ApiKey.DESCRIBE_CLUSTER, include_cluster_authorized_operations=True),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _member,
    ApiKey.CONSUMER_GROUP_DESCRIBE: _one(
        ApiKey.CONSUMER_GROUP_DESCRIBE, group_ids=[SEEN, HIDDEN], include_authorized_operations=True
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _one(ApiKey.LIST_CONFIG_RESOURCES),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: lambda _, __: iter(
        [
            make(ApiKey.DESCRIBE_TOPIC_PARTITIONS, topics=[{"name": each} for each in TOPICS]),
            make(ApiKey.DESCRIBE_TOPIC_PARTITIONS, topics=[]),
        ]
    ),
    # Access control, quotas and users. Apache Kafka does not answer a denied client that asks for all users by null.
    ApiKey.DESCRIBE_ACLS: _one(
        ApiKey.DESCRIBE_ACLS, resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
        principal_filter=None, host_filter=None, operation=1, permission_type=1,
    ),
    ApiKey.CREATE_ACLS: _one(ApiKey.CREATE_ACLS, creations=[]),
    ApiKey.DELETE_ACLS: _one(ApiKey.DELETE_ACLS, filters=[]),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _one(ApiKey.DESCRIBE_CLIENT_QUOTAS, components=[], strict=False),
    ApiKey.ALTER_CLIENT_QUOTAS: _one(ApiKey.ALTER_CLIENT_QUOTAS, entries=[], validate_only=True),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _one(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, users=[]),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: _one(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, deletions=[], upsertions=[]),
    _OWN.GROUP_HISTORY: _group_history,
    _OWN.SUBMIT_MOVES: _one(
        _OWN.SUBMIT_MOVES, group_id=SEEN, validate_only=True,
        moves=[{"topic": each, "partition": 0, "to_member_id": "m"} for each in TOPICS],
    ),
    _OWN.DESCRIBE_MOVES: _one(_OWN.DESCRIBE_MOVES, group_id=SEEN),
    _OWN.DESCRIBE_BROKER: _one(_OWN.DESCRIBE_BROKER),
    _OWN.CONSUMER_GROUP_PREPARE_ASSIGNMENT: _one(
        _OWN.CONSUMER_GROUP_PREPARE_ASSIGNMENT, group_id="computing", member_id="c", member_epoch=1
    ),
    _OWN.CONSUMER_GROUP_INSTALL_ASSIGNMENT: _one(
        _OWN.CONSUMER_GROUP_INSTALL_ASSIGNMENT, group_id="computing", member_id="c", member_epoch=1, group_epoch=1
    ),
    _OWN.REVOKE_TOKENS: _one(_OWN.REVOKE_TOKENS, revocations=[]),
    _OWN.DESCRIBE_TOKENS: _one(_OWN.DESCRIBE_TOKENS),
}  # fmt: skip


def served_keys() -> list[AnyApiKey]:
    """Every API that a broker serves, ours as well."""
    return [*(key for key in ApiKey if key not in UNSERVED), *PrivateApiKey]


#: A value that nobody may see: it is in a record of the hidden topic, and a committed offset's metadata.
SECRET: Final = b"nobody-may-see-this"
OFFSET: Final = 4_242


async def prepare(root: WiredConnection) -> dict[str, bytes]:
    """Topics, groups with members, moves and offsets, made by a client that may everything; the topics' ids."""
    rows: list[dict[str, Any]] = [
        {"name": each, "num_partitions": 2, "replication_factor": 1} for each in (SEEN, HIDDEN)
    ]
    made = await root.ask(ApiKey.CREATE_TOPICS, 7, make(ApiKey.CREATE_TOPICS, topics=rows, timeout_ms=1_000))
    for name in (SEEN, HIDDEN):
        await root.ask(ApiKey.PRODUCE, 9, produce_request(name, batch_of(SECRET)))
    for group_id in (SEEN, HIDDEN):
        await _beat(root, group_id, "m")
    # A second member: the first one's partitions begin to move.
    await _beat(root, SEEN, "n")
    mine = ClientAssignor(
        name="mine", minimum_version=0, maximum_version=0, reason=0, metadata_version=0, metadata_bytes=b""
    )
    await _beat(root, "computing", "c", client_assignors=[mine])
    partitions = [{"partition_index": 0, "committed_offset": OFFSET, "committed_metadata": ""}]
    rows = [{"name": each, "partitions": partitions} for each in (SEEN, HIDDEN)]
    for group_id in ("all", "offsets"):
        await root.ask(ApiKey.OFFSET_COMMIT, 9, make(ApiKey.OFFSET_COMMIT, group_id=group_id, topics=rows))
    begun = make(ApiKey.INIT_PRODUCER_ID, transactional_id=OPEN, transaction_timeout_ms=60_000)
    producer = await root.ask(ApiKey.INIT_PRODUCER_ID, 5, begun)
    added = make(
        ApiKey.ADD_PARTITIONS_TO_TXN, v3_and_below_transactional_id=OPEN,
        v3_and_below_producer_id=producer.producer_id, v3_and_below_producer_epoch=producer.producer_epoch,
        v3_and_below_topics=[{"name": each, "partitions": [0]} for each in TOPICS],
    )  # fmt: skip
    await root.ask(ApiKey.ADD_PARTITIONS_TO_TXN, 3, added)
    return {row.name: row.topic_id for row in made.topics}


async def _beat(client: WiredConnection, group_id: str, member_id: str, **fields: Any) -> Any:
    request = make(
        ApiKey.CONSUMER_GROUP_HEARTBEAT, group_id=group_id, member_id=member_id, member_epoch=0,
        rebalance_timeout_ms=60_000, subscribed_topic_names=[SEEN, HIDDEN], topic_partitions=[], **fields,
    )  # fmt: skip
    return await client.ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, request)


def tells(request: Any, answer: bytes) -> bool:
    """Whether an answer has a record, an offset, or the hidden name, which its request has not."""
    is_named = HIDDEN.encode() in answer and HIDDEN not in repr(request)
    return is_named or SECRET in answer or OFFSET.to_bytes(8) in answer


def state_of(context: BrokerContext) -> object:
    """What a client could have changed."""
    root, cluster = context.runtime, context.cluster
    logs = {log.name: (log.log_start_offset, log.log_end_offset) for topic in cluster.topics.values()
            for log in topic.partitions if not topic.is_internal}  # fmt: skip
    groups = [root.group_ids(number) for number in range(root.shard_count)]  # type: ignore[attr-defined]
    internal = {log.name: log.log_end_offset for topic in cluster.topics.values() for log in topic.partitions}
    return set(cluster.topics), logs, groups, internal, context.broker_configs.given
