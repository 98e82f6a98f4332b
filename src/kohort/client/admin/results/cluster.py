"""Descriptions of a cluster, and the requests for them: brokers, features, quorum, log directories, replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from kohort.base.values import from_row, or_none, value
from kohort.client.admin.results.access import authorized_operations
from kohort.client.arguments import INT32_MAX, to_partition, whole_number
from kohort.client.core.actions import Endpoint
from kohort.errors import ConfigError, ErrorCode, UnknownTopicError
from kohort.ids import TopicPartition, format_topic_id
from kohort.wire.messages import (
    alter_partition_reassignments,
    alter_replica_log_dirs,
    api_versions,
    describe_cluster,
    describe_log_dirs,
    describe_quorum,
    elect_leaders,
    list_partition_reassignments,
    update_features,
)
from kohort.wire.messages.metadata import MetadataResponse

T = TypeVar("T")
#: How long a broker may take for one request, milliseconds.
TIMEOUT_MS: Final = 30_000
METADATA_TOPIC: Final = "__cluster_metadata"
#: Values of `downgrade`, and the upgrade types of UpdateFeatures.
_UPGRADE_TYPES: Final[dict[str | None, int]] = {None: 1, "safe": 2, "unsafe": 3}


@value
class BrokerDescription:
    """One broker; a fenced broker is registered, but leads no partition: it is stopped or not caught up."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@value
class ClusterDescription:
    """A cluster with its brokers, sorted by id.

    `authorized_operations`: the operations that the caller may perform on the cluster, named as in `Acl` ("describe",
    "alter_configs", ...); `None` if they were not asked for.
    """

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]
    authorized_operations: tuple[str, ...] | None = None

    @classmethod
    def of(cls, response: describe_cluster.DescribeClusterResponse) -> ClusterDescription:
        """Build the description of a cluster."""
        brokers = sorted(response.brokers, key=lambda row: row.broker_id)
        return from_row(
            cls,
            response,
            brokers=tuple(from_row(BrokerDescription, row) for row in brokers),
            authorized_operations=authorized_operations(response.cluster_authorized_operations),
        )


@value
class FeatureDescription:
    """One feature: the levels that the broker supports, and the finalized level of the cluster; 0 means disabled."""

    name: str
    min_version: int
    max_version: int
    version_level: int


@value
class FeaturesDescription:
    """Features by name; the epoch grows with every change of a level, -1 means that the broker does not report it."""

    epoch: int
    features: tuple[FeatureDescription, ...]

    @classmethod
    def of(cls, response: api_versions.ApiVersionsResponse) -> FeaturesDescription:
        """Build the description of all features that the broker supports or the cluster has finalized."""
        supported = {row.name: (row.min_version, row.max_version) for row in response.supported_features}
        levels = {row.name: row.max_version_level for row in response.finalized_features}
        rows = []
        for name in sorted(supported.keys() | levels.keys()):
            first, last = supported.get(name, (0, 0))
            rows.append(
                FeatureDescription(name=name, min_version=first, max_version=last, version_level=levels.get(name, 0))
            )
        return cls(epoch=response.finalized_features_epoch, features=tuple(rows))


@value
class QuorumReplica:
    """One voter or observer of the metadata quorum.

    `lag`: number of records behind the leader. Times are milliseconds since 1970, `None` if unknown. `directory_id` is
    in Kafka's base64 form.
    """

    replica_id: int
    directory_id: str
    log_end_offset: int
    lag: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@value
