"""Volatile records of moves that have not begun.

Laws: applied like any record, never written: the waiting moves follow from targets and assignments, and a restart finds
them again. Keepers and takers of waiting moves are measured by their present goal (`effective_target.py`), not by their
target, so that none of them is behind.
Source: requirement H4.
"""

from __future__ import annotations

from collections.abc import Iterable

from kohort.coordinator.consumer.reconciliation.effective_target import MovesBegun, MovesHeldBack, places_of
from kohort.coordinator.consumer.reconciliation.reconciled import note_standing
from kohort.coordinator.model import NO_WEIGHTS, ConsumerGroup, ConsumerMember, Grants, GroupsState, Target, WaitingMove


def apply_held_back(groups: GroupsState, record: MovesHeldBack) -> None:
    """Set the waiting moves; a former one that is not among them has begun."""
    group = groups.consumer.get(record.group_id)
    if group is None:
        return
    before, group.waiting = group.waiting, dict(record.waiting)
    group.has_held_back = True
    changed = [
        move
        for place, move in (*before.items(), *group.waiting.items())
        if before.get(place) != record.waiting.get(place)
    ]
    _note(group, changed)


def apply_begun(groups: GroupsState, record: MovesBegun) -> None:
    """Begin moves: from now on both members are told."""
    group = groups.consumer.get(record.group_id)
    if group is None:
        return
    group.paced = record.paced
    _note(group, [group.waiting.pop(place) for place in record.places if place in group.waiting])


def follow_target(group: ConsumerGroup, member_id: str, target: Target) -> None:
    """Set the taker of waiting moves whose partition is in a new target."""
    for place in group.waiting.keys() & places_of(target):
        group.waiting[place] = group.waiting[place]._replace(taker=member_id)


def follow_release(group: ConsumerGroup, member: ConsumerMember, before: Grants) -> None:
    """End the waiting moves of partitions that a member does not have any more."""
    lost = group.waiting.keys() & (places_of(before) - places_of(member.assigned))
    _note(group, [group.waiting.pop(place) for place in lost if group.waiting[place].keeper == member.member_id])


def _note(group: ConsumerGroup, moves: Iterable[WaitingMove]) -> None:
    if not group.waiting:
        group.weights = NO_WEIGHTS
    for member_id in {member_id for move in moves for member_id in move}:
        member = group.members.get(member_id)
        if member is not None:
            note_standing(group, member)
