"""Whether a member has what it shall have: then a new epoch of its group is no news to it. Whether all of them have.

Laws: a member that is settled is neither written to nor told of an epoch; it learns of it with its next news. So what a
change of a group costs follows from what moves, and not from how many members there are.
Source: requirement G7. Apache Kafka takes every member to every epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from kohort.coordinator.model import NO_TARGET, ConsumerGroup, ConsumerMember, Grants
from kohort.coordinator.records import (
    ConsumerGroupEpochSet,
    ConsumerGroupForgotten,
    ConsumerMemberForgotten,
    ConsumerMemberSubscribed,
    CurrentAssignmentSet,
    MemberState,
    MemberTargetSet,
    Record,
    TargetAssignmentEpochSet,
)
from kohort.ids import TopicId


def is_settled(member: ConsumerMember | CurrentAssignmentSet, target: Mapping[TopicId, tuple[int, ...]]) -> bool:
    """Whether a member is there, holds its target and nothing else; `member` may be what is about to be written."""
    return member.state == MemberState.STABLE and member.member_epoch > 0 and _is_of(member.assigned, target)


def known_epoch(group: ConsumerGroup, member: ConsumerMember) -> int:
    """The epoch whose target a member has reached, be it that nobody had to tell it."""
    return member.member_epoch if member.member_id in group.behind else group.target_epoch


def rest_epoch(group: ConsumerGroup | None, records: Iterable[Record]) -> int | None:
    """The epoch for which every member has what it shall have by `records`; `None` if that is not so, or was before.

    `group`: as it is before them, `None` if they make it.
    """
    epoch, target_epoch = (0, 0) if group is None else (group.epoch, group.target_epoch)
    before = epoch, target_epoch
    targets: dict[str, Mapping[TopicId, tuple[int, ...]]] = {}
    standings: dict[str, CurrentAssignmentSet | None] = {}
    gone: set[str] = set()
    for record in records:
        match record:
            case ConsumerGroupEpochSet():
                epoch = record.epoch
            case TargetAssignmentEpochSet():
                target_epoch = record.assignment_epoch
            case MemberTargetSet():
                targets[record.member_id] = record.partitions
            case ConsumerMemberSubscribed() if group is None or record.member_id not in group.members:
                standings.setdefault(record.member_id, None)
            case CurrentAssignmentSet():
                standings[record.member_id] = record
            case ConsumerMemberForgotten():
                gone.add(record.member_id)
            case ConsumerGroupForgotten():
                return None
    behind = set() if group is None else group.behind
    if epoch != target_epoch or (before == (epoch, target_epoch) and not behind):
        return None
    touched = targets.keys() | standings.keys()
    if behind - touched - gone:
        return None
    is_at_rest = all(_is_settled_after(group, standings, targets, member_id) for member_id in touched - gone)
    return epoch if is_at_rest else None


def _is_settled_after(
    group: ConsumerGroup | None,
    standings: Mapping[str, CurrentAssignmentSet | None],
    targets: Mapping[str, Mapping[TopicId, tuple[int, ...]]],
    member_id: str,
) -> bool:
    standing = standings.get(member_id) or (None if group is None else group.members.get(member_id))
    target = targets.get(member_id)
    if target is None:
        target = NO_TARGET if group is None else group.targets.get(member_id, NO_TARGET)
    return standing is not None and is_settled(standing, target)


def _is_of(assigned: Grants, target: Mapping[TopicId, tuple[int, ...]]) -> bool:
    """Whether both are of the same partitions."""
    return assigned.keys() == target.keys() and all(
        assigned[topic_id].keys() == set(partitions) for topic_id, partitions in target.items()
    )
