"""Laws of held heartbeats: the time and the content of their responses.

Source: requirement H1; `kohort.coordinator.delayed_heartbeats`.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from kohort.coordinator import commands
from kohort.coordinator.commands import JOIN_EPOCH
from kohort.coordinator.decision import Decision, Reply, ReplyBody
from kohort.coordinator.delayed_heartbeats import HeartbeatHeld, HeartbeatReleased, MemberWatched
from kohort.coordinator.model import ConsumerMember
from kohort.coordinator.records import types as facts
from kohort.coordinator.shard import Shard
from kohort.errors import ErrorCode
from kohort.ids import RequestToken
from kohort.simulation.trace import LawBroken


@dataclass(slots=True, kw_only=True)
class _Hold:
    """A held heartbeat.

    `due_ms`: the end of the hold. `has_new_configs`: whether its group's configs changed since.
    """

    command: commands.AnyHeartbeat
    due_ms: int
    has_new_configs: bool = False


class HoldLaws:
    """The held heartbeats of one shard."""

    def __init__(self) -> None:
        self._held: dict[RequestToken, _Hold] = {}

    def before_step(self, shard: Shard, decision: Decision, *, now_ms: int, clock_offset_ms: int) -> None:
        """Note held heartbeats; compare each released one with the response to a heartbeat sent now."""
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

    def is_held(self, command: commands.GroupCommand) -> bool:
        """Return whether a command is a held heartbeat."""
        return command.request in self._held

    def on_decided(self, command: commands.GroupCommand, body: ReplyBody, *, now_ms: int, tells_news: bool) -> None:
        """Check that a held heartbeat gets its response in time, and not earlier without a reason."""
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


def _is_quiet(command: commands.AnyHeartbeat, body: ReplyBody) -> bool:
    if not isinstance(body, commands.ConsumerGroupHeartbeatReply) or isinstance(command, commands.Heartbeat):
        return isinstance(body, commands.Done)
    if body.should_compute:
        return False
    if command.member_epoch == JOIN_EPOCH:
        return not body.is_complete
    return body.assignment is None and body.client_assignment is None and body.metadata_news is None


def _check_is_of_now(shard: Shard, command: commands.AnyHeartbeat, body: ReplyBody, *, now_ms: int) -> None:
    """AnswerIsOfNow: check that a released response equals that to a heartbeat sent now."""
    told = []
    for plain in _plain(shard, command):
        told += [each.body for each in shard.handle(plain, now_ms=now_ms).effects if isinstance(each, Reply)]
        if body in told:
            break
    else:
        why = f"{command.member_id} is told {body}, and a heartbeat of now {told[0]}"
        raise LawBroken("AnswerIsOfNow", why, group_id=command.group_id)


def _plain(shard: Shard, command: commands.AnyHeartbeat) -> Iterator[commands.AnyHeartbeat]:
    """Yield the heartbeat as the member would send it now, and the variant that gets a shorter interval."""
    if isinstance(command, commands.Heartbeat):
        yield replace(command, hold_ms=0)
        return
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
    yield plain
    # A member that ended the hold itself is told a shorter interval.
    yield replace(plain, since_cut_ms=0)


# Laws of updates sent beside heartbeats, and of the heartbeats that follow them.
#
# | law | check |
# | --- | --- |
# | ToldAlike | the answer to a word, when it is decided, beside that to a heartbeat of then |
# | ToldAgain | the next heartbeat of a member that was told an update, and has not shown that it knows it |
#
# Source: requirement H10; `kohort.coordinator.membership_updates`.


class UpdateLaws:
    """Checks of the news in fetch and commit responses, and of later heartbeat responses, of one shard."""

    def __init__(self) -> None:
        #: (group id, member id) of members told by an answer to a watch -> the epoch that each knew then.
        self._told: dict[tuple[str, str], int] = {}

    def before_step(self, decision: Decision) -> None:
        """Note that a member whose watch waits knows all earlier news."""
        for record in decision.records:
            if isinstance(record, MemberWatched):
                self._told.pop((record.group_id, record.command.member_id), None)

    def on_decided(self, shard: Shard, command: commands.GroupCommand, body: ReplyBody, *, now_ms: int) -> None:
        """Check a response after its records are applied."""
        if isinstance(command, commands.WatchMember):
            check_told_alike(shard, command, body, now_ms=now_ms)
            if isinstance(body, commands.ConsumerGroupHeartbeatReply):
                self._told.pop((command.group_id, command.member_id), None)
                if body.assignment is not None:
                    self._told[command.group_id, command.member_id] = command.member_epoch
        elif isinstance(command, commands.ConsumerGroupHeartbeat):
            self._check_told_again(shard, command, body)

    def _check_told_again(self, shard: Shard, command: commands.ConsumerGroupHeartbeat, body: ReplyBody) -> None:
        key = (command.group_id, command.member_id)
        known_epoch = self._told.get(key)
        member = shard.groups.find_member(*key)
        if known_epoch is None:
            return
        if member is None or member.classic is not None or member.member_epoch < 0:
            del self._told[key]
        elif isinstance(body, commands.ConsumerGroupHeartbeatReply):
            del self._told[key]
            if body.assignment is None and not _says_what_it_has(command, member):
                why = f"{command.member_id} was told something by a fetch, and its heartbeat is told {body}"
                raise LawBroken("ToldAgain", why, group_id=command.group_id)
        elif isinstance(body, commands.Refusal) and body.code is ErrorCode.FENCED_MEMBER_EPOCH:
            is_fair = command.topic_partitions is not None or command.member_epoch > member.member_epoch
            if not is_fair and command.member_epoch >= known_epoch:
                why = f"{command.member_id} was told something by a fetch, and is fenced since it does not know that"
                raise LawBroken("ToldAgain", why, group_id=command.group_id)


def _says_what_it_has(command: commands.ConsumerGroupHeartbeat, member: ConsumerMember) -> bool:
    """Return whether a heartbeat lists exactly the member's assignment: it knows all news then."""
    if command.topic_partitions is None:
        return False
    said = {topic_id: set(partitions) for topic_id, partitions in command.topic_partitions.items() if partitions}
    return said == {topic_id: set(partitions) for topic_id, partitions in member.assigned.items() if partitions}


