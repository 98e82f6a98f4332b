"""Liveness of members: heartbeat intervals, and removal after a connection closed without a leave.

A settled member gets the group's interval, or the one that it proposes, within the broker's limits. A member on its way
to its target gets a short one, so that a hand-over does not wait for the next ordinary heartbeat. Both grow with the
number of members, so that the heartbeats of a group stay below `group.heartbeat.rate.max`.

Laws: the result is a function of settings, counts and the heartbeat itself. A proposed interval is not stored: the
member proposes it with every heartbeat, so a restart loses nothing. No member gets an interval longer than a third of
its session, unless the group's own interval is longer. Where the rate and the session timeout conflict, the session
timeout wins: no member is fenced because others heartbeat.
Source: users@kafka 2014 (heartbeats must not flood the servers); KIP-848 (the coordinator says how often); G3.
"""

from __future__ import annotations

from typing import Final

from kohort.base.timers import TimerTable
from kohort.coordinator import commands, model
from kohort.coordinator.classic.state import ClassicConnectionLost, ClassicGroup
from kohort.coordinator.classic.static import decide_connection_closed
from kohort.coordinator.consumer.static import decide_connection_gone, is_away
from kohort.coordinator.decision import Arm, Decision, Effect, Reply, TimerKey
from kohort.coordinator.records.types import MemberConnectionSeen, Record
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.mode import start_offline
from kohort.errors import ErrorCode

#: Least interval of a member that is on its way to its target with held heartbeats: some clients take the interval for
#: the time limit of the response.
HELD_STEP_MS: Final = 500
#: Interval after a request of the member's own client has ended a hold: until its next heartbeat the member cannot be
#: told of news. Later a part of the time since: between the end of a short hold and a long interval there is such a
#: gap, too.
SOON_MS: Final = 1_000
CUT_PARTS: Final = 4
#: Least number of heartbeats in a session, also for a member that asked for longer intervals: two may get lost.
HEARTBEATS_PER_SESSION: Final = 3


def longest_interval_ms(settings: GroupSettings) -> int:
    """Return the longest interval that a member of a group ever gets."""
    safe_ms = settings.group_consumer_session_timeout_ms // HEARTBEATS_PER_SESSION
    within_ms = min(safe_ms, settings.group_consumer_max_heartbeat_interval_ms)
    return max(settings.group_consumer_heartbeat_interval_ms, within_ms)


def settled_interval_ms(settings: GroupSettings, member_count: int, proposed_ms: int, *, since_cut_ms: int = -1) -> int:
    """Return the heartbeat interval of a member at its target.

    `proposed_ms`: the interval that the member proposes; 0 and less: none. `since_cut_ms`: how long ago a request of
    its client ended the hold of a heartbeat; below 0: none did.
    """
    interval_ms = settings.group_consumer_heartbeat_interval_ms
    # The common case first: every heartbeat comes here.
    if since_cut_ms < 0 and proposed_ms <= 0 and member_count * 1000 <= settings.group_heartbeat_rate_max * interval_ms:
        return interval_ms
    wanted_ms = interval_ms
    if proposed_ms > 0:
        wanted_ms = max(proposed_ms, settings.group_consumer_min_heartbeat_interval_ms)
    if since_cut_ms >= 0:
        wanted_ms = min(wanted_ms, max(SOON_MS, since_cut_ms // CUT_PARTS))
    # The time in which all members may heartbeat once.
    round_ms = -(-member_count * 1000 // settings.group_heartbeat_rate_max)
    wanted_ms = max(wanted_ms, round_ms)
    return wanted_ms if wanted_ms <= interval_ms else min(wanted_ms, longest_interval_ms(settings))


def pending_interval_ms(
    settings: GroupSettings, group: model.ConsumerGroup, proposed_ms: int, *, is_pushed: bool = False
) -> int:
    """Return the heartbeat interval of a member on its way to its target, or before a target.

    Members on their way share the rate that the settled members leave. `is_pushed`: the member's next heartbeat may be
    held.
    """
    members = len(group.members)
    settled_ms = settled_interval_ms(settings, members, proposed_ms)
    short_ms = settings.group_consumer_rebalance_heartbeat_interval_ms
    # While an assignor fails, the time of the next target is unknown.
    if not short_ms or group.failure is not None:
        return settled_ms
    if is_pushed:
        short_ms = max(short_ms, HELD_STEP_MS)
    # Members have their whole target only by one that is as new as the group.
    settled = members - len(group.behind) if group.target_epoch == group.epoch else 0
    pending = max(1, members - settled)
    ordinary_ms = settled_interval_ms(settings, members, -1)
    left = max(1, settings.group_heartbeat_rate_max - settled * 1000 // ordinary_ms)
    return min(settled_ms, max(short_ms, -(-pending * 1000 // left)))


def waiting_interval_ms(settings: GroupSettings, member_count: int, proposed_ms: int, *, left_ms: int) -> int:
    """Return the interval to a heartbeat that may be held, for a waiting new member of a static group.

    The window ends `left_ms` from now. A heartbeat that is held at that time gets the news at once; a hold that ends
    before that cannot. A hold is shorter than the interval, but longer than half of it.
    """
    settled_ms = settled_interval_ms(settings, member_count, proposed_ms)
    return min(settled_ms, max(HELD_STEP_MS, left_ms - HELD_STEP_MS, 2 * left_ms // 3))


# Removal of a member after its connection closed without a leave, before its session ends.
#
# With `group.disconnect.grace.ms` a member stays for that long, unless it is heard of again; without it (-1, as in
# Apache Kafka) its session timeout decides alone. The grace of a KIP-848 member begins when its next heartbeat is due:
# a client with a new connection sends nothing before. Only a classic member itself knows its heartbeat interval: the
# grace has to be longer.
#
# A static member is never removed for its connection: its instance id lets it be away for a session. A new process may
# take its instance id at once.
#
# Laws: no member is removed later for it. A member that is heard of again has its whole session. The parked request of
# a disconnected classic member gets no response: the group goes on as if the member had not rejoined, where Kafka waits
# up to five minutes.
# Source: G3; users@kafka 2014 (failure detection); Apache Kafka's fixed limit for new classic members.


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
    told_ms = settled_interval_ms(settings, len(group.members), -1)
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
