"""Volatile records about the target of a KIP-848 group.

Laws: applied like any record, never written. After a restart the target is computed anew if it is older than its group.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from kohort.base.values import value
from kohort.coordinator import model
from kohort.coordinator.consumer.assignment.balance import TargetBalance
from kohort.coordinator.consumer.reconciliation import effective_target, move_throttle, revocation_timeout, track_moves
from kohort.coordinator.decision import ComputeTarget
from kohort.coordinator.records.types import Record, VolatileRecord


@value
class AssignmentWindowOpened(VolatileRecord):
    """The first change since the latest target happened at `opened_ms`: the batching window is open."""

    opened_ms: int


@value
class TargetBalanceKept(VolatileRecord):
    """The balance of the present target, cached and updated from now on; `None` discards it."""

    balance: TargetBalance | None


@value
class ComputationNoted(VolatileRecord):
    """The target computation that runs outside of the coordinator, `None`: none, and its latest failure."""

    computing: ComputeTarget | None
    failure: model.AssignorFailure | None


def apply_noted(
    groups: model.GroupsState, record: AssignmentWindowOpened | TargetBalanceKept | ComputationNoted
) -> None:
    """Apply a volatile record about the target assignment, if its group still exists."""
    group = groups.consumer.get(record.group_id)
    if group is None:
        return
    match record:
        case AssignmentWindowOpened():
            # The window closes when the target is as new as the group.
            group.window_opened_ms = record.opened_ms
        case TargetBalanceKept():
            group.balance = record.balance
        case ComputationNoted():
            group.computing, group.failure = record.computing, record.failure


#: Record type -> function that applies it.
VOLATILE_RECORDS: Final[dict[type[Record], Callable[..., None]]] = {
    AssignmentWindowOpened: apply_noted,
    TargetBalanceKept: apply_noted,
    ComputationNoted: apply_noted,
    revocation_timeout.HandOverTimed: revocation_timeout.apply_hand_over_timed,
    effective_target.MovesHeldBack: effective_target.apply_held_back,
    effective_target.MovesBegun: effective_target.apply_begun,
    move_throttle.MovesWeighed: move_throttle.apply_weighed,
    track_moves.MovesFollowed: track_moves.apply_moves_followed,
}
