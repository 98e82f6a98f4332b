"""The administration client: topics, groups and their offsets.

Source: Kafka's Admin; C9.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Final, Self, TypeVar, cast

from kohort.client.actions import Endpoint
from kohort.client.admin import groups as shapes
from kohort.client.admin import topics as topic_shapes
from kohort.client.admin.machine import AdminCloseAsked, AdminEvent, AdminMachine, Coordinator, RequestAsked
from kohort.client.admin.results import (
    ClusterDescription,
    GroupDescription,
    GroupListing,
    GroupOffset,
    TopicDescription,
    TopicListing,
)
from kohort.client.io.thread import IoThread
from kohort.client.options import ADMIN_OPTIONS, client_settings
from kohort.errors import BrokerError, ConfigError, ErrorCode, KohortTimeoutError, UnknownTopicError
from kohort.ids import TopicPartition
from kohort.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest, ConsumerGroupDescribeResponse
from kohort.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kohort.wire.messages.create_topics import CreateTopicsResponse
from kohort.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from kohort.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kohort.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kohort.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse
from kohort.wire.messages.describe_groups import DescribeGroupsRequest, DescribeGroupsResponse
from kohort.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse
from kohort.wire.messages.list_offsets import ListOffsetsResponse
from kohort.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from kohort.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchResponse
from kohort.wire.schema import Message

R = TypeVar("R", bound=Message)
#: How long a created topic may take until every partition has a leader, seconds.
_LEADERS_WITHIN_S: Final = 20.0


class Admin:
    """Asks a cluster about topics and groups, and changes them. May be shared by threads.

    Options are Kafka's in snake_case, e.g. `request_timeout_ms`, `default_api_timeout_ms`.

    >>> import kohort
    >>> with kohort.Broker() as broker, kohort.Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
    ...     admin.create_topic("orders", 3)
    ...     [(topic.name, topic.partition_count) for topic in admin.list_topics() if not topic.is_internal]
    [('orders', 3)]
    """

    def __init__(self, **options: Any) -> None:
        """Nothing is connected before the first call.

        Raises:
            ConfigError: an option is unknown or has an impossible value.
        """
        settings = client_settings(ADMIN_OPTIONS.parse(options), seed=time.monotonic_ns() & 0xFFFF_FFFF)
        self._timeout_s = settings.default_api_timeout_ms / 1000
        self._io: IoThread[AdminEvent] = IoThread(
            AdminMachine(settings), settings, deliver=lambda _: None, what="admin client"
        )

    @classmethod
    def from_config(cls, config: Mapping[str, Any]) -> Self:
        """An admin client from Kafka's dotted names."""
        return cls(**{ADMIN_OPTIONS.option(name).keyword: value for name, value in config.items()})

    def close(self) -> None:
        """End; harmless if it is closed already."""
        if self._io.is_running:
            self._io.post(AdminCloseAsked())
            self._io.join(5.0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # -- topics ---------------------------------------------------------------------------------------------------

    def list_topics(self) -> list[TopicListing]:
        """Every topic, by name; the broker's own ones have `is_internal`."""
        rows = [topic_shapes.listing(topic) for topic in self._metadata(None).topics]
        return sorted(rows, key=lambda row: row.name)

    def describe_topics(self, names: Sequence[str]) -> list[TopicDescription]:
        """Partitions, offsets and own configs of topics, in the order asked.

        Raises:
            UnknownTopicError: one of them does not exist.
        """
        metadata = self._metadata(names)
        found = {topic.name: topic for topic in metadata.topics}
        for name in names:
            topic_shapes.check_topic(found[name])
        partitions = [TopicPartition(name, row.partition_index) for name in names for row in found[name].partitions]
        begins = self._offsets(partitions, topic_shapes.EARLIEST, metadata)
        ends = self._offsets(partitions, topic_shapes.LATEST, metadata)
        resources = [topic_shapes.config_resource(name) for name in names]
        described = self._ask(
            DescribeConfigsRequest(resources=resources, include_synonyms=False, include_documentation=False),
            DescribeConfigsResponse,
            during="describing topic configs",
            codes=lambda response: [result.error_code for result in response.results],
        )
        configs = topic_shapes.own_configs(described)
        return [
            topic_shapes.describe(found[name], begins=begins, ends=ends, configs=configs.get(name, {}))
            for name in names
        ]

    def create_topic(self, name: str, partitions: int = 1, *, configs: Mapping[str, object] | None = None) -> None:
        """Create a topic and return when every partition has its leader and can be used.

        Raises:
            BrokerError: TOPIC_ALREADY_EXISTS, INVALID_TOPIC_EXCEPTION, INVALID_CONFIG, ...
        """
        if partitions < 1:
            raise ConfigError(f"a topic cannot have {partitions} partitions: at least 1 is expected")
        during = f"creating topic {name}"
        response = self._ask(
            topic_shapes.create_request(name, partitions, configs or {}, timeout_ms=30_000),
            CreateTopicsResponse,
            during=during,
            codes=lambda response: [topic.error_code for topic in response.topics],
        )
        for topic in response.topics:
            _check(topic.error_code, topic.error_message, during)
        self._wait_for_leaders(name, partitions)

    def create_partitions(self, name: str, total: int) -> None:
        """Grow a topic to `total` partitions.

        Raises:
            BrokerError: INVALID_PARTITIONS (it has as many already), UNKNOWN_TOPIC_OR_PARTITION, ...
        """
        during = f"adding partitions to topic {name}"
        topic = CreatePartitionsTopic(name=name, count=total, assignments=None)
        response = self._ask(
            CreatePartitionsRequest(topics=[topic], timeout_ms=30_000, validate_only=False),
            CreatePartitionsResponse,
            during=during,
            codes=lambda response: [result.error_code for result in response.results],
        )
        for result in response.results:
            _check(result.error_code, result.error_message, during)
        self._wait_for_leaders(name, total)

    def delete_topics(self, names: Sequence[str]) -> None:
        """Delete topics with all their records.

        Raises:
            UnknownTopicError: one of them does not exist; the others are deleted.
        """
        during = f"deleting {', '.join(names)}"
        states = [DeleteTopicState(name=name) for name in names]
        response = self._ask(
            DeleteTopicsRequest(topics=states, topic_names=list(names), timeout_ms=30_000),
            DeleteTopicsResponse,
            during=during,
            codes=lambda response: [result.error_code for result in response.responses],
        )
        for result in response.responses:
            _check(result.error_code, result.error_message, during, topic=result.name)

    # -- groups ---------------------------------------------------------------------------------------------------

    def list_groups(
        self, states: Collection[str] | None = None, types: Collection[str] | None = None
    ) -> list[GroupListing]:
        """Every group, by name; `states` and `types` ("classic", "consumer") narrow that down."""
        request = ListGroupsRequest(states_filter=list(states or ()), types_filter=list(types or ()))
        found: dict[str, GroupListing] = {}
        for broker in self._metadata(()).brokers:
            response = self._ask(
                request,
                ListGroupsResponse,
                target=Endpoint(broker.host, broker.port),
                during="listing groups",
                codes=lambda response: [response.error_code],
            )
            _check(response.error_code, None, "listing groups")
            for group in response.groups:
                found[group.group_id] = shapes.listing(group)
        return [found[name] for name in sorted(found)]

    def describe_group(self, group: str) -> GroupDescription:
        """One group of either protocol.

        Raises:
            BrokerError: GROUP_ID_NOT_FOUND.
        """
        during = f"describing group {group}"
        try:
            answer = self._ask(
                ConsumerGroupDescribeRequest(group_ids=[group], include_authorized_operations=False),
                ConsumerGroupDescribeResponse,
                target=Coordinator(group_id=group),
                during=during,
                codes=lambda response: [row.error_code for row in response.groups],
            )
        except BrokerError as why:
            if why.code is not ErrorCode.UNSUPPORTED_VERSION:
                raise
        else:
            if ErrorCode.of(answer.groups[0].error_code) is not ErrorCode.GROUP_ID_NOT_FOUND:
                _check(answer.groups[0].error_code, answer.groups[0].error_message, during)
                return shapes.from_consumer_group(answer.groups[0])
        classic = self._ask(
            DescribeGroupsRequest(groups=[group], include_authorized_operations=False),
            DescribeGroupsResponse,
            target=Coordinator(group_id=group),
            during=during,
            codes=lambda response: [row.error_code for row in response.groups],
        ).groups[0]
        if shapes.is_missing(classic):
            raise BrokerError(ErrorCode.GROUP_ID_NOT_FOUND, f"there is no group {group}", during=during)
        _check(classic.error_code, classic.error_message, during)
        return shapes.from_classic_group(classic)

    def group_offsets(self, group: str) -> list[GroupOffset]:
        """Where a group stands: every partition that it has committed or that a member owns, by topic and partition."""
        owners: dict[TopicPartition, str] = {}
        try:
            for member in self.describe_group(group).members:
                owners.update(dict.fromkeys(member.assignment, member.member_id))
        except BrokerError as why:
            if why.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
        committed = self._committed(group)
        partitions = sorted({*owners, *committed})
        metadata = self._metadata({partition.topic for partition in partitions}) if partitions else None
        ends = self._offsets(partitions, topic_shapes.LATEST, metadata) if metadata is not None else {}
        return [
            GroupOffset(
                topic=partition.topic,
                partition=partition.partition,
                committed=committed.get(partition),
                end_offset=ends.get(partition, -1),
                lag=max(0, ends[partition] - committed[partition])
                if partition in committed and partition in ends
                else None,
                member_id=owners.get(partition),
            )
            for partition in partitions
        ]

    def delete_groups(self, names: Sequence[str]) -> None:
        """Delete empty groups and their offsets.

        Raises:
            BrokerError: NON_EMPTY_GROUP, GROUP_ID_NOT_FOUND; groups named before it are deleted.
        """
        for name in names:
            during = f"deleting group {name}"
            response = self._ask(
                DeleteGroupsRequest(groups_names=[name]),
                DeleteGroupsResponse,
                target=Coordinator(group_id=name),
                during=during,
                codes=lambda response: [result.error_code for result in response.results],
            )
            for result in response.results:
                texts = {
                    ErrorCode.NON_EMPTY_GROUP: "it still has members; stop them first",
                    ErrorCode.GROUP_ID_NOT_FOUND: f"there is no group {name}",
                }
                _check(result.error_code, texts.get(ErrorCode.of(result.error_code)), during)

    # -- cluster --------------------------------------------------------------------------------------------------

    def describe_cluster(self) -> ClusterDescription:
        """The cluster's id and brokers."""
        response = self._ask(
            DescribeClusterRequest(include_cluster_authorized_operations=False),
            DescribeClusterResponse,
            during="describing the cluster",
            codes=lambda response: [response.error_code],
        )
        _check(response.error_code, response.error_message, "describing the cluster")
        brokers = tuple(sorted((row.broker_id, row.host, row.port) for row in response.brokers))
        return ClusterDescription(cluster_id=response.cluster_id, controller_id=response.controller_id, brokers=brokers)

    # -- requests -------------------------------------------------------------------------------------------------

    def _ask(
        self,
        request: Message,
        expected: type[R],
        *,
        during: str,
        codes: Callable[[R], Iterable[int]],
        target: Endpoint | Coordinator | None = None,
        max_version: int | None = None,
    ) -> R:
        """One request and its response; asked again while it is answered by codes that may pass."""
        deadline = self._io.deadline_ms(self._timeout_s)
        answer = self._io.call(
            lambda ticket: RequestAsked(
                ticket=ticket,
                deadline_ms=deadline,
                request=request,
                target=target,
                codes=cast("Callable[[Message], Iterable[int]]", codes),
                during=during,
                max_version=max_version,
            ),
            self._timeout_s + 5.0,
        )
        assert isinstance(answer, expected)
        return answer

    def _metadata(self, topics: Iterable[str] | None) -> MetadataResponse:
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        return self._ask(
            MetadataRequest(topics=wanted, allow_auto_topic_creation=False),
            MetadataResponse,
            during="looking up topics",
            codes=lambda response: [response.error_code],
        )

    def _offsets(
        self, partitions: Collection[TopicPartition], timestamp: int, metadata: MetadataResponse
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for leader, request in topic_shapes.offsets_requests(partitions, timestamp, metadata).items():
            response = self._ask(
                request,
                ListOffsetsResponse,
                target=leader,
                during="looking up offsets",
                codes=lambda response: [row.error_code for topic in response.topics for row in topic.partitions],
            )
            for topic in response.topics:
                for row in topic.partitions:
                    if row.error_code == 0:
                        found[TopicPartition(topic.name, row.partition_index)] = row.offset
        return found

    def _committed(self, group: str) -> dict[TopicPartition, int]:
        # Up to version 9 topics travel by name, and older brokers take the request's own fields.
        request = OffsetFetchRequest(
            group_id=group,
            topics=None,
            groups=[OffsetFetchRequestGroup(group_id=group, topics=None)],
            require_stable=False,
        )
        during = f"looking up the offsets of group {group}"
        response = self._ask(
            request,
            OffsetFetchResponse,
            target=Coordinator(group_id=group),
            during=during,
            codes=lambda response: [response.error_code, *(row.error_code for row in response.groups)],
            max_version=9,
        )
        code = response.groups[0].error_code if response.groups else response.error_code
        if ErrorCode.of(code) is ErrorCode.GROUP_ID_NOT_FOUND:
            return {}
        _check(code, None, during)
        return shapes.committed_offsets(response)

    def _wait_for_leaders(self, name: str, partitions: int) -> None:
        deadline = time.monotonic() + _LEADERS_WITHIN_S
        while True:
            metadata = self._metadata([name])
            wanted = [TopicPartition(name, row.partition_index) for row in metadata.topics[0].partitions]
            # A broker may hear that it leads a little after everybody else: one that tells an end has heard it.
            if len(wanted) >= partitions and len(self._offsets(wanted, topic_shapes.LATEST, metadata)) == len(wanted):
                return
            if time.monotonic() > deadline:
                raise KohortTimeoutError(f"topic {name} exists, but not every partition has a leader yet")
            time.sleep(0.02)


def _check(code: int, message: str | None, during: str, *, topic: str | None = None) -> None:
    found = ErrorCode.of(code)
    if found is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and topic is not None:
        raise UnknownTopicError(topic)
    if found is not ErrorCode.NONE:
        raise BrokerError(found, message, during=during)
