"""Volatile records about the target of a KIP-848 group.

Laws: applied like any record, never written. After a restart the target is computed anew if it is older than its group.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kohort.coordinator.consumer.assignment.balance import TargetBalance
from kohort.coordinator.consumer.reconciliation.effective_target import (
    MovesBegun,
    MovesHeldBack,
    apply_begun,
    apply_held_back,
)
from kohort.coordinator.consumer.reconciliation.move_throttle import MovesWeighed, apply_weighed
from kohort.coordinator.consumer.reconciliation.revocation_timeout import HandOverTimed, apply_hand_over_timed
from kohort.coordinator.consumer.reconciliation.track_moves import MovesFollowed, apply_moves_followed
from kohort.coordinator.decision import ComputeTarget
from kohort.coordinator.model import AssignorFailure, ConsumerGroup, GroupsState
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
    failure: AssignorFailure | None


def apply_computation_noted(groups: GroupsState, record: ComputationNoted) -> None:
    """Set the running computation of a group, the only one, and the latest failure."""
    group = _group(groups, record)
    if group is not None:
        group.computing = record.computing
        group.failure = record.failure


def apply_balance_kept(groups: GroupsState, record: TargetBalanceKept) -> None:
    """Set the kept balance, which changes no result."""
    group = _group(groups, record)
    if group is not None:
        group.balance = record.balance


def apply_window_opened(groups: GroupsState, record: AssignmentWindowOpened) -> None:
    """Open the window, which closes when the target is as new as the group."""
    group = _group(groups, record)
    if group is not None:
        group.window_opened_ms = record.opened_ms


def _group(groups: GroupsState, record: VolatileRecord) -> ConsumerGroup | None:
    return groups.consumer.get(record.group_id)


#: Record type -> function that applies it.
VOLATILE_RECORDS: Final[dict[type[Record], Callable[..., None]]] = {
    AssignmentWindowOpened: apply_window_opened,
    TargetBalanceKept: apply_balance_kept,
    ComputationNoted: apply_computation_noted,
    HandOverTimed: apply_hand_over_timed,
    MovesHeldBack: apply_held_back,
    MovesBegun: apply_begun,
    MovesWeighed: apply_weighed,
    MovesFollowed: apply_moves_followed,
}
