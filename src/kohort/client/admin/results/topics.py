"""Topics to create, descriptions of topics and their offsets, and the requests about them.

Source: Kafka's Admin (OffsetSpec, deleteRecords) and kafka-get-offsets (`--time`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final, Literal

from kohort.base.durability_window import DurabilityWindow, durability_window
from kohort.base.options import as_text
from kohort.base.values import from_row, or_none, value
from kohort.client.admin.results.access import authorized_operations
from kohort.client.admin.results.cluster import TIMEOUT_MS, by_leader
from kohort.client.admin.results.offsets import timestamp_of
from kohort.client.arguments import INT32_MAX, INT64_MAX, to_partition, to_topic, whole_number
from kohort.client.core.actions import Endpoint
from kohort.errors import BrokerError, ConfigError, ErrorCode, UnknownTopicError
from kohort.ids import ZERO_TOPIC_ID, TopicPartition, format_topic_id
from kohort.wire.messages import create_partitions, create_topics, delete_records, list_offsets
from kohort.wire.messages.describe_configs import DescribeConfigsResourceResult
from kohort.wire.messages.metadata import MetadataResponse, MetadataResponseTopic
from kohort.wire.private import idle_words_in

_NEW_TOPIC: Final = "NewTopic('orders', 3)"
_INT16_MAX: Final = 2**15 - 1
#: Leaves a number of a new topic to the cluster.
_LEFT_TO_CLUSTER: Final = -1
#: A place of an offset: at an end or the latest time, at a time, or so long ago.
WordAt = Literal["latest", "earliest", "max-timestamp", "earliest-local", "latest-tiered"]
OffsetAt = WordAt | int | datetime | timedelta
#: Kafka's numbers of the words, which stand in place of a time, and the version that knows them.
WORDS: Final[dict[WordAt, int]] = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
}
_SINCE: Final = {-3: 7, -4: 8, -5: 9}
EARLIEST, LATEST = WORDS["earliest"], WORDS["latest"]
#: Source of a config value that was set on the topic itself.
_SET_ON_TOPIC: Final = 1
_LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}
#: Stands for the end in place of an offset.
_HIGH_WATERMARK: Final = -1


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create.

    Args:
        name: topic name.
        partitions: their number; `None`: as many as `assignments` has, else one; -1: the cluster's `num.partitions`.
        replication_factor: replicas per partition; `None` or -1: the cluster's `default.replication.factor`.
        assignments: broker ids of each partition, the preferred leader first; a list of lists, or a mapping by number.
        configs: topic-level configs; the value `None` means the cluster's default.

    >>> NewTopic("orders", assignments=[[1, 2], [2, 3]])
    NewTopic(name='orders', partitions=2, replication_factor=2, assignments=((1, 2), (2, 3)), configs={})

    Raises:
        ConfigError: a number is out of range, or the arguments contradict each other.
    """

    name: str
    partitions: int | None = None
    replication_factor: int | None = None
    assignments: Sequence[Sequence[int]] | Mapping[int, Sequence[int]] | None = None
    configs: Mapping[str, object] | None = field(default=None, hash=False)

    def __post_init__(self) -> None:
        def keep(name: str, value: object) -> None:
            object.__setattr__(self, name, value)

        to_topic(self.name, _NEW_TOPIC)
        keep("configs", _configs_of(self.configs))
        partitions, factor = self.partitions, self.replication_factor
        if self.assignments is None:
            keep("partitions", _number(1 if partitions is None else partitions, "partitions", INT32_MAX))
            keep("replication_factor", _number(_LEFT_TO_CLUSTER if factor is None else factor, "replication_factor"))
            return
        brokers = to_assignments(self.assignments)
        if partitions not in (None, _LEFT_TO_CLUSTER, len(brokers)):
            raise ConfigError(f"partitions is {partitions}, and assignments has {len(brokers)}: leave partitions out")
        if factor not in (None, _LEFT_TO_CLUSTER, len(brokers[0])):
            raise ConfigError(
                f"replication_factor is {factor}, and assignments has {len(brokers[0])} brokers for partition 0: "
                "leave replication_factor out"
            )
        keep("partitions", len(brokers))
        keep("replication_factor", len(brokers[0]))
        keep("assignments", brokers)


