"""Requests that change committed offsets and members, and the plan of an offset reset.

Laws: a planned offset lies within the log: from its start to its end. A plan depends on its arguments alone.
Source: Kafka's Admin and kafka-consumer-groups (`--reset-offsets`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime, timedelta
from typing import Final, Literal

from kohort.client.admin.results.groups import OffsetReset
from kohort.client.records import Committable, with_metadata
from kohort.errors import ConfigError
from kohort.ids import TopicPartition
from kohort.wire.messages import leave_group, offset_commit, offset_delete

#: A place at which a group may begin anew: a word, an offset, a time, so long ago, or an offset for each partition.
ResetTo = Literal["earliest", "latest", "current"] | int | datetime | timedelta | Mapping[TopicPartition, int]
_WORDS: Final = ("earliest", "latest", "current")


def commit_request(group: str, offsets: Mapping[TopicPartition, Committable]) -> offset_commit.OffsetCommitRequest:
    """Build a commit by an administrator, which is no member; brokers accept it for an empty group only."""
    topics: dict[str, offset_commit.OffsetCommitRequestTopic] = {}
    for (name, number), given in sorted(offsets.items()):
        kept = with_metadata(given)
        topic = topics.setdefault(name, offset_commit.OffsetCommitRequestTopic(name=name))
        topic.partitions.append(
            offset_commit.OffsetCommitRequestPartition(
                partition_index=number,
                committed_offset=kept.offset,
                committed_leader_epoch=kept.leader_epoch,
                committed_metadata=kept.metadata,
            )
        )
    return offset_commit.OffsetCommitRequest(group_id=group, member_id="", topics=list(topics.values()))


def delete_request(group: str, partitions: Iterable[TopicPartition]) -> offset_delete.OffsetDeleteRequest:
    """Build the request that deletes offsets."""
    topics: dict[str, offset_delete.OffsetDeleteRequestTopic] = {}
    for name, number in sorted(set(partitions)):
        topic = topics.setdefault(name, offset_delete.OffsetDeleteRequestTopic(name=name))
        topic.partitions.append(offset_delete.OffsetDeleteRequestPartition(partition_index=number))
    return offset_delete.OffsetDeleteRequest(group_id=group, topics=list(topics.values()))


def leave_request(group: str, members: Iterable[tuple[str, str | None]], reason: str) -> leave_group.LeaveGroupRequest:
    """Build the request that removes members, each with its id and its static name."""
    rows = [
        leave_group.MemberIdentity(member_id="" if name else member_id, group_instance_id=name, reason=reason)
        for member_id, name in members
    ]
    return leave_group.LeaveGroupRequest(group_id=group, members=rows)


def check_reset(to: object, shift_by: int | None) -> None:
    """Check the arguments of `reset_offsets` for the new position; raise `ConfigError` or `TypeError`."""
    if (to is None) == (shift_by is None):
        raise ConfigError("one of to and shift_by is expected: where the group shall begin, or by how many records")
    if isinstance(to, str) and to not in _WORDS:
        raise ConfigError(f"to cannot be {to!r}: {', '.join(_WORDS)}, an offset, a datetime or a timedelta is expected")
    if isinstance(to, datetime) and to.tzinfo is None:
        raise ConfigError("to is a datetime without a time zone: say which, for example datetime.now(UTC)")
    if isinstance(to, timedelta) and to < timedelta():
        raise ConfigError(f"to cannot be {to}: it says how long ago, 0 or more")
    if isinstance(to, bool) or not isinstance(to, str | int | datetime | timedelta | Mapping | None):
        raise TypeError(f"to cannot be {to!r}: {', '.join(_WORDS)}, an offset, a datetime or a timedelta is expected")
    if isinstance(to, int) and to < 0:
        raise ConfigError(f"to cannot be {to}: offsets begin with 0; shift_by goes back")


def timestamp_of(to: object, *, now_ms: int) -> int | None:
    """Return the time in `to`, milliseconds since 1970; `None` if `to` is not a time."""
    if isinstance(to, datetime):
        return int(to.timestamp() * 1000)
    return now_ms - int(to.total_seconds() * 1000) if isinstance(to, timedelta) else None


def plan(
    partitions: Collection[TopicPartition],
    to: ResetTo | None,
    shift_by: int | None,
    *,
    committed: Mapping[TopicPartition, int],
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    by_time: Mapping[TopicPartition, int],
) -> list[OffsetReset]:
    """Plan the new committed offset of each partition, sorted by topic and partition.

    Args:
        by_time: if `to` is a time, the offset of each first record from then on; -1 if there is none.
    """

    def wanted_of(partition: TopicPartition) -> int:
        if to == "earliest":
            return begins[partition]
        if to == "latest":
            return ends[partition]
        if isinstance(to, Mapping):
            return to[partition]
        if isinstance(to, int):
            return to
        if isinstance(to, datetime | timedelta):
            found = by_time.get(partition, -1)
            return ends[partition] if found < 0 else found
        # What a group has not committed yet stands where it would begin by itself: nowhere, so at the end.
        current = committed.get(partition, ends[partition])
        if shift_by is None:
            return current
        if partition not in committed:
            raise ConfigError(f"{partition.topic}-{partition.partition} has no committed offset that could be shifted")
        return current + shift_by

    rows = []
    for each in sorted(partitions):
        wanted = wanted_of(each)
        offset = min(max(wanted, begins[each]), ends[each])
        rows.append(
            OffsetReset(
                topic=each.topic, partition=each.partition, committed=committed.get(each), offset=offset, wanted=wanted
            )
        )
    return rows