def check_told_alike(shard: Shard, command: commands.WatchMember, body: ReplyBody, *, now_ms: int) -> None:
    """ToldAlike: compare news in a watch's reply with the response that a heartbeat would get now."""
    member = shard.groups.find_member(command.group_id, command.member_id)
    heartbeat = commands.ConsumerGroupHeartbeat(
        cause=command.cause,
        request=command.request,
        group_id=command.group_id,
        member_id=command.member_id,
        member_epoch=max(command.member_epoch if member is None else member.member_epoch, 1),
        client_id="" if member is None else member.client_id,
        client_host="" if member is None else member.client_host,
        instance_id=None if member is None else member.instance_id,
        tells_all=True,
    )
    effects = shard.handle(heartbeat, now_ms=now_ms).effects
    told = next(each.body for each in effects if isinstance(each, Reply) and each.request == command.request)
    if isinstance(body, commands.Refusal):
        # A member that claims a future epoch is refused for that.
        is_alike = isinstance(told, commands.Refusal) or body.code is ErrorCode.FENCED_MEMBER_EPOCH
    else:
        assert isinstance(body, commands.ConsumerGroupHeartbeatReply), body
        is_alike = body.assignment is None or (
            isinstance(told, commands.ConsumerGroupHeartbeatReply)
            and (told.member_epoch, told.assignment) == (body.member_epoch, body.assignment)
        )
    if not is_alike:
        why = f"{command.member_id} is told {body}, and by a heartbeat {told}"
        raise LawBroken("ToldAlike", why, group_id=command.group_id)