@value
class TopicListing:
    """One topic of a list; `topic_id` is in Kafka's base64 form."""

    name: str
    topic_id: str
    partition_count: int
    is_internal: bool

    @classmethod
    def of(cls, topic: MetadataResponseTopic) -> TopicListing:
        """Build the entry of a topic."""
        topic_id = format_topic_id(topic.topic_id)
        return from_row(cls, topic, name=topic.name or "", topic_id=topic_id, partition_count=len(topic.partitions))


@value
class PartitionDescription:
    """One partition; `leader`: broker id, -1 for none. Offsets: log start offset and high watermark, -1 without one."""

    partition: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    begin_offset: int
    end_offset: int


@value
class TopicDescription:
    """One topic with its partitions in order, and the configs that are set on it.

    `idle`: the configs among them that the broker accepts but ignores, with its remark ("not acted on yet").
    `authorized_operations`: the operations that the caller may perform on it ("describe", "write", ...), if asked for.
    `loss_window`: which records a power cut may destroy although the broker has acknowledged them with acks=all; `None`
    means none, or that the broker does not report it.
    """

    name: str
    topic_id: str
    is_internal: bool
    partitions: tuple[PartitionDescription, ...]
    configs: dict[str, str]
    idle: dict[str, str]
    authorized_operations: tuple[str, ...] | None = None
    loss_window: DurabilityWindow | None = None

    @classmethod
    def of(
        cls,
        topic: MetadataResponseTopic,
        rows: Sequence[DescribeConfigsResourceResult],
        *,
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
    ) -> TopicDescription:
        """Build the description of a topic; `rows` are its configs. A partition without a leader has offsets of -1."""
        name = topic.name or ""
        partitions = tuple(
            from_row(
                PartitionDescription,
                row,
                partition=row.partition_index,
                leader=row.leader_id,
                replicas=tuple(row.replica_nodes),
                in_sync=tuple(row.isr_nodes),
                begin_offset=begins.get(TopicPartition(name, row.partition_index), -1),
                end_offset=ends.get(TopicPartition(name, row.partition_index), -1),
            )
            for row in sorted(topic.partitions, key=lambda row: row.partition_index)
        )
        values = {row.name: row.value for row in rows}
        flush_messages, flush_ms = values.get("flush.messages"), values.get("flush.ms")
        return from_row(
            cls,
            topic,
            name=name,
            topic_id=format_topic_id(topic.topic_id),
            partitions=partitions,
            configs={
                row.name: row.value for row in rows if row.config_source == _SET_ON_TOPIC and row.value is not None
            },
            idle=idle_configs(rows),
            authorized_operations=authorized_operations(topic.topic_authorized_operations),
            loss_window=durability_window(int(flush_messages), int(flush_ms)) if flush_messages and flush_ms else None,
        )

    @property
    def copies(self) -> int:
        """The number of replicas of a partition; if partitions differ, the highest."""
        return max((len(row.replicas) for row in self.partitions), default=0)


@value
class CreatedTopic:
    """A topic that was created, or with `validate_only` could be.

    `topic_id`: in Kafka's base64 form, `None` with `validate_only` or if the broker does not report it.
    `partition_count` and `replication_factor`: as chosen by the cluster, `None` if not reported. `idle`: its configs
    that the broker accepts but ignores, with the broker's remark ("not acted on yet").
    """

    name: str
    topic_id: str | None
    partition_count: int | None
    replication_factor: int | None
    idle: dict[str, str]

    @classmethod
    def of(cls, row: create_topics.CreatableTopicResult, *, validate_only: bool) -> CreatedTopic:
        """Build the result for a topic that a broker has created, or only checked."""
        # Apache Kafka has an id for a topic that it only checks, too.
        return cls(
            name=row.name,
            topic_id=None if validate_only or row.topic_id == ZERO_TOPIC_ID else format_topic_id(row.topic_id),
            partition_count=or_none(row.num_partitions),
            replication_factor=or_none(row.replication_factor),
            idle={},
        )


