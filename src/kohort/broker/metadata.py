"""The topics as clients see them, and who must know when they change.

Laws: every change of topics goes through here and is followed by a `TopicsChanged` with a new image; a name that
Kafka would refuse is refused; what the store refuses changes nothing.
Source: Apache Kafka's Metadata, CreateTopics, CreatePartitions and DeleteTopics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final
from uuid import uuid4

from kohort.broker.settings import BrokerSettings
from kohort.broker.topicconfigs import check_topic_configs
from kohort.coordinator.commands import LogExtent
from kohort.coordinator.topics import TopicFacts, TopicImage
from kohort.errors import ErrorCode, Refused
from kohort.ids import JOURNAL_TOPIC, OFFSETS_TOPIC, ZERO_TOPIC_ID, TopicId
from kohort.storage.catalog import check_topic_name
from kohort.storage.partition import PartitionLog
from kohort.storage.store import Store, Topic
from kohort.storage.topicconfig import INT_MAX, LONG_MAX

#: Partitions of one topic; more is a mistake on one node, where each has a folder of its own.
PARTITION_LIMIT: Final = 10_000
#: Batches of `__consumer_offsets` hold a whole decision, which is never split.
OFFSETS_BATCH_LIMIT_BYTES: Final = 64 * 1024 * 1024
#: Old rows of the journal go by the segment: an eighth of all of them, or this if it is more.
JOURNAL_SEGMENT_BYTES: Final = 1024 * 1024
#: Deleted topics whose names are remembered, for clients that ask for them by id.
FORMER_TOPICS: Final = 1_000


class Cluster:
    """The topics of the store, by name and by id."""

    def __init__(self, store: Store, settings: BrokerSettings) -> None:
        self._store: Final = store
        self._settings: Final = settings
        self.cluster_id: Final = store.cluster_id
        #: topic id -> topic; the same topics as the store's.
        self._by_id: dict[bytes, Topic] = {topic.topic_id: topic for topic in store.topics.values()}
        #: topic id -> name, of the topics that were deleted last since the start.
        self._former_names: dict[bytes, str] = {}
        self.image = self._build_image(version=1)
        #: Whether several changes make one image, and whether there was any of them.
        self._is_gathering = self._has_changed = False
        #: Called with each new image, and with the logs that are gone.
        self.on_change: Callable[[TopicImage], None] = lambda _: None
        self.on_deleted: Callable[[PartitionLog], None] = lambda _: None

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Every topic by name."""
        return self._store.topics

    def topic(self, name: str) -> Topic | None:
        """The topic of that name."""
        return self._store.topics.get(name)

    def find(self, name: str, topic_id: bytes) -> tuple[Topic | None, ErrorCode]:
        """The topic of that id, or of that name where the id is zero; and the error for one that there is not."""
        if topic_id != ZERO_TOPIC_ID:
            return self._by_id.get(topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        return self._store.topics.get(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """The topic of that id."""
        return self._by_id.get(topic_id)

    def former_name(self, topic_id: bytes) -> str | None:
        """The name of a topic that was deleted, if that is not too long ago."""
        return self._former_names.get(topic_id)

    def partition(self, topic: Topic | None, number: int) -> PartitionLog | None:
        """A partition's log, `None` if topic or partition do not exist."""
        if topic is None or not 0 <= number < len(topic.partitions):
            return None
        return topic.partitions[number]

    def measure(self, places: Iterable[tuple[TopicId, int]]) -> dict[tuple[TopicId, int], LogExtent]:
        """What the logs of partitions have, of those that there are."""
        found = ((place, self.partition(self._by_id.get(place[0]), place[1])) for place in places)
        return {
            place: LogExtent(log.log_start_offset, log.log_end_offset, log.size_bytes)
            for place, log in found
            if log is not None
        }

    def check_new_topic(self, name: str, partition_count: int) -> int:
        """How many partitions a new topic gets (-1: the broker's default); `Refused` if it cannot be created."""
        check_topic_name(name)
        if name in self._store.topics:
            raise Refused(ErrorCode.TOPIC_ALREADY_EXISTS, f"topic {name} exists already")
        if partition_count == -1:
            return int(self._settings.values["num.partitions"])
        if not 1 <= partition_count <= PARTITION_LIMIT:
            raise Refused(
                ErrorCode.INVALID_PARTITIONS, f"{partition_count} partitions; 1 to {PARTITION_LIMIT} are possible"
            )
        return partition_count

    def create_topic(self, name: str, partition_count: int, configs: Mapping[str, str | None]) -> Topic:
        """Create a topic and tell everyone; `Refused` if it cannot be created."""
        partition_count = self.check_new_topic(name, partition_count)
        checked = check_topic_configs(configs)
        return self._create(name, partition_count, checked)

    def create_offsets_topic(self) -> Topic:
        """The coordinator's log, created at the first start."""
        values = self._settings.values
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "max.message.bytes": str(OFFSETS_BATCH_LIMIT_BYTES),
            "segment.bytes": str(values["offsets.topic.segment.bytes"]),
        }
        return self._create(OFFSETS_TOPIC, values["offsets.topic.num.partitions"], configs)

    def create_journal_topic(self, *, retention_ms: int, retention_bytes: int) -> Topic:
        """The rows of the journal, created with the first of them."""
        segment_bytes = max(JOURNAL_SEGMENT_BYTES, retention_bytes // 8)
        configs = {
            "cleanup.policy": "delete",
            "flush.messages": str(LONG_MAX),
            "retention.bytes": str(retention_bytes),
            "retention.ms": str(retention_ms),
            "segment.bytes": str(min(segment_bytes, INT_MAX)),
        }
        return self._create(JOURNAL_TOPIC, 1, configs)

    def check_growth(self, name: str, total: int) -> Topic:
        """The topic that may grow to `total` partitions; `Refused` if it may not."""
        topic = self._known(name)
        if topic.is_internal:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} is internal and cannot be changed")
        if not len(topic.partitions) < total <= PARTITION_LIMIT:
            raise Refused(
                ErrorCode.INVALID_PARTITIONS,
                f"topic {name} has {len(topic.partitions)} partitions; {total} is not an increase"
                if total <= len(topic.partitions)
                else f"{total} partitions; at most {PARTITION_LIMIT} are possible",
            )
        return topic

    def grow_topic(self, name: str, total: int) -> None:
        """Add partitions and tell everyone."""
        self.check_growth(name, total)
        self._store.add_partitions(name, total)
        self._changed()

    def delete_topic(self, name: str) -> None:
        """Delete a topic and tell everyone, those who wait for its data first."""
        topic = self._known(name)
        if topic.is_internal:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} is internal and cannot be deleted")
        if not self._settings.values["delete.topic.enable"]:
            raise Refused(ErrorCode.TOPIC_DELETION_DISABLED, "this broker's delete.topic.enable is false")
        logs = list(topic.partitions)
        self._store.delete_topic(name)
        del self._by_id[topic.topic_id]
        self._former_names[topic.topic_id] = name
        if len(self._former_names) > FORMER_TOPICS:
            del self._former_names[next(iter(self._former_names))]
        for log in logs:
            self.on_deleted(log)
        self._changed()

    def set_configs(self, name: str, configs: Mapping[str, str]) -> None:
        """Replace a topic's own configs, which are checked already."""
        self._known(name)
        self._store.set_topic_configs(name, dict(configs))

    def _known(self, name: str) -> Topic:
        topic = self._store.topics.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"topic {name} does not exist")
        return topic

    def _create(self, name: str, partition_count: int, configs: dict[str, str]) -> Topic:
        topic = self._store.create_topic(name, partition_count, topic_id=TopicId(uuid4().bytes), configs=configs)
        self._by_id[topic.topic_id] = topic
        self._changed()
        return topic

    @contextmanager
    def as_one_change(self) -> Iterator[None]:
        """What changes within, without a wait, everyone is told at its end: an image is as much work as all topics."""
        self._is_gathering, self._has_changed = True, False
        try:
            yield
        finally:
            self._is_gathering = False
            if self._has_changed:
                self._changed()

    def _changed(self) -> None:
        self._has_changed = True
        if self._is_gathering:
            return
        self.image = self._build_image(version=self.image.version + 1)
        self.on_change(self.image)

    def _build_image(self, *, version: int) -> TopicImage:
        return TopicImage.of(
            (
                TopicFacts(name=topic.name, topic_id=topic.topic_id, partition_count=len(topic.partitions))
                for topic in self._store.topics.values()
            ),
            version=version,
        )
