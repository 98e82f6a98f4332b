"""The admin client's calls about topics."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Final

from kohort.client.admin.core import topics as topic_shapes
from kohort.client.admin.door import AdminDoor, check
from kohort.client.admin.results import (
    TopicDescription,
    TopicListing,
)
from kohort.errors import AdvertisedAddressError, ConfigError, KohortTimeoutError
from kohort.ids import TopicPartition
from kohort.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from kohort.wire.messages.create_topics import CreateTopicsResponse
from kohort.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from kohort.wire.messages.describe_configs import DescribeConfigsResponse

#: How long a created topic may take until every partition has a leader, seconds.
_LEADERS_WITHIN_S: Final = 20.0


class TopicCalls(AdminDoor):
    """Topics: list, describe, create, grow, delete."""

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
        described = self._describe_configs(names)
        configs, idle = topic_shapes.own_configs(described), topic_shapes.idle_configs(described)
        return [
            topic_shapes.describe(
                found[name], begins=begins, ends=ends, configs=configs.get(name, {}), idle=idle.get(name, {})
            )
            for name in names
        ]

    def create_topic(
        self, name: str, partitions: int = 1, *, configs: Mapping[str, object] | None = None
    ) -> dict[str, str]:
        """Create a topic and return when every partition has its leader and can be used.

        Returns:
            Those of `configs` that the broker takes but does not act on, each with the broker's words for it, such as
            "not acted on yet"; empty if there is none, and from brokers that say nothing of the kind.

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
            check(topic.error_code, topic.error_message, during)
        self._wait_for_leaders(name, partitions)
        return topic_shapes.idle_configs(self._describe_configs([name])).get(name, {}) if configs else {}

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
            check(result.error_code, result.error_message, during)
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
            check(result.error_code, result.error_message, during, topic=result.name)

    def _describe_configs(self, names: Sequence[str]) -> DescribeConfigsResponse:
        return self._ask(
            topic_shapes.configs_request(names),
            DescribeConfigsResponse,
            during="describing topic configs",
            codes=lambda response: [result.error_code for result in response.results],
        )

    def _wait_for_leaders(self, name: str, partitions: int) -> None:
        deadline = time.monotonic() + _LEADERS_WITHIN_S
        while True:
            metadata = self._metadata([name])
            wanted = [TopicPartition(name, row.partition_index) for row in metadata.topics[0].partitions]
            try:
                # A broker may hear that it leads a little after everybody else: one that tells an end has heard it.
                ends = self._offsets(wanted, topic_shapes.LATEST, metadata)
            except AdvertisedAddressError as why:
                raise AdvertisedAddressError(why.answered, why.attempts, f"topic {name} was made, but ") from None
            if len(wanted) >= partitions and len(ends) == len(wanted):
                return
            if time.monotonic() > deadline:
                raise KohortTimeoutError(f"topic {name} exists, but not every partition has a leader yet")
            time.sleep(0.02)
