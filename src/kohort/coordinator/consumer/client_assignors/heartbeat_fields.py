"""Client-side assignors in heartbeat responses: requests to compute, and messages.

Every response asks the chosen member to compute until it has fetched the input, because a response may be lost.

Laws: a request to compute, or an assignor's message, is news for the member. A delivered message is repeated only with
a new assignment, to a heartbeat with all fields, and after a restart.
Source: KIP-848 as drafted (`ShouldComputeAssignment`; the error and metadata of an assignment).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import replace
from typing import Final

from kohort.coordinator.commands import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply
from kohort.coordinator.consumer.assignment.volatile import ComputationNoted
from kohort.coordinator.consumer.client_assignors.assignment_request import GONE, build_failure, compute_key, is_there
from kohort.coordinator.consumer.client_assignors.state import NOTHING_SAID, ClientAssignorState
from kohort.coordinator.decision import Arm, ComputeTarget, Decision, Disarm, Effect, Reply
from kohort.coordinator.delayed_heartbeats import AssignmentTold
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records import types as facts
from kohort.coordinator.records.types import TargetAssignmentEpochSet
from kohort.coordinator.static_membership.mode import offline_ids


def has_word(group: ConsumerGroup, member_id: str) -> bool:
    """Return whether a member has to receive an assignor's message or a request to compute."""
    side = group.client_assignors
    return side is not None and (member_id in side.untold or is_to_be_told(group.computing, member_id))


def is_to_be_told(order: ComputeTarget | None, member_id: str) -> bool:
    """Return whether a member is asked to compute and has not fetched the input."""
    return order is not None and order.member_id == member_id and not order.is_prepared


def tell(groups: GroupsState, command: ConsumerGroupHeartbeat, decision: Decision, *, now_ms: int) -> Decision:
    """Add a request to compute, or an assignor's message, to the response in a heartbeat's decision."""
    group, member_id = groups.consumer.get(command.group_id), command.member_id
    side = None if group is None else group.client_assignors
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


def computing_after(group: ConsumerGroup | None, records: Iterable[facts.Record]) -> ComputeTarget | None:
    """Return the computation that runs after `records`, which all belong to the group."""
    computing = None if group is None else group.computing
    epoch = 0 if group is None else group.epoch
    for record in records:
        if isinstance(record, facts.ConsumerGroupEpochSet):
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


# Effects of a decision on client-side assignors: removed members and new targets.
#
# Laws: the log keeps no record of a removed member. Messages with a target are forgotten with it. A computation whose
# member is removed has failed; a member that is not asked any more has no deadline.
# Source: KIP-848 as drafted.

#: Record types that may concern client-side assignors.
_FOLLOWED: Final = frozenset(
    {
        ComputationNoted,
        facts.ConsumerGroupForgotten,
        facts.ConsumerMemberForgotten,
        facts.CurrentAssignmentSet,
        facts.MemberConnectionSeen,
        facts.OfflineMemberSet,
        TargetAssignmentEpochSet,
    }
)


def follow_assignors(groups: GroupsState, decision: Decision, *, now_ms: int) -> Decision:
    """Add the effects of a decision on client-side assignors to it."""
    concerned = {record.group_id for record in decision.records if type(record) in _FOLLOWED}
    more: list[facts.Record] = []
    effects: list[Effect] = []
    for group_id in sorted(concerned):
        group = groups.consumer.get(group_id)
        if group is not None and group.client_assignors is not None:
            decision = _readdress(group, group.client_assignors, offline_ids(groups, group_id), decision)
            own = [record for record in decision.records if record.group_id == group_id]
            _follow(group, group.client_assignors, own, more, effects, now_ms=now_ms)
    if not more and not effects:
        return decision
    return replace(decision, records=(*decision.records, *more), effects=(*decision.effects, *effects))


def _readdress(
    group: ConsumerGroup, side: ClientAssignorState, offline: Collection[str], decision: Decision
) -> Decision:
    """Ask another member to compute if the decision asks one that is known to be offline."""
    records = list(decision.records)
    for at, record in enumerate(records):
        if not isinstance(record, ComputationNoted) or record.group_id != group.group_id:
            continue
        order = record.computing
        if order is None or order.member_id not in offline:
            continue
        others = (member.member_id for member in order.assignable.members)
        able = [
            each
            for each in others
            if each not in offline
            and each not in side.failed
            and (each not in group.members or is_there(group.members[each]))
        ]
        if able:
            records[at] = replace(record, computing=replace(order, member_id=min(able)))
    return replace(decision, records=tuple(records))


def _follow(
    group: ConsumerGroup,
    side: ClientAssignorState,
    own: list[facts.Record],
    more: list[facts.Record],
    effects: list[Effect],
    *,
    now_ms: int,
) -> None:
    group_id, order = group.group_id, group.computing
    is_forgotten = any(isinstance(record, facts.ConsumerGroupForgotten) for record in own)
    gone = [record.member_id for record in own if isinstance(record, facts.ConsumerMemberForgotten)]
    more += (
        facts.ClientAssignorsForgotten(group_id=group_id, member_id=each) for each in gone if each in side.assignors
    )
    more += _build_said(group, side, own, gone, is_all=is_forgotten)
    computing = computing_after(group, own)
    if order is None or not order.member_id:
        return
    if is_forgotten or computing is None or computing.member_id != order.member_id:
        effects.append(Disarm(compute_key(group_id, order.member_id)))
    elif order.member_id in gone or any(_is_away_by(record, order.member_id) for record in own):
        effects.append(Disarm(compute_key(group_id, order.member_id)))
        why = "is gone with its member"
        records, armed = build_failure(group, order, error=GONE, why=why, now_ms=now_ms)
        more += records
        effects += armed


def _is_away_by(record: facts.Record, member_id: str) -> bool:
    """Return whether a record makes a member unable to receive a message."""
    match record:
        case facts.CurrentAssignmentSet(member_id=each, member_epoch=epoch):
            return each == member_id and epoch < 0
        case facts.MemberConnectionSeen(member_id=each, is_gone=is_gone):
            return each == member_id and is_gone
        case facts.OfflineMemberSet(member_id=each):
            return each == member_id
        case _:
            return False


def _build_said(
    group: ConsumerGroup, side: ClientAssignorState, own: list[facts.Record], gone: list[str], *, is_all: bool
) -> Iterable[facts.Record]:
    """Build the records that remove messages to members, or pass them to static successors."""
    if not side.said:
        return []
    group_id = group.group_id
    set_now = {record.member_id for record in own if isinstance(record, facts.ClientAssignmentSet)}
    if is_all or any(isinstance(record, TargetAssignmentEpochSet) for record in own):
        forgotten = [each for each in side.said if each not in set_now]
        return [facts.ClientAssignmentForgotten(group_id=group_id, member_id=each) for each in forgotten]
    records: list[facts.Record] = []
    for former in gone:
        said = side.said.get(former)
        if said is None:
            continue
        records.append(facts.ClientAssignmentForgotten(group_id=group_id, member_id=former))
        successor = _successor_of(group, former, own)
        if successor:
            records.append(facts.ClientAssignmentSet(group_id=group_id, member_id=successor, said=said))
    return records


def _successor_of(group: ConsumerGroup, former: str, own: list[facts.Record]) -> str:
    """Return the member that takes over the target of a static member; "" if none does."""
    instance_id = group.members[former].instance_id
    given = {record.member_id for record in own if isinstance(record, facts.MemberTargetSet)}
    for record in own:
        if isinstance(record, facts.ConsumerMemberSubscribed) and record.instance_id == instance_id is not None:
            return record.member_id if record.member_id in given else ""
    return ""