@value
class ListedOffset:
    """An offset of a partition: the earliest, the latest, or that of a time.

    `offset`: `None` if the partition has no record from that time on. `timestamp`: of the record at the offset,
    milliseconds since 1970; `None` for earliest and latest. `leader_epoch`: of the record; `None` if not reported.
    """

    offset: int | None
    timestamp: int | None
    leader_epoch: int | None

    @classmethod
    def of(cls, row: list_offsets.ListOffsetsPartitionResponse) -> ListedOffset:
        """Build the result for a partition from the leader's response."""
        return cls(**{name: or_none(getattr(row, name)) for name in cls.__annotations__})


def to_new_topics(topics: object) -> list[NewTopic]:
    """Check several topics to create: each a `NewTopic`, a name, or another client's new topic."""
    if isinstance(topics, (str, bytes, Mapping, NewTopic)) or not isinstance(topics, Iterable):
        raise TypeError(f"topics cannot be {topics!r}: a list is expected, like [{_NEW_TOPIC}]")
    found: dict[str, NewTopic] = {}
    for each in topics:
        topic = _to_new_topic(each)
        if topic.name in found:
            raise ConfigError(f"topic {topic.name} is named twice: name it once")
        found[topic.name] = topic
    return list(found.values())


def _to_new_topic(value: object) -> NewTopic:
    if isinstance(value, NewTopic):
        return value
    if isinstance(value, str):
        return NewTopic(value)
    if not hasattr(value, "num_partitions"):
        raise TypeError(f"{value!r} is no new topic: a name or {_NEW_TOPIC} is expected")

    def given(*names: str) -> object:
        return next((getattr(value, name) for name in names if hasattr(value, name)), None) or None

    return NewTopic(
        given("name", "topic"),  # type: ignore[arg-type]  # which is what __post_init__ looks at
        value.num_partitions,
        getattr(value, "replication_factor", None),
        given("replica_assignments", "replica_assignment"),  # type: ignore[arg-type]
        given("topic_configs", "config"),  # type: ignore[arg-type]
    )


def to_assignments(given: object) -> tuple[tuple[int, ...], ...]:
    """Check the broker ids of each partition, in order of the partitions; each has the same number of them."""
    if isinstance(given, Mapping):
        if sorted(given) != list(range(len(given))):
            raise ConfigError(f"assignments has the partitions {sorted(given)}: they are numbered from 0 without gaps")
        given = [given[number] for number in range(len(given))]
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise TypeError(f"assignments cannot be {given!r}: the brokers of each partition, like [[1, 2], [2, 3]]")
    rows = []
    for row in given:
        if isinstance(row, (str, bytes)) or not isinstance(row, Iterable):
            raise TypeError(f"assignments cannot have {row!r}: the brokers of a partition, like [1, 2]")
        rows.append(tuple(whole_number(each, "assignments", "the number of a broker", INT32_MAX) for each in row))
    if not rows:
        raise ConfigError("assignments is empty: the brokers of each partition are expected, like [[1, 2], [2, 3]]")
    for number, brokers in enumerate(rows):
        if not brokers or len(set(brokers)) != len(brokers) or len(brokers) != len(rows[0]):
            raise ConfigError(
                f"assignments has {list(brokers)} for partition {number}: as many for each, none twice, are expected"
            )
    return tuple(rows)


def _number(value: object, name: str, maximum: int = _INT16_MAX) -> int:
    if value == _LEFT_TO_CLUSTER:
        return _LEFT_TO_CLUSTER
    return whole_number(value, name, "1 or more, or -1 for the cluster's default,", maximum, minimum=1)


