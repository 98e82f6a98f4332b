"""What changes `ClientSide`: records of ours in the log, and what only matters while the process lives.

Laws: nothing is decided here.
Source: KIP-848 as drafted (its records of members and targets).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kohort.coordinator.clientside import EVERYBODY, ClientSide
from kohort.coordinator.consumer.apply import group_of
from kohort.coordinator.consumer.targets.offload import LONGEST_ERROR
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records import (
    ClientAssignmentForgotten,
    ClientAssignmentSet,
    ClientAssignorsForgotten,
    ClientAssignorsSet,
    Record,
    VolatileRecord,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ComputationFailed(VolatileRecord):
    """A member that was asked for a target does not compute it; `why`: how a sentence ends that its assignor begins."""

    member_id: str
    assignor: str
    why: str


def apply_assignors_set(groups: GroupsState, record: ClientAssignorsSet) -> None:
    """Type 20,006."""
    side = _side_to_be(groups, record.group_id)
    side.put(record.member_id, record.assignors)
    # Who has another one may be able to do what it was not.
    side.failed.discard(record.member_id)


def apply_assignors_forgotten(groups: GroupsState, record: ClientAssignorsForgotten) -> None:
    """Tombstone of type 20,006."""
    side = _side(groups, record.group_id)
    if side is not None:
        side.put(record.member_id, ())
        side.failed.discard(record.member_id)


def apply_assignment_set(groups: GroupsState, record: ClientAssignmentSet) -> None:
    """Type 20,007."""
    side = _side_to_be(groups, record.group_id)
    side.said[record.member_id] = record.said
    _note_untold(groups, side, record)


def apply_assignment_forgotten(groups: GroupsState, record: ClientAssignmentForgotten) -> None:
    """Tombstone of type 20,007."""
    side = _side(groups, record.group_id)
    if side is not None and side.said.pop(record.member_id, None) is not None:
        _note_untold(groups, side, record)


def apply_computation_failed(groups: GroupsState, record: ComputationFailed) -> None:
    """Volatile."""
    side = _side(groups, record.group_id)
    if side is not None:
        side.failed.add(record.member_id)
        failures = (side.failure, f"{record.assignor} of {record.member_id} {record.why}")
        side.failure = "; ".join(filter(None, failures))[:LONGEST_ERROR]


def _note_untold(
    groups: GroupsState, side: ClientSide, record: ClientAssignmentSet | ClientAssignmentForgotten
) -> None:
    members = groups.consumer[record.group_id].members
    if record.member_id == EVERYBODY:
        side.untold.update(members)
    elif record.member_id in members:
        side.untold.add(record.member_id)
    else:
        side.untold.discard(record.member_id)


def _side(groups: GroupsState, group_id: str) -> ClientSide | None:
    group = groups.consumer.get(group_id)
    return None if group is None else group.client_side


def _side_to_be(groups: GroupsState, group_id: str) -> ClientSide:
    group = group_of(groups, group_id)
    if group.client_side is None:
        group.client_side = ClientSide()
        group.client_side.held.update(groups.holds.get(group_id, ()))
    return group.client_side


#: Record type -> what it does.
CLIENT_SIDE_RECORDS: Final[dict[type[Record], Callable[..., None]]] = {
    ClientAssignorsSet: apply_assignors_set,
    ClientAssignorsForgotten: apply_assignors_forgotten,
    ClientAssignmentSet: apply_assignment_set,
    ClientAssignmentForgotten: apply_assignment_forgotten,
    ComputationFailed: apply_computation_failed,
}
