"""A cluster as the admin client asks for it and shows it: brokers, features, quorum, log directories, replicas."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from kohort.base.values import from_row, or_none
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
#: Kinds of a change of a feature, and their numbers in UpdateFeatures.
_UPGRADE_TYPES: Final[dict[str | None, int]] = {None: 1, "safe": 2, "unsafe": 3}


@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerDescription:
    """One broker; a fenced one is registered, but leads nothing and is not up to date."""

    broker_id: int
    host: str
    port: int
    rack: str | None
    is_fenced: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDescription:
    """The brokers by their ids.

    `authorized_operations`: those that the caller may do with the cluster, named as in access control lists
    ("describe", "alter_configs", ...); `None` if they were not asked for.
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


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureDescription:
    """One feature: the levels that the asked broker could run, and the one that the cluster runs, 0 where it is off."""

    name: str
    min_version: int
    max_version: int
    version_level: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FeaturesDescription:
    """Features by name; the epoch grows with every change of levels, -1 where the broker does not know it."""

    epoch: int
    features: tuple[FeatureDescription, ...]

    @classmethod
    def of(cls, response: api_versions.ApiVersionsResponse) -> FeaturesDescription:
        """Build the description of features, also of those that only one of broker and cluster has."""
        supported = {row.name: (row.min_version, row.max_version) for row in response.supported_features}
        levels = {row.name: row.max_version_level for row in response.finalized_features}
        rows = []
        for name in sorted(supported.keys() | levels.keys()):
            first, last = supported.get(name, (0, 0))
            rows.append(
                FeatureDescription(name=name, min_version=first, max_version=last, version_level=levels.get(name, 0))
            )
        return cls(epoch=response.finalized_features_epoch, features=tuple(rows))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumReplica:
    """One that keeps the cluster's metadata.

    `lag` is how many records it is behind the leader; times are in milliseconds since 1970, `None` where they are not
    known; `directory_id` is in Kafka's base64 form.
    """

    replica_id: int
    directory_id: str
    log_end_offset: int
    lag: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class QuorumDescription:
    """The quorum that keeps the cluster's metadata: voters, and observers, which only follow.

    `listeners`: of each controller "NAME://HOST:PORT", where the cluster tells it.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    listeners: dict[int, tuple[str, ...]]

    @classmethod
    def of(cls, row: describe_quorum.PartitionDataResponse, nodes: Iterable[describe_quorum.Node]) -> QuorumDescription:
        """Build the description of a quorum: voters and observers by their ids."""
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


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDescription:
    """One log in a directory; a future one takes the place of the present one when its lag, in records, is 0."""

    topic: str
    partition: int
    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class LogDirDescription:
    """One directory of a broker with its logs by topic and partition.

    `error`: why it cannot be used, such as "KAFKA_STORAGE_ERROR"; `None`: it can. `total_bytes` and `usable_bytes` are
    those of its volume, `None` where the broker does not tell. A cordoned directory gets no new logs.
    """

    broker_id: int
    path: str
    error: str | None
    total_bytes: int | None
    usable_bytes: int | None
    is_cordoned: bool
    logs: tuple[LogDescription, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaLogDir:
    """The directory in which a broker keeps a copy of a partition, and the one that it moves to; lags in records.

    `None` as path: the broker has no copy, or moves none.
    """

    topic: str
    partition: int
    broker_id: int
    path: str | None
    offset_lag: int
    future_path: str | None
    future_offset_lag: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElection:
    """One partition; `is_elected` is false where the right broker led it already."""

    topic: str
    partition: int
    is_elected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReassignment:
    """One partition on its way: the brokers that have a copy, that get one, and that give one up; by their ids."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class TopicPartitionReplica(NamedTuple):
    """The copy of a partition that one broker has."""

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at broker {self.broker_id}"


def to_replica(value: object) -> TopicPartitionReplica:
    """Check a copy of a partition, given as three values."""
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
    """Find the directory of each copy, in the order asked."""
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
    """Build the request that moves copies of one broker to directories."""
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
    """Build a row of each topic; `None`, which stands for all topics, stays."""
    return None if partitions is None else [build(name, numbers) for name, numbers in by_topic(partitions).items()]


def to_reassignments(given: object) -> dict[TopicPartition, tuple[int, ...] | None]:
    """Check partition -> its brokers, the preferred leader first; `None`: it stays where it is."""
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
    """Build the request that gives partitions to brokers."""
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
    """Return partition -> the address of its leader; `None` for one that has none."""
    brokers = {broker.node_id: Endpoint(broker.host, broker.port) for broker in metadata.brokers}
    return {
        TopicPartition(topic.name or "", row.partition_index): brokers.get(row.leader_id)
        for topic in metadata.topics
        for row in topic.partitions
    }


def by_leader(
    partitions: Iterable[TopicPartition], metadata: MetadataResponse
) -> dict[Endpoint | None, list[TopicPartition]]:
    """Return address of a leader -> its partitions; `None`: those that have no leader now."""
    leaders = leaders_of(metadata)
    found: dict[Endpoint | None, list[TopicPartition]] = {}
    for each in sorted(set(partitions)):
        found.setdefault(leaders.get(each), []).append(each)
    return found
