"""Delayed heartbeats: the response is held until there is news for the member, and is computed then.

The coordinator carries out and stores a heartbeat when it arrives. It holds only a response without news, and no longer
than the client allows. News that ends the hold: an assignment, a revocation, a fence, a rebalance, or another heartbeat
interval. A new epoch alone is no news; the member learns of it with its next response. A joining member gets its
response once its assignment is complete.

Laws: at most one heartbeat of a member is held. A released response equals the response to a heartbeat sent now. It
does not renew the session, which counts from the arrival of a request. Stock clients count their session from the
response, so the time of the hold is added to it: the member gives up before the coordinator fences it. After an
assignment or revocation, no heartbeat of the member is held until it reports its partitions: otherwise its own held
heartbeat would delay that acknowledgement.
Source: requirement H1; KIP-848 (a coordinator answers heartbeats); T14 (a coordinator that tells consumers of a
rebalance).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kohort.base.values import value
from kohort.coordinator import commands, model
from kohort.coordinator.commands import JOIN_EPOCH, ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply, Done, Heartbeat
from kohort.coordinator.decision import Arm, Decision, Disarm, Effect, Reply, ReplyBody, TimerKey
from kohort.coordinator.records import types as facts
from kohort.coordinator.records.types import MemberState, VolatileRecord
from kohort.errors import ErrorCode, Refused

# News that members get beside their heartbeats, and the watches that wait for it.
#
# Laws: none of this is written; a restart forgets it, as connections close. News told aside is told by the member's
# next heartbeat as well, unless the member has shown before that it knows it.
# Source: requirement H10.


@value
class MemberWatched(VolatileRecord):
    """A watch waits: `command` gets its reply when there is news for its member."""

    command: commands.WatchMember


@value
class WatchEnded(VolatileRecord):
    """A watch has ended; a newer watch of the member, if there is one, stays."""

    command: commands.WatchMember


@value
class MemberHeard(VolatileRecord):
    """A member has shown that it knows `epoch`; `is_behind`: a fetch or commit response had later news."""

    member_id: str
    epoch: int
    is_behind: bool


def apply_watched(groups: model.GroupsState, record: MemberWatched) -> None:
    """Add the watch of a member, which replaces an older one."""
    groups.watches.setdefault(record.group_id, {})[record.command.member_id] = record.command


def apply_watch_ended(groups: model.GroupsState, record: WatchEnded) -> None:
    """Remove the watch of a member, whether it got a reply or not."""
    if is_watched(groups, record.command):
        watched = groups.watches[record.group_id]
        del watched[record.command.member_id]
        if not watched:
            del groups.watches[record.group_id]


def apply_heard(groups: model.GroupsState, record: MemberHeard) -> None:
    """Set the epoch that a member knows, and whether it may have missed later news."""
    member = groups.find_member(record.group_id, record.member_id)
    if member is not None:
        member.known_epoch, member.is_told_aside = record.epoch, record.is_behind


def heard_now(group_id: str, member: model.ConsumerMember) -> tuple[MemberHeard, ...]:
    """Return the record that a heartbeat response repeats the news of fetch and commit responses."""
    if not member.is_told_aside:
        return ()
    return (MemberHeard(group_id=group_id, member_id=member.member_id, epoch=member.known_epoch, is_behind=False),)


def check_epoch(member: model.ConsumerMember, command: ConsumerGroupHeartbeat) -> None:
    """Refuse an older epoch with FENCED_MEMBER_EPOCH, unless the member may not know its latest one."""
    # That is the previous epoch of a member that missed its last response and lists its partitions, or any epoch since
    # it was told news aside: a heartbeat without a list releases no partition.
    epoch, owned = command.member_epoch, command.topic_partitions
    if epoch > member.member_epoch:
        why = f"a larger epoch ({epoch}) than the coordinator knows ({member.member_epoch})"
    elif (
        0 < member.known_epoch <= epoch
        if owned is None
        else epoch == member.previous_member_epoch and _is_held(owned, member)
    ):
        return
    else:
        why = f"a smaller epoch ({epoch}) than the coordinator knows ({member.member_epoch})"
    raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, f"the member has {why}; it has to give up its partitions and rejoin")


def _is_held(owned: commands.Partitions, member: model.ConsumerMember) -> bool:
    """Return whether all listed partitions are assigned to the member or pending revocation."""
    return all(
        partition in member.assigned.get(topic_id, ()) or partition in member.pending_revocation.get(topic_id, ())
        for topic_id, partitions in owned.items()
        for partition in partitions
    )


def is_watched(groups: model.GroupsState, command: commands.WatchMember) -> bool:
    """Return whether this very watch waits, by its request token."""
    watched = groups.watches.get(command.group_id, {}).get(command.member_id)
    return watched is not None and watched.request == command.request


@value
class HeartbeatHeld(VolatileRecord):
    """A heartbeat is held: the response to `command` waits."""

    command: commands.AnyHeartbeat


@value
class HeartbeatReleased(VolatileRecord):
    """The hold of a member's heartbeat has ended."""

    member_id: str


