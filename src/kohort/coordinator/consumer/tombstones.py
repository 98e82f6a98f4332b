"""Tombstones of members of a KIP-848 group, and of the group.

Laws: the tombstones of a member are in the order current assignment, target, subscription. Tombstones of a group come
after those of its members. If compaction removes some of them, a reader of the log still never finds a member with
partitions but no subscription, or members without a group.
Source: Apache Kafka's order of tombstones.
"""

from __future__ import annotations

from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.records import types as facts


def build_member_tombstones(group_id: str, member_id: str) -> list[facts.Record]:
    """Build the tombstones of one member."""
    return [
        facts.CurrentAssignmentForgotten(group_id=group_id, member_id=member_id),
        facts.MemberTargetForgotten(group_id=group_id, member_id=member_id),
        facts.ConsumerMemberForgotten(group_id=group_id, member_id=member_id),
    ]


def build_group_tombstones(group: ConsumerGroup) -> list[facts.Record]:
    """Build the tombstones of a group and its members."""
    group_id = group.group_id
    records = [each for member_id in sorted(group.members) for each in build_member_tombstones(group_id, member_id)]
    # An empty group has no subscribers of patterns; a log that another broker wrote may have some.
    records.extend(facts.RegularExpressionForgotten(group_id=group_id, regex=regex) for regex in sorted(group.regexes))
    records.append(facts.TargetAssignmentEpochForgotten(group_id=group_id))
    records.append(facts.ConsumerGroupForgotten(group_id=group_id))
    return records
