"""DescribeGroups of a classic group.

Source: Apache Kafka's `ClassicGroup.asDescribedGroup`.
"""

from __future__ import annotations

from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.commands.admin import DescribeClassicGroupReply, DescribedClassicMember
from kohort.errors import ErrorCode


def describe(group: ClassicGroup | None, group_id: str) -> DescribeClassicGroupReply:
    """Describe the group; metadata and assignments only while it is Stable, as Kafka does."""
    if group is None:
        return DescribeClassicGroupReply(
            error=ErrorCode.GROUP_ID_NOT_FOUND,
            group_id=group_id,
            state="Dead",
            protocol_type="",
            protocol_name="",
            members=(),
        )
    is_stable = group.state is ClassicGroupState.STABLE
    return DescribeClassicGroupReply(
        error=ErrorCode.NONE,
        group_id=group_id,
        state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_name=(group.protocol_name or "") if is_stable else "",
        members=tuple(
            DescribedClassicMember(
                member_id=member.member_id,
                instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                metadata=member.metadata(group.protocol_name) if is_stable else b"",
                assignment=member.assignment if is_stable else b"",
            )
            for member in group.members.values()
        ),
    )