@value
class ListAwaited(VolatileRecord):
    """A member has to report its partitions after an assignment or revocation; `until_ms` 0: it has done so."""

    member_id: str
    until_ms: int


@value
class AssignmentTold(VolatileRecord):
    """A member was sent the client-side assignor's message to it."""

    member_id: str


#: A heartbeat of a classic member is held for at most this fraction of its session timeout.
HOLDS_PER_SESSION: Final = 4
#: A hold without news may end this much earlier, to end together with others: at most so long, and such a fraction of
#: it.
SOON_MS: Final = 100
SOON_PARTS: Final = 32
#: Records that change nothing but holds, watches and delivered messages.
RECORDS: Final = (HeartbeatHeld, HeartbeatReleased, ListAwaited, AssignmentTold, MemberHeard, MemberWatched, WatchEnded)
#: Records that hold only for a response that is sent.
_OF_ANSWERS: Final = (ListAwaited, AssignmentTold)


def apply_held(groups: model.GroupsState, record: HeartbeatHeld) -> None:
    """Hold a heartbeat, which replaces an older one of the same member."""
    groups.holds.setdefault(record.group_id, {})[record.command.member_id] = record.command
    group = groups.consumer.get(record.group_id)
    # A member with a held heartbeat can be asked to compute a target at once.
    if group is not None and group.client_assignors is not None:
        group.client_assignors.held.add(record.command.member_id)


def apply_released(groups: model.GroupsState, record: HeartbeatReleased) -> None:
    """Remove the held heartbeat of a member, whether it got a response or not."""
    held = groups.holds.get(record.group_id, {})
    held.pop(record.member_id, None)
    if not held:
        groups.holds.pop(record.group_id, None)
    group = groups.consumer.get(record.group_id)
    if group is not None and group.client_assignors is not None:
        group.client_assignors.held.discard(record.member_id)


def apply_list_awaited(groups: model.GroupsState, record: ListAwaited) -> None:
    """Set until when a member has to report its partitions."""
    member = groups.find_member(record.group_id, record.member_id)
    if member is not None:
        member.list_awaited_ms = record.until_ms


def apply_told(groups: model.GroupsState, record: AssignmentTold) -> None:
    """Mark the client-side assignor's message to a member as delivered."""
    group = groups.consumer.get(record.group_id)
    if group is not None and group.client_assignors is not None:
        group.client_assignors.untold.discard(record.member_id)


def is_held(groups: model.GroupsState, command: commands.AnyHeartbeat) -> bool:
    """Return whether this very heartbeat is held, by its request token."""
    held = groups.holds.get(command.group_id, {}).get(command.member_id)
    return held is not None and held.request == command.request


def hold_key(group_id: str, member_id: str) -> TimerKey:
    """Return the key of the deadline of a hold."""
    return TimerKey("hold", group_id, member_id)


def is_hold(key: TimerKey) -> bool:
    """Return whether a deadline is that of a hold, at which the client expects the response."""
    return key.kind == "hold"


