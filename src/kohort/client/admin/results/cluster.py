"""What the admin client returns of a cluster: brokers, features, the metadata's quorum, log directories."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeVar

from kohort.base.values import from_row
from kohort.client.admin.results.access import authorized_operations
from kohort.client.arguments import INT32_MAX, to_partition, whole_number
from kohort.client.core.actions import Endpoint
from kohort.errors import ConfigError, ErrorCode, UnknownTopicError
from kohort.ids import TopicPartition, format_topic_id
from kohort.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kohort.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from kohort.wire.messages.api_versions import ApiVersionsResponse
from kohort.wire.messages.describe_cluster import DescribeClusterResponse
from kohort.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
)
from kohort.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    PartitionData,
    PartitionDataResponse,
    ReplicaState,
    TopicData,
)
from kohort.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kohort.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from kohort.wire.messages.metadata import MetadataResponse
from kohort.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

T = TypeVar("T")


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

    `authorized_operations`: what the caller may do with the cluster, named as in access control lists ("describe",
    "alter_configs", ...); `None` if that was not asked.
    """

    cluster_id: str
    controller_id: int
    brokers: tuple[BrokerDescription, ...]
    authorized_operations: tuple[str, ...] | None = None


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
    """Who keeps the cluster's metadata: voters, and observers, which only follow.

    `listeners`: of each controller "NAME://HOST:PORT", where the cluster tells it.
    """

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    listeners: dict[int, tuple[str, ...]]


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
    those of its volume, `None` where the broker does not tell. A cordoned directory is given nothing new.
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
    """Where a broker keeps a copy of a partition, and where it is on its way to; lags in records.

    `None` as path: the broker has no copy, or moves none.
    """

    topic: str
    partition: int
    broker_id: int
    path: str | None
    offset_lag: int
    future_path: str | None
    future_offset_lag: int


# Clusters as the admin client asks for them and shows them: features, the metadata's quorum, log directories.

METADATA_TOPIC: Final = "__cluster_metadata"
#: What a change of a feature may do, and its number in UpdateFeatures.
_UPGRADE_TYPES: Final[dict[str | None, int]] = {None: 1, "safe": 2, "unsafe": 3}


class TopicPartitionReplica(NamedTuple):
    """The copy of a partition that one broker has."""

    topic: str
    partition: int
    broker_id: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} at broker {self.broker_id}"


def to_replica(value: object) -> TopicPartitionReplica:
    """A copy of a partition, given as three values."""
    if isinstance(value, str | bytes) or not isinstance(value, tuple) or len(value) != 3:
        raise TypeError(f"{value!r} is no replica: topic, partition and broker are expected, like ('orders', 0, 1)")
    topic, partition = to_partition(value[:2])
    return TopicPartitionReplica(topic, partition, to_broker(value[2]))


def to_broker(value: object) -> int:
    """The id of a broker."""
    return whole_number(value, "a broker", "its id, 0 or above,", INT32_MAX)


def cluster(response: DescribeClusterResponse) -> ClusterDescription:
    """The brokers by their ids."""
    brokers = sorted(response.brokers, key=lambda row: row.broker_id)
    return from_row(
        ClusterDescription,
        response,
        brokers=tuple(from_row(BrokerDescription, row) for row in brokers),
        authorized_operations=authorized_operations(response.cluster_authorized_operations),
    )


def features(response: ApiVersionsResponse) -> FeaturesDescription:
    """Features by name."""
    supported = {row.name: (row.min_version, row.max_version) for row in response.supported_features}
    levels = {row.name: row.max_version_level for row in response.finalized_features}
    rows = [
        FeatureDescription(
            name=name,
            min_version=supported.get(name, (0, 0))[0],
            max_version=supported.get(name, (0, 0))[1],
            version_level=levels.get(name, 0),
        )
        for name in sorted(supported.keys() | levels.keys())
    ]
    return FeaturesDescription(epoch=response.finalized_features_epoch, features=tuple(rows))


def features_request(
    levels: object, *, downgrade: object, validate_only: bool, timeout_ms: int
) -> UpdateFeaturesRequest:
    """Features and their new levels, checked."""
    if not isinstance(levels, Mapping) or not all(isinstance(name, str) for name in levels):
        raise TypeError(f"levels cannot be {levels!r}: a mapping is expected, like {{'group.version': 1}}")
    if downgrade is not None and (not isinstance(downgrade, str) or downgrade not in _UPGRADE_TYPES):
        raise ConfigError(f"downgrade cannot be {downgrade!r}: 'safe' loses nothing, 'unsafe' may lose metadata")
    updates = [
        FeatureUpdateKey(
            feature=name,
            max_version_level=whole_number(level, f"the level of {name}", "a whole number, 0 is off,", 32767),
            upgrade_type=_UPGRADE_TYPES[downgrade],
        )
        for name, level in sorted(levels.items())
    ]
    return UpdateFeaturesRequest(timeout_ms=timeout_ms, feature_updates=updates, validate_only=validate_only)


def quorum_request() -> DescribeQuorumRequest:
    """Asks for the only partition of the metadata."""
    return DescribeQuorumRequest(topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData()])])


def quorum(row: PartitionDataResponse, listeners: dict[int, tuple[str, ...]]) -> QuorumDescription:
    """Voters and observers by their ids."""
    end = next((each.log_end_offset for each in row.current_voters if each.replica_id == row.leader_id), -1)
    return from_row(
        QuorumDescription,
        row,
        voters=_quorum_replicas(row.current_voters, end),
        observers=_quorum_replicas(row.observers, end),
        listeners=listeners,
    )


