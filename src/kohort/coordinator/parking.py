"""Heartbeats that are held: their answer waits until there is something to say, and is computed then.

What a heartbeat says is carried out and stored when it comes; only an answer that has no news for its member is held,
and for no longer than the client bears. News release it: its share, a revocation, a fence, a rebalance, another
interval. A new epoch alone is none: the member learns of it when its heartbeat is answered. The heartbeat of a member
that joins is answered with its share once that is complete.

Laws: at most one heartbeat of a member is held. An answer that is released is what a heartbeat would be told now, and
no sign of life: a session counts from the arrival of a request. Stock clients count theirs from the answer, so what was
held of it is added to their session: the member lets go before the coordinator does. Who was given something or was
asked for it is not held before it has said what it owns since: its acknowledgement may wait behind its own heartbeat.
Source: requirement H1; KIP-848 (a coordinator answers heartbeats); T14 (a coordinator that tells consumers of a
rebalance).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Final, TypeGuard

from kohort.coordinator import records as facts
from kohort.coordinator.commands import (
    AnyHeartbeat,
    ConsumerGroupHeartbeat,
    ConsumerGroupHeartbeatReply,
    Done,
    Heartbeat,
    ReplyBody,
)
from kohort.coordinator.consumer.aside import MemberHeard, MemberWatched, WatchEnded
from kohort.coordinator.consumer.bounds import JOIN_EPOCH
from kohort.coordinator.decision import Arm, Decision, Disarm, Effect, Reply, TimerKey
from kohort.coordinator.model import ConsumerMember, GroupsState
from kohort.coordinator.records import MemberState, VolatileRecord


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatHeld(VolatileRecord):
    """The answer to `command` waits."""

    command: AnyHeartbeat


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReleased(VolatileRecord):
    """No heartbeat of that member is held any more."""

    member_id: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ListAwaited(VolatileRecord):
    """A member was given partitions or asked for some: it is to say what it owns. `until_ms` 0: it has said so."""

    member_id: str
    until_ms: int


@dataclass(frozen=True, slots=True, kw_only=True)
class AssignmentTold(VolatileRecord):
    """A member was told what came with its assignment from the member that computed it."""

    member_id: str


#: A classic member is held for such a part of its session at most.
HOLDS_PER_SESSION: Final = 4
#: A hold with nothing new may end so much earlier, in order to end together with others: so long, such a part of it.
SOON_MS: Final = 100
SOON_PARTS: Final = 32
#: What changes nothing but who waits for what, and who was told.
RECORDS: Final = (
    HeartbeatHeld,
    HeartbeatReleased,
    ListAwaited,
    AssignmentTold,
    MemberHeard,
    MemberWatched,
    WatchEnded,
)
#: What is true only of an answer that is not held.
_OF_ANSWERS: Final = (ListAwaited, AssignmentTold)


def apply_held(groups: GroupsState, record: HeartbeatHeld) -> None:
    """There is room for one of each member."""
    groups.holds.setdefault(record.group_id, {})[record.command.member_id] = record.command
    group = groups.consumer.get(record.group_id)
    if group is not None and group.client_side is not None:
        group.client_side.held.add(record.command.member_id)


def apply_released(groups: GroupsState, record: HeartbeatReleased) -> None:
    """It is answered, or there is nobody to be answered."""
    held = groups.holds.get(record.group_id, {})
    held.pop(record.member_id, None)
    if not held:
        groups.holds.pop(record.group_id, None)
    group = groups.consumer.get(record.group_id)
    if group is not None and group.client_side is not None:
        group.client_side.held.discard(record.member_id)


def apply_list_awaited(groups: GroupsState, record: ListAwaited) -> None:
    """Whoever says what it owns is not waited for any more."""
    member = find_member(groups, record.group_id, record.member_id)
    if member is not None:
        member.list_awaited_ms = record.until_ms


def apply_told(groups: GroupsState, record: AssignmentTold) -> None:
    """It is not told again, unless there is something new."""
    group = groups.consumer.get(record.group_id)
    if group is not None and group.client_side is not None:
        group.client_side.untold.discard(record.member_id)


def find_member(groups: GroupsState, group_id: str, member_id: str) -> ConsumerMember | None:
    """A member, if it is one."""
    group = groups.consumer.get(group_id)
    return None if group is None else group.members.get(member_id)


def is_held(groups: GroupsState, command: AnyHeartbeat) -> bool:
    """Whether the answer to this very heartbeat waits."""
    held = groups.holds.get(command.group_id, {}).get(command.member_id)
    return held is not None and held.request == command.request


def hold_key(group_id: str, member_id: str) -> TimerKey:
    """The deadline of a hold."""
    return TimerKey("hold", group_id, member_id)


def is_hold(key: TimerKey) -> bool:
    """Whether it is a client that was promised an answer by then."""
    return key.kind == "hold"


def hold_heartbeat(
    groups: GroupsState, command: ConsumerGroupHeartbeat, decision: Decision, *, now_ms: int
) -> Decision:
    """What a heartbeat of a client that bears it leads to: its answer is held if it has no news."""
    body = _body(command, decision)
    if not isinstance(body, ConsumerGroupHeartbeatReply) or command.member_epoch < JOIN_EPOCH:
        return decision
    member = find_member(groups, command.group_id, command.member_id)
    until_ms = 0 if member is None else member.list_awaited_ms
    awaited_ms = until_ms if until_ms > now_ms else 0
    is_waiting = command.hold_ms > 0 and _state_after(groups, decision, command) != MemberState.UNREVOKED_PARTITIONS
    if command.member_epoch == JOIN_EPOCH and is_waiting and not body.is_complete and not body.should_compute:
        return _hold(decision, command, now_ms=now_ms)
    is_first = command.member_epoch == JOIN_EPOCH or command.tells_all
    if body.assignment is not None and (body.assignment or not is_first) and not _is_listed(command, body):
        awaited_ms = now_ms + body.heartbeat_interval_ms
    elif not is_first and _lists_all(groups, decision, command):
        awaited_ms = 0
    if awaited_ms != until_ms:
        awaited = ListAwaited(group_id=command.group_id, member_id=command.member_id, until_ms=awaited_ms)
        decision = Decision((*decision.records, awaited), decision.effects)
    if is_waiting and not awaited_ms and not is_first and is_quiet(command, decision):
        return _hold(decision, command, now_ms=now_ms)
    return decision


def may_be_held_again(groups: GroupsState, command: ConsumerGroupHeartbeat, member: ConsumerMember) -> bool:
    """Whether the heartbeat of a settled member is held that was held before, word for word, and changes nothing."""
    return not member.list_awaited_ms and command.member_id not in groups.holds.get(command.group_id, ())


def hold_classic(groups: GroupsState, command: Heartbeat, decision: Decision, *, now_ms: int) -> Decision:
    """The same of a classic member, whose session may be short."""
    if command.hold_ms <= 0 or not is_quiet(command, decision):
        return decision
    hold_ms = min(command.hold_ms, _session_ms(groups, command) // HOLDS_PER_SESSION)
    return _hold(decision, replace(command, hold_ms=hold_ms), now_ms=now_ms)


def is_quiet(command: AnyHeartbeat, decision: Decision) -> bool:
    """Whether the answer tells the member nothing that it has to act on, or not yet all that it waits for."""
    body = _body(command, decision)
    if not isinstance(body, ConsumerGroupHeartbeatReply):
        return isinstance(body, Done)
    assert isinstance(command, ConsumerGroupHeartbeat), "it is answered in its own way"
    if body.should_compute:
        return False
    if command.member_epoch == JOIN_EPOCH:
        return not body.is_complete
    is_known = body.assignment is None or _is_listed(command, body)
    return is_known and body.client_assignment is None and body.metadata_news is None


def ask_again(groups: GroupsState, command: AnyHeartbeat) -> AnyHeartbeat:
    """The heartbeat that a member would send now: what it said was carried out when it came."""
    if isinstance(command, Heartbeat):
        return replace(command, hold_ms=0)
    member = find_member(groups, command.group_id, command.member_id)
    # It has an epoch since that it was not told yet; who is a member no more does not join by this.
    epoch = max(command.member_epoch, JOIN_EPOCH + 1)
    is_join = command.member_epoch == JOIN_EPOCH
    return replace(
        command,
        member_epoch=epoch if member is None or member.member_epoch < 0 else member.member_epoch,
        tells_all=is_join,
        hold_ms=0,
        rack_id=None,
        rebalance_timeout_ms=-1,
        subscribed_topic_names=None,
        subscribed_topic_regex=None,
        server_assignor=None,
        client_assignors=None,
        # What it was given since it joined it was not told: it has nothing to give up.
        topic_partitions={} if is_join else None,
    )


def answer(command: AnyHeartbeat, decision: Decision) -> Decision:
    """What `ask_again` leads to, as the answer to the heartbeat that was held."""
    released = HeartbeatReleased(group_id=command.group_id, member_id=command.member_id)
    key = hold_key(command.group_id, command.member_id)
    effects = without_life(decision.effects) if command.counts_requests else decision.effects
    return Decision((*decision.records, released), (*effects, Disarm(key)))


def keep(command: AnyHeartbeat, decision: Decision) -> Decision:
    """What `ask_again` leads to where it has no news: the heartbeat stays held."""
    # Nothing was told, so nothing is to be said.
    records = tuple(record for record in decision.records if not isinstance(record, _OF_ANSWERS))
    return Decision(records, without_life(_unanswered(command, decision)))


def drop(command: AnyHeartbeat) -> Decision:
    """There is nobody to be answered any more."""
    released = HeartbeatReleased(group_id=command.group_id, member_id=command.member_id)
    return Decision((released,), (Disarm(hold_key(command.group_id, command.member_id)),))


def _session_ms(groups: GroupsState, command: Heartbeat) -> int:
    group = groups.classic.get(command.group_id)
    if group is not None:
        return group.members[command.member_id].session_timeout_ms
    facts = groups.consumer[command.group_id].members[command.member_id].classic
    assert facts is not None, "only a classic member heartbeats so"
    return facts.session_timeout_ms


def _body(command: AnyHeartbeat, decision: Decision) -> ReplyBody:
    """What it is answered; who joins may be the reason that others are answered, too."""
    return next(
        effect.body for effect in decision.effects if type(effect) is Reply and effect.request == command.request
    )


def _unanswered(command: AnyHeartbeat, decision: Decision) -> tuple[Effect, ...]:
    return tuple(
        effect for effect in decision.effects if type(effect) is not Reply or effect.request != command.request
    )


def _hold(decision: Decision, command: AnyHeartbeat, *, now_ms: int) -> Decision:
    deadline = Arm(hold_key(command.group_id, command.member_id), now_ms + command.hold_ms)
    held = HeartbeatHeld(group_id=command.group_id, command=command)
    records = (record for record in decision.records if not isinstance(record, AssignmentTold))
    return Decision((*records, held), (*_unanswered(command, decision), deadline))


def _state_after(groups: GroupsState, decision: Decision, command: ConsumerGroupHeartbeat) -> MemberState:
    """Where the member is on its way once the decision is carried out."""
    after = _after(groups, decision, command)
    # Who joins, and has a state of its own only with its first step, has nothing to give up.
    return MemberState.STABLE if after is None else after.state


def _after(
    groups: GroupsState, decision: Decision, command: ConsumerGroupHeartbeat
) -> ConsumerMember | facts.CurrentAssignmentSet | None:
    """The member once the decision is carried out; `None`: it joins, and has nothing of its own yet."""
    for record in reversed(decision.records):
        if isinstance(record, facts.CurrentAssignmentSet) and record.member_id == command.member_id:
            return record
    return find_member(groups, command.group_id, command.member_id)


def _is_listed(command: ConsumerGroupHeartbeat, body: ConsumerGroupHeartbeatReply) -> bool:
    """Whether a member is told what it says itself that it owns, for it says everything.

    librdkafka's consumer does so with every heartbeat for as long as it has nothing.
    """
    listed = command.topic_partitions
    if listed is None or command.tells_all or body.assignment is None or command.member_epoch == JOIN_EPOCH:
        return False
    listed_all = {(topic_id, each) for topic_id, partitions in listed.items() for each in partitions}
    return listed_all == {(topic_id, each) for topic_id, partitions in body.assignment.items() for each in partitions}


def _lists_all(groups: GroupsState, decision: Decision, command: ConsumerGroupHeartbeat) -> bool:
    """Whether a heartbeat says that its member owns all that it has: what is missing was told to one before it."""
    listed = command.topic_partitions
    if listed is None:
        return False
    assigned = _after(groups, decision, command)
    return assigned is None or all(
        grants.keys() <= set(listed.get(topic_id, ())) for topic_id, grants in assigned.assigned.items()
    )


def without_life(effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
    """What an answer that nobody asked for just now leads to: it is no sign of life."""
    return tuple(effect for effect in effects if not _is_session(effect))


def _is_session(effect: Effect) -> TypeGuard[Arm]:
    return isinstance(effect, Arm) and effect.key.kind == "session"
