"""Volatile records about the target of a KIP-848 group.

Laws: applied like any record, never written. After a restart the target is computed anew if it is older than its group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kohort.coordinator import model
from kohort.coordinator.consumer.assignment.balance import TargetBalance
from kohort.coordinator.consumer.reconciliation import effective_target, move_throttle, revocation_timeout, track_moves
from kohort.coordinator.decision import ComputeTarget
from kohort.coordinator.records.types import Record, VolatileRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentWindowOpened(VolatileRecord):
    """The first change since the latest target came at `opened_ms`."""

    opened_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetBalanceKept(VolatileRecord):
    """The balance of the present target, updated from now on; `None` discards it."""

    balance: TargetBalance | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputationNoted(VolatileRecord):
    """An assignor of the user's own works on `computing`, or on nothing; `failure` is its latest failure."""

    computing: ComputeTarget | None
    failure: model.AssignorFailure | None


def apply_computation_noted(groups: model.GroupsState, record: ComputationNoted) -> None:
    """Set the running computation of a group, the only one, and the latest failure."""
    group = _group(groups, record)
    if group is not None:
        group.computing = record.computing
        group.failure = record.failure


def apply_balance_kept(groups: model.GroupsState, record: TargetBalanceKept) -> None:
    """Set the kept balance, which changes no result."""
    group = _group(groups, record)
    if group is not None:
        group.balance = record.balance


def apply_window_opened(groups: model.GroupsState, record: AssignmentWindowOpened) -> None:
    """Open the window, which closes when the target is as new as the group."""
    group = _group(groups, record)
    if group is not None:
        group.window_opened_ms = record.opened_ms


def _group(groups: model.GroupsState, record: VolatileRecord) -> model.ConsumerGroup | None:
    return groups.consumer.get(record.group_id)


#: Record type -> function that applies it.
VOLATILE_RECORDS: Final[dict[type[Record], Callable[..., None]]] = {
    AssignmentWindowOpened: apply_window_opened,
    TargetBalanceKept: apply_balance_kept,
    ComputationNoted: apply_computation_noted,
    revocation_timeout.HandOverTimed: revocation_timeout.apply_hand_over_timed,
    effective_target.MovesHeldBack: effective_target.apply_held_back,
    effective_target.MovesBegun: effective_target.apply_begun,
    move_throttle.MovesWeighed: move_throttle.apply_weighed,
    track_moves.MovesFollowed: track_moves.apply_moves_followed,
}
