"""Client-side assignors in heartbeat responses: requests to compute, and messages.

A member is asked with every response until it has fetched the input, as a response may be lost.

Laws: a request to compute, or a message, is news for the member. A delivered message is repeated only with a new
assignment, to a heartbeat with all fields, and after a restart.
Source: KIP-848 as drafted (`ShouldComputeAssignment`; the error and metadata of an assignment).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kohort.coordinator.client_assignors import NOTHING_SAID
from kohort.coordinator.commands.groups import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply
from kohort.coordinator.consumer.client_assignors.assignment_request import compute_key
from kohort.coordinator.consumer.targets.volatile import ComputationNoted
from kohort.coordinator.decision import Arm, ComputeTarget, Decision, Effect, Reply
from kohort.coordinator.delayed_heartbeats import AssignmentTold
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records import ConsumerGroupEpochSet, Record, TargetAssignmentEpochSet


def has_word(group: ConsumerGroup, member_id: str) -> bool:
    """Whether a member has news about client-side assignors."""
    side = group.client_side
    return side is not None and (member_id in side.untold or is_to_be_told(group.computing, member_id))


def is_to_be_told(order: ComputeTarget | None, member_id: str) -> bool:
    """Whether a member is asked to compute and has not begun."""
    return order is not None and order.member_id == member_id and not order.is_prepared


def tell(groups: GroupsState, command: ConsumerGroupHeartbeat, decision: Decision, *, now_ms: int) -> Decision:
    """Add client-side assignor news to the response in a heartbeat's decision."""
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
    # Messages with an earlier target than the one of this decision are not true any more.
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
    """Return the computation of a group after `records`, all of that group."""
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