class QuorumDescription:
    """The KRaft quorum of the cluster's metadata: voters, and observers, which replicate without a vote.

    `listeners`: by controller id, "NAME://HOST:PORT"; empty if the cluster does not report them.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    listeners: dict[int, tuple[str, ...]]

    @classmethod
    def of(cls, row: describe_quorum.PartitionDataResponse, nodes: Iterable[describe_quorum.Node]) -> QuorumDescription:
        """Build the description of a quorum; voters and observers are sorted by id."""
        end = next((each.log_end_offset for each in row.current_voters if each.replica_id == row.leader_id), -1)
        return from_row(
            cls,
            row,
            voters=_quorum_replicas(row.current_voters, end),
            observers=_quorum_replicas(row.observers, end),
            listeners={
                node.node_id: tuple(f"{each.name}://{each.host}:{each.port}" for each in node.listeners)
                for node in nodes
            },
        )


@value
class LogDescription:
    """One log in a directory; a future log, the copy of a move, replaces the present one at lag 0 (records)."""

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


@value
class LogDirDescription:
    """One log directory of a broker, with its logs sorted by topic and partition.

    `error`: the reason for which it cannot be used, such as "KAFKA_STORAGE_ERROR"; `None` if it can. `total_bytes` and
    `usable_bytes`: of its volume, `None` if the broker does not report them. A cordoned directory gets no new logs.
    """

    broker_id: int
    path: str
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool
    logs: tuple[LogDescription, ...]


@value
class ReplicaLogDir:
    """The log directory of a replica (`path`), and the one that it is moving to (`future_path`); lags in records.

    `path` is `None` if the broker has no such replica, `future_path` if the replica is not moving.
    """

    topic: str
    partition: int
    broker_id: int
    path: str | None
    offset_lag: int
    future_path: str | None
    future_offset_lag: int


@value
class LeaderElection:
    """The result of an election in one partition; `is_elected` is false if none was needed."""

    topic: str
    partition: int
    is_elected: bool


@value
class PartitionReassignment:
    """A reassignment in progress: ids of the brokers with a replica, of those to be added, and to be removed."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class TopicPartitionReplica(NamedTuple):
    """The replica of a partition on one broker."""

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at broker {self.broker_id}"


def to_replica(value: object) -> TopicPartitionReplica:
    """Check a replica, given as (topic, partition, broker id)."""
    if isinstance(value, str | bytes) or not isinstance(value, tuple) or len(value) != 3:
        raise TypeError(f"{value!r} is no replica: topic, partition and broker are expected, like ('orders', 0, 1)")
    topic, partition = to_partition(value[:2])
    return TopicPartitionReplica(topic, partition, to_broker(value[2]))


def to_broker(value: object) -> int:
    """Check the id of a broker."""
    return whole_number(value, "a broker", "its id, 0 or above,", INT32_MAX)


def features_request(
    levels: object, *, downgrade: object, validate_only: bool
) -> update_features.UpdateFeaturesRequest:
    """Check features and their new levels, and build the request for them."""
    if not isinstance(levels, Mapping) or not all(isinstance(name, str) for name in levels):
        raise TypeError(f"levels cannot be {levels!r}: a mapping is expected, like {{'group.version': 1}}")
    if downgrade is not None and (not isinstance(downgrade, str) or downgrade not in _UPGRADE_TYPES):
        raise ConfigError(f"downgrade cannot be {downgrade!r}: 'safe' loses nothing, 'unsafe' may lose metadata")
    updates = [
        update_features.FeatureUpdateKey(
            feature=name,
            max_version_level=whole_number(level, f"the level of {name}", "a whole number, 0 is off,", 32767),
            upgrade_type=_UPGRADE_TYPES[downgrade],
        )
        for name, level in sorted(levels.items())
    ]
    return update_features.UpdateFeaturesRequest(
        timeout_ms=TIMEOUT_MS, feature_updates=updates, validate_only=validate_only
    )


def quorum_request() -> describe_quorum.DescribeQuorumRequest:
    """Ask for the only partition of the metadata."""
    topic = describe_quorum.TopicData(topic_name=METADATA_TOPIC, partitions=[describe_quorum.PartitionData()])
    return describe_quorum.DescribeQuorumRequest(topics=[topic])


def _quorum_replicas(rows: Iterable[describe_quorum.ReplicaState], end: int) -> tuple[QuorumReplica, ...]:
    return tuple(
        from_row(
            QuorumReplica,
            row,
            directory_id=format_topic_id(row.replica_directory_id),
            lag=max(0, end - row.log_end_offset),
            last_fetch_ms=or_none(row.last_fetch_timestamp),
            last_caught_up_ms=or_none(row.last_caught_up_timestamp),
        )
        for row in sorted(rows, key=lambda row: row.replica_id)
    )


