"""Whether a member has what it shall have: then a new epoch of its group is no news to it. Whether all of them have.

Laws: a member that is settled is neither written to nor told of an epoch; it learns of it with its next news. So what a
change of a group costs follows from what moves, and not from how many members there are.
Source: requirement G7. Apache Kafka takes every member to every epoch.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.coordinator.consumer.reconciliation.way import way_of
from kohort.coordinator.model import ConsumerGroup, ConsumerMember, Grants
from kohort.coordinator.records import (
    CurrentAssignmentSet,
    MemberState,
)
from kohort.ids import TopicId


def is_settled(member: ConsumerMember | CurrentAssignmentSet, target: Mapping[TopicId, tuple[int, ...]]) -> bool:
    """Whether a member is there, holds its target and nothing else; `member` may be what is about to be written."""
    return member.state == MemberState.STABLE and member.member_epoch > 0 and _is_of(member.assigned, target)


def known_epoch(group: ConsumerGroup, member: ConsumerMember) -> int:
    """The epoch whose target a member has reached, be it that nobody had to tell it."""
    return member.member_epoch if member.member_id in group.behind else group.target_epoch


def note_standing(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Keep `group.behind` true for one member."""
    if is_settled(member, way_of(group, member.member_id)):
        group.behind.discard(member.member_id)
    else:
        group.behind.add(member.member_id)


def _is_of(assigned: Grants, target: Mapping[TopicId, tuple[int, ...]]) -> bool:
    """Whether both are of the same partitions."""
    return assigned.keys() == target.keys() and all(
        assigned[topic_id].keys() == set(partitions) for topic_id, partitions in target.items()
    )
