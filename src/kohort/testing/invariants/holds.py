"""Laws of held heartbeats: the time and the content of their answers.

Source: requirement H1; `kohort.coordinator.delayed_heartbeats`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from kohort.coordinator import records as facts
from kohort.coordinator.commands import groups as asked
from kohort.coordinator.commands.base import Done, GroupCommand
from kohort.coordinator.commands.replies import ReplyBody
from kohort.coordinator.consumer.validation import JOIN_EPOCH
from kohort.coordinator.decision import Decision, Reply
from kohort.coordinator.delayed_heartbeats import HeartbeatHeld, HeartbeatReleased
from kohort.coordinator.shard import Shard
from kohort.ids import RequestToken
from kohort.testing.trace import LawBroken


@dataclass(slots=True, kw_only=True)
class _Hold:
    """A held heartbeat.

    `due_ms`: the end of the hold. `has_new_configs`: whether its group's configs changed since.
    """

    command: asked.AnyHeartbeat
    due_ms: int
    has_new_configs: bool = False


class HoldLaws:
    """The held heartbeats of one shard."""

    def __init__(self) -> None:
        self._held: dict[RequestToken, _Hold] = {}

    def before_step(self, shard: Shard, decision: Decision, *, now_ms: int, clock_offset_ms: int) -> None:
        """Note held heartbeats, and compare each released one with the answer its member would get now."""
        is_release = False
        for record in decision.records:
            match record:
                case HeartbeatHeld(command=command):
                    self._held[command.request] = _Hold(command=command, due_ms=now_ms + command.hold_ms)
                case HeartbeatReleased():
                    is_release = True
                case facts.GroupConfigsSet() | facts.GroupConfigsForgotten():
                    for hold in self._held.values():
                        hold.has_new_configs |= hold.command.group_id == record.group_id
        replies = [effect for effect in decision.effects if isinstance(effect, Reply)] if is_release else []
        for reply in replies:
            hold_of = self._held.get(reply.request)
            if hold_of is not None:
                _check_is_of_now(shard, hold_of.command, reply.body, now_ms=now_ms + clock_offset_ms)

    def is_held(self, command: GroupCommand) -> bool:
        """Whether an answer is for a held heartbeat."""
        return command.request in self._held

    def on_decided(self, command: GroupCommand, body: ReplyBody, *, now_ms: int, tells_news: bool) -> None:
        """Check that a held heartbeat is answered in time, and not without a reason."""
        hold = self._held.pop(command.request)
        if tells_news and _is_quiet(hold.command, body) and not hold.has_new_configs:
            why = f"{hold.command.member_id} is answered {hold.due_ms - now_ms} ms early, and there is no news for it"
            raise LawBroken("NobodyIsToldForNothing", why, group_id=command.group_id)

    def check_times(self, shard: Shard, *, now_ms: int) -> None:
        """Check that no heartbeat is held for longer than its client allows."""
        for held in shard.groups.holds.values():
            for command in held.values():
                due_ms = self._held[command.request].due_ms
                if now_ms > due_ms:
                    why = (
                        f"{command.member_id} waits {now_ms - due_ms} ms longer than the {command.hold_ms} ms it bears"
                    )
                    raise LawBroken("HoldsEndInTime", why, group_id=command.group_id)


def _is_quiet(command: asked.AnyHeartbeat, body: ReplyBody) -> bool:
    if not isinstance(body, asked.ConsumerGroupHeartbeatReply) or isinstance(command, asked.Heartbeat):
        return isinstance(body, Done)
    if body.should_compute:
        return False
    if command.member_epoch == JOIN_EPOCH:
        return not body.is_complete
    return body.assignment is None and body.client_assignment is None and body.metadata_news is None


def _check_is_of_now(shard: Shard, command: asked.AnyHeartbeat, body: ReplyBody, *, now_ms: int) -> None:
    """AnswerIsOfNow: check an answer before the release is applied."""
    told = [
        effect.body
        for plain in _plain(shard, command)
        for effect in shard.handle(plain, now_ms=now_ms).effects
        if isinstance(effect, Reply)
    ]
    if body not in told:
        why = f"{command.member_id} is told {body}, and a heartbeat of now {told[0]}"
        raise LawBroken("AnswerIsOfNow", why, group_id=command.group_id)


def _plain(shard: Shard, command: asked.AnyHeartbeat) -> tuple[asked.AnyHeartbeat, ...]:
    """Return the heartbeat as one sent now with no changes."""
    if isinstance(command, asked.Heartbeat):
        return (replace(command, hold_ms=0),)
    group = shard.groups.consumer.get(command.group_id)
    member = None if group is None else group.members.get(command.member_id)
    # One that is gone is told so, and does not join by that.
    epoch = max(command.member_epoch, 1)
    plain = replace(
        command,
        member_epoch=epoch if member is None or member.member_epoch < 0 else member.member_epoch,
        tells_all=command.member_epoch == JOIN_EPOCH,
        hold_ms=0,
        rack_id=None,
        rebalance_timeout_ms=-1,
        subscribed_topic_names=None,
        subscribed_topic_regex=None,
        server_assignor=None,
        client_assignors=None,
        topic_partitions={} if command.member_epoch == JOIN_EPOCH else None,
    )
    # A member that ended the hold itself is told a shorter interval.
    return plain, replace(plain, since_cut_ms=0)
