"""How one member goes from what it holds to its target: give up first, then take what is free.

Laws: a partition is taken only if nobody else has it assigned or pending revocation. A member's epoch rises only when
it has nothing left to give up, and only with something else: an epoch alone is no news. A partition is released as
soon as the member's list of owned partitions is without it, whatever else is still pending: nobody waits for
partitions that do not concern it.
Source: KIP-848 (reconciliation of the group); Apache Kafka's CurrentAssignmentBuilder for the order of cases; the
release of single partitions is ours.
"""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass

from kohort.coordinator.commands import Partitions
from kohort.coordinator.model import ConsumerMember, Grants
from kohort.coordinator.records import CurrentAssignmentSet, MemberState
from kohort.errors import ErrorCode, Refused
from kohort.ids import TopicId


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Where a member shall go.

    `epoch`: of the target. `target`: what it shall hold. `subscribed`: ids of the topics that it subscribes to now,
    which may be less than `target` names. `holders`: topic id -> partition -> member that has it.
    """

    epoch: int
    target: Mapping[TopicId, tuple[int, ...]]
    subscribed: Container[TopicId]
    holders: Mapping[TopicId, Mapping[int, str]]


def decide_next_assignment(
    member: ConsumerMember, goal: Goal, *, owned: Partitions | None, group_id: str
) -> CurrentAssignmentSet | None:
    """The member's next step, `None` if it stays as it is.

    Args:
        member: as it is before the heartbeat.
        goal: where it shall go.
        owned: what it says that it owns, `None` if it said nothing: only a list can acknowledge a revocation.
        group_id: its group.

    Raises:
        Refused: FENCED_MEMBER_EPOCH if its state was stored by newer software and it owns something.
    """
    if member.state == MemberState.STABLE and member.member_epoch == goal.epoch:
        return _shrink(member, goal, owned=owned, group_id=group_id)
    if member.state == MemberState.UNREVOKED_PARTITIONS:
        left = _still_owned(member.pending_revocation, owned)
        if left:
            return _shrink(member, goal, owned=owned, group_id=group_id, pending=left)
    if member.state == MemberState.UNKNOWN and (owned is None or owned):
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH, "the member's state was stored by a newer broker; it has to rejoin"
        )
    return _advance(member, goal, owned=owned, group_id=group_id)


def is_same(one: Grants, other: Grants) -> bool:
    """Whether both are of the same partitions, whenever they were granted."""
    return one.keys() == other.keys() and all(one[topic_id].keys() == other[topic_id].keys() for topic_id in one)


def _shrink(
    member: ConsumerMember, goal: Goal, *, owned: Partitions | None, group_id: str, pending: Grants | None = None
) -> CurrentAssignmentSet | None:
    """Keep the epoch; give up what is not subscribed to any more, and release what was given up.

    `pending`: what is left of `member.pending_revocation`, `None` if there was nothing.
    """
    unsubscribed = {topic_id: grants for topic_id, grants in member.assigned.items() if topic_id not in goal.subscribed}
    assigned = member.assigned
    pending = pending or {}
    if unsubscribed:
        assigned = {topic_id: grants for topic_id, grants in assigned.items() if topic_id not in unsubscribed}
        pending = _united(pending, _still_owned(unsubscribed, owned))
    if assigned is member.assigned and pending == member.pending_revocation:
        return None
    return CurrentAssignmentSet(
        group_id=group_id,
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        previous_member_epoch=member.previous_member_epoch,
        state=MemberState.UNREVOKED_PARTITIONS if pending else MemberState.STABLE,
        assigned=assigned,
        pending_revocation=pending,
    )


def _advance(
    member: ConsumerMember, goal: Goal, *, owned: Partitions | None, group_id: str
) -> CurrentAssignmentSet | None:
    """Go to the target, or as far as is possible: nothing is taken before everything is given up."""
    target = {topic_id: set(found) for topic_id, found in goal.target.items() if topic_id in goal.subscribed}
    kept, given_up = _split(member.assigned, target)
    pending = _still_owned(given_up, owned)
    if pending:
        return _changed(
            member,
            group_id=group_id,
            epoch=member.member_epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending=pending,
        )
    assigned, is_complete = _take_free(member.member_id, kept, target, goal)
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS
    is_there = member.member_epoch > 0 and not member.pending_revocation
    if is_there and state == member.state and assigned == member.assigned:
        # A new epoch alone is no news (G7).
        return None
    return _changed(
        member,
        group_id=group_id,
        epoch=goal.epoch,
        state=state,
        assigned=assigned,
        pending={},
    )


def _changed(
    member: ConsumerMember, *, group_id: str, epoch: int, state: MemberState, assigned: Grants, pending: Grants
) -> CurrentAssignmentSet | None:
    is_same_epoch = epoch == member.member_epoch
    if is_same_epoch and state == member.state and assigned == member.assigned and pending == member.pending_revocation:
        return None
    return CurrentAssignmentSet(
        group_id=group_id,
        member_id=member.member_id,
        member_epoch=epoch,
        previous_member_epoch=member.previous_member_epoch if is_same_epoch else member.member_epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending,
    )


def _split(assigned: Grants, target: Mapping[TopicId, set[int]]) -> tuple[Grants, Grants]:
    """`assigned` within `target`, and the rest."""
    kept: Grants = {}
    rest: Grants = {}
    for topic_id, grants in assigned.items():
        wanted = target.get(topic_id)
        if wanted is None:
            rest[topic_id] = grants
            continue
        stay = {partition: epoch for partition, epoch in grants.items() if partition in wanted}
        if stay:
            kept[topic_id] = stay
        if len(stay) != len(grants):
            rest[topic_id] = {partition: epoch for partition, epoch in grants.items() if partition not in wanted}
    return kept, rest


def _take_free(member_id: str, kept: Grants, target: Mapping[TopicId, set[int]], goal: Goal) -> tuple[Grants, bool]:
    """`kept` and what of the target nobody else holds, granted now; and whether that is the whole target."""
    assigned: Grants = {}
    is_complete = True
    for topic_id, wanted in target.items():
        has = kept.get(topic_id, {})
        holders = goal.holders.get(topic_id, {})
        grants: dict[int, int] = {}
        for partition in sorted(wanted):
            # What the member itself has yet to give up is not in anybody's way (KAFKA-16147).
            if partition in has:
                grants[partition] = has[partition]
            elif holders.get(partition, member_id) == member_id:
                grants[partition] = goal.epoch
            else:
                is_complete = False
        if grants:
            assigned[topic_id] = grants
    return assigned, is_complete


def _still_owned(grants: Grants, owned: Partitions | None) -> Grants:
    """What of `grants` the member has not shown to be without."""
    if owned is None or not grants:
        return grants
    left: Grants = {}
    for topic_id, partitions in grants.items():
        reported = owned.get(topic_id)
        if not reported:
            continue
        names = set(reported)
        still = {partition: epoch for partition, epoch in partitions.items() if partition in names}
        if still:
            left[topic_id] = still
    return left


def _united(one: Grants, other: Grants) -> Grants:
    """Two disjoint sets of grants as one."""
    if not one or not other:
        return one or other
    united = {topic_id: dict(grants) for topic_id, grants in one.items()}
    for topic_id, grants in other.items():
        united.setdefault(topic_id, {}).update(grants)
    return united