def _quorum_replicas(rows: Iterable[ReplicaState], end: int) -> tuple[QuorumReplica, ...]:
    return tuple(
        from_row(
            QuorumReplica,
            row,
            directory_id=format_topic_id(row.replica_directory_id),
            lag=max(0, end - row.log_end_offset),
            last_fetch_ms=_known(row.last_fetch_timestamp),
            last_caught_up_ms=_known(row.last_caught_up_timestamp),
        )
        for row in sorted(rows, key=lambda row: row.replica_id)
    )


def log_dirs_request(partitions: Iterable[TopicPartition] | None) -> DescribeLogDirsRequest:
    """Asks for the logs of partitions, or for all."""
    topics = _rows(partitions, lambda name, numbers: DescribableLogDirTopic(topic=name, partitions=numbers))
    return DescribeLogDirsRequest(topics=topics)


def log_dirs(broker_id: int, response: DescribeLogDirsResponse) -> list[LogDirDescription]:
    """The directories of one broker by their paths."""
    return [
        LogDirDescription(
            broker_id=broker_id,
            path=row.log_dir,
            error=ErrorCode.of(row.error_code).name if row.error_code else None,
            total_bytes=_known(row.total_bytes),
            usable_bytes=_known(row.usable_bytes),
            is_cordoned=row.is_cordoned,
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
    """Where each copy is, in the order asked."""
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


def move_request(paths: Mapping[TopicPartitionReplica, str]) -> AlterReplicaLogDirsRequest:
    """Which directories of one broker its copies are to be in."""
    dirs: dict[str, list[TopicPartition]] = {}
    for each, path in paths.items():
        dirs.setdefault(path, []).append(TopicPartition(each.topic, each.partition))
    return AlterReplicaLogDirsRequest(
        dirs=[
            AlterReplicaLogDir(
                path=path,
                topics=[
                    AlterReplicaLogDirTopic(name=name, partitions=numbers)
                    for name, numbers in by_topic(partitions).items()
                ],
            )
            for path, partitions in sorted(dirs.items())
        ]
    )


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Topic -> its partitions, both ascending."""
    found: dict[str, list[int]] = {}
    for name, number in sorted(set(partitions)):
        found.setdefault(name, []).append(number)
    return found


def _rows(partitions: Iterable[TopicPartition] | None, build: Callable[[str, list[int]], T]) -> list[T] | None:
    """Build a row of each topic; `None`, which stands for all topics, stays."""
    return None if partitions is None else [build(name, numbers) for name, numbers in by_topic(partitions).items()]


def _known(number: int) -> int | None:
    return None if number < 0 else number


# What the admin client returns of leaders and copies of partitions.


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderElection:
    """One partition; `is_elected` is false where the right broker led it already."""

    topic: str
    partition: int
    is_elected: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReassignment:
    """One partition on its way: who has a copy of it now, who is to get one, and whose is to go; ids of brokers."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


# Leaders and copies of partitions as the admin client asks for them.


def to_reassignments(given: object) -> dict[TopicPartition, tuple[int, ...] | None]:
    """Partition -> its brokers, the preferred leader first; `None`: it stays where it is."""
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


def elect_request(
    partitions: Iterable[TopicPartition] | None, *, unclean: bool, timeout_ms: int
) -> ElectLeadersRequest:
    """Of some partitions, or of all."""
    chosen = _rows(partitions, lambda name, numbers: TopicPartitions(topic=name, partitions=numbers))
    return ElectLeadersRequest(election_type=int(unclean), topic_partitions=chosen, timeout_ms=timeout_ms)


def reassign_request(
    wanted: Mapping[TopicPartition, Sequence[int] | None], *, allow_replication_factor_change: bool, timeout_ms: int
) -> AlterPartitionReassignmentsRequest:
    """Partitions with their brokers."""
    topics: dict[str, ReassignableTopic] = {}
    for (name, number), brokers in sorted(wanted.items()):
        row = ReassignablePartition(partition_index=number, replicas=None if brokers is None else list(brokers))
        topics.setdefault(name, ReassignableTopic(name=name)).partitions.append(row)
    return AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        allow_replication_factor_change=allow_replication_factor_change,
        topics=list(topics.values()),
    )


def list_request(partitions: Iterable[TopicPartition] | None, *, timeout_ms: int) -> ListPartitionReassignmentsRequest:
    """Of some partitions, or of all."""
    chosen = _rows(
        partitions, lambda name, numbers: ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
    )
    return ListPartitionReassignmentsRequest(timeout_ms=timeout_ms, topics=chosen)


def reassignments(response: ListPartitionReassignmentsResponse) -> list[PartitionReassignment]:
    """By topic and partition."""
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
    """`UnknownTopicError` for the first partition that its topic does not have; topics are checked already."""
    counts = {topic.name: len(topic.partitions) for topic in metadata.topics}
    for each in sorted(set(partitions)):
        if each.partition >= counts.get(each.topic, 0):
            raise UnknownTopicError(each.topic, each.partition, counts.get(each.topic, 0))


def leaders_of(metadata: MetadataResponse) -> dict[TopicPartition, Endpoint | None]:
    """Where the leader of every partition is; `None` for one that has none."""
    brokers = {broker.node_id: Endpoint(broker.host, broker.port) for broker in metadata.brokers}
    return {
        TopicPartition(topic.name or "", row.partition_index): brokers.get(row.leader_id)
        for topic in metadata.topics
        for row in topic.partitions
    }


def by_leader(
    partitions: Iterable[TopicPartition], metadata: MetadataResponse
) -> dict[Endpoint | None, list[TopicPartition]]:
    """Where the leader listens -> what it leads; `None`: those that have no leader now."""
    leaders = leaders_of(metadata)
    found: dict[Endpoint | None, list[TopicPartition]] = {}
    for each in sorted(set(partitions)):
        found.setdefault(leaders.get(each), []).append(each)
    return found
