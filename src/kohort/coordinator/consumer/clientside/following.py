"""What a decision makes of assignors that members run: who goes takes what was known of it along, and so does a target.

Laws: nothing is left in the log of a member that is no more. What was said with a target is forgotten with it. A
computation whose member goes has failed; who is asked and is not any more has no deadline.
Source: KIP-848 as drafted.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from kohort.coordinator.clientside import ClientSide
from kohort.coordinator.consumer.clientside.asking import GONE, build_failure, compute_key
from kohort.coordinator.consumer.clientside.telling import computing_after
from kohort.coordinator.consumer.targets.volatile import ComputationNoted
from kohort.coordinator.decision import Decision, Disarm, Effect
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records import (
    ClientAssignmentForgotten,
    ClientAssignmentSet,
    ClientAssignorsForgotten,
    ConsumerGroupForgotten,
    ConsumerMemberForgotten,
    ConsumerMemberSubscribed,
    MemberTargetSet,
    Record,
    TargetAssignmentEpochSet,
)

#: What may concern them.
_FOLLOWED = frozenset({ComputationNoted, ConsumerGroupForgotten, ConsumerMemberForgotten, TargetAssignmentEpochSet})


def follow_assignors(groups: GroupsState, decision: Decision, *, now_ms: int) -> Decision:
    """The decision with what it means for assignors that members run.

    Args:
        groups: the state before it.
        decision: it is about to be carried out.
        now_ms: coordinator time.
    """
    concerned = {record.group_id for record in decision.records if type(record) in _FOLLOWED}
    more: list[Record] = []
    effects: list[Effect] = []
    for group_id in sorted(concerned):
        group = groups.consumer.get(group_id)
        if group is not None and group.client_side is not None:
            own = [record for record in decision.records if record.group_id == group_id]
            _follow(group, group.client_side, own, more, effects, now_ms=now_ms)
    if not more and not effects:
        return decision
    return replace(decision, records=(*decision.records, *more), effects=(*decision.effects, *effects))


def _follow(
    group: ConsumerGroup,
    side: ClientSide,
    own: list[Record],
    more: list[Record],
    effects: list[Effect],
    *,
    now_ms: int,
) -> None:
    group_id, order = group.group_id, group.computing
    is_forgotten = any(isinstance(record, ConsumerGroupForgotten) for record in own)
    gone = [record.member_id for record in own if isinstance(record, ConsumerMemberForgotten)]
    more += (ClientAssignorsForgotten(group_id=group_id, member_id=each) for each in gone if each in side.assignors)
    more += _build_said(group, side, own, gone, is_all=is_forgotten)
    computing = computing_after(group, own)
    if order is None or not order.member_id:
        return
    if is_forgotten or computing is None or computing.member_id != order.member_id:
        effects.append(Disarm(compute_key(group_id, order.member_id)))
    elif order.member_id in gone:
        effects.append(Disarm(compute_key(group_id, order.member_id)))
        why = "is gone with its member"
        records, armed = build_failure(group, order, error=GONE, why=why, now_ms=now_ms)
        more += records
        effects += armed


def _build_said(
    group: ConsumerGroup, side: ClientSide, own: list[Record], gone: list[str], *, is_all: bool
) -> Iterable[Record]:
    """What becomes of what was said to members."""
    if not side.said:
        return []
    group_id = group.group_id
    set_now = {record.member_id for record in own if isinstance(record, ClientAssignmentSet)}
    if is_all or any(isinstance(record, TargetAssignmentEpochSet) for record in own):
        forgotten = [each for each in side.said if each not in set_now]
        return [ClientAssignmentForgotten(group_id=group_id, member_id=each) for each in forgotten]
    records: list[Record] = []
    for former in gone:
        said = side.said.get(former)
        if said is None:
            continue
        records.append(ClientAssignmentForgotten(group_id=group_id, member_id=former))
        successor = _successor_of(group, former, own)
        if successor:
            records.append(ClientAssignmentSet(group_id=group_id, member_id=successor, said=said))
    return records


def _successor_of(group: ConsumerGroup, former: str, own: list[Record]) -> str:
    """Who takes over the target of a static member; "" if nobody does."""
    instance_id = group.members[former].instance_id
    given = {record.member_id for record in own if isinstance(record, MemberTargetSet)}
    for record in own:
        if isinstance(record, ConsumerMemberSubscribed) and record.instance_id == instance_id is not None:
            return record.member_id if record.member_id in given else ""
    return ""
