"""What answers to heartbeats say of assignors that members run: that one shall compute, and what came of it.

A member that is asked is told so with every answer until it has asked what to compute: an answer may be lost.

Laws: a member that is to be asked, or has something to be told, has news. What was told is told again only with a new
assignment, to a member that says everything, and after a restart.
Source: KIP-848 as drafted (`ShouldComputeAssignment`; the error and metadata of an assignment).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kohort.coordinator.clientside import NOTHING_SAID
from kohort.coordinator.commands import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply
from kohort.coordinator.consumer.clientside.asking import compute_key
from kohort.coordinator.consumer.targets.volatile import ComputationNoted
from kohort.coordinator.decision import Arm, ComputeTarget, Decision, Effect, Reply
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.parking import AssignmentTold
from kohort.coordinator.records import ConsumerGroupEpochSet, Record, TargetAssignmentEpochSet


def has_word(group: ConsumerGroup, member_id: str) -> bool:
    """Whether a member of a group in which somebody runs assignors has news of that."""
    side = group.client_side
    return side is not None and (member_id in side.untold or is_to_be_told(group.computing, member_id))


def is_to_be_told(order: ComputeTarget | None, member_id: str) -> bool:
    """Whether a member is asked to compute and has not begun."""
    return order is not None and order.member_id == member_id and not order.is_prepared


def tell(groups: GroupsState, command: ConsumerGroupHeartbeat, decision: Decision, *, now_ms: int) -> Decision:
    """The decision with what the answer to its heartbeat says beside."""
    group, member_id = groups.consumer.get(command.group_id), command.member_id
    side = None if group is None else group.client_side
    if side is None and command.client_assignors is None:
        return decision
    at, reply = _answer_in(decision.effects, command)
    if reply is None or reply.member_epoch < 0:
        return decision
    records, effects = list(decision.records), list(decision.effects)
    should_compute = is_to_be_told(computing_after(group, decision.records), member_id)
    if should_compute:
        member = None if group is None else group.members.get(member_id)
        timeout_ms = command.rebalance_timeout_ms if member is None else member.rebalance_timeout_ms
        effects.append(Arm(compute_key(command.group_id, member_id), now_ms + max(timeout_ms, 0), if_absent=True))
    said = None
    # What was said with a target before the one that this decision makes is not true any more.
    if side is not None and not any(isinstance(record, TargetAssignmentEpochSet) for record in records):
        is_new = member_id in side.untold
        said = side.said_to(member_id) if is_new or reply.assignment is not None else None
        if said == NOTHING_SAID and not is_new:
            said = None
        if is_new:
            records.append(AssignmentTold(group_id=command.group_id, member_id=member_id))
    if should_compute or said is not None:
        effects[at] = Reply(command.request, replace(reply, should_compute=should_compute, client_assignment=said))
    return Decision(tuple(records), tuple(effects))


def computing_after(group: ConsumerGroup | None, records: Iterable[Record]) -> ComputeTarget | None:
    """What is being computed for a group once `records`, all of that group, are applied."""
    computing = None if group is None else group.computing
    epoch = 0 if group is None else group.epoch
    for record in records:
        if isinstance(record, ConsumerGroupEpochSet):
            epoch = record.epoch
        elif isinstance(record, TargetAssignmentEpochSet) and record.assignment_epoch >= epoch:
            computing = None
        elif isinstance(record, ComputationNoted):
            computing = record.computing
    return computing


def _answer_in(
    effects: Iterable[Effect], command: ConsumerGroupHeartbeat
) -> tuple[int, ConsumerGroupHeartbeatReply | None]:
    for at, effect in enumerate(effects):
        if isinstance(effect, Reply) and effect.request == command.request:
            body = effect.body
            return at, body if isinstance(body, ConsumerGroupHeartbeatReply) else None
    return -1, None
