"""The values that applications get: consumed records, metadata of sent records, committed offsets."""

from __future__ import annotations

from typing import NamedTuple

from kohort.ids import TopicPartition


class ConsumerRecord(NamedTuple):
    """A record that a consumer has read.

    >>> record = ConsumerRecord("orders", 0, 7, 1700000000000, 0, b"key", b"value", (), 0)
    >>> record.value, record.topic_partition
    (b'value', TopicPartition(topic='orders', partition=0))
    """

    topic: str
    partition: int
    offset: int
    #: Milliseconds since 1970-01-01 UTC; -1 means none.
    timestamp: int
    #: 0: set by the producer; 1: set by the broker when it appended.
    timestamp_type: int
    key: bytes | None
    value: bytes | None
    #: (name, value) pairs in the order in which they were written; names may repeat.
    headers: tuple[tuple[str, bytes | None], ...]
    #: Epoch of the leader that appended it; -1 means unknown.
    leader_epoch: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the record was read from."""
        return TopicPartition(self.topic, self.partition)

    def error(self) -> None:
        """Return `None`: the call that reads raises errors (confluent-kafka returns them as a message)."""


class ListedTopic(NamedTuple):
    """A topic as a broker knows it; a topic that is deleted and created again gets another id.

    >>> ListedTopic("bWFkZS1vbi1tb25kYXkhIQ", (0, 1)).partitions
    (0, 1)
    """

    #: Kafka's base64 form; empty if the broker has no topic ids.
    topic_id: str
    #: Ascending.
    partitions: tuple[int, ...]


class GroupMetadata(NamedTuple):
    """The identity of a consumer in its group, as Kafka's ConsumerGroupMetadata has it.

    >>> GroupMetadata("billing", 7, "kohort-1", None).generation_id
    7
    """

    group_id: str
    #: Epoch of the member; classic: generation of the group; -1 while it is no member.
    generation_id: int
    member_id: str
    #: Name of a static member; `None` for a dynamic one.
    group_instance_id: str | None


class Rebalance(NamedTuple):
    """A change of a member's assignment.

    >>> rebalance = Rebalance("revoked", (TopicPartition("orders", 0),), "this member leaves")
    >>> f"{rebalance.kind} {rebalance.partitions[0]}: {rebalance.reason}"
    'revoked orders-0: this member leaves'
    """

    #: assigned, revoked or lost.
    kind: str
    #: Sorted.
    partitions: tuple[TopicPartition, ...]
    #: As far as the member knows, since brokers often send no reason; `kohort group history` has the broker's.
    reason: str


class OffsetAndMetadata(NamedTuple):
    """A committed offset: that of the next record to read, and a text of the application's.

    >>> OffsetAndMetadata(8, "by worker 3")
    OffsetAndMetadata(offset=8, metadata='by worker 3', leader_epoch=-1)
    """

    offset: int
    #: Any text of the application's; brokers accept 4096 bytes by default (offset.metadata.max.bytes).
    metadata: str = ""
    #: Epoch of the leader that appended the record before `offset`; -1 means unknown.
    leader_epoch: int = -1


#: A committed offset; a number stands for an offset without metadata.
Committable = int | OffsetAndMetadata


def with_metadata(chosen: Committable) -> OffsetAndMetadata:
    """Return the offset with empty metadata if it is a number."""
    return OffsetAndMetadata(chosen) if isinstance(chosen, int) else chosen


class OffsetRange(NamedTuple):
    """Records of one partition that were stored at consecutive offsets.

    >>> OffsetRange(partition=0, base_offset=7, record_count=3)
    OffsetRange(partition=0, base_offset=7, record_count=3)
    """

    partition: int
    #: Of the first record; -1: the broker was not asked for it (acks=0).
    base_offset: int
    record_count: int


class SentMany(NamedTuple):
    """The offsets at which the records of one `send_many`, or one topic of `send_arrow`, were stored.

    >>> SentMany("orders", 5, (OffsetRange(0, 7, 3), OffsetRange(1, 0, 2))).partitions
    (0, 1)
    """

    topic: str
    #: Number of stored records.
    record_count: int
    #: By partition, ascending, and within it by offset.
    ranges: tuple[OffsetRange, ...]

    @property
    def partitions(self) -> tuple[int, ...]:
        """The partitions that got records, ascending."""
        return tuple(sorted({each.partition for each in self.ranges}))


class RecordMetadata(NamedTuple):
    """The partition, offset and timestamp of a record that was sent.

    >>> RecordMetadata("orders", 0, 7, 1700000000000).topic_partition
    TopicPartition(topic='orders', partition=0)
    """

    topic: str
    partition: int
    #: -1: the broker was not asked for it (acks=0).
    offset: int
    #: Milliseconds since 1970-01-01 UTC, as stored.
    timestamp: int

    @property
    def topic_partition(self) -> TopicPartition:
        """The partition that the record was appended to."""
        return TopicPartition(self.topic, self.partition)
