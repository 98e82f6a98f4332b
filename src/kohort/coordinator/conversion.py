"""A group id changes its kind: only an empty group does, by the first member of the other protocol.

Laws: a group id is classic or KIP-848, never both; the tombstones of the one kind and the records of the other are one
batch. Committed offsets belong to the id and stay.
Source: Apache Kafka: empty groups convert either way under every migration policy.
"""

from __future__ import annotations

from kohort.coordinator.classic.state import ClassicGroupState
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records import (
    ClassicGroupForgotten,
    ConsumerGroupForgotten,
    Record,
    RegularExpressionForgotten,
    TargetAssignmentEpochForgotten,
)
from kohort.errors import ErrorCode, Refused


def decide_convert_to_consumer(groups: GroupsState, group_id: str) -> list[Record]:
    """What makes way for a KIP-848 group; refused while a classic group of that id has members.

    Raises:
        Refused: GROUP_ID_NOT_FOUND, Kafka's answer here; it ends the client that wants to join, nobody else.
    """
    classic = groups.classic.get(group_id)
    if classic is None:
        return []
    if classic.state is not ClassicGroupState.EMPTY:
        raise Refused(
            ErrorCode.GROUP_ID_NOT_FOUND,
            f"the group {group_id} has members of the classic protocol, and moving them to the consumer protocol is "
            "not served by this broker yet: stop them first, or use group.protocol=classic",
        )
    return [ClassicGroupForgotten(group_id=group_id)]


def decide_convert_to_classic(group: ConsumerGroup | None) -> list[Record]:
    """What makes way for a classic group; refused while a KIP-848 group of that id has members.

    Raises:
        Refused: INCONSISTENT_GROUP_PROTOCOL.
    """
    if group is None:
        return []
    if group.members:
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the group {group.group_id} has members of the consumer protocol: stop them first, or use "
            "group.protocol=consumer",
        )
    return build_group_tombstones(group)


def build_group_tombstones(group: ConsumerGroup) -> list[Record]:
    """Forget an empty KIP-848 group."""
    assert not group.members, "a group with members is not forgotten"
    return [
        # Nobody subscribes with these; a log that another broker wrote may have them.
        *(RegularExpressionForgotten(group_id=group.group_id, regex=regex) for regex in group.regexes),
        TargetAssignmentEpochForgotten(group_id=group.group_id),
        ConsumerGroupForgotten(group_id=group.group_id),
    ]
