"""Clusters as the admin client asks for them and shows them: features, the metadata's quorum, log directories."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from kohort.client.admin.requests.access import authorized_operations
from kohort.client.admin.results.cluster import (
    BrokerDescription,
    ClusterDescription,
    FeatureDescription,
    FeaturesDescription,
    LogDescription,
    LogDirDescription,
    QuorumDescription,
    QuorumReplica,
    ReplicaLogDir,
)
from kohort.client.arguments import INT32_MAX, to_partition, whole_number
from kohort.errors import ConfigError, ErrorCode
from kohort.ids import TopicPartition, format_topic_id
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
from kohort.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

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
    brokers = [
        BrokerDescription(broker_id=row.broker_id, host=row.host, port=row.port, rack=row.rack, is_fenced=row.is_fenced)
        for row in sorted(response.brokers, key=lambda row: row.broker_id)
    ]
    return ClusterDescription(
        cluster_id=response.cluster_id,
        controller_id=response.controller_id,
        brokers=tuple(brokers),
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
    return QuorumDescription(
        leader_id=row.leader_id,
        leader_epoch=row.leader_epoch,
        high_watermark=row.high_watermark,
        voters=_quorum_replicas(row.current_voters, end),
        observers=_quorum_replicas(row.observers, end),
        listeners=listeners,
    )


def _quorum_replicas(rows: Iterable[ReplicaState], end: int) -> tuple[QuorumReplica, ...]:
    return tuple(
        QuorumReplica(
            replica_id=row.replica_id,
            directory_id=format_topic_id(row.replica_directory_id),
            log_end_offset=row.log_end_offset,
            lag=max(0, end - row.log_end_offset),
            last_fetch_ms=_known(row.last_fetch_timestamp),
            last_caught_up_ms=_known(row.last_caught_up_timestamp),
        )
        for row in sorted(rows, key=lambda row: row.replica_id)
    )


def log_dirs_request(partitions: Iterable[TopicPartition] | None) -> DescribeLogDirsRequest:
    """Asks for the logs of partitions, or for all."""
    if partitions is None:
        return DescribeLogDirsRequest(topics=None)
    topics = {
        name: DescribableLogDirTopic(topic=name, partitions=numbers) for name, numbers in by_topic(partitions).items()
    }
    return DescribeLogDirsRequest(topics=list(topics.values()))


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
                LogDescription(
                    topic=topic.name,
                    partition=each.partition_index,
                    size_bytes=each.partition_size,
                    offset_lag=each.offset_lag,
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
            ReplicaLogDir(
                topic=each.topic,
                partition=each.partition,
                broker_id=each.broker_id,
                path=path,
                offset_lag=lag,
                future_path=future,
                future_offset_lag=future_lag,
            )
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


def _known(number: int) -> int | None:
    return None if number < 0 else number
