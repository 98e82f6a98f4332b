"""Laws of static KIP-848 groups: members keep their partitions, and each timeout makes one rebalance.

Time counts as the broker's attention goes: a loop that stood still gives the time back. A restart does not begin anew:
what had run of a timeout has run.

Laws: a named member goes by its own word, an administrator's, for a successor, or after the registration timeout.
A new name raises no epoch before the expansion timeout of the first that waits, unless something else does.
Source: KIP-345's draft; requirement S1.
"""

from __future__ import annotations

from collections.abc import MutableMapping
from typing import Final, TypeVar

from kohort.coordinator import records as facts
from kohort.coordinator.classic.volatile import MemberPut
from kohort.coordinator.commands import groups as asked
from kohort.coordinator.commands.admin import DeleteGroup, SubmitMoves
from kohort.coordinator.commands.base import GroupCommand, Refusal
from kohort.coordinator.commands.replies import ReplyBody
from kohort.coordinator.decision import Decision
from kohort.coordinator.model import ConsumerGroup
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.shard import Shard
from kohort.testing.trace import LawBroken

_Key = TypeVar("_Key")
#: Requests of a member or an administrator by which members are removed.
_WORDS: Final = (asked.LeaveGroup, DeleteGroup)


class StaticLaws:
    """The static groups of one shard, also over its restarts."""

    def __init__(self) -> None:
        #: (group, member) -> when it was heard of last.
        self._heard: dict[tuple[str, str], int] = {}
        #: group -> when the first of those came that wait.
        self._waiting: dict[str, int] = {}

    def on_decided(self, shard: Shard, command: GroupCommand, body: ReplyBody, *, now_ms: int) -> None:
        """Note that a member is alive, if its request was accepted, or was until it sent epoch -2."""
        if not isinstance(command, asked.ConsumerGroupHeartbeat | asked.JoinGroup | asked.SyncGroup | asked.Heartbeat):
            return
        if getattr(command, "member_epoch", 0) < 0 and not shard.settings_for(command.group_id).is_static:
            # A member that leaves for a while keeps the rest of its session, by which it is known to be offline.
            return
        if not isinstance(body, Refusal):
            self._heard[command.group_id, command.member_id or getattr(body, "member_id", "")] = now_ms

    def on_held(self, command: asked.AnyHeartbeat, *, now_ms: int) -> None:
        """Note an accepted heartbeat that is answered later."""
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
        taken |= {record.member.instance_id for record in own if isinstance(record, MemberPut)}
        for record in own:
            if not isinstance(record, facts.ConsumerMemberForgotten) or record.member_id in kept:
                continue
            member = group.members.get(record.member_id)
            if member is None or member.instance_id is None or member.instance_id in taken:
                continue
            has_left = isinstance(command, asked.ConsumerGroupHeartbeat) and command.member_epoch == -1
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
