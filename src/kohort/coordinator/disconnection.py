"""Removal of a member whose connection closed without a leave, and fetches that count as signs of life.

With `group.disconnect.grace.ms` a disconnected member is removed after that time, unless it sends a request; without it
(-1, as in Apache Kafka) only its session timeout counts. A static member is never removed for its connection: it may be
away until its session ends, and a new process may take its instance id at once.

Laws: disconnection never prolongs a session. A member that sends a request again gets its whole session. The delayed
request of a disconnected classic member gets no response: the group continues as if the member had not rejoined, where
Kafka waits up to five minutes.
Source: G3; users@kafka 2014 (failure detection); Apache Kafka's fixed limit for new classic members.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kohort.base.timers import TimerTable
from kohort.coordinator import commands, liveness, model
from kohort.coordinator.classic.state import ClassicConnectionLost, ClassicGroup
from kohort.coordinator.classic.static import decide_connection_closed
from kohort.coordinator.consumer.static import decide_connection_gone, is_away
from kohort.coordinator.decision import Arm, Decision, Effect, Reply, TimerKey
from kohort.coordinator.records.types import MemberConnectionSeen, Record
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.mode import heard, is_offline, start_offline
from kohort.errors import ErrorCode


def decide_disconnected(
    groups: model.GroupsState,
    command: commands.MemberDisconnected,
    settings: GroupSettings,
    timers: TimerTable[TimerKey],
    *,
    now_ms: int,
) -> Decision:
    """Decide the effects of a closed connection on its member; none if the id is not a member."""
    grace_ms = settings.group_disconnect_grace_ms
    group = groups.consumer.get(command.group_id)
    if group is not None:
        hosted = group.members.get(command.member_id)
        if hosted is not None and settings.is_static and hosted.instance_id is not None:
            return _of_static(groups, group, hosted, settings, timers, now_ms=now_ms)
        return _of_consumer(group, command.member_id, settings, timers, now_ms=now_ms)
    classic = groups.classic.get(command.group_id)
    named = None if classic is None else classic.members.get(command.member_id)
    if classic is not None and named is not None and named.instance_id is not None and settings.is_static:
        ends_ms = timers.deadline(TimerKey("session", classic.group_id, named.member_id))
        heard_ms = now_ms if ends_ms is None else min(now_ms, ends_ms - named.session_timeout_ms)
        return decide_connection_closed(classic, named.member_id, settings, groups, heard_ms=heard_ms, now_ms=now_ms)
    if classic is None or grace_ms < 0:
        return Decision()
    return _of_classic(classic, command.member_id, timers, due_ms=now_ms + grace_ms)


def _of_consumer(
    group: model.ConsumerGroup, member_id: str, settings: GroupSettings, timers: TimerTable[TimerKey], *, now_ms: int
) -> Decision:
    member = group.members.get(member_id)
    if member is None or member.is_disconnected or is_away(member):
        return Decision()
    grace_ms = settings.group_disconnect_grace_ms
    if member.classic is not None:
        # The member is not marked: a classic heartbeat does not remove the mark, and it may be the only sign of life.
        is_spared = grace_ms < 0 or member.instance_id is not None
        return Decision() if is_spared else Decision((), _earlier(member.session_key, timers, now_ms + grace_ms))
    if member.instance_id is not None:
        return Decision(tuple(decide_connection_gone(group, member_id)))
    deadline_ms = timers.deadline(member.session_key)
    if grace_ms < 0 or deadline_ms is None:
        return Decision()
    heard_ms = deadline_ms - settings.group_consumer_session_timeout_ms
    # The grace begins when the member's next heartbeat is due: a client with a new connection sends nothing before.
    # Only a classic member itself knows its heartbeat interval, so its grace has to be longer.
    told_ms = liveness.settled_interval_ms(settings, len(group.members), -1)
    seen = MemberConnectionSeen(group_id=group.group_id, member_id=member_id, is_gone=True)
    return Decision((seen,), _earlier(member.session_key, timers, max(now_ms, heard_ms + told_ms) + grace_ms))


def _of_static(
    groups: model.GroupsState,
    group: model.ConsumerGroup,
    member: model.ConsumerMember,
    settings: GroupSettings,
    timers: TimerTable[TimerKey],
    *,
    now_ms: int,
) -> Decision:
    """Mark a static group's disconnected member offline since its last sign of life; it keeps partitions."""
    records = decide_connection_gone(group, member.member_id)
    own, deadline_ms = member.classic, timers.deadline(member.session_key)
    if is_away(member) or not records:
        return Decision(tuple(records))
    session_ms = settings.group_consumer_session_timeout_ms if own is None else own.session_timeout_ms
    heard_ms = now_ms if deadline_ms is None else min(now_ms, deadline_ms - session_ms)
    since = {member.member_id: heard_ms}
    more, effects = start_offline(groups, group.group_id, since, settings, now_ms=now_ms)
    return Decision((*records, *more), tuple(effects))


