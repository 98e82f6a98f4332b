"""Heartbeat: renews a member's session, and tells it whether it has to rejoin.

Source: Apache Kafka's `GroupMetadataManager.classicGroupHeartbeat`.
"""

from __future__ import annotations

from kohort.coordinator.classic.checks import check_generation, check_member
from kohort.coordinator.classic.offline_clock import decide_back
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.commands.base import Done, Refusal
from kohort.coordinator.commands.groups import Heartbeat
from kohort.coordinator.decision import Arm, Decision, Reply, TimerKey
from kohort.coordinator.model import GroupsState
from kohort.errors import ErrorCode


def decide_heartbeat(
    group: ClassicGroup | None, command: Heartbeat, *, now_ms: int, groups: GroupsState | None = None
) -> Decision:
    """Renew the member's session, and bring it back in a static group; REBALANCE_IN_PROGRESS tells it to rejoin.

    Raises:
        Refused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION.
    """
    return decide_back(
        group, command.member_id, groups, lambda found: _renew_session(found, command, now_ms=now_ms), now_ms=now_ms
    )


def _renew_session(group: ClassicGroup | None, command: Heartbeat, *, now_ms: int) -> Decision:
    member = check_member(group, command.member_id, command.instance_id)
    assert group is not None
    check_generation(group, command.generation_id)
    # A member that is told to rejoin is alive all the same, so this refusal is a response with an effect.
    is_rebalancing = group.state is ClassicGroupState.PREPARING_REBALANCE
    body = Refusal(code=ErrorCode.REBALANCE_IN_PROGRESS) if is_rebalancing else Done()
    session = Arm(TimerKey("session", group.group_id, member.member_id), now_ms + member.session_timeout_ms)
    return Decision(effects=(session, Reply(command.request, body)))
