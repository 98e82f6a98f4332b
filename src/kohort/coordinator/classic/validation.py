"""Validation of requests and commits to a classic group: membership, generation, size limits.

Laws: a check raises `Refused` and changes nothing.
Source: Apache Kafka's `ClassicGroup.validateMember`; the limits are kohort's own.
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator import commands, model
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState, ClassicMember
from kohort.coordinator.classic.subscriptions import NamedPartitions, read_assignment
from kohort.coordinator.decision import Arm, Decision, TimerKey
from kohort.coordinator.static_membership.mode import heard
from kohort.errors import ErrorCode, Refused

#: Most protocols of one member; clients have a handful.
PROTOCOLS_LIMIT: Final = 1_000
#: Most bytes of protocol names and metadata of one member.
MEMBER_METADATA_LIMIT_BYTES: Final = 1 << 20
#: The same limit for all members together; the leader gets it in one response, and the log takes it in one batch.
GROUP_METADATA_LIMIT_BYTES: Final = 16 << 20
#: Most bytes of all assignments of one generation.
ASSIGNMENTS_LIMIT_BYTES: Final = 32 << 20
#: A member cannot heartbeat while its first JoinGroup is delayed, so its session is this long until then.
NEW_MEMBER_TIMEOUT_MS: Final = 5 * 60 * 1000
#: Most member ids that are handed out and have not joined yet.
PENDING_LIMIT: Final = 10_000


def check_member(group: ClassicGroup | None, member_id: str, instance_id: str | None) -> ClassicMember:
    """Return the member that sent a request, by its member id and instance id.

    Refusals: UNKNOWN_MEMBER_ID, or FENCED_INSTANCE_ID if another member holds the instance id.
    """
    if group is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    if instance_id is not None:
        holder = group.instance_ids.get(instance_id)
        if holder is None:
            raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
        if holder != member_id:
            raise Refused(ErrorCode.FENCED_INSTANCE_ID)
    member = group.members.get(member_id)
    if member is None:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    return member


def check_generation(group: ClassicGroup, generation_id: int) -> None:
    """Refuse a generation other than the current one with ILLEGAL_GENERATION."""
    # Members of a former KIP-848 group know the epochs that they had reached, up to its last one.
    if generation_id != group.generation and not (group.was_consumer_group and 0 < generation_id < group.generation):
        raise Refused(ErrorCode.ILLEGAL_GENERATION)


def check_metadata_size(group: ClassicGroup | None, member: ClassicMember, *, in_place_of: str | None = None) -> None:
    """Refuse too much metadata of a member (INVALID_REQUEST) or of a group (GROUP_MAX_SIZE_REACHED).

    `in_place_of`: the member id whose metadata the member replaces; `None` means its own.
    """
    if member.metadata_bytes > MEMBER_METADATA_LIMIT_BYTES:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the member's protocols take {member.metadata_bytes} bytes, {MEMBER_METADATA_LIMIT_BYTES} are allowed",
        )
    if group is None:
        return
    older = group.members.get(in_place_of or member.member_id)
    already = older.metadata_bytes if older is not None else 0
    if group.metadata_bytes - already + member.metadata_bytes > GROUP_METADATA_LIMIT_BYTES:
        raise Refused(
            ErrorCode.GROUP_MAX_SIZE_REACHED, f"the metadata of all members may take {GROUP_METADATA_LIMIT_BYTES} bytes"
        )


# Validation of commits to a classic group.
#
# Laws: a current member's commit is accepted in every state of the group, so that no member is stuck behind the barrier
# of a rebalance: until the next assignment, no other member can own the partition.
# Source: Apache Kafka's `ClassicGroup.validateOffsetCommit`, but for CompletingRebalance, where Kafka refuses.


def check_commit(group: ClassicGroup | None, command: commands.CommitOffsets) -> None:
    """Refuse a commit from a client that is not a member, or with an older generation.

    To a group that does not exist only a commit without a generation is accepted.

    Raises:
        Refused: ILLEGAL_GENERATION, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID.
    """
    generation_id = command.generation_or_member_epoch
    if group is None:
        if generation_id >= 0:
            raise Refused(ErrorCode.ILLEGAL_GENERATION)
        return
    if generation_id < 0 and group.state is ClassicGroupState.EMPTY:
        # An administrator, or a consumer that was assigned by hand.
        return
    check_member(group, command.member_id, command.instance_id)
    check_generation(group, generation_id)


def former_share(group: ClassicGroup, command: commands.CommitOffsets) -> NamedPartitions | None:
    """Return the partitions that a member may commit with an epoch of the former KIP-848 group.

    These are its last partitions in that group: for those that it had revoked, other members may have committed since.
    `None`: all, because the group was no KIP-848 group, or the commit has the last epoch.
    """
    member = group.members.get(command.member_id)
    if not group.was_consumer_group or member is None or command.generation_or_member_epoch == group.generation:
        return None
    held = read_assignment(member.assignment)
    return {} if held is None else held.partitions


def decide_sign(
    group: ClassicGroup | None, command: commands.CommitOffsets, *, now_ms: int, groups: model.GroupsState | None = None
) -> Decision:
    """Renew the session of a member that commits; in a static group, mark it as online."""
    member = group.members.get(command.member_id) if group is not None else None
    if group is None or member is None or member.member_id in group.new_members:
        return Decision()
    key = TimerKey("session", group.group_id, member.member_id)
    records = () if groups is None else tuple(heard(groups, group.group_id, member.member_id))
    return Decision(records, (Arm(key, now_ms + member.session_timeout_ms),))
