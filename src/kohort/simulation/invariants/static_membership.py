"""Laws of static KIP-848 groups: members keep their partitions, and each timeout makes one rebalance.

Time in which the broker was stalled does not count. A restart does not begin timeouts anew: the time that has passed of
a timeout still counts.

Laws: a static member is removed only by its own or an administrator's request, by a successor, or after the
registration timeout. A new static member by itself raises no epoch before the first waiting one's expansion timeout.
Source: KIP-345's draft; requirement S1.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final, TypeVar

from kohort.coordinator import commands
from kohort.coordinator.classic import state as classic
from kohort.coordinator.classic.subscriptions import read_assignment, read_subscription
from kohort.coordinator.commands.admin import DeleteGroup, SubmitMoves
from kohort.coordinator.decision import Decision, ReplyBody
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records import types as facts
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.errors import ErrorCode
from kohort.ids import RequestToken
from kohort.simulation.trace import LawBroken

_Key = TypeVar("_Key")
#: Requests of a member or an administrator by which members are removed.
_WORDS: Final = (commands.LeaveGroup, DeleteGroup)


class StaticLaws:
    """The static groups of one shard, also over its restarts."""

    def __init__(self) -> None:
        #: (group, member) -> when it was heard of last.
        self._heard: dict[tuple[str, str], int] = {}
        #: group -> when the first of those came that wait.
        self._waiting: dict[str, int] = {}

    def on_decided(self, shard: Shard, command: commands.GroupCommand, body: ReplyBody, *, now_ms: int) -> None:
        """Note a sign of life of a member whose request was accepted; epoch -2 counts in static mode only."""
        if not isinstance(
            command, commands.ConsumerGroupHeartbeat | commands.JoinGroup | commands.SyncGroup | commands.Heartbeat
        ):
            return
        if getattr(command, "member_epoch", 0) < 0 and not shard.settings_for(command.group_id).is_static:
            # A member that leaves for a while keeps the rest of its session, by which it is known to be offline.
            return
        if not isinstance(body, commands.Refusal):
            self._heard[command.group_id, command.member_id or getattr(body, "member_id", "")] = now_ms

    def on_held(self, command: commands.AnyHeartbeat, *, now_ms: int) -> None:
        """Note an accepted heartbeat whose response is held."""
        self._heard[command.group_id, command.member_id] = now_ms

    def on_shift(self, gap_ms: int, *, now_ms: int) -> None:
        """Shift the times at which members were heard of by the time the broker stood still."""
        # No member was heard of later than now.
        _shift(self._heard, gap_ms, now_ms=now_ms)
        _shift(self._waiting, gap_ms, now_ms=now_ms)

    def before_step(self, shard: Shard, command: object, decision: Decision, *, now_ms: int) -> None:
        """RegistrationIsKept, OneRebalancePerWindow: check the decision before it is applied."""
        is_of_clock = decision.due is not None and decision.due.kind == "clock"
        for group_id in dict.fromkeys(record.group_id for record in decision.records):
            group = shard.groups.consumer.get(group_id)
            settings = shard.settings_for(group_id)
            if group is None or not settings.is_static:
                self._waiting.pop(group_id, None)
                continue
            own = [record for record in decision.records if record.group_id == group_id]
            # A member may have joined without a name, which makes the group dynamic.
            if not any(isinstance(record, facts.GroupConfigsSet) for record in own):
                self._check_removals(group, own, command, settings, now_ms=now_ms)
                self._check_epoch(group, own, command, settings, is_of_clock=is_of_clock, now_ms=now_ms)

    def _check_removals(
        self,
        group: ConsumerGroup,
        own: list[facts.Record],
        command: object,
        settings: GroupSettings,
        *,
        now_ms: int,
    ) -> None:
        stored = [record for record in own if isinstance(record, facts.ClassicGroupStored)]
        kept = {member.member_id for record in stored for member in record.members}
        taken = {record.instance_id for record in own if isinstance(record, facts.ConsumerMemberSubscribed)}
        taken |= {record.member.instance_id for record in own if isinstance(record, classic.MemberPut)}
        for record in own:
            if not isinstance(record, facts.ConsumerMemberForgotten) or record.member_id in kept:
                continue
            member = group.members.get(record.member_id)
            if member is None or member.instance_id is None or member.instance_id in taken:
                continue
            has_left = isinstance(command, commands.ConsumerGroupHeartbeat) and command.member_epoch == -1
            if has_left or isinstance(command, _WORDS):
                continue
            silent_ms = now_ms - self._heard.get((group.group_id, record.member_id), now_ms)
            timeout_ms = settings.group_registration_timeout_ms
            if silent_ms < timeout_ms:
                why = f"{record.member_id} is given up after {silent_ms} ms, {timeout_ms} ms are allowed"
                raise LawBroken("RegistrationIsKept", why, group_id=group.group_id)

    def _check_epoch(
        self,
        group: ConsumerGroup,
        own: list[facts.Record],
        command: object,
        settings: GroupSettings,
        *,
        is_of_clock: bool,
        now_ms: int,
    ) -> None:
        group_id = group.group_id
        is_raised = any(isinstance(each, facts.ConsumerGroupEpochSet) and each.epoch > group.epoch for each in own)
        names = {each.instance_id for each in own if isinstance(each, facts.ConsumerMemberSubscribed)}
        is_new = bool(names - group.instance_ids.keys()) and bool(group.members)
        if is_raised and is_new and group.epoch == group.target_epoch:
            raise LawBroken("OneRebalancePerWindow", f"{names} raise the epoch of a group at rest", group_id=group_id)
        is_gone = any(isinstance(each, facts.ConsumerMemberForgotten) for each in own)
        if is_raised and is_of_clock and not is_gone:
            waited_ms = now_ms - self._waiting.get(group_id, now_ms)
            if waited_ms < settings.group_expansion_timeout_ms and group_id in self._waiting:
                why = f"new members waited for {waited_ms} ms, and not for {settings.group_expansion_timeout_ms} ms"
                raise LawBroken("OneRebalancePerWindow", why, group_id=group_id)
        if is_raised and not isinstance(command, SubmitMoves):
            self._waiting.pop(group_id, None)
        elif is_new:
            self._waiting.setdefault(group_id, now_ms)


def _shift(times: MutableMapping[_Key, int], gap_ms: int, *, now_ms: int) -> None:
    for key, at_ms in times.items():
        times[key] = min(now_ms, at_ms + gap_ms)


# Laws of classic groups in static mode.
#
# An offline member keeps its partitions until its timeout. A member that joins makes no other rebalance. No member
# waits for an offline one.
#
# The time at which a member was last heard of survives the broker, whose downtime counts against no member. A member
# counts as heard of once its answer has left: an answer that was never on disk was no answer of the coordinator.
#
# Source: KIP-345's draft (registration and expansion timeout); requirement S1.

_SIGNS: Final = (commands.JoinGroup, commands.SyncGroup, commands.Heartbeat)


class ClassicStaticLaws:
    """The static classic groups of a world, from before a crash to after it."""

    def __init__(self) -> None:
        #: (group, member) -> when what it said last was taken in, of which the answer has left.
        self._heard: dict[tuple[str, str], int] = {}
        #: Request with a decided answer -> its member, and the time of the request.
        self._decided: dict[RequestToken, tuple[tuple[str, str], int]] = {}
        #: group -> when the first of the new members came that wait for the next rebalance.
        self._window: dict[str, int] = {}
        #: group -> the same of the window that a rebalance has closed last; a crash may undo that rebalance.
        self._closed: dict[str, int] = {}

    def on_restart(self, groups: GroupsState) -> None:
        """Restore windows closed before a crash."""
        # What the broker did before it crashed may never have been on disk.
        for group_id, clock in groups.clocks.items():
            if clock.has_window and group_id in self._closed:
                self._window.setdefault(group_id, self._closed[group_id])

    def before_step(self, shard: Shard, command: commands.Command | None, decision: Decision, *, now_ms: int) -> None:
        """Check a decision about static groups before it is applied."""
        for group_id in dict.fromkeys(record.group_id for record in decision.records):
            group = shard.groups.classic.get(group_id)
            if group is None or not shard.settings_for(group_id).is_static:
                self._window.pop(group_id, None)
                continue
            own = [record for record in decision.records if record.group_id == group_id]
            if command is None:
                self._check_removals(shard, group, own, decision, now_ms=now_ms)
            self._check_beginning(shard, group, own, command, decision, now_ms=now_ms)
            if any(isinstance(record, classic.NewMemberHosted) for record in own):
                self._window.setdefault(group_id, now_ms)

    def on_decided(self, command: commands.GroupCommand, body: ReplyBody, *, now_ms: int) -> None:
        """Note an accepted request of a member."""
        code = body.code if isinstance(body, commands.Refusal) else getattr(body, "error", ErrorCode.NONE)
        if isinstance(command, _SIGNS) and code == ErrorCode.NONE:
            member_id = body.member_id if isinstance(body, commands.JoinGroupReply) else command.member_id
            self._decided[command.request] = (command.group_id, member_id), now_ms

    def on_held(self, command: commands.AnyHeartbeat, *, now_ms: int) -> None:
        """Note an accepted heartbeat whose response is held."""
        self._heard[command.group_id, command.member_id] = now_ms

    def on_answer(self, command: commands.GroupCommand) -> None:
        """Note a member's sign of life once the response to its request is sent."""
        # Records that led to an answer that has left are on disk.
        found = self._decided.pop(command.request, None)
        if found is not None:
            self._heard[found[0]] = found[1]

    def after_step(self, groups: GroupsState, group_id: str) -> None:
        """NobodyWaitsForTheOffline: check that a join phase ends once every online member has joined."""
        group, clock = groups.classic.get(group_id), groups.clocks.get(group_id)
        if group is None or clock is None or group.state is not classic.ClassicGroupState.PREPARING_REBALANCE:
            return
        missing = group.members.keys() - group.awaiting_join.keys()
        is_over = group.awaiting_join and not group.pending and group.initial_remaining_ms is None
        if missing and is_over and missing <= clock.offline.keys():
            why = f"{sorted(group.awaiting_join)} wait for {sorted(missing)}, who are offline"
            raise LawBroken("NobodyWaitsForTheOffline", why, group_id=group_id)

    def _check_removals(
        self, shard: Shard, group: classic.ClassicGroup, own: list[facts.Record], decision: Decision, *, now_ms: int
    ) -> None:
        """RegistrationIsKept: check that a named member is removed only after its timeout."""
        allowed_ms = shard.settings_for(group.group_id).group_registration_timeout_ms
        for record in own:
            member = group.members.get(record.member_id) if isinstance(record, classic.MemberRemoved) else None
            if member is None or member.instance_id is None or member.member_id in group.new_members:
                continue
            heard_ms = self._heard.get((group.group_id, member.member_id))
            away_ms = None if heard_ms is None else now_ms - heard_ms
            is_due = decision.due is not None and decision.due.kind == "clock"
            if not is_due or (away_ms is not None and away_ms < allowed_ms):
                why = f"{member.member_id} goes, away for {away_ms} ms, and its registration is for {allowed_ms} ms"
                raise LawBroken("RegistrationIsKept", why, group_id=group.group_id)

    def _check_beginning(
        self,
        shard: Shard,
        group: classic.ClassicGroup,
        own: list[facts.Record],
        command: commands.Command | None,
        decision: Decision,
        *,
        now_ms: int,
    ) -> None:
        """Check the reason for which a rebalance begins, if one does."""
        if not any(isinstance(record, classic.RebalanceBegun) for record in own):
            return
        group_id, opened_ms = group.group_id, self._window.pop(group.group_id, None)
        if opened_ms is not None:
            self._closed[group_id] = opened_ms
        if isinstance(command, commands.JoinGroup) and group.state is classic.ClassicGroupState.STABLE:
            self._check_join(group, own, command)
        is_due = decision.due is not None and decision.due.kind == "clock"
        if is_due and not any(isinstance(record, classic.MemberRemoved) for record in own):
            waited_ms = None if opened_ms is None else now_ms - opened_ms
            least_ms = shard.settings_for(group_id).group_expansion_timeout_ms
            if waited_ms is None or waited_ms < least_ms:
                why = f"new members were gathered for {waited_ms} ms, and not for {least_ms} ms"
                raise LawBroken("OneRebalancePerWindow", why, group_id=group_id)

    def _check_join(self, group: classic.ClassicGroup, own: list[facts.Record], command: commands.JoinGroup) -> None:
        """OneRebalancePerWindow, ReturnsMoveNothing: check that a join makes no other member rebalance."""
        if command.instance_id is not None and command.instance_id not in group.instance_ids:
            why = f"{command.instance_id} is new, and does not wait for the window"
            raise LawBroken("OneRebalancePerWindow", why, group_id=group.group_id)
        for record in own:
            if not isinstance(record, classic.StaticMemberReplaced) or record.replaced_id == group.leader:
                continue
            former = group.members[record.replaced_id]
            if _wants_the_same(group, former, record.member):
                why = f"{record.member.member_id} comes back as {command.instance_id}, and the others rebalance"
                raise LawBroken("ReturnsMoveNothing", why, group_id=group.group_id)


def _wants_the_same(group: classic.ClassicGroup, former: classic.ClassicMember, member: classic.ClassicMember) -> bool:
    """Return whether a returning member's former assignment still fits it.

    It does if the member subscribes to the same topics and owns nothing that it has to give up.
    """
    before = read_subscription(former.metadata(group.protocol_name))
    after = read_subscription(member.metadata(group.protocol_name))
    given = read_assignment(former.assignment)
    if before is None or after is None or given is None:
        return False
    has_to_give_up = any(set(owned) - set(given.partitions.get(topic, ())) for topic, owned in before.owned.items())
    return before.topics == after.topics and not has_to_give_up
