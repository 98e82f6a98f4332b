"""Reconciliation of one member: it revokes partitions outside of its target, and is assigned free ones.

Laws: a partition is assigned only if no member has it assigned or pending revocation. A member that still has to revoke
partitions of a deleted topic is assigned none. A partition is released as soon as the member's list of owned partitions
lacks it, or a commit of the member releases it. A partition that the member may not have received yet is revoked only
once the member owns it. Partitions are independent: while revocations are pending, a member is still assigned free
partitions and told of further revocations. A member's epoch rises when it is assigned partitions, and when it has
completed its revocations; a new epoch alone is no news.
Source: KIP-848 (reconciliation of the group); Apache Kafka's CurrentAssignmentBuilder for the states. Requirement H3;
Apache Kafka assigns and revokes nothing more until a member has completed its pending revocations.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from kohort.base.values import value
from kohort.coordinator.commands import Partitions
from kohort.coordinator.model import NO_GRANTS, ConsumerMember
from kohort.coordinator.records.types import CurrentAssignmentSet, Grants, MemberState
from kohort.errors import ErrorCode, Refused
from kohort.ids import TopicId


@value
class ReconciliationTarget:
    """The input of a member's reconciliation, apart from the member itself.

    `epoch`: epoch of the target. `target`: the member's target. `subscribed`: ids of topics that the member subscribes
    to now, maybe fewer than in `target`. `holders`: topic id -> partition -> member with the partition assigned or
    pending revocation. `existing`: ids of the existing topics.
    """

    epoch: int
    target: Mapping[TopicId, tuple[int, ...]]
    subscribed: Container[TopicId]
    holders: Mapping[TopicId, Mapping[int, str]]
    existing: Container[TopicId]


def decide_next_assignment(
    member: ConsumerMember,
    goal: ReconciliationTarget,
    *,
    owned: Partitions | None,
    group_id: str,
    untaken: Grants = NO_GRANTS,
    released: Partitions | None = None,
) -> CurrentAssignmentSet | None:
    """Decide a member's next current assignment, `None` if it stays as it is.

    `owned`: the partitions that its heartbeat lists, `None` without a list. `untaken`: partitions of `member.assigned`
    that the member has not yet reported as owned. `released`: partitions that it released with a commit. Only such
    a commit, or a list without the partition, acknowledges a revocation.

    Raises:
        Refused: FENCED_MEMBER_EPOCH if its state was stored by newer software and it owns partitions.
    """
    if member.state == MemberState.UNKNOWN and (owned is None or owned):
        raise Refused(
            ErrorCode.FENCED_MEMBER_EPOCH, "the member's state was stored by a newer broker; it has to rejoin"
        )
    # A member may have unsubscribed from topics of a target that was computed before.
    target = {topic_id: set(found) for topic_id, found in goal.target.items() if topic_id in goal.subscribed}
    kept, given_up = _split(member.assigned, target)
    early, given_up = _split(given_up, {topic_id: set(found) for topic_id, found in untaken.items()})
    pending = _united(_still_owned(member.pending_revocation, owned), _still_owned(given_up, owned))
    if released is not None:
        pending = _without(pending, released)
    if early:
        # The list says nothing of partitions that the member has not taken yet: they are revoked once it has.
        assigned, is_complete = _united(kept, early), False
    elif any(topic_id not in goal.existing for topic_id in pending):
        # Clients name topics: to them a partition of a re-created topic would not be a new one.
        assigned, is_complete = kept, False
    else:
        assigned, is_complete = _take_free(member.member_id, kept, pending, target, goal)
    state = MemberState.STABLE if is_complete else MemberState.UNRELEASED_PARTITIONS
    # KIP-848: UNREVOKED_PARTITIONS takes precedence, as the member has to act.
    if pending:
        state = MemberState.UNREVOKED_PARTITIONS
    is_unchanged = assigned == member.assigned and pending == member.pending_revocation
    if is_unchanged and state == member.state and member.member_epoch > 0:
        # A new epoch alone is no news (G7).
        return None
    # The epoch of a member that only revokes does not rise: it is that of the latest target from which it got
    # partitions.
    is_raised = not (pending or early) or assigned != _united(kept, early) or member.member_epoch <= 0
    epoch = goal.epoch if is_raised else member.member_epoch
    return CurrentAssignmentSet(
        group_id=group_id,
        member_id=member.member_id,
        member_epoch=epoch,
        previous_member_epoch=member.previous_member_epoch if epoch == member.member_epoch else member.member_epoch,
        state=state,
        assigned=assigned,
        pending_revocation=pending,
    )


def is_same(one: Grants, other: Grants) -> bool:
    """Return whether two assignments have the same partitions, regardless of their epochs."""
    return one.keys() == other.keys() and all(one[topic_id].keys() == other[topic_id].keys() for topic_id in one)


def _split(assigned: Grants, target: Mapping[TopicId, set[int]]) -> tuple[Grants, Grants]:
    """Return the part of `assigned` within `target`, and the rest."""
    kept: Grants = {}
    rest: Grants = {}
    for topic_id, grants in assigned.items():
        wanted = target.get(topic_id)
        if wanted is None:
            rest[topic_id] = grants
            continue
        stay = {partition: epoch for partition, epoch in grants.items() if partition in wanted}
        # No empty mapping: an invariant (TypeOK) forbids it.
        if stay:
            kept[topic_id] = stay
        if len(stay) != len(grants):
            rest[topic_id] = {partition: epoch for partition, epoch in grants.items() if partition not in wanted}
    return kept, rest


def _take_free(
    member_id: str, kept: Grants, pending: Grants, target: Mapping[TopicId, set[int]], goal: ReconciliationTarget
) -> tuple[Grants, bool]:
    """Return `kept` plus the free partitions of the target, and whether that is the whole target."""
    assigned: Grants = {}
    is_complete = True
    for topic_id, wanted in target.items():
        has, gives_up = kept.get(topic_id, {}), pending.get(topic_id, {})
        holders = goal.holders.get(topic_id, {})
        grants: dict[int, int] = {}
        for partition in sorted(wanted):
            if partition in has:
                grants[partition] = has[partition]
            # Kept grants keep their epochs: commits are fenced by them (KIP-1251).
            elif holders.get(partition, member_id) == member_id and partition not in gives_up:
                # A partition that the member is to revoke is assigned again only after it was revoked (KAFKA-16147).
                grants[partition] = goal.epoch
            else:
                # Another member still has the partition: it is assigned in a later step.
                is_complete = False
        if grants:
            assigned[topic_id] = grants
    return assigned, is_complete


def _still_owned(grants: Grants, owned: Partitions | None) -> Grants:
    """Return the assigned partitions that the member still lists; without a list, all of them."""
    if owned is None or not grants:
        return grants
    left: Grants = {}
    for topic_id, partitions in grants.items():
        reported = owned.get(topic_id)
        # A topic that the list leaves out has no owned partition.
        if not reported:
            continue
        names = set(reported)
        still = {partition: epoch for partition, epoch in partitions.items() if partition in names}
        if still:
            left[topic_id] = still
    return left


def _without(grants: Grants, released: Partitions) -> Grants:
    """Return the assigned partitions without the released ones."""
    return _split(grants, {topic_id: set(partitions) for topic_id, partitions in released.items()})[1]


def _united(one: Grants, other: Grants) -> Grants:
    """Unite two disjoint assignments."""
    if not one or not other:
        return one or other
    united = {topic_id: dict(grants) for topic_id, grants in one.items()}
    for topic_id, grants in other.items():
        united.setdefault(topic_id, {}).update(grants)
    return united
