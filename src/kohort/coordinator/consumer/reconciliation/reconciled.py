"""Members that have exactly their target: a new epoch of the group is no news to them.

Laws: no record and no response takes a settled member to an epoch; it learns of the epoch with its next news. So the
cost of a change of a group follows from its moves, and not from the number of members.
Source: requirement G7. Apache Kafka takes every member to every epoch.
"""

from __future__ import annotations

from collections.abc import Mapping

from kohort.coordinator.consumer.reconciliation.effective_target import way_of
from kohort.coordinator.model import ConsumerGroup, ConsumerMember, Grants
from kohort.coordinator.records import (
    CurrentAssignmentSet,
    MemberState,
)
from kohort.ids import TopicId


def is_settled(member: ConsumerMember | CurrentAssignmentSet, target: Mapping[TopicId, tuple[int, ...]]) -> bool:
    """Whether a member is present with exactly its target; `member` may be a record about to be written."""
    return member.state == MemberState.STABLE and member.member_epoch > 0 and _is_of(member.assigned, target)


def known_epoch(group: ConsumerGroup, member: ConsumerMember) -> int:
    """Return the epoch of the target that a member has reached, also if no response has told it."""
    return member.member_epoch if member.member_id in group.behind else group.target_epoch


def note_standing(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Update `group.behind` for one member."""
    if is_settled(member, way_of(group, member.member_id)):
        group.behind.discard(member.member_id)
    else:
        group.behind.add(member.member_id)


def _is_of(assigned: Grants, target: Mapping[TopicId, tuple[int, ...]]) -> bool:
    """Whether both have the same partitions."""
    return assigned.keys() == target.keys() and all(
        assigned[topic_id].keys() == set(partitions) for topic_id, partitions in target.items()
    )
