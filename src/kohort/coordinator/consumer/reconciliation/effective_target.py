"""The effective target of a member: its target without deferred moves, which have not begun.

Until a move begins, the old owner keeps the partition, the new one does not get it, and neither is told. Without a move
throttle every move begins together with its target, and this module is not used.

Laws: the partition of a deferred move has an owner that may use it. If the owner loses it for another reason, the move
is no longer deferred, and the partition is free for the member whose target has it.
Source: requirement H4.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping

from kohort.base.values import value
from kohort.coordinator import model
from kohort.coordinator.model import NO_GRANTS, NO_TARGET, ConsumerGroup, ConsumerMember, Place, WaitingMove
from kohort.coordinator.records import types as facts
from kohort.coordinator.records.types import MemberState
from kohort.ids import TopicId


@value
class MovesHeldBack(facts.VolatileRecord):
    """Exactly these moves are deferred, in the order in which they will begin."""

    waiting: dict[Place, WaitingMove]


@value
class MovesBegun(facts.VolatileRecord):
    """These moves are no longer deferred.

    `throttle`: the state of the throttle after them.
    """

    places: tuple[Place, ...]
    throttle: model.ThrottleProgress


def effective_target_of(group: ConsumerGroup, member_id: str) -> Mapping[TopicId, tuple[int, ...]]:
    """Return the effective target of a member."""
    target = group.targets.get(member_id, NO_TARGET)
    member = group.members.get(member_id)
    if not group.waiting or member is None:
        return target
    return build_effective_target(member_id, target, member.assigned, group.waiting)


def effective_target_after(
    records: Collection[facts.Record], group: ConsumerGroup, member_id: str
) -> Mapping[TopicId, tuple[int, ...]]:
    """Return the effective target of a member after `records`."""
    target = target_in(records, group, member_id)
    held_back = next((record for record in records if isinstance(record, MovesHeldBack)), None)
    waiting: Mapping[Place, WaitingMove] = group.waiting if held_back is None else held_back.waiting
    if not waiting:
        return target
    member = group.members.get(member_id)
    return build_effective_target(member_id, target, NO_GRANTS if member is None else member.assigned, waiting)


def target_in(
    records: Collection[facts.Record], group: ConsumerGroup, member_id: str
) -> Mapping[TopicId, tuple[int, ...]]:
    """Return the member's target after `records`."""
    # The latest record counts: a group that changes its protocol had a target before this decision's.
    for record in reversed(tuple(records)):
        if isinstance(record, facts.MemberTargetSet) and record.member_id == member_id:
            return record.partitions
    return group.targets.get(member_id, NO_TARGET)


def build_effective_target(
    member_id: str,
    target: Mapping[TopicId, tuple[int, ...]],
    assigned: facts.Grants,
    waiting: Mapping[Place, WaitingMove],
) -> facts.Target:
    """Return the target without deferred partitions of others, and with those that the member keeps."""
    way = {topic_id: set(partitions) for topic_id, partitions in target.items()}
    for topic_id, wanted in way.items():
        moves = [(each, waiting.get((topic_id, each))) for each in wanted]
        wanted.difference_update(each for each, move in moves if move is not None and move.keeper != member_id)
    for topic_id, grants in assigned.items():
        kept = [each for each in grants if (topic_id, each) in waiting and waiting[topic_id, each].keeper == member_id]
        if kept:
            way.setdefault(topic_id, set()).update(kept)
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in way.items() if partitions}


def places_of(grants: Mapping[TopicId, Iterable[int]]) -> set[Place]:
    """Return the set of (topic id, partition) of an assignment."""
    return {(topic_id, partition) for topic_id, partitions in grants.items() for partition in partitions}


# Members that have exactly their target: a new epoch of the group is no news to them.
#
# Laws: no record and no response takes a settled member to an epoch; it learns of the epoch with its next news. So the
# cost of a change of a group follows from its moves, and not from the number of members.
# Source: requirement G7. Apache Kafka takes every member to every epoch.


def is_settled(member: ConsumerMember | facts.CurrentAssignmentSet, target: Mapping[TopicId, tuple[int, ...]]) -> bool:
    """Return whether a member is present and has exactly its target; `member` may be a new record."""
    return member.state == MemberState.STABLE and member.member_epoch > 0 and _is_of(member.assigned, target)


def known_epoch(group: ConsumerGroup, member: ConsumerMember) -> int:
    """Return the target epoch that a member has reached, even if no response had that epoch."""
    return member.member_epoch if member.member_id in group.behind else group.target_epoch


def note_reconciled(group: ConsumerGroup, member: ConsumerMember) -> None:
    """Add a member to `group.behind`, or remove it once it has exactly its effective target."""
    if is_settled(member, effective_target_of(group, member.member_id)):
        group.behind.discard(member.member_id)
    else:
        group.behind.add(member.member_id)


def _is_of(assigned: facts.Grants, target: Mapping[TopicId, tuple[int, ...]]) -> bool:
    """Return whether an assignment has exactly the partitions of a target."""
    return assigned.keys() == target.keys() and all(
        assigned[topic_id].keys() == set(partitions) for topic_id, partitions in target.items()
    )


# Volatile records of moves that have not begun.
#
# Laws: applied like any record, never written: the waiting moves follow from targets and assignments, and a restart
# finds them again. Keepers and takers of waiting moves are measured by their present goal (`effective_target.py`), not
# by their target, so that none of them is behind.
# Source: requirement H4.


def apply_held_back(groups: model.GroupsState, record: MovesHeldBack) -> None:
    """Set the deferred moves; a previously deferred move that is not among them has begun."""
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


def apply_begun(groups: model.GroupsState, record: MovesBegun) -> None:
    """Begin moves: from now on responses tell both members."""
    group = groups.consumer.get(record.group_id)
    if group is None:
        return
    group.throttle = record.throttle
    _note(group, [group.waiting.pop(place) for place in record.places if place in group.waiting])


def follow_target(group: ConsumerGroup, member_id: str, target: facts.Target) -> None:
    """Make a member the new owner of deferred moves whose partition is in its new target."""
    for place in group.waiting.keys() & places_of(target):
        group.waiting[place] = group.waiting[place]._replace(taker=member_id)


def follow_release(group: ConsumerGroup, member: ConsumerMember, before: facts.Grants) -> None:
    """End the deferral of moves whose partition the old owner no longer has."""
    lost = group.waiting.keys() & (places_of(before) - places_of(member.assigned))
    _note(group, [group.waiting.pop(place) for place in lost if group.waiting[place].keeper == member.member_id])


def _note(group: ConsumerGroup, moves: Iterable[WaitingMove]) -> None:
    if not group.waiting:
        group.weights = model.NO_WEIGHTS
    for member_id in {member_id for move in moves for member_id in move}:
        member = group.members.get(member_id)
        if member is not None:
            note_reconciled(group, member)
