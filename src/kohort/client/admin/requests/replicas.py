"""Leaders and copies of partitions as the admin client asks for them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from kohort.client.actions import Endpoint
from kohort.client.admin.requests.cluster import by_topic, to_broker
from kohort.client.admin.results.replicas import PartitionReassignment
from kohort.client.arguments import to_partition
from kohort.errors import ConfigError, UnknownTopicError
from kohort.ids import TopicPartition
from kohort.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from kohort.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from kohort.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)
from kohort.wire.messages.metadata import MetadataResponse


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
    chosen = (
        None
        if partitions is None
        else [TopicPartitions(topic=name, partitions=numbers) for name, numbers in by_topic(partitions).items()]
    )
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
    chosen = (
        None
        if partitions is None
        else [
            ListPartitionReassignmentsTopics(name=name, partition_indexes=numbers)
            for name, numbers in by_topic(partitions).items()
        ]
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


def by_leader(
    partitions: Iterable[TopicPartition], metadata: MetadataResponse
) -> dict[Endpoint | None, list[TopicPartition]]:
    """Where the leader listens -> what it leads; `None`: those that have no leader now."""
    brokers = {broker.node_id: Endpoint(broker.host, broker.port) for broker in metadata.brokers}
    leaders = {
        TopicPartition(topic.name or "", row.partition_index): brokers.get(row.leader_id)
        for topic in metadata.topics
        for row in topic.partitions
    }
    found: dict[Endpoint | None, list[TopicPartition]] = {}
    for each in sorted(set(partitions)):
        found.setdefault(leaders.get(each), []).append(each)
    return found
