"""The present goal of a member: its target without the moves that have not begun.

Until a move begins the old owner keeps the partition, and the new one does not get it: neither learns of it. Without a
pace every move begins with the target that makes it, and this module is not used.

Laws: a waiting move has an owner who may use the partition. Where the owner loses it for another reason the move waits
no longer, and the partition is free for the member whose target has it.
Source: requirement H4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass

from kohort.coordinator.model import NO_GRANTS, NO_TARGET, ConsumerGroup, Grants, Paced, Place, Target, WaitingMove
from kohort.coordinator.records import MemberTargetSet, Record, VolatileRecord
from kohort.ids import TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesHeldBack(VolatileRecord):
    """Exactly these moves wait, in the order in which they begin."""

    waiting: dict[Place, WaitingMove]


@dataclass(frozen=True, slots=True, kw_only=True)
class MovesBegun(VolatileRecord):
    """These moves wait no longer.

    `paced`: the progress at the pace after them.
    """

    places: tuple[Place, ...]
    paced: Paced


def way_of(group: ConsumerGroup, member_id: str) -> Mapping[TopicId, tuple[int, ...]]:
    """Return the present goal of a member."""
    target = group.targets.get(member_id, NO_TARGET)
    member = group.members.get(member_id)
    if not group.waiting or member is None:
        return target
    return build_way(member_id, target, member.assigned, group.waiting)


def way_in(records: Collection[Record], group: ConsumerGroup, member_id: str) -> Mapping[TopicId, tuple[int, ...]]:
    """Return the goal of a member after `records`."""
    target = target_in(records, group, member_id)
    held_back = next((record for record in records if isinstance(record, MovesHeldBack)), None)
    waiting: Mapping[Place, WaitingMove] = group.waiting if held_back is None else held_back.waiting
    if not waiting:
        return target
    member = group.members.get(member_id)
    return build_way(member_id, target, NO_GRANTS if member is None else member.assigned, waiting)


def target_in(records: Collection[Record], group: ConsumerGroup, member_id: str) -> Mapping[TopicId, tuple[int, ...]]:
    """Return the member's target after `records`."""
    # The latest record counts: a group that changes its protocol had a target before this decision's.
    for record in reversed(tuple(records)):
        if isinstance(record, MemberTargetSet) and record.member_id == member_id:
            return record.partitions
    return group.targets.get(member_id, NO_TARGET)


def build_way(
    member_id: str, target: Mapping[TopicId, tuple[int, ...]], assigned: Grants, waiting: Mapping[Place, WaitingMove]
) -> Target:
    """Return the target without partitions that others keep for now, and with those that the member keeps."""
    way = {topic_id: set(partitions) for topic_id, partitions in target.items()}
    for topic_id, wanted in way.items():
        wanted.difference_update([each for each in wanted if _keeper(waiting, topic_id, each, member_id) != member_id])
    for topic_id, grants in assigned.items():
        kept = [each for each in grants if (topic_id, each) in waiting and waiting[topic_id, each].keeper == member_id]
        if kept:
            way.setdefault(topic_id, set()).update(kept)
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in way.items() if partitions}


def places_of(grants: Mapping[TopicId, Iterable[int]]) -> set[Place]:
    """Return (topic id, partition) of every partition."""
    return {(topic_id, partition) for topic_id, partitions in grants.items() for partition in partitions}


def _keeper(waiting: Mapping[Place, WaitingMove], topic_id: TopicId, partition: int, otherwise: str) -> str:
    move = waiting.get((topic_id, partition))
    return otherwise if move is None else move.keeper
