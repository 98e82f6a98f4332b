"""Topic metadata: the topics by name and id, and the announcement of each change to the coordinators.

Laws: every change of topics goes through `Cluster`; a `TopicsChanged` with a new image follows each. Changes that take
effect together share one image. A topic is visible only once it exists. A name that Kafka would refuse is refused.
A change that the store refuses has no effect.
Source: Apache Kafka's Metadata, CreateTopics, CreatePartitions and DeleteTopics.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from kohort.broker.limits.client_quotas import QuotaLimits, check_quota_count
from kohort.broker.options.settings import BrokerSettings
from kohort.broker.topics.configs import check_topic_configs
from kohort.broker.topics.topic_operations import Outcome, TopicOperations, Wanted, check_count
from kohort.coordinator.commands import LogExtent
from kohort.coordinator.topics import TopicFacts, TopicImage
from kohort.errors import ErrorCode, Refused
from kohort.ids import JOURNAL_TOPIC, OFFSETS_TOPIC, TRANSACTIONS_TOPIC, ZERO_TOPIC_ID, TopicId, random_uuid
from kohort.storage.catalog import collision_key
from kohort.storage.client_quotas import QuotaChange, Quotas, changed_quotas
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.store import Store
from kohort.storage.topicconfig import INT_MAX, LONG_MAX
from kohort.storage.topics import Topic, TopicPlan, already_has

#: The most partitions of one topic. Each has a folder on this one node, so a larger number is a mistake.
PARTITION_LIMIT: Final = 10_000
#: The limit of a batch of `__consumer_offsets`: a batch has all records of a decision, which are never split.
OFFSETS_BATCH_LIMIT_BYTES: Final = 64 * 1024 * 1024
#: The least segment size of the journal's topic. Retention deletes segments, each an eighth of all rows or this size.
JOURNAL_SEGMENT_BYTES: Final = 1024 * 1024
#: Deleted topics whose names are kept, for clients that request them by id.
FORMER_TOPICS: Final = 1_000


class Cluster:
    """The topics of the broker's store, found by name or by topic id."""

    def __init__(self, store: Store, settings: BrokerSettings) -> None:
        self._store: Final = store
        self._settings: Final = settings
        self.cluster_id: Final = store.cluster_id
        #: topic id -> topic; the same topics as the store's.
        self._by_id: dict[bytes, Topic] = {topic.topic_id: topic for topic in store.topics.values()}
        #: topic id -> name of the topics that were deleted last, since the start.
        self._former_names: dict[bytes, str] = {}
        self.image = TopicImage()
        self.image = self._build_image(version=1)
        #: Whether topics or partitions differ from the image.
        self._has_changed = False
        #: Partitions of all topics; then topics and partitions of changes that are planned but not in force.
        self.partition_count = sum(len(topic.partitions) for topic in store.topics.values())
        self._planned = (0, 0)
        #: The option that limits topics or partitions -> refusals by it since the start.
        self.reached: Final[Counter[str]] = Counter()
        #: The quotas of clients.
        self.quota_limits: Final = QuotaLimits(store.changes.catalog.client_quotas)
        self.work: Final = TopicOperations(store.changes, on_settled=self._tell_changes)
        #: Called with each new image, and with the log of each partition that was deleted.
        self.on_change: Callable[[TopicImage], None] = lambda _: None
        self.on_deleted: Callable[[PartitionLog], None] = lambda _: None

    @property
    def topics(self) -> Mapping[str, Topic]:
        """Every topic by name."""
        return self._store.topics

    def topic(self, name: str) -> Topic | None:
        """Return the topic with this name, `None` if there is none."""
        return self._store.topics.get(name)

    def find(self, name: str, topic_id: bytes) -> tuple[Topic | None, ErrorCode]:
        """Return the topic with this id, or by name if no id is given, and the error code if none exists."""
        if topic_id != ZERO_TOPIC_ID or not name:
            return self._by_id.get(topic_id), ErrorCode.UNKNOWN_TOPIC_ID
        return self._store.topics.get(name), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        """Return the topic with this id, `None` if there is none."""
        return self._by_id.get(topic_id)

    def former_name(self, topic_id: bytes) -> str | None:
        """Return the name of a recently deleted topic; `None` if the id is not remembered."""
        return self._former_names.get(topic_id)

    def partition(self, topic: Topic | None, number: int) -> PartitionLog | None:
        """Return a partition's log, `None` if topic or partition do not exist."""
        if topic is None or not 0 <= number < len(topic.partitions):
            return None
        return topic.partitions[number]

    def measure(self, places: Iterable[tuple[TopicId, int]]) -> dict[tuple[TopicId, int], LogExtent]:
        """Return the start offset, end offset and size of each partition log that exists and is online."""
        found = ((place, self.partition(self._by_id.get(place[0]), place[1])) for place in places)
        return {
            place: LogExtent(log.log_start_offset, log.log_end_offset, log.size_bytes)
            for place, log in found
            if log is not None and not log.offline
        }

    # `done` of a requested change is called once: with `None` when the change is in force, else with its error.

    def creation(
        self, name: str, check: Callable[[], tuple[int, Mapping[str, str]]], done: Callable[[Outcome], None]
    ) -> Wanted:
        """Build a topic creation; `check` returns the number of partitions (-1: default) and the configs."""

        def plan() -> TopicPlan:
            self._store.changes.check_new_name(name)
            partition_count, configs = check()
            return self._plan_topic(name, self.check_new_topic(name, partition_count), configs)

        return Wanted(concern=collision_key(name), plan=plan, done=done)

    def growth(self, name: str, total: int, check: Callable[[Topic], None], done: Callable[[Outcome], None]) -> Wanted:
        """Build the addition of partitions up to `total`; `check` may raise `Refused` for other reasons."""

        def plan() -> TopicPlan:
            topic = self.check_growth(name, total)
            check(topic)
            return self._plan_growth(topic, total)

        return Wanted(concern=collision_key(name), plan=plan, done=done)

    def deletion(self, topic: Topic, check: Callable[[], None], done: Callable[[Outcome], None]) -> Wanted:
        """Build the deletion of this topic, not of a later one with its name; `check` may raise `Refused`."""

        def plan() -> TopicPlan:
            # The name may belong to a later topic by now.
            if self._deletable(topic.name) is not topic:
                raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{topic.name}' does not exist.")
            check()
            return self._and_then(self._store.changes.plan_deletion(topic.name), lambda: self._forget(topic))

        return Wanted(concern=collision_key(topic.name), plan=plan, done=done)

    def config_change(
        self, name: str, changed: Callable[[Topic], Mapping[str, str]], done: Callable[[Outcome], None]
    ) -> Wanted:
        """Build a change of a topic's configs; `changed` returns the new, checked configs of the topic."""

        def plan() -> TopicPlan:
            return self._store.changes.plan_configs(name, changed(self.known(name)))

        return Wanted(concern=collision_key(name), plan=plan, done=done)

    def producer_ids(self, then: Callable[[range], None], done: Callable[[Outcome], None]) -> Wanted:
        """Build the reservation of a block of unused producer ids."""
        return Wanted(concern="", plan=lambda: self._store.changes.plan_producer_ids(then), done=done)

    def quota_change(self, changes: Sequence[QuotaChange], done: Callable[[Outcome], None]) -> Wanted:
        """Build a change of client quotas (AlterClientQuotas)."""

        def plan() -> TopicPlan:
            check_quota_count(changed_quotas(self.client_quotas, changes))
            return self._store.changes.plan_client_quotas(changes, lambda: self.quota_limits.apply(self.client_quotas))

        return Wanted(concern="/quotas", plan=plan, done=done)

    @property
    def client_quotas(self) -> Quotas:
        """The client quotas, by quota entity."""
        return self._store.changes.catalog.client_quotas

    def check_new_topic(self, name: str, partition_count: int) -> int:
        """Return a new topic's number of partitions (-1: default); `Refused` if it cannot be created."""
        self._store.changes.check_new_name(name)
        if partition_count == -1:
            partition_count = int(self._settings.values["num.partitions"])
        if not 1 <= partition_count <= PARTITION_LIMIT:
            raise Refused(
                ErrorCode.INVALID_PARTITIONS, f"{partition_count} partitions; 1 to {PARTITION_LIMIT} are possible"
            )
        self._check_counts(1, partition_count)
        return partition_count

    def create_topic(self, name: str, partition_count: int, configs: Mapping[str, str | None]) -> Topic:
        """Create and announce a topic, and block until it is on disk; `Refused` if it cannot be created."""
        partition_count = self.check_new_topic(name, partition_count)
        return self._create(name, partition_count, check_topic_configs(configs))

    def create_offsets_topic(self) -> Topic:
        """Create `__consumer_offsets`, the coordinator's log, at the broker's first start."""
        values = self._settings.values
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "producer",
            "max.message.bytes": str(OFFSETS_BATCH_LIMIT_BYTES),
            "segment.bytes": str(values["offsets.topic.segment.bytes"]),
        }
        return self._create(OFFSETS_TOPIC, values["offsets.topic.num.partitions"], configs)

    def transactions_creation(self, done: Callable[[Outcome], None]) -> Wanted:
        """Build the creation of `__transaction_state`, the log of the transaction coordinator."""
        values = self._settings.values
        configs = {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            # One decision is for many logs: a broker that has lost it after the first marker would tear a transaction.
            "flush.messages": "1",
            "segment.bytes": str(values["transaction.state.log.segment.bytes"]),
        }
        count = values["transaction.state.log.num.partitions"]
        return Wanted(TRANSACTIONS_TOPIC, lambda: self._plan_topic(TRANSACTIONS_TOPIC, count, configs), done)

    @property
    def values(self) -> Mapping[str, Any]:
        """The broker's options by their names."""
        return self._settings.values

    def journal_creation(self, *, retention_ms: int, retention_bytes: int, done: Callable[[Outcome], None]) -> Wanted:
        """Build the creation of the journal's topic, with its first rows."""
        segment_bytes = max(JOURNAL_SEGMENT_BYTES, retention_bytes // 8)
        configs = {
            "cleanup.policy": "delete",
            "flush.messages": str(LONG_MAX),
            "retention.bytes": str(retention_bytes),
            "retention.ms": str(retention_ms),
            "segment.bytes": str(min(segment_bytes, INT_MAX)),
        }
        return Wanted(concern=JOURNAL_TOPIC, plan=lambda: self._plan_topic(JOURNAL_TOPIC, 1, configs), done=done)

    def check_growth(self, name: str, total: int) -> Topic:
        """Return the topic if it may grow to `total` partitions; `Refused` if it may not."""
        topic = self.known(name)
        if topic.is_internal:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} is internal and cannot be changed")
        count = len(topic.partitions)
        if total <= count:
            raise Refused(ErrorCode.INVALID_PARTITIONS, already_has(count, total))
        if total > PARTITION_LIMIT:
            raise Refused(ErrorCode.INVALID_PARTITIONS, f"{total} partitions; at most {PARTITION_LIMIT} are possible")
        self._check_counts(0, total - count)
        return topic

    def _check_counts(self, topics: int, partitions: int) -> None:
        values, (planned_topics, planned_partitions) = self._settings.values, self._planned
        totals = {
            "topics": len(self._store.topics) + planned_topics + topics,
            "partitions": self.partition_count + planned_partitions + partitions,
        }
        for what, total in totals.items():
            self.reached[f"max.{what}"] += total > values[f"max.{what}"]
            check_count(total, values[f"max.{what}"], what)

    def _plan_counts(self, topics: int, partitions: int) -> None:
        self._planned = (self._planned[0] + topics, self._planned[1] + partitions)

    def grow_topic(self, name: str, total: int) -> None:
        """Add partitions to a topic, announce the change, and block until the change is on disk."""
        self._carry_out(self._plan_growth(self.check_growth(name, total), total))

    def delete_topic(self, name: str) -> None:
        """Delete a topic, announce the change, and block until the change is on disk."""
        topic = self._deletable(name)
        self._carry_out(self._and_then(self._store.changes.plan_deletion(name), lambda: self._forget(topic)))

    def known(self, name: str) -> Topic:
        """Return the topic with this name; `Refused` if there is none."""
        topic = self._store.topics.get(name)
        if topic is None:
            raise Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        return topic

    def _deletable(self, name: str) -> Topic:
        topic = self.known(name)
        if topic.is_internal:
            raise Refused(ErrorCode.INVALID_TOPIC_EXCEPTION, f"topic {name} is internal and cannot be deleted")
        if not self._settings.values["delete.topic.enable"]:
            raise Refused(ErrorCode.TOPIC_DELETION_DISABLED, "this broker's delete.topic.enable is false")
        return topic

    def _forget(self, topic: Topic) -> None:
        del self._by_id[topic.topic_id]
        self._former_names[topic.topic_id] = topic.name
        if len(self._former_names) > FORMER_TOPICS:
            del self._former_names[next(iter(self._former_names))]
        self.partition_count -= len(topic.partitions)
        for log in topic.partitions:
            self.on_deleted(log)
        self._note_change()

    def _create(self, name: str, partition_count: int, configs: Mapping[str, str]) -> Topic:
        self._carry_out(self._plan_topic(name, partition_count, configs))
        return self._store.topics[name]

    def _plan_topic(self, name: str, partition_count: int, configs: Mapping[str, str]) -> TopicPlan:
        topic_id = TopicId(random_uuid())

        def settle() -> None:
            self._by_id[topic_id] = self._store.topics[name]
            self.partition_count += partition_count
            self._note_change()

        plan = self._store.changes.plan_topic(name, partition_count, topic_id=topic_id, configs=configs)
        self._plan_counts(1, partition_count)
        return self._and_then(plan, settle)

    def _plan_growth(self, topic: Topic, total: int) -> TopicPlan:
        added = total - len(topic.partitions)

        def settle() -> None:
            self.partition_count += added
            self._note_change()

        plan = self._store.changes.plan_partitions(topic.name, total)
        self._plan_counts(0, added)
        return self._and_then(plan, settle)

    @staticmethod
    def _and_then(plan: TopicPlan, then: Callable[[], None]) -> TopicPlan:
        """Extend a plan by `then`, which runs when the plan takes effect."""
        settle = plan.settle

        def both(settled: TopicPlan) -> None:
            settle(settled)
            then()

        plan.settle = both
        return plan

    def _carry_out(self, plan: TopicPlan) -> None:
        assert self.work.is_idle or self._store.fs.volatile, "a change is being written"
        self._store.changes.write((plan,))
        self._store.changes.settle(plan)
        self._tell_changes()

    def _note_change(self) -> None:
        self._has_changed = True

    def _tell_changes(self) -> None:
        """Announce a new image if topics have changed."""
        self._planned = (0, 0)
        if self._has_changed:
            self._has_changed = False
            # Building an image takes time for each topic, so changes that take effect together share one.
            self.image = self._build_image(version=self.image.version + 1)
            self.on_change(self.image)

    def _build_image(self, *, version: int) -> TopicImage:
        return TopicImage.of(map(self._facts_of, self._store.topics.values()), version=version)

    def _facts_of(self, topic: Topic) -> TopicFacts:
        # Most topics are unchanged. Coordinators see that by the same object, without comparing fields.
        was, count = self.image.by_name.get(topic.name), len(topic.partitions)
        if was is not None and was.topic_id == topic.topic_id and was.partition_count == count:
            return was
        return TopicFacts(name=topic.name, topic_id=topic.topic_id, partition_count=count)