def hold_heartbeat(
    groups: model.GroupsState, command: ConsumerGroupHeartbeat, decision: Decision, *, now_ms: int
) -> Decision:
    """Hold a KIP-848 heartbeat if its sender allows it and there is no news; else return the decision."""
    body = _body(command, decision)
    if not isinstance(body, ConsumerGroupHeartbeatReply) or command.member_epoch < JOIN_EPOCH:
        return decision
    member = groups.find_member(command.group_id, command.member_id)
    until_ms = 0 if member is None else member.list_awaited_ms
    awaited_ms = until_ms if until_ms > now_ms else 0
    # A member that has to revoke partitions acts on its response: it is never held.
    is_waiting = command.hold_ms > 0 and _state_after(groups, decision, command) != MemberState.UNREVOKED_PARTITIONS
    # A joining member waits for its complete assignment, unless it is asked to compute that assignment.
    if command.member_epoch == JOIN_EPOCH and is_waiting and not body.is_complete and not body.should_compute:
        return _hold(decision, command, now_ms=now_ms)
    is_first = command.member_epoch == JOIN_EPOCH or command.tells_all
    # After an assignment the member's next list acknowledges it: until then a held heartbeat would delay the list.
    if body.assignment is not None and (body.assignment or not is_first) and not _is_listed(command, body):
        awaited_ms = now_ms + body.heartbeat_interval_ms
    # The list is complete: the member knows all that it was told.
    elif not is_first and _lists_all(groups, decision, command):
        awaited_ms = 0
    if awaited_ms != until_ms:
        awaited = ListAwaited(group_id=command.group_id, member_id=command.member_id, until_ms=awaited_ms)
        decision = Decision((*decision.records, awaited), decision.effects)
    if is_waiting and not awaited_ms and not is_first and is_quiet(command, decision):
        return _hold(decision, command, now_ms=now_ms)
    return decision


def may_be_held_again(groups: model.GroupsState, command: ConsumerGroupHeartbeat, member: model.ConsumerMember) -> bool:
    """Return whether the repeated heartbeat of a reconciled member may be held again."""
    return not member.list_awaited_ms and command.member_id not in groups.holds.get(command.group_id, ())


def hold_classic(groups: model.GroupsState, command: Heartbeat, decision: Decision, *, now_ms: int) -> Decision:
    """Hold a classic heartbeat without news, for at most a part of the member's session timeout."""
    if command.hold_ms <= 0 or not is_quiet(command, decision):
        return decision
    # A classic client waits for its response no longer than its own session timeout allows.
    hold_ms = min(command.hold_ms, _session_ms(groups, command) // HOLDS_PER_SESSION)
    return _hold(decision, replace(command, hold_ms=hold_ms), now_ms=now_ms)


def is_quiet(command: commands.AnyHeartbeat, decision: Decision) -> bool:
    """Return whether a response has no news: nothing to act on, or, at a join, an incomplete assignment."""
    body = _body(command, decision)
    if not isinstance(body, ConsumerGroupHeartbeatReply):
        # Any error is news for a classic member, a rebalance too.
        return isinstance(body, Done)
    assert isinstance(command, ConsumerGroupHeartbeat), "it is answered in its own way"
    if body.should_compute:
        return False
    if command.member_epoch == JOIN_EPOCH:
        return not body.is_complete
    is_known = body.assignment is None or _is_listed(command, body)
    return is_known and body.client_assignment is None and body.metadata_news is None


def ask_again(groups: model.GroupsState, command: commands.AnyHeartbeat) -> commands.AnyHeartbeat:
    """Build the heartbeat that a member would send now, from its held one, which is carried out already."""
    if isinstance(command, Heartbeat):
        return replace(command, hold_ms=0)
    member = groups.find_member(command.group_id, command.member_id)
    # The member may have an epoch that it was not told yet; a client that is a member no more does not join by this.
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
        # The member does not know the partitions assigned to it since it joined: it has none to give up.
        topic_partitions={} if is_join else None,
    )


def answer(command: commands.AnyHeartbeat, decision: Decision) -> Decision:
    """End a hold with the response that `decision`, made for `ask_again`, has."""
    released = HeartbeatReleased(group_id=command.group_id, member_id=command.member_id)
    key = hold_key(command.group_id, command.member_id)
    # A stock client counts its session from the response, so its session is renewed with it.
    effects = without_life(decision.effects) if command.counts_requests else decision.effects
    return Decision((*decision.records, released), (*effects, Disarm(key)))


