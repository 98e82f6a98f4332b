"""Removal of a member after its connection closed without a leave, before its session ends.

With `group.disconnect.grace.ms` a member stays for that long, unless it is heard of again; without it (-1, as in
Apache Kafka) its session timeout decides alone. A static member is never removed for its connection: its instance id
lets it be away for a session. A new process may take its instance id at once.

Laws: no member is removed later for it. A member that is heard of again has its whole session. The parked request of
a disconnected classic member gets no response: the group goes on as if the member had not rejoined, where Kafka waits
up to five minutes.
Source: G3; users@kafka 2014 (failure detection); Apache Kafka's fixed limit for new classic members.
"""

from __future__ import annotations

from kohort.base.timers import TimerTable
from kohort.coordinator import commands, liveness, model
from kohort.coordinator.classic.state import ClassicConnectionLost, ClassicGroup
from kohort.coordinator.classic.static import decide_connection_closed
from kohort.coordinator.consumer.static import decide_connection_gone, is_away
from kohort.coordinator.decision import Arm, Decision, Effect, Reply, TimerKey
from kohort.coordinator.records.types import MemberConnectionSeen, Record
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.mode import start_offline
from kohort.errors import ErrorCode


def decide_disconnected(
    groups: model.GroupsState,
    command: commands.MemberDisconnected,
    settings: GroupSettings,
    timers: TimerTable[TimerKey],
    *,
    now_ms: int,
) -> Decision:
    """Decide the end of a member's connection; no effect if the id is not a member."""
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
    """Mark a static member offline since it was last heard of; it keeps its partitions for its session."""
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