def log_dirs_request(partitions: Iterable[TopicPartition] | None) -> describe_log_dirs.DescribeLogDirsRequest:
    """Ask for the logs of partitions, or for all."""
    topics = _rows(
        partitions, lambda name, numbers: describe_log_dirs.DescribableLogDirTopic(topic=name, partitions=numbers)
    )
    return describe_log_dirs.DescribeLogDirsRequest(topics=topics)


def log_dirs(broker_id: int, response: describe_log_dirs.DescribeLogDirsResponse) -> list[LogDirDescription]:
    """Describe the directories of one broker by their paths."""
    return [
        from_row(
            LogDirDescription,
            row,
            broker_id=broker_id,
            path=row.log_dir,
            error=ErrorCode.of(row.error_code).name if row.error_code else None,
            total_bytes=or_none(row.total_bytes),
            usable_bytes=or_none(row.usable_bytes),
            logs=tuple(
                from_row(
                    LogDescription,
                    each,
                    topic=topic.name,
                    partition=each.partition_index,
                    size_bytes=each.partition_size,
                    is_future=each.is_future_key,
                )
                for topic in sorted(row.topics, key=lambda topic: topic.name)
                for each in sorted(topic.partitions, key=lambda each: each.partition_index)
            ),
        )
        for row in sorted(response.results, key=lambda row: row.log_dir)
    ]


def replica_log_dirs(
    replicas: Iterable[TopicPartitionReplica], found: Iterable[LogDirDescription]
) -> list[ReplicaLogDir]:
    """Find the log directory of each replica, in the given order."""
    logs = {
        (TopicPartitionReplica(log.topic, log.partition, row.broker_id), log.is_future): (row.path, log.offset_lag)
        for row in found
        for log in row.logs
    }
    rows = []
    for each in replicas:
        path, lag = logs.get((each, False), (None, -1))
        future, future_lag = logs.get((each, True), (None, -1))
        rows.append(
            ReplicaLogDir(**each._asdict(), path=path, offset_lag=lag, future_path=future, future_offset_lag=future_lag)
        )
    return rows


