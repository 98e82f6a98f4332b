"""Topics as the admin client asks for them and shows them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.client.actions import Endpoint
from kohort.client.admin.results import PartitionDescription, TopicDescription, TopicListing
from kohort.config import as_text
from kohort.errors import BrokerError, ErrorCode, UnknownTopicError
from kohort.ids import TopicPartition, format_topic_id
from kohort.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from kohort.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from kohort.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from kohort.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from kohort.wire.private import idle_words_in

TOPIC_RESOURCE = 2
#: Where a config value comes from: set on the topic itself.
_SET_ON_TOPIC = 1
EARLIEST, LATEST = -2, -1


def create_request(
    name: str, partitions: int, configs: Mapping[str, object], *, timeout_ms: int
) -> CreateTopicsRequest:
    """One topic; the number of copies is left to the cluster, and so is a config with the value `None`."""
    listed = [
        CreatableTopicConfig(name=key, value=None if value is None else as_text(value))
        for key, value in sorted(configs.items())
    ]
    topic = CreatableTopic(name=name, num_partitions=partitions, replication_factor=-1, assignments=[], configs=listed)
    return CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms, validate_only=False)


def offsets_requests(
    partitions: Iterable[TopicPartition], timestamp: int, metadata: MetadataResponse
) -> dict[Endpoint, ListOffsetsRequest]:
    """One ListOffsets request per leader; partitions without a leader are left out."""
    brokers = {broker.node_id: Endpoint(broker.host, broker.port) for broker in metadata.brokers}
    leaders = {
        TopicPartition(topic.name or "", partition.partition_index): partition.leader_id
        for topic in metadata.topics
        for partition in topic.partitions
    }
    by_leader: dict[Endpoint, dict[str, ListOffsetsTopic]] = {}
    for name, number in sorted(partitions):
        leader = brokers.get(leaders.get(TopicPartition(name, number), -1))
        if leader is None:
            continue
        topics = by_leader.setdefault(leader, {})
        topic = topics.setdefault(name, ListOffsetsTopic(name=name))
        topic.partitions.append(ListOffsetsPartition(partition_index=number, timestamp=timestamp))
    return {
        leader: ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=list(topics.values()), timeout_ms=30_000)
        for leader, topics in by_leader.items()
    }


def listing(topic: MetadataResponseTopic) -> TopicListing:
    """One line of a list."""
    return TopicListing(
        name=topic.name or "",
        topic_id=format_topic_id(topic.topic_id),
        partition_count=len(topic.partitions),
        is_internal=topic.is_internal,
    )


def describe(
    topic: MetadataResponseTopic,
    *,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    configs: Mapping[str, str],
    idle: Mapping[str, str],
) -> TopicDescription:
    """A topic with what is known of its partitions; offsets of a partition without a leader are -1."""
    name = topic.name or ""
    partitions = tuple(
        PartitionDescription(
            partition=row.partition_index,
            leader=row.leader_id,
            leader_epoch=row.leader_epoch,
            replicas=tuple(row.replica_nodes),
            in_sync=tuple(row.isr_nodes),
            begin_offset=begins.get(TopicPartition(name, row.partition_index), -1),
            end_offset=ends.get(TopicPartition(name, row.partition_index), -1),
        )
        for row in sorted(topic.partitions, key=lambda row: row.partition_index)
    )
    return TopicDescription(
        name=name,
        topic_id=format_topic_id(topic.topic_id),
        is_internal=topic.is_internal,
        partitions=partitions,
        configs=dict(configs),
        idle=dict(idle),
    )


def check_topic(topic: MetadataResponseTopic) -> None:
    """`UnknownTopicError`, or the broker's own refusal, for a topic that Metadata did not give."""
    code = ErrorCode.of(topic.error_code)
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        raise UnknownTopicError(topic.name or "")
    if code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
        raise BrokerError(code, during=f"looking up topic {topic.name}")


def configs_request(names: Iterable[str]) -> DescribeConfigsRequest:
    """Asks for every config of topics, and what the broker says of each."""
    resources = [
        DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
        for name in names
    ]
    return DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=True)


def own_configs(response: DescribeConfigsResponse) -> dict[str, dict[str, str]]:
    """topic -> the configs that were set on it."""
    return {
        result.resource_name: {row.name: row.value for row in _own_rows(result) if row.value is not None}
        for result in response.results
    }


def idle_configs(response: DescribeConfigsResponse) -> dict[str, dict[str, str]]:
    """topic -> those of its own configs that change nothing -> the broker's words for it."""
    told = {
        result.resource_name: {row.name: idle_words_in(row.documentation) for row in _own_rows(result)}
        for result in response.results
    }
    return {topic: {name: words for name, words in said.items() if words is not None} for topic, said in told.items()}


def _own_rows(result: DescribeConfigsResult) -> list[DescribeConfigsResourceResult]:
    return [row for row in result.configs if row.config_source == _SET_ON_TOPIC]
