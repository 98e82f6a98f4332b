"""The only place that changes committed offsets: the living coordinator and recovery both come here."""

from __future__ import annotations

from kohort.coordinator.model import GroupsState
from kohort.coordinator.records import OffsetCommitted, OffsetForgotten


def apply_offset_committed(groups: GroupsState, record: OffsetCommitted) -> None:
    """Type 1."""
    topics = groups.offsets.setdefault(record.group_id, {})
    topics.setdefault(record.topic, {})[record.partition] = record


def apply_offset_forgotten(groups: GroupsState, record: OffsetForgotten) -> None:
    """Tombstone of type 1."""
    topics = groups.offsets.get(record.group_id)
    partitions = None if topics is None else topics.get(record.topic)
    if topics is None or partitions is None:
        return
    partitions.pop(record.partition, None)
    if not partitions:
        del topics[record.topic]
    if not topics:
        del groups.offsets[record.group_id]
