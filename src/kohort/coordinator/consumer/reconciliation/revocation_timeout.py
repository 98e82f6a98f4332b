"""Time limits of a member to revoke partitions, and to report new partitions as owned.

Laws: each partition has its own deadline, from the response that tells the member. The revocation of some partitions
does not prolong other deadlines, and further revocations neither prolong nor shorten it. Deadlines are not stored:
a restart starts each of them anew.
Source: KIP-848 (rebalance timeout); requirement H3.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace

from kohort.base.values import value
from kohort.coordinator import commands, decision
from kohort.coordinator.model import NO_GRANTS, ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.records.types import CurrentAssignmentSet, Grants, MemberState, VolatileRecord
from kohort.ids import TopicId


@value
class HandOverTimed(VolatileRecord):
    """Deadlines of a member to revoke partitions (`revoke_by`) and to report new ones (`untaken`)."""

    member_id: str
    revoke_by: Grants
    untaken: Grants


def decide_times(
    member: ConsumerMember, step: CurrentAssignmentSet | None, command: commands.ConsumerGroupHeartbeat, *, now_ms: int
) -> decision.Additions:
    """Return the deadlines of a member after a heartbeat and its `step`, and arm the earliest one."""
    group_id = command.group_id
    key = decision.TimerKey("rebalance", group_id, member.member_id)
    said_ms = command.rebalance_timeout_ms
    due_ms = now_ms + max(member.rebalance_timeout_ms if said_ms == -1 else said_ms, 0)
    pending = member.pending_revocation if step is None else step.pending_revocation
    revoke_by = _timed(pending, member.revoke_by, due_ms)
    effects: list[decision.Effect] = []
    if not pending and member.state == MemberState.UNREVOKED_PARTITIONS:
        effects.append(decision.Disarm(key))
    elif revoke_by and revoke_by != member.revoke_by:
        effects.append(decision.Arm(key, min(min(times.values()) for times in revoke_by.values())))
    untaken = untaken_after(member, command, now_ms=now_ms)
    # Classic members learn of new partitions, and of nothing else in between.
    if step is not None and pending and command.classic is None:
        has = _shown_to_have(member, command, now_ms=now_ms)
        awaited = {
            topic_id: {*untaken.get(topic_id, ()), *(grants.keys() - has.get(topic_id, ()))}
            for topic_id, grants in step.assigned.items()
        }
        untaken = _timed(awaited, untaken, due_ms)
    if revoke_by == member.revoke_by and untaken == member.untaken:
        return [], effects
    record = HandOverTimed(group_id=group_id, member_id=member.member_id, revoke_by=revoke_by, untaken=untaken)
    return [record], effects


def untaken_after(member: ConsumerMember, command: commands.ConsumerGroupHeartbeat, *, now_ms: int) -> Grants:
    """Return partitions that are assigned but that the member has not reported as owned, with deadlines."""
    if not member.untaken:
        return NO_GRANTS
    owned = command.topic_partitions or {}
    left: Grants = {}
    for topic_id, times in member.untaken.items():
        listed = set(owned.get(topic_id, ()))
        waited = {partition: due for partition, due in times.items() if partition not in listed and due > now_ms}
        if waited:
            left[topic_id] = waited
    return left


def _shown_to_have(
    member: ConsumerMember, command: commands.ConsumerGroupHeartbeat, *, now_ms: int
) -> Mapping[TopicId, Collection[int]]:
    """Return the partitions that the heartbeat lists, or, without a list, those the member surely has."""
    # It may have missed the response that assigned the others; then it takes those only after it has revoked the ones
    # of this response.
    if command.topic_partitions is not None:
        return command.topic_partitions
    if member.list_awaited_ms <= now_ms:
        return member.assigned
    return {
        topic_id: [partition for partition, granted in grants.items() if granted != member.member_epoch]
        for topic_id, grants in member.assigned.items()
    }


def build_loaded_times(member: ConsumerMember, group_id: str, due_ms: int) -> HandOverTimed:
    """Build the deadlines of a member that had partitions to revoke before a restart."""
    # The member may not have taken partitions that were assigned meanwhile, and the log does not say when they were:
    # all of its partitions count as not taken, until it lists them.
    return HandOverTimed(
        group_id=group_id,
        member_id=member.member_id,
        revoke_by=_timed(member.pending_revocation, NO_GRANTS, due_ms),
        untaken=_timed(member.assigned, NO_GRANTS, due_ms),
    )


def shift_times(member: ConsumerMember, gap_ms: int) -> None:
    """Postpone the deadlines of a member's partitions by `gap_ms`."""
    for times in (*member.revoke_by.values(), *member.untaken.values()):
        for partition in times:
            times[partition] += gap_ms


def move_times(group: ConsumerGroup, by_ms: int) -> None:
    """Shift all times of a group by a step of the clock, so that remaining times are unchanged."""
    for member in group.members.values():
        shift_times(member, by_ms)
        if member.list_awaited_ms:
            member.list_awaited_ms += by_ms
    group.throttle = group.throttle._replace(until_ms=group.throttle.until_ms + by_ms)
    if group.published is not None:
        group.published.not_before_ms += by_ms
    if group.failure is not None:
        group.failure = replace(group.failure, retry_ms=group.failure.retry_ms + by_ms)
    if group.window_opened_ms:
        group.window_opened_ms += by_ms


def apply_hand_over_timed(groups: GroupsState, record: HandOverTimed) -> None:
    """Set the deadlines of a member's partitions."""
    member = groups.find_member(record.group_id, record.member_id)
    if member is not None:
        member.revoke_by = record.revoke_by or NO_GRANTS
        member.untaken = record.untaken or NO_GRANTS


def _timed(partitions: Mapping[TopicId, Iterable[int]], known: Grants, due_ms: int) -> Grants:
    """Return the deadline of each partition: the known one if there is one, otherwise `due_ms`."""
    timed: Grants = {}
    for topic_id, found in partitions.items():
        times = known.get(topic_id, {})
        of_topic = {partition: times.get(partition, due_ms) for partition in found}
        if of_topic:
            timed[topic_id] = of_topic
    return timed