def _of_classic(group: ClassicGroup, member_id: str, timers: TimerTable[TimerKey], *, due_ms: int) -> Decision:
    member = group.members.get(member_id)
    if member is None or member.instance_id is not None:
        return Decision()
    records: tuple[Record, ...] = (ClassicConnectionLost(group_id=group.group_id, member_id=member_id),)
    replies: list[Effect] = [
        Reply(parked[member_id], commands.Refusal(code=ErrorCode.UNKNOWN_MEMBER_ID))
        for parked in (group.awaiting_join, group.awaiting_sync)
        if member_id in parked
    ]
    return Decision(records, (*replies, *_earlier(TimerKey("session", group.group_id, member_id), timers, due_ms)))


def _earlier(key: TimerKey, timers: TimerTable[TimerKey], due_ms: int) -> tuple[Effect, ...]:
    deadline_ms = timers.deadline(key)
    return (Arm(key, due_ms),) if deadline_ms is None or due_ms < deadline_ms else ()


# Fetches as signs of life, in groups with `group.liveness=fetch`.
#
# Such a fetch renews the session of its member without a decision, so often that no session ends early for it, and no
# oftener. The first one of a member whose connection was closed is decided on, as a heartbeat would be: the member is
# back.
#
# Laws: it is a sign of life and nothing else: it acknowledges nothing, and is told nothing. A fetch of a member that
# the group does not have, or at an epoch that the member does not have, is none. A session that is renewed so ends one
# session timeout after the fetch, at most a quarter of a heartbeat interval earlier: so much is the client to take off.
# Source: requirement H7; users@kafka 2014-07-21 (liveness by fetch requests).

#: At most so many fetches count in a heartbeat interval.
SIGNS_PER_INTERVAL: Final = 4


class _Session(NamedTuple):
    """A member's session: its timer key, timeout, heartbeat interval, and whether it counts as disconnected."""

    key: TimerKey
    session_ms: int
    interval_ms: int
    is_gone: bool


class Renewal(NamedTuple):
    """Effect of a member's fetch on its session: the new deadline, `None` if the fetch does not renew it.

    `is_gone`: the member counts as disconnected, so `decide_fetched` is needed first. `left_ms`: time in which further
    fetches change nothing.
    """

    session: Arm | None
    is_gone: bool
    left_ms: int


def find_renewal(
    groups: model.GroupsState,
    timers: TimerTable[TimerKey],
    settings: GroupSettings,
    member: tuple[str, str],
    *,
    epoch: int,
    now_ms: int,
) -> Renewal:
    """Return the effect of a member's fetch on its session; `epoch`: the fetch's member epoch, -1: none."""
    session = _session_of(groups, settings, *member, epoch=epoch)
    if session is None or session.is_gone:
        return Renewal(None, session is not None, 0)
    deadline_ms, step_ms = timers.deadline(session.key), session.interval_ms // SIGNS_PER_INTERVAL
    if deadline_ms is None:
        return Renewal(None, False, 0)
    left_ms = deadline_ms - session.session_ms + step_ms - now_ms
    if left_ms > 0:
        return Renewal(None, False, min(left_ms, step_ms))
    return Renewal(Arm(session.key, now_ms + session.session_ms), False, step_ms)


def decide_fetched(
    groups: model.GroupsState, command: commands.MemberFetched, settings: GroupSettings, *, now_ms: int
) -> Decision:
    """Mark a member that has sent a fetch as connected, and as online in a static group."""
    group_id, member_id = command.group_id, command.member_id
    session = _session_of(groups, settings, group_id, member_id, epoch=-1)
    if session is None or not session.is_gone or not settings.counts_fetches:
        return Decision()
    records: tuple[Record, ...]
    if group_id in groups.consumer:
        # The clock of a static group follows this record.
        records = (MemberConnectionSeen(group_id=group_id, member_id=member_id, is_gone=False),)
    else:
        records = tuple(heard(groups, group_id, member_id))
    return Decision(records, (Arm(session.key, now_ms + session.session_ms),))


def _session_of(
    groups: model.GroupsState, settings: GroupSettings, group_id: str, member_id: str, *, epoch: int
) -> _Session | None:
    key = TimerKey("session", group_id, member_id)
    group = groups.consumer.get(group_id)
    if group is not None:
        member = group.members.get(member_id)
        # A member that left for a while has no process that could fetch.
        if member is None or member.member_epoch <= 0 or epoch > member.member_epoch:
            return None
        is_gone = member.is_disconnected or is_offline(groups, group_id, member_id)
        if member.classic is None:
            interval_ms = liveness.settled_interval_ms(settings, len(group.members), -1)
            return _Session(key, settings.group_consumer_session_timeout_ms, interval_ms, is_gone)
        session_ms = member.classic.session_timeout_ms
    else:
        classic = groups.classic.get(group_id)
        known = None if classic is None or member_id in classic.new_members else classic.members.get(member_id)
        if known is None:
            return None
        session_ms, is_gone = known.session_timeout_ms, is_offline(groups, group_id, member_id)
    # Only a classic member itself knows its heartbeat interval.
    return _Session(key, session_ms, session_ms // liveness.HEARTBEATS_PER_SESSION, is_gone)
