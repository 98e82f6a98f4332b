"""Offsets at times, and records that are to go, as the admin client asks for them.

Source: Kafka's Admin (OffsetSpec, deleteRecords) and kafka-get-offsets (`--time`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, Literal

from kohort.client.admin.requests.offsets import timestamp_of
from kohort.client.admin.results.topics import ListedOffset
from kohort.client.arguments import INT64_MAX, to_partition, to_topic, whole_number
from kohort.errors import ConfigError
from kohort.ids import TopicPartition
from kohort.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from kohort.wire.messages.list_offsets import ListOffsetsPartitionResponse

#: Where an offset is looked for: at an end or the latest time, at a time, or so long ago.
WordAt = Literal["latest", "earliest", "max-timestamp", "earliest-local", "latest-tiered"]
OffsetAt = WordAt | int | datetime | timedelta
#: Kafka's numbers of the words, which stand in place of a time, and the version that knows all of them.
WORDS: Final[dict[WordAt, int]] = {
    "latest": -1,
    "earliest": -2,
    "max-timestamp": -3,
    "earliest-local": -4,
    "latest-tiered": -5,
}
_SINCE: Final = {-3: 7, -4: 8, -5: 9}
_LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}
#: Stands for the end in place of an offset.
_HIGH_WATERMARK: Final = -1


def to_timestamp(at: object, *, now_ms: int) -> int:
    """Kafka's number for a word, or milliseconds since 1970."""
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
    """Of ListOffsets, that knows these; `None` if all do."""
    return max((_SINCE[each] for each in timestamps if each in _SINCE), default=None)


def to_level(isolation_level: object) -> int:
    """Kafka's number."""
    if not isinstance(isolation_level, str) or isolation_level not in _LEVELS:
        raise ConfigError(f"isolation_level cannot be {isolation_level!r}: {' or '.join(_LEVELS)} is expected")
    return _LEVELS[isolation_level]


def to_places(given: object) -> tuple[list[str], list[TopicPartition]]:
    """Topics, all of whose partitions are meant, and single partitions."""
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
    """What is asked of each partition, where each has its own; a whole topic has none."""
    return {to_partition(each): at for each, at in given.items()} if isinstance(given, Mapping) else {}


def to_cuts(offsets: object) -> dict[TopicPartition, int]:
    """Partition -> where it is to begin."""
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


def delete_request(cuts: Mapping[TopicPartition, int], *, timeout_ms: int) -> DeleteRecordsRequest:
    """Asks one leader."""
    topics: dict[str, DeleteRecordsTopic] = {}
    for (name, number), offset in cuts.items():
        topic = topics.setdefault(name, DeleteRecordsTopic(name=name))
        topic.partitions.append(DeleteRecordsPartition(partition_index=number, offset=offset))
    return DeleteRecordsRequest(topics=list(topics.values()), timeout_ms=timeout_ms)


def listed(row: ListOffsetsPartitionResponse) -> ListedOffset:
    """What a leader says of one partition."""
    return ListedOffset(
        offset=None if row.offset < 0 else row.offset,
        timestamp=None if row.timestamp < 0 else row.timestamp,
        leader_epoch=None if row.leader_epoch < 0 else row.leader_epoch,
    )