def keep(command: commands.AnyHeartbeat, decision: Decision) -> Decision:
    """Keep a heartbeat held, because `decision`, made for `ask_again`, has no news."""
    # No response is sent, so the records of one are left out.
    records = tuple(record for record in decision.records if not isinstance(record, _OF_ANSWERS))
    return Decision(records, without_life(_unanswered(command, decision)))


def drop(command: commands.AnyHeartbeat) -> Decision:
    """Drop the held heartbeat of a member that has disconnected."""
    released = HeartbeatReleased(group_id=command.group_id, member_id=command.member_id)
    return Decision((released,), (Disarm(hold_key(command.group_id, command.member_id)),))


def _session_ms(groups: model.GroupsState, command: Heartbeat) -> int:
    group = groups.classic.get(command.group_id)
    if group is not None:
        return group.members[command.member_id].session_timeout_ms
    own = groups.consumer[command.group_id].members[command.member_id].classic
    assert own is not None, "only a classic member heartbeats so"
    return own.session_timeout_ms


def _body(command: commands.AnyHeartbeat, decision: Decision) -> ReplyBody:
    """Return the body of the response to `command`."""
    # The decision may answer the requests of other members, too.
    return next(
        effect.body for effect in decision.effects if type(effect) is Reply and effect.request == command.request
    )


def _unanswered(command: commands.AnyHeartbeat, decision: Decision) -> tuple[Effect, ...]:
    return tuple(
        effect for effect in decision.effects if type(effect) is not Reply or effect.request != command.request
    )


def _hold(decision: Decision, command: commands.AnyHeartbeat, *, now_ms: int) -> Decision:
    deadline = Arm(hold_key(command.group_id, command.member_id), now_ms + command.hold_ms)
    held = HeartbeatHeld(group_id=command.group_id, command=command)
    # The message of the client-side assignor is not delivered before the response is sent.
    records = (record for record in decision.records if not isinstance(record, AssignmentTold))
    return Decision((*records, held), (*_unanswered(command, decision), deadline))


def _state_after(groups: model.GroupsState, decision: Decision, command: ConsumerGroupHeartbeat) -> MemberState:
    """Return the member's state after the decision."""
    after = _after(groups, decision, command)
    # A joining member gets a state of its own only with its first reconciliation: it has nothing to give up.
    return MemberState.STABLE if after is None else after.state


def _after(
    groups: model.GroupsState, decision: Decision, command: ConsumerGroupHeartbeat
) -> model.ConsumerMember | facts.CurrentAssignmentSet | None:
    """Return the member after the decision; `None` if it joins and has no current assignment yet."""
    # The latest record of the decision counts.
    for record in reversed(decision.records):
        if isinstance(record, facts.CurrentAssignmentSet) and record.member_id == command.member_id:
            return record
    return groups.find_member(command.group_id, command.member_id)


def _is_listed(command: ConsumerGroupHeartbeat, body: ConsumerGroupHeartbeatReply) -> bool:
    """Return whether a response assigns exactly the partitions that the heartbeat lists."""
    # librdkafka's consumer lists its partitions in every heartbeat for as long as it has none.
    listed = command.topic_partitions
    if listed is None or command.tells_all or body.assignment is None or command.member_epoch == JOIN_EPOCH:
        return False
    listed_all = {(topic_id, each) for topic_id, partitions in listed.items() for each in partitions}
    return listed_all == {(topic_id, each) for topic_id, partitions in body.assignment.items() for each in partitions}


def _lists_all(groups: model.GroupsState, decision: Decision, command: ConsumerGroupHeartbeat) -> bool:
    """Return whether a heartbeat lists all partitions that its member has after the decision."""
    listed = command.topic_partitions
    if listed is None:
        return False
    assigned = _after(groups, decision, command)
    return assigned is None or all(
        grants.keys() <= set(listed.get(topic_id, ())) for topic_id, grants in assigned.assigned.items()
    )


def without_life(effects: tuple[Effect, ...]) -> tuple[Effect, ...]:
    """Remove session deadlines from the effects: an unsolicited response must not renew the session."""
    return tuple(effect for effect in effects if not (isinstance(effect, Arm) and effect.key.kind == "session"))
