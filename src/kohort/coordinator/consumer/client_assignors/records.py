"""Records that change `ClientSide`: kohort's own in the log, and volatile ones.

Laws: no decision is made here.
Source: KIP-848 as drafted (its records of members and targets).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from kohort.coordinator.client_assignors import EVERYBODY, ClientSide
from kohort.coordinator.consumer.apply import group_of
from kohort.coordinator.consumer.targets.async_assignor import LONGEST_ERROR
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
    """A member does not compute a target that it was asked for.

    `why`: the end of a sentence with its assignor as subject.
    """

    member_id: str
    assignor: str
    why: str


def apply_assignors_set(groups: GroupsState, record: ClientAssignorsSet) -> None:
    """Set the assignors of a member (type 20,006)."""
    side = _side_to_be(groups, record.group_id)
    side.put(record.member_id, record.assignors)
    # A member with another assignor may be able to compute now.
    side.failed.discard(record.member_id)


def apply_assignors_forgotten(groups: GroupsState, record: ClientAssignorsForgotten) -> None:
    """Remove the assignors of a member (tombstone of type 20,006)."""
    side = _side(groups, record.group_id)
    if side is not None:
        side.put(record.member_id, ())
        side.failed.discard(record.member_id)


def apply_assignment_set(groups: GroupsState, record: ClientAssignmentSet) -> None:
    """Set the message to a member (type 20,007)."""
    side = _side_to_be(groups, record.group_id)
    side.said[record.member_id] = record.said
    _note_untold(groups, side, record)


def apply_assignment_forgotten(groups: GroupsState, record: ClientAssignmentForgotten) -> None:
    """Remove the message to a member (tombstone of type 20,007)."""
    side = _side(groups, record.group_id)
    if side is not None and side.said.pop(record.member_id, None) is not None:
        _note_untold(groups, side, record)


def apply_computation_failed(groups: GroupsState, record: ComputationFailed) -> None:
    """Note that a member failed to compute."""
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


#: Record type -> function that applies it.
CLIENT_SIDE_RECORDS: Final[dict[type[Record], Callable[..., None]]] = {
    ClientAssignorsSet: apply_assignors_set,
    ClientAssignorsForgotten: apply_assignors_forgotten,
    ClientAssignmentSet: apply_assignment_set,
    ClientAssignmentForgotten: apply_assignment_forgotten,
    ComputationFailed: apply_computation_failed,
}