def move_request(paths: Mapping[TopicPartitionReplica, str]) -> alter_replica_log_dirs.AlterReplicaLogDirsRequest:
    """Build the request that moves replicas of one broker to other log directories."""
    dirs: dict[str, list[TopicPartition]] = {}
    for each, path in paths.items():
        dirs.setdefault(path, []).append(TopicPartition(each.topic, each.partition))
    return alter_replica_log_dirs.AlterReplicaLogDirsRequest(
        dirs=[
            alter_replica_log_dirs.AlterReplicaLogDir(
                path=path,
                topics=[
                    alter_replica_log_dirs.AlterReplicaLogDirTopic(name=name, partitions=numbers)
                    for name, numbers in by_topic(partitions).items()
                ],
            )
            for path, partitions in sorted(dirs.items())
        ]
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Return topic -> its partitions, both ascending."""
    found: dict[str, list[int]] = {}
    for name, number in sorted(set(partitions)):
        found.setdefault(name, []).append(number)
    return found


def _rows(partitions: Iterable[TopicPartition] | None, build: Callable[[str, list[int]], T]) -> list[T] | None:
    """Build a row for each topic; return `None`, which means all topics, unchanged."""
    return None if partitions is None else [build(name, numbers) for name, numbers in by_topic(partitions).items()]


def to_reassignments(given: object) -> dict[TopicPartition, tuple[int, ...] | None]:
    """Check the broker ids of each partition, the preferred leader first; `None` cancels its reassignment."""
    if not isinstance(given, Mapping):
        raise TypeError(
            f"replicas cannot be {given!r}: a mapping is expected, like {{TopicPartition('orders', 0): [1, 2]}}"
        )
    return {to_partition(partition): _to_brokers(partition, brokers) for partition, brokers in given.items()}


def _to_brokers(partition: object, brokers: object) -> tuple[int, ...] | None:
    if brokers is None:
        return None
    if isinstance(brokers, str | bytes) or not isinstance(brokers, Iterable):
        raise TypeError(f"the brokers of {partition} cannot be {brokers!r}: a list of ids is expected, like [1, 2]")
    found = tuple(to_broker(each) for each in brokers)
    if not found or len(set(found)) < len(found):
        raise ConfigError(f"the brokers of {partition} cannot be {list(found)}: one or more are expected, none twice")
    return found


def elect_request(partitions: Iterable[TopicPartition] | None, *, unclean: bool) -> elect_leaders.ElectLeadersRequest:
    """Build the request that elects the leaders of some partitions, or of all."""
    chosen = _rows(partitions, lambda name, numbers: elect_leaders.TopicPartitions(topic=name, partitions=numbers))
    return elect_leaders.ElectLeadersRequest(election_type=int(unclean), topic_partitions=chosen, timeout_ms=TIMEOUT_MS)


def reassign_request(
    wanted: Mapping[TopicPartition, Sequence[int] | None], *, allow_replication_factor_change: bool
) -> alter_partition_reassignments.AlterPartitionReassignmentsRequest:
    """Build the request that reassigns partitions to brokers."""
    topics: dict[str, alter_partition_reassignments.ReassignableTopic] = {}
    for (name, number), brokers in sorted(wanted.items()):
        row = alter_partition_reassignments.ReassignablePartition(
            partition_index=number, replicas=None if brokers is None else list(brokers)
        )
        topics.setdefault(name, alter_partition_reassignments.ReassignableTopic(name=name)).partitions.append(row)
    return alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS,
        allow_replication_factor_change=allow_replication_factor_change,
        topics=list(topics.values()),
    )


def list_request(
    partitions: Iterable[TopicPartition] | None,
) -> list_partition_reassignments.ListPartitionReassignmentsRequest:
    """Ask for the reassignments of some partitions, or of all."""
    chosen = _rows(
        partitions,
        lambda name, numbers: list_partition_reassignments.ListPartitionReassignmentsTopics(
            name=name, partition_indexes=numbers
        ),
    )
    return list_partition_reassignments.ListPartitionReassignmentsRequest(timeout_ms=TIMEOUT_MS, topics=chosen)


def reassignments(
    response: list_partition_reassignments.ListPartitionReassignmentsResponse,
) -> list[PartitionReassignment]:
    """Read reassignments, by topic and partition."""
    return [
        PartitionReassignment(
            topic=topic.name,
            partition=row.partition_index,
            replicas=tuple(row.replicas),
            adding=tuple(row.adding_replicas),
            removing=tuple(row.removing_replicas),
        )
        for topic in sorted(response.topics, key=lambda topic: topic.name)
        for row in sorted(topic.partitions, key=lambda row: row.partition_index)
    ]


def check_partitions(partitions: Iterable[TopicPartition], metadata: MetadataResponse) -> None:
    """Raise `UnknownTopicError` for the first partition that its topic lacks; topics are checked already."""
    counts = {topic.name: len(topic.partitions) for topic in metadata.topics}
    for each in sorted(set(partitions)):
        if each.partition >= counts.get(each.topic, 0):
            raise UnknownTopicError(each.topic, each.partition, counts.get(each.topic, 0))


def leaders_of(metadata: MetadataResponse) -> dict[TopicPartition, Endpoint | None]:
    """Return the address of each partition's leader; `None` for a partition without one."""
    brokers = {broker.node_id: Endpoint(broker.host, broker.port) for broker in metadata.brokers}
    return {
        TopicPartition(topic.name or "", row.partition_index): brokers.get(row.leader_id)
        for topic in metadata.topics
        for row in topic.partitions
    }


def by_leader(
    partitions: Iterable[TopicPartition], metadata: MetadataResponse
) -> dict[Endpoint | None, list[TopicPartition]]:
    """Return the partitions of each leader, by its address; `None` has the partitions without a leader."""
    leaders = leaders_of(metadata)
    found: dict[Endpoint | None, list[TopicPartition]] = {}
    for each in sorted(set(partitions)):
        found.setdefault(leaders.get(each), []).append(each)
    return found
