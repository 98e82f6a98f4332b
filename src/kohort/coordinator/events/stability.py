"""Detection of a group at rest: every member has exactly its target.

Laws: a group is not at rest while a move waits or has just begun.
Source: requirements G7 and H4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from kohort.coordinator.consumer.reconciliation.effective_target import MovesBegun, MovesHeldBack, places_of
from kohort.coordinator.consumer.reconciliation.reconciled import is_settled
from kohort.coordinator.model import NO_TARGET, ConsumerGroup, Place, WaitingMove
from kohort.coordinator.records import (
    ConsumerGroupEpochSet,
    ConsumerGroupForgotten,
    ConsumerMemberForgotten,
    ConsumerMemberSubscribed,
    CurrentAssignmentSet,
    MemberTargetSet,
    Record,
    TargetAssignmentEpochSet,
)
from kohort.ids import TopicId


def rest_epoch(group: ConsumerGroup | None, records: Sequence[Record]) -> int | None:
    """Return the epoch at which `records` bring a group to rest; `None` if they do not, or it was.

    `group`: its state before them, `None` if they create it.
    """
    # A growing group has many members behind, and a record concerns one of them if no move waits.
    if group is not None and len(group.behind) > len(records) and not group.waiting:
        return None
    epoch, target_epoch = (0, 0) if group is None else (group.epoch, group.target_epoch)
    before = epoch, target_epoch
    targets: dict[str, Mapping[TopicId, tuple[int, ...]]] = {}
    standings: dict[str, CurrentAssignmentSet | None] = {}
    gone: set[str] = set()
    held_back: dict[Place, WaitingMove] | None = None
    released: set[Place] = set()
    begins = False
    for record in records:
        match record:
            case ConsumerGroupEpochSet():
                epoch = record.epoch
            case TargetAssignmentEpochSet():
                target_epoch = record.assignment_epoch
            case MemberTargetSet():
                targets[record.member_id] = record.partitions
            # A new member without an assignment has none of its target yet.
            case ConsumerMemberSubscribed() if group is None or record.member_id not in group.members:
                standings.setdefault(record.member_id, None)
            case CurrentAssignmentSet():
                standings[record.member_id] = record
                # A keeper that loses the partition ends the wait of its move.
                released |= _released_by(group, record.member_id, places_of(record.assigned))
            case ConsumerMemberForgotten():
                gone.add(record.member_id)
                released |= _released_by(group, record.member_id, set())
            case MovesHeldBack():
                held_back = record.waiting
            case MovesBegun():
                begins = True
            # A removed group is not at rest.
            case ConsumerGroupForgotten():
                return None
    behind = set() if group is None else group.behind
    waiting = {} if group is None else group.waiting
    # The target is behind, or the group was at rest before: no new rest.
    if epoch != target_epoch or (before == (epoch, target_epoch) and not behind and not waiting):
        return None
    # A move that waits or has just begun is not over.
    if begins or set(waiting if held_back is None else held_back) - released:
        return None
    touched = targets.keys() | standings.keys() | {waiting[place].taker for place in released}
    # A member behind that no record concerns has another step to take.
    if behind - touched - gone:
        return None
    is_at_rest = all(_is_settled_after(group, standings, targets, member_id) for member_id in touched - gone)
    return epoch if is_at_rest else None


def _is_settled_after(
    group: ConsumerGroup | None,
    standings: Mapping[str, CurrentAssignmentSet | None],
    targets: Mapping[str, Mapping[TopicId, tuple[int, ...]]],
    member_id: str,
) -> bool:
    # A record of this decision counts, else the member's present state.
    standing = standings.get(member_id) or (None if group is None else group.members.get(member_id))
    target = targets.get(member_id)
    if target is None:
        target = NO_TARGET if group is None else group.targets.get(member_id, NO_TARGET)
    return standing is not None and is_settled(standing, target)


def _released_by(group: ConsumerGroup | None, member_id: str, kept: set[Place]) -> set[Place]:
    """Return the waiting moves that end because a member has only `kept` left."""
    waiting = {} if group is None else group.waiting
    return {place for place, move in waiting.items() if move.keeper == member_id and place not in kept}
