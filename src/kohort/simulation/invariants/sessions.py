"""The law that a member is removed because of its own silence or slowness, never because of the broker's.

Time in which the broker was stalled does not count, and a restart begins every time limit anew.

Source: architecture rule 17; KIP-848 and the classic protocol (session timeout, rebalance timeout).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from kohort.coordinator import commands
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState, MemberPut, MemberRemoved
from kohort.coordinator.commands.admin import AlterGroupConfigs, SubmitMoves
from kohort.coordinator.decision import Arm, Decision, Reply, ReplyBody, TimerKey
from kohort.coordinator.delayed_heartbeats import HeartbeatReleased
from kohort.coordinator.disconnection import SIGNS_PER_INTERVAL
from kohort.coordinator.journal_events.triggers import Stimulus
from kohort.coordinator.liveness import settled_interval_ms
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records import types as facts
from kohort.coordinator.shard import Shard
from kohort.coordinator.static_membership.mode import is_offline
from kohort.errors import ErrorCode
from kohort.journal.rows import Entry
from kohort.simulation.trace import LawBroken

_JOINING: Final = (ClassicGroupState.EMPTY, ClassicGroupState.PREPARING_REBALANCE)
#: Requests that prolong a session; a commit does so in classic groups only.
_SIGNS: Final = (
    commands.ConsumerGroupHeartbeat,
    commands.JoinGroup,
    commands.SyncGroup,
    commands.Heartbeat,
    commands.CommitOffsets,
)


class SessionLaws:
    """The members of one shard, with the times of their last signs of life and the reasons of removals.

    `groups`: the groups as the shard loaded them.
    """

    def __init__(self, groups: GroupsState, *, now_ms: int) -> None:
        #: Every member counts as heard of when the shard was loaded.
        self._loaded_ms = now_ms
        #: (group, member) -> when it was heard of last.
        self._heard: dict[tuple[str, str], int] = {}
        #: group -> when its configs were set last: a longer session applies from then on.
        self._configured_ms: dict[str, int] = {}
        #: (group, member) -> the session timeout that it had then.
        self._allowed_ms: dict[tuple[str, str], int] = {}
        #: (group, member) -> since when it has something to give up.
        self._revoking: dict[tuple[str, str], int] = {}
        #: (group, classic member of a KIP-848 group) -> since when it is to rejoin.
        self._to_rejoin: dict[tuple[str, str], int] = {}
        #: The same -> since when it is to sync.
        self._to_sync: dict[tuple[str, str], int] = {}
        #: (group, member) -> since when its connection is gone.
        self._gone: dict[tuple[str, str], int] = {}
        #: group -> (phase and generation, since when).
        self._phases: dict[str, tuple[object, int]] = {}
        self.after_step(groups, (*groups.consumer, *groups.classic), now_ms=now_ms)

    def on_configured(self, group_id: str, *, now_ms: int) -> None:
        """Note that the configs of a group were set."""
        self._configured_ms[group_id] = now_ms

    def on_held(self, shard: Shard, command: commands.AnyHeartbeat, *, now_ms: int) -> None:
        """Note an accepted heartbeat whose response is held."""
        self._note(shard, (command.group_id, command.member_id), now_ms=now_ms)

    def check_release(self, shard: Shard, record: HeartbeatReleased, decision: Decision, *, now_ms: int) -> None:
        """Check the session of a member whose held heartbeat gets its response, in either protocol.

        If the client counts its session from the response, it begins now. Otherwise the response must not renew it.
        """
        key = TimerKey("session", record.group_id, record.member_id)
        armed = [effect for effect in decision.effects if isinstance(effect, Arm) and effect.key == key]
        held = shard.held(record.group_id, record.member_id)
        assert held is not None, "it is released"
        if held.counts_requests and armed:
            why = f"the answer to {record.member_id}, which it did not ask for now, prolongs its session"
            raise LawBroken("SessionsCountFromArrival", why, group_id=record.group_id)
        is_answered = any(isinstance(effect, Reply) and effect.request == held.request for effect in decision.effects)
        if held.counts_requests or not is_answered:
            return
        if armed:
            self._note(shard, (record.group_id, record.member_id), now_ms=now_ms)
        elif shard.timers.deadline(key) is not None and _is_good(held, decision):
            why = f"{record.member_id} counts from the answer, which was held, and its session does not"
            raise LawBroken("SessionsOutlastAnswers", why, group_id=record.group_id)

    def on_released(self, command: commands.AnyHeartbeat, body: ReplyBody, *, now_ms: int) -> None:
        """Note whether the response to a held heartbeat tells a classic member to rejoin."""
        who = command.group_id, command.member_id
        if isinstance(body, commands.Done):
            self._to_rejoin.pop(who, None)
        elif isinstance(body, commands.Refusal) and body.code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._to_rejoin.setdefault(who, now_ms)

    def on_decided(self, shard: Shard, command: commands.GroupCommand, body: ReplyBody, *, now_ms: int) -> None:
        """Note a sign of life of the member, if its request was accepted."""
        groups = shard.groups
        if not isinstance(command, _SIGNS) or (
            isinstance(command, commands.CommitOffsets) and command.group_id in groups.consumer
        ):
            return
        if isinstance(command, commands.ConsumerGroupHeartbeat) and command.member_epoch < 0:
            # A member that leaves for a while keeps the rest of its session.
            return
        member_id = getattr(command, "member_id", "")
        if isinstance(body, commands.JoinGroupReply):
            member_id = body.member_id
        code = body.code if isinstance(body, commands.Refusal) else getattr(body, "error", ErrorCode.NONE)
        who = (command.group_id, member_id)
        is_sent_back = isinstance(command, commands.Heartbeat) or isinstance(body, commands.SyncGroupReply)
        is_to_rejoin = is_sent_back and code == ErrorCode.REBALANCE_IN_PROGRESS
        if not member_id or not (code == ErrorCode.NONE or is_to_rejoin):
            return
        self._note(shard, who, now_ms=now_ms)
        if isinstance(command, commands.JoinGroup):
            self._to_rejoin.pop(who, None)
            self._to_sync[who] = now_ms
        elif is_to_rejoin:
            self._to_rejoin.setdefault(who, now_ms)
        elif isinstance(command, commands.Heartbeat):
            self._to_rejoin.pop(who, None)
        elif isinstance(command, commands.SyncGroup):
            self._to_sync.pop(who, None)

    def _note(self, shard: Shard, who: tuple[str, str], *, now_ms: int) -> None:
        self._heard[who] = now_ms
        self._allowed_ms[who] = session_timeout_ms(shard, who[0])
        self._gone.pop(who, None)

    def on_back(self, shard: Shard, command: commands.MemberFetched, *, now_ms: int) -> None:
        """Note a fetch of a member whose connection was closed."""
        self._note(shard, (command.group_id, command.member_id), now_ms=now_ms)

    def on_fetched(self, shard: Shard, command: commands.WatchMember, *, now_ms: int, clock_offset_ms: int) -> None:
        """Check that a fetch has renewed its member's session, or that a very recent sign of life has."""
        settings, group = shard.settings_for(command.group_id), shard.groups.consumer.get(command.group_id)
        member = None if group is None else group.members.get(command.member_id)
        if group is None or member is None or member.classic is not None:
            return
        if not settings.counts_fetches or not 0 < member.member_epoch >= command.member_epoch:
            return
        end_ms = shard.timers.deadline(member.session_key)
        heard_ms = now_ms if end_ms is None else end_ms - clock_offset_ms - session_timeout_ms(shard, command.group_id)
        interval_ms = settled_interval_ms(settings, len(group.members), -1)
        if end_ms is None or now_ms - heard_ms >= max(1, interval_ms // SIGNS_PER_INTERVAL):
            why = f"{command.member_id} fetches, and its session counts from {now_ms - heard_ms} ms ago"
            raise LawBroken("FetchesKeepSessions", why, group_id=command.group_id)
        if heard_ms == now_ms:
            self._note(shard, (command.group_id, command.member_id), now_ms=now_ms)

    def on_disconnected(self, command: commands.MemberDisconnected, *, now_ms: int) -> None:
        """Note that the connection of a member's last request was closed."""
        self._gone.setdefault((command.group_id, command.member_id), now_ms)

    def on_shift(self, gap_ms: int) -> None:
        """Shift all times by the time in which the broker was stalled."""
        self._loaded_ms += gap_ms
        for times in (self._heard, self._revoking, self._gone, self._to_rejoin, self._to_sync):
            times.update((who, since_ms + gap_ms) for who, since_ms in times.items())
        self._configured_ms = {group_id: since + gap_ms for group_id, since in self._configured_ms.items()}
        self._phases = {group_id: (what, since + gap_ms) for group_id, (what, since) in self._phases.items()}

    def check_expiry(self, shard: Shard, decision: Decision, *, now_ms: int) -> None:
        """Check that a member removed by a deadline was really silent or slow for its whole timeout."""
        # A group that becomes classic by it keeps its classic members.
        stored = [record for record in decision.records if isinstance(record, facts.ClassicGroupStored)]
        kept = {member.member_id for record in stored for member in record.members}
        kept.update(record.member.member_id for record in decision.records if isinstance(record, MemberPut))
        # Its session is over since before a restart perhaps: `StaticLaws` knows.
        is_registration = decision.due is not None and decision.due.kind == "clock"
        for record in decision.records:
            if isinstance(record, facts.ConsumerMemberForgotten) and record.member_id not in kept:
                self._check_consumer(shard, record.group_id, record.member_id, now_ms=now_ms)
            elif isinstance(record, MemberRemoved) and not is_registration:
                self._check_classic(shard, record.group_id, record.member_id, now_ms=now_ms)

    def check_ends(self, shard: Shard, group_ids: Iterable[str], *, now_ms: int, clock_offset_ms: int) -> None:
        """Check that a session counts from the arrival of the member's last request."""
        # A member that is silent from then on is removed by its session's end.
        for group_id in group_ids:
            group = shard.groups.consumer.get(group_id)
            for member in group.members.values() if group is not None else ():
                end_ms = shard.timers.deadline(member.session_key)
                if member.classic is not None or end_ms is None:
                    continue
                who = (group_id, member.member_id)
                if who not in self._heard and group_id in self._configured_ms:
                    # The session that it had when the shard was loaded is not known any more.
                    continue
                since_ms = max(self._heard.get(who, self._loaded_ms), self._configured_ms.get(group_id, 0))
                session_ms = session_timeout_ms(shard, group_id)
                late_ms = end_ms - clock_offset_ms - since_ms - max(session_ms, self._allowed_ms.get(who, 0))
                if late_ms > 0:
                    why = f"{member.member_id} was silent for {now_ms - since_ms} ms, and has {late_ms} ms too much"
                    raise LawBroken("SessionsCountFromArrival", why, group_id=group_id)

    def causes(self, shard: Shard, group_id: str, member_id: str, *, now_ms: int) -> frozenset[str]:
        """Return the reasons for which the coordinator may end a member's session now."""
        who = group_id, member_id
        consumer, classic = shard.groups.consumer.get(group_id), shard.groups.classic.get(group_id)
        session_ms = session_timeout_ms(shard, group_id)
        hosted = None if consumer is None else consumer.members.get(member_id)
        if hosted is not None and hosted.classic is not None:
            session_ms = hosted.classic.session_timeout_ms
        elif classic is not None and member_id in classic.members:
            session_ms = classic.members[member_id].session_timeout_ms
        is_silent = now_ms - self._heard.get(who, self._loaded_ms) >= session_ms
        found = {"session timeout": is_silent, "connection lost": who in self._gone}
        return frozenset(cause for cause, is_true in found.items() if is_true)

    def after_step(self, groups: GroupsState, group_ids: tuple[str, ...], *, now_ms: int) -> None:
        """Note the members that have to revoke partitions from now on, and rebalance phases that begin."""
        for group_id in group_ids:
            consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
            for member in consumer.members.values() if consumer is not None else ():
                who = (group_id, member.member_id)
                if member.pending_revocation:
                    self._revoking.setdefault(who, now_ms)
                else:
                    self._revoking.pop(who, None)
            # A member that has to sync has its time from the end of the join phase, also once the leader has synced.
            phase = (classic.state in _JOINING, classic.generation) if classic is not None else None
            if phase != self._phases.get(group_id, (None, 0))[0]:
                self._phases[group_id] = (phase, now_ms)

    def _check_consumer(self, shard: Shard, group_id: str, member_id: str, *, now_ms: int) -> None:
        member = shard.groups.consumer[group_id].members.get(member_id)
        if member is None or is_offline(shard.groups, group_id, member_id):
            # Other laws are about offline members of static groups.
            return
        silent_ms = now_ms - self._heard.get((group_id, member_id), self._loaded_ms)
        slow_ms = now_ms - self._revoking.get((group_id, member_id), now_ms)
        session_ms = session_timeout_ms(shard, group_id)
        if member.classic is not None:
            session_ms = member.classic.session_timeout_ms
            since_ms = (found.get((group_id, member_id), now_ms) for found in (self._to_rejoin, self._to_sync))
            slow_ms = max(slow_ms, *(now_ms - since for since in since_ms))
        is_slow = bool(member.pending_revocation or member.classic) and slow_ms >= member.rebalance_timeout_ms
        is_slow = is_slow or self._is_gone(shard, group_id, member_id, now_ms=now_ms)
        if silent_ms < session_ms and not is_slow:
            why = f"{member_id} is fenced after {silent_ms} ms of silence, {session_ms} ms are allowed"
            raise LawBroken("NobodyIsFencedEarly", why, group_id=group_id)

    def _check_classic(self, shard: Shard, group_id: str, member_id: str, *, now_ms: int) -> None:
        group = shard.groups.classic[group_id]
        member = group.members.get(member_id)
        if member is None:
            return
        silent_ms = now_ms - self._heard.get((group_id, member_id), self._loaded_ms)
        _, since_ms = self._phases.get(group_id, (None, now_ms))
        is_slow = bool(group.unsynced or group.state in _JOINING) and now_ms - since_ms >= group.rebalance_timeout_ms
        is_slow = is_slow or self._is_gone(shard, group_id, member_id, now_ms=now_ms)
        if group.state in _JOINING and shard.settings_for(group_id).group_disconnect_grace_ms >= 0:
            # A generation does not wait for a member without connection.
            is_slow = is_slow or (group_id, member_id) in self._gone
        if silent_ms < member.session_timeout_ms and not is_slow:
            why = f"{member_id} is given up after {silent_ms} ms, {member.session_timeout_ms} ms are allowed"
            raise LawBroken("NobodyIsFencedEarly", why, group_id=group_id)

    def _is_gone(self, shard: Shard, group_id: str, member_id: str, *, now_ms: int) -> bool:
        """Return whether a member has been disconnected for as long as the group allows."""
        grace_ms = shard.settings_for(group_id).group_disconnect_grace_ms
        return 0 <= grace_ms <= now_ms - self._gone.get((group_id, member_id), now_ms)


def _is_good(held: commands.AnyHeartbeat, decision: Decision) -> bool:
    """Return whether a held heartbeat gets a response that is not a refusal."""
    bodies = (each.body for each in decision.effects if isinstance(each, Reply) and each.request == held.request)
    return not any(isinstance(body, commands.Refusal) for body in bodies)


def session_timeout_ms(shard: Shard, group_id: str) -> int:
    """Return the session timeout of that group's KIP-848 members."""
    return shard.settings_for(group_id).group_consumer_session_timeout_ms


# Limits on the length of hand-overs and rebalances: no slow or dead member delays the others longer.
#
# Laws: a member that is told to give partitions up has done so, or is fenced, within its rebalance timeout. A classic
# join or sync phase lasts no longer than its members' rebalance timeout. A restart begins anew, and a broker that stood
# still gives the time back.

#: Deadlines fire late by as much as a stall that is too short to shift them.
SLACK_MS: Final = 1_000

_PHASES: Final = (ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE)
#: (group, member or "" for the group as a whole)
_Who = tuple[str, str]


class HandOvers:
    """The pending revocations and rebalance phases in every group of one shard, with their time limits."""

    def __init__(self) -> None:
        #: Member or group with a pending duty -> (the duty, since when, its deadline).
        self._open: dict[_Who, tuple[object, int, int]] = {}

    def check(self, groups: GroupsState, *, now_ms: int) -> None:
        """Check pending revocations and rebalance phases; raise `LawBroken` for one that takes too long."""
        found: dict[_Who, tuple[object, int, int]] = {}
        for who, what, limit_ms in _under_way(groups):
            known = self._open.get(who)
            if known is None or not _is_same_or_less(what, known[0]):
                known = (what, now_ms, now_ms + limit_ms + SLACK_MS)
            found[who] = (what, known[1], known[2])
            if now_ms > known[2]:
                name = who[1] or "the rebalance"
                raise LawBroken(
                    "HandOverEndsInTime",
                    f"{name} takes {now_ms - known[1]} ms, {limit_ms} ms are allowed",
                    group_id=who[0],
                )
        self._open = found

    def on_shift(self, gap_ms: int) -> None:
        """Shift the deadlines by the time in which the broker was stalled."""
        self._open = {who: (what, since + gap_ms, by + gap_ms) for who, (what, since, by) in self._open.items()}


def _under_way(groups: GroupsState) -> Iterator[tuple[_Who, object, int]]:
    for consumer in groups.consumer.values():
        yield from _revocations(consumer)
    for classic in groups.classic.values():
        # A phase without waiting members delays none: offline static members may prolong it.
        if classic.state in _PHASES and (classic.awaiting_join or classic.awaiting_sync):
            yield (classic.group_id, ""), _phase(classic), classic.rebalance_timeout_ms


def _revocations(group: ConsumerGroup) -> Iterator[tuple[_Who, object, int]]:
    for member in group.members.values():
        if member.pending_revocation:
            pending = {(topic_id, p) for topic_id, grants in member.pending_revocation.items() for p in grants}
            # A classic member learns of it by a heartbeat, for which it has the time of its session.
            notice_ms = 0 if member.classic is None else member.classic.session_timeout_ms
            yield (group.group_id, member.member_id), frozenset(pending), member.rebalance_timeout_ms + notice_ms


def _phase(group: ClassicGroup) -> object:
    return group.state, group.generation, group.state_timestamp_ms


def _is_same_or_less(what: object, known: object) -> bool:
    """Return whether a pending revocation or phase is the known one, or a remaining part of it."""
    # Giving up some of the partitions does not prolong the rest.
    if isinstance(what, frozenset) and isinstance(known, frozenset):
        return what <= known
    return what == known


# The law that a group's history gives the true reason of each change.
#
# The world's knowledge is compared with the history: the sender of a request, the length of a silence, the member of
# a closed connection, the former subscription of a member.
#
# Laws: the reason for which a member is removed, and the trigger of each epoch and rebalance, is one that the world
# knows of. Where two are true (a silent member whose connection is gone, too) either may be told.
# Source: requirements J1 and J2.

#: Event of a row -> which of its details is a cause.
_CAUSES: Final = {"member_removed": "reason", "epoch_bumped": "trigger", "rebalance_began": "trigger"}
#: Of an epoch that nothing but an administrator, or the way to an even target, has raised.
_STEPS: Final = frozenset({"next step to an even target", "limit on moves lifted", "group's assignor changed"})
#: Other deadlines, by kind.
_DEADLINES: Final = {
    "assignment": _STEPS,
    "rebalance": frozenset({"rebalance timeout"}),
    "join": frozenset({"join timeout"}),
    "sync": frozenset({"sync timeout"}),
    "pending": frozenset({"member id was not used"}),
    "initial_delay": frozenset({"initial delay over"}),
    "clock": frozenset({"registration timeout", "expansion timeout"}),
}
#: Config -> what a change of it may raise an epoch for.
_BY_CONFIG: Final = {
    "group.rebalance.token": "forced by an administrator",
    "group.membership": "group became dynamic",
}
_NEW: Final = frozenset({"member joined", "static member returned"})
_OTHER_WISHES: Final = frozenset({"subscription changed", "assignor changed"})


class CauseLaws:
    """Checks of the reasons in journal entries.

    `is_by_administrator`: whether a request came from the administrator.
    """

    def __init__(self, is_by_administrator: Callable[[commands.LeaveGroup], bool]) -> None:
        self._is_by_administrator: Final = is_by_administrator

    def check(
        self,
        entry: Entry,
        shard: Shard,
        stimulus: Stimulus,
        decision: Decision,
        sessions: SessionLaws,
        *,
        now_ms: int,
    ) -> None:
        """ToldCauseIsTrue: check a row that is about to be written; the decision is not applied yet."""
        name = _CAUSES.get(entry.event)
        if name is None:
            return
        told = dict(entry.details)[name]
        if isinstance(stimulus, TimerKey) and stimulus.kind == "session":
            true = sessions.causes(shard, stimulus.group_id, stimulus.member_id, now_ms=now_ms)
        else:
            true = self._true(shard.groups, stimulus, entry.group_id, decision)
        if told not in true:
            why = f"{entry.event} of {entry.member_id or 'the group'}: told {told!r}, true is {sorted(true)}"
            raise LawBroken("ToldCauseIsTrue", why, group_id=entry.group_id)

    def _true(self, groups: GroupsState, stimulus: Stimulus, group_id: str, decision: Decision) -> frozenset[str]:
        match stimulus:
            case TimerKey():
                return _DEADLINES.get(stimulus.kind, frozenset())
            case commands.TopicsChanged():
                return frozenset({"topics changed"})
            case commands.TargetComputed() | commands.InstallAssignment():
                return _STEPS
            case SubmitMoves():
                return frozenset({"administrator moved partitions"})
            case AlterGroupConfigs():
                return frozenset({_BY_CONFIG[name] for name in stimulus.changes if name in _BY_CONFIG})
            case commands.LeaveGroup():
                is_removal = self._is_by_administrator(stimulus)
                return frozenset({"removed by an administrator" if is_removal else "member left"})
            case commands.ConsumerGroupHeartbeat(member_epoch=-1):
                return frozenset({"member left"})
            case commands.ConsumerGroupHeartbeat(member_epoch=-2):
                return frozenset({"static member left for a while"})
            case commands.ConsumerGroupHeartbeat() | commands.JoinGroup():
                true = _of_wishes(groups, group_id, stimulus.member_id, decision)
                says = getattr(stimulus, "client_assignors", None) is not None
                return true | {"member asked for an assignment"} if says else true
            case _:
                return frozenset({type(stimulus).__name__})


def _of_wishes(groups: GroupsState, group_id: str, member_id: str, decision: Decision) -> frozenset[str]:
    """Return the triggers that fit a member's heartbeat or join: new, other subscription or assignor."""
    consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
    before = None if consumer is None else consumer.members.get(member_id)
    if before is None and (classic is None or member_id not in classic.members):
        return _NEW | {"group is full", "group became dynamic"}
    for record in decision.records:
        if isinstance(record, facts.ConsumerMemberSubscribed) and record.member_id == member_id and before is not None:
            was = before.subscribed_topic_names, before.subscribed_topic_regex or ""
            wants = record.subscribed_topic_names, record.subscribed_topic_regex or ""
            # A classic member names its assignors with what it wants; of two true things either may be told.
            is_same = before.classic is None and record.server_assignor == before.server_assignor
            if wants != was:
                return frozenset({"subscription changed"}) if is_same else _OTHER_WISHES
            return frozenset({"assignor changed", "member rejoined"})
    return _OTHER_WISHES | {"member rejoined"}