def _configs_of(configs: object) -> dict[str, object]:
    if configs is None:
        return {}
    if not isinstance(configs, Mapping) or not all(isinstance(name, str) for name in configs):
        raise TypeError(f"configs cannot be {configs!r}: a mapping is expected, like {{'retention.ms': 1000}}")
    return dict(configs)


def create_request(topics: Iterable[NewTopic], *, validate_only: bool) -> create_topics.CreateTopicsRequest:
    """Build the request that creates topics; a config whose value is `None` keeps the cluster's default."""
    return create_topics.CreateTopicsRequest(
        topics=[_creatable(topic) for topic in topics], timeout_ms=TIMEOUT_MS, validate_only=validate_only
    )


def _creatable(topic: NewTopic) -> create_topics.CreatableTopic:
    brokers = topic.assignments or ()
    assert isinstance(brokers, tuple) and topic.partitions is not None and topic.replication_factor is not None
    return create_topics.CreatableTopic(
        name=topic.name,
        # The assignment says both.
        num_partitions=-1 if brokers else topic.partitions,
        replication_factor=-1 if brokers else topic.replication_factor,
        assignments=[
            create_topics.CreatableReplicaAssignment(partition_index=number, broker_ids=list(row))
            for number, row in enumerate(brokers)
        ],
        configs=[
            create_topics.CreatableTopicConfig(name=key, value=as_text(value))
            for key, value in sorted((topic.configs or {}).items())
            # The default: a broker refuses a config that is set to nothing.
            if value is not None
        ],
    )


def weight(topic: NewTopic) -> int:
    """Estimate how many records a controller writes for a topic; partition counts left to the cluster are unknown."""
    return 1 + max(1, topic.partitions or 1) + len(topic.configs or ())


def grow_request(
    totals: Mapping[str, int], assignments: Mapping[str, Sequence[Sequence[int]]], *, validate_only: bool
) -> create_partitions.CreatePartitionsRequest:
    """Build the request that increases partition counts; `assignments`: the broker ids of each new partition."""
    topics = [
        create_partitions.CreatePartitionsTopic(
            name=name,
            count=total,
            assignments=[
                create_partitions.CreatePartitionsAssignment(broker_ids=list(row)) for row in assignments[name]
            ]
            if name in assignments
            else None,
        )
        for name, total in totals.items()
    ]
    return create_partitions.CreatePartitionsRequest(topics=topics, timeout_ms=TIMEOUT_MS, validate_only=validate_only)


def offsets_requests(
    partitions: Iterable[TopicPartition], timestamp: int, metadata: MetadataResponse
) -> dict[Endpoint, list_offsets.ListOffsetsRequest]:
    """Build one ListOffsets request per leader; partitions without a leader are left out."""
    led = by_leader(partitions, metadata).items()
    return {leader: offsets_request(dict.fromkeys(chosen, timestamp)) for leader, chosen in led if leader is not None}


def offsets_request(
    timestamps: Mapping[TopicPartition, int], *, isolation_level: int = 0
) -> list_offsets.ListOffsetsRequest:
    """Build the ListOffsets request to one leader; -2 stands for the earliest offset, -1 for the latest."""
    topics: dict[str, list_offsets.ListOffsetsTopic] = {}
    for (name, number), timestamp in timestamps.items():
        topic = topics.setdefault(name, list_offsets.ListOffsetsTopic(name=name))
        topic.partitions.append(list_offsets.ListOffsetsPartition(partition_index=number, timestamp=timestamp))
    return list_offsets.ListOffsetsRequest(
        replica_id=-1, isolation_level=isolation_level, topics=list(topics.values()), timeout_ms=TIMEOUT_MS
    )


def check_topic(topic: MetadataResponseTopic) -> None:
    """Raise `UnknownTopicError`, or the broker's error, for a topic that Metadata has refused."""
    code = ErrorCode.of(topic.error_code)
    if code in (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID):
        raise UnknownTopicError(topic.name or "")
    if code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
        raise BrokerError(code, during=f"looking up topic {topic.name}")


