"""The law that a member is removed for its own silence or slowness, never for the broker's.

Time counts as the broker's attention goes: a loop that stood still gives the time back, and a restart begins anew.

Source: architecture rule 17; KIP-848 and the classic protocol (session timeout, rebalance timeout).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kohort.coordinator import records as facts
from kohort.coordinator.classic.state import ClassicGroupState
from kohort.coordinator.classic.volatile import MemberPut, MemberRemoved
from kohort.coordinator.commands import groups as asked
from kohort.coordinator.commands.base import Done, GroupCommand, Refusal
from kohort.coordinator.commands.groups import Heartbeat, JoinGroup, SyncGroup
from kohort.coordinator.commands.offsets import CommitOffsets
from kohort.coordinator.commands.replies import ReplyBody
from kohort.coordinator.decision import Arm, Decision, Reply, TimerKey
from kohort.coordinator.delayed_heartbeats import HeartbeatReleased
from kohort.coordinator.model import GroupsState
from kohort.coordinator.shard import Shard
from kohort.coordinator.static_membership.mode import is_offline
from kohort.errors import ErrorCode
from kohort.testing.trace import LawBroken

_JOINING: Final = (ClassicGroupState.EMPTY, ClassicGroupState.PREPARING_REBALANCE)
#: Requests that prolong a session; a commit does so in classic groups only.
_SIGNS: Final = (
    asked.ConsumerGroupHeartbeat,
    JoinGroup,
    SyncGroup,
    Heartbeat,
    CommitOffsets,
)


class SessionLaws:
    """The members of one shard: when each was heard of, and why it is removed.

    Args:
        groups: as they were when the shard was loaded.
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

    def on_held(self, shard: Shard, command: asked.AnyHeartbeat, *, now_ms: int) -> None:
        """Note an accepted heartbeat that is answered later."""
        self._note(shard, (command.group_id, command.member_id), now_ms=now_ms)

    def check_release(self, shard: Shard, record: HeartbeatReleased, decision: Decision, *, now_ms: int) -> None:
        """Check the session of a member whose held heartbeat is answered, in either protocol.

        A client that counts from the answer has its session from now. For any other the answer is no sign of life.
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

    def on_released(self, command: asked.AnyHeartbeat, body: ReplyBody, *, now_ms: int) -> None:
        """Note whether the answer to a held heartbeat tells a classic member to rejoin."""
        who = command.group_id, command.member_id
        if isinstance(body, Done):
            self._to_rejoin.pop(who, None)
        elif isinstance(body, Refusal) and body.code == ErrorCode.REBALANCE_IN_PROGRESS:
            self._to_rejoin.setdefault(who, now_ms)

    def on_decided(self, shard: Shard, command: GroupCommand, body: ReplyBody, *, now_ms: int) -> None:
        """Note that a member is alive, if its request was accepted."""
        groups = shard.groups
        if not isinstance(command, _SIGNS) or (
            isinstance(command, CommitOffsets) and command.group_id in groups.consumer
        ):
            return
        if isinstance(command, asked.ConsumerGroupHeartbeat) and command.member_epoch < 0:
            # A member that leaves for a while keeps the rest of its session.
            return
        member_id = getattr(command, "member_id", "")
        if isinstance(body, asked.JoinGroupReply):
            member_id = body.member_id
        code = body.code if isinstance(body, Refusal) else getattr(body, "error", ErrorCode.NONE)
        who = (command.group_id, member_id)
        is_sent_back = isinstance(command, Heartbeat) or isinstance(body, asked.SyncGroupReply)
        is_to_rejoin = is_sent_back and code == ErrorCode.REBALANCE_IN_PROGRESS
        if not member_id or not (code == ErrorCode.NONE or is_to_rejoin):
            return
        self._note(shard, who, now_ms=now_ms)
        if isinstance(command, JoinGroup):
            self._to_rejoin.pop(who, None)
            self._to_sync[who] = now_ms
        elif is_to_rejoin:
            self._to_rejoin.setdefault(who, now_ms)
        elif isinstance(command, Heartbeat):
            self._to_rejoin.pop(who, None)
        elif isinstance(command, SyncGroup):
            self._to_sync.pop(who, None)

    def _note(self, shard: Shard, who: tuple[str, str], *, now_ms: int) -> None:
        self._heard[who] = now_ms
        self._allowed_ms[who] = session_timeout_ms(shard, who[0])
        self._gone.pop(who, None)

    def on_disconnected(self, command: asked.MemberDisconnected, *, now_ms: int) -> None:
        """Note that the connection of a member's last request is gone."""
        self._gone.setdefault((command.group_id, command.member_id), now_ms)

    def on_shift(self, gap_ms: int) -> None:
        """Shift the times by those that the broker stood still."""
        self._loaded_ms += gap_ms
        self._heard = {who: heard + gap_ms for who, heard in self._heard.items()}
        self._revoking = {who: since + gap_ms for who, since in self._revoking.items()}
        self._configured_ms = {group_id: since + gap_ms for group_id, since in self._configured_ms.items()}
        self._gone = {who: since + gap_ms for who, since in self._gone.items()}
        self._to_rejoin = {who: since + gap_ms for who, since in self._to_rejoin.items()}
        self._to_sync = {who: since + gap_ms for who, since in self._to_sync.items()}
        self._phases = {group_id: (what, since + gap_ms) for group_id, (what, since) in self._phases.items()}

    def check_expiry(self, shard: Shard, decision: Decision, *, now_ms: int) -> None:
        """Check that a member removed by a deadline has had its time."""
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
        """Return the reasons for which a member's session may end now."""
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
        """Note the members that begin to give up partitions, and the rebalance phases that begin."""
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
        """Whether a member's connection has been gone for as long as the group allows."""
        grace_ms = shard.settings_for(group_id).group_disconnect_grace_ms
        return 0 <= grace_ms <= now_ms - self._gone.get((group_id, member_id), now_ms)


def _is_good(held: asked.AnyHeartbeat, decision: Decision) -> bool:
    """Whether a held heartbeat was answered without a refusal."""
    bodies = (each.body for each in decision.effects if isinstance(each, Reply) and each.request == held.request)
    return not any(isinstance(body, Refusal) for body in bodies)


def session_timeout_ms(shard: Shard, group_id: str) -> int:
    """Return the session timeout of that group's KIP-848 members."""
    return shard.settings_for(group_id).group_consumer_session_timeout_ms
