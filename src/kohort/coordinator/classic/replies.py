"""Replies to members of a classic group: generation, assignment or error.

Source: Apache Kafka's `GroupMetadataManager` (completeClassicGroupJoin, propagateAssignment).
"""

from __future__ import annotations

from kohort.coordinator.classic.state import ClassicGroup, ClassicMember
from kohort.coordinator.commands.groups import JoinedMember, JoinGroupReply, SyncGroupReply
from kohort.errors import ErrorCode


def build_join_reply(group: ClassicGroup, member: ClassicMember) -> JoinGroupReply:
    """Build the JoinGroup reply to one member; only the leader gets the member list."""
    is_leader = group.leader == member.member_id
    return JoinGroupReply(
        error=ErrorCode.NONE,
        generation_id=group.generation,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        leader=group.leader or "",
        member_id=member.member_id,
        members=tuple(
            JoinedMember(
                member_id=other.member_id, instance_id=other.instance_id, metadata=other.metadata(group.protocol_name)
            )
            for other in group.members.values()
        )
        if is_leader
        else (),
    )


def build_join_error(error: ErrorCode, member_id: str) -> JoinGroupReply:
    """Build the reply to a failed JoinGroup; `member_id` is the id for the client's next attempt."""
    return JoinGroupReply(
        error=error,
        generation_id=-1,
        protocol_type=None,
        protocol_name=None,
        leader="",
        member_id=member_id,
        members=(),
    )


def build_sync_reply(group: ClassicGroup, member: ClassicMember) -> SyncGroupReply:
    """Build the SyncGroup reply with one member's assignment."""
    return SyncGroupReply(
        error=ErrorCode.NONE,
        protocol_type=group.protocol_type,
        protocol_name=group.protocol_name,
        assignment=member.assignment,
    )


def build_sync_error(error: ErrorCode) -> SyncGroupReply:
    """Build the reply to a failed SyncGroup."""
    return SyncGroupReply(error=error, protocol_type=None, protocol_name=None, assignment=b"")