def idle_configs(rows: Iterable[DescribeConfigsResourceResult]) -> dict[str, str]:
    """Return the configs set on a topic that the broker ignores, each with the broker's remark."""
    told = {row.name: idle_words_in(row.documentation) for row in rows if row.config_source == _SET_ON_TOPIC}
    return {name: words for name, words in told.items() if words is not None}


def to_timestamp(at: object, *, now_ms: int) -> int:
    """Return Kafka's number for a word such as "latest"; for a time, milliseconds since 1970."""
    if isinstance(at, str):
        found = next((number for word, number in WORDS.items() if word == at), None)
        if found is None:
            raise ConfigError(f"at cannot be {at!r}: {', '.join(WORDS)} or a time is expected")
        return found
    if isinstance(at, datetime) and at.tzinfo is None:
        raise ConfigError("at is a datetime without a time zone: say which, for example datetime.now(UTC)")
    if isinstance(at, timedelta) and at < timedelta():
        raise ConfigError(f"at cannot be {at}: it says how long ago, 0 or more")
    if isinstance(at, datetime | timedelta):
        return max(0, timestamp_of(at, now_ms=now_ms) or 0)
    return whole_number(at, "at", "a word, a datetime, a timedelta or milliseconds since 1970", INT64_MAX)


def first_version(timestamps: Iterable[int]) -> int | None:
    """Return the first version of ListOffsets that has all of these special timestamps; `None` if each has."""
    return max((_SINCE[each] for each in timestamps if each in _SINCE), default=None)


def to_level(isolation_level: object) -> int:
    """Return Kafka's number of an isolation level."""
    if not isinstance(isolation_level, str) or isolation_level not in _LEVELS:
        raise ConfigError(f"isolation_level cannot be {isolation_level!r}: {' or '.join(_LEVELS)} is expected")
    return _LEVELS[isolation_level]


def to_places(given: object) -> tuple[list[str], list[TopicPartition]]:
    """Check topics and partitions, and return them apart; a topic means all of its partitions."""
    if isinstance(given, (str, bytes, TopicPartition)) or not isinstance(given, Iterable):
        raise TypeError(f"partitions cannot be {given!r}: a list of topics or partitions is expected, like ['orders']")
    topics: dict[str, None] = {}
    partitions: dict[TopicPartition, None] = {}
    for each in given:
        if isinstance(each, str):
            topics[to_topic(each, "['orders']")] = None
        else:
            partitions[to_partition(each)] = None
    return list(topics), list(partitions)


def to_own_times(given: object) -> dict[TopicPartition, OffsetAt]:
    """Return the partitions' own values of `at`, if they are given as a mapping; whole topics have none."""
    return {to_partition(each): at for each, at in given.items()} if isinstance(given, Mapping) else {}


def to_cuts(offsets: object) -> dict[TopicPartition, int]:
    """Check the new log start offset of each partition."""
    if not isinstance(offsets, Mapping):
        raise TypeError(
            f"offsets cannot be {offsets!r}: a mapping is expected, like {{TopicPartition('orders', 0): 5}}"
        )
    expected = 'an offset, 0 or above, or "latest"'
    return {
        to_partition(each): _HIGH_WATERMARK
        if isinstance(at, str) and at == "latest"
        else whole_number(at, "the offset before which records go", expected, INT64_MAX)
        for each, at in offsets.items()
    }


def delete_request(cuts: Mapping[TopicPartition, int]) -> delete_records.DeleteRecordsRequest:
    """Build the request that deletes records at one leader."""
    topics: dict[str, delete_records.DeleteRecordsTopic] = {}
    for (name, number), offset in cuts.items():
        topic = topics.setdefault(name, delete_records.DeleteRecordsTopic(name=name))
        topic.partitions.append(delete_records.DeleteRecordsPartition(partition_index=number, offset=offset))
    return delete_records.DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=TIMEOUT_MS)
