"""Validation of commits to a classic group.

Laws: a current member's commit is accepted in every state of the group, so that no member is stuck behind the barrier
of a rebalance: until the next assignment, no other member can own the partition.
Source: Apache Kafka's `ClassicGroup.validateOffsetCommit`, but for CompletingRebalance, where Kafka refuses.
"""

from __future__ import annotations

from kohort.coordinator.classic.checks import check_generation, check_member
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.commands.offsets import CommitOffsets
from kohort.coordinator.decision import Arm, Decision, TimerKey
from kohort.coordinator.embeddedcodec import NamedPartitions, read_assignment
from kohort.coordinator.model import GroupsState
from kohort.coordinator.static_membership.mode import heard
from kohort.errors import ErrorCode, Refused


def check_commit(group: ClassicGroup | None, command: CommitOffsets) -> None:
    """Refuse a commit of a client that is no member, or of an older generation.

    Args:
        group: `None` if it does not exist; then only a commit without a generation is accepted.

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


def former_share(group: ClassicGroup, command: CommitOffsets) -> NamedPartitions | None:
    """Return the partitions that a member may commit by an epoch of the former KIP-848 group.

    These are its last partitions there: other members may have committed since for the ones that it had revoked. `None`
    is no limit: there was no such group, or the member names its last epoch.
    """
    member = group.members.get(command.member_id)
    if not group.was_consumer_group or member is None or command.generation_or_member_epoch == group.generation:
        return None
    held = read_assignment(member.assignment)
    return {} if held is None else held.partitions


def decide_sign(
    group: ClassicGroup | None, command: CommitOffsets, *, now_ms: int, groups: GroupsState | None = None
) -> Decision:
    """Renew the session of a member that commits, and bring it back in a static group."""
    member = group.members.get(command.member_id) if group is not None else None
    if group is None or member is None or member.member_id in group.new_members:
        return Decision()
    key = TimerKey("session", group.group_id, member.member_id)
    records = () if groups is None else tuple(heard(groups, group.group_id, member.member_id))
    return Decision(records, (Arm(key, now_ms + member.session_timeout_ms),))
