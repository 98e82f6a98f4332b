"""Forgetting members of a KIP-848 group, and the group.

Laws: the tombstones of a member are in the order current assignment, target, subscription, and those of a group come
after its members', so that a log from which compaction took some of them never shows a member that holds something it
did not ask for, or members without a group.
Source: Apache Kafka's order of tombstones.
"""

from __future__ import annotations

from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.records import (
    ConsumerGroupForgotten,
    ConsumerMemberForgotten,
    CurrentAssignmentForgotten,
    MemberTargetForgotten,
    Record,
    RegularExpressionForgotten,
    TargetAssignmentEpochForgotten,
)


def build_member_tombstones(group_id: str, member_id: str) -> list[Record]:
    """Forget one member."""
    return [
        CurrentAssignmentForgotten(group_id=group_id, member_id=member_id),
        MemberTargetForgotten(group_id=group_id, member_id=member_id),
        ConsumerMemberForgotten(group_id=group_id, member_id=member_id),
    ]


def build_group_tombstones(group: ConsumerGroup) -> list[Record]:
    """Forget a group with all who are in it."""
    group_id = group.group_id
    records = [each for member_id in sorted(group.members) for each in build_member_tombstones(group_id, member_id)]
    # In an empty group nobody subscribes with a pattern; a log that another broker wrote may have some.
    records.extend(RegularExpressionForgotten(group_id=group_id, regex=regex) for regex in sorted(group.regexes))
    records.append(TargetAssignmentEpochForgotten(group_id=group_id))
    records.append(ConsumerGroupForgotten(group_id=group_id))
    return records
