"""Brokers that delay heartbeats for a share of the interval, and the members' duties then.

Laws held here, by name, of members of the consumer protocol where nothing goes wrong around them:
- `BeatsInTime`: a member is heard of within its interval, however its heartbeats are held.
- `HeardAtOnce`: what it subscribes to is known to the coordinator at once, though a heartbeat of it is held.
- `ToldAlike`: what a member is told by a fetch or a commit is what a heartbeat of it would be told then.
- `OneOwner`: what an application is told to be its own no other one of its group holds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kohort.broker.connections.memberconnections import MemberKey
from kohort.broker.connections.request import Peer, Request
from kohort.broker.groups.coordination import Coordination
from kohort.broker.groups.delayed_heartbeats import Pushing
from kohort.broker.groups.membership_updates import Listening
from kohort.broker.groups.runtime import Runtime
from kohort.broker.groups.shard_log import Home
from kohort.clock import Clock
from kohort.coordinator.commands.base import Refusal
from kohort.coordinator.commands.groups import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply, WatchMember
from kohort.coordinator.decision import Decision, Reply, TimerKey
from kohort.coordinator.delayed_heartbeats import find_member
from kohort.coordinator.events.triggers import Stimulus
from kohort.coordinator.model import ConsumerGroup
from kohort.errors import ErrorCode
from kohort.ids import TopicPartition
from kohort.testing.clients.ledger import LawBroken
from kohort.testing.clusternodes import NodeCoordination
from kohort.wire.messages.membership import MemberNews

if TYPE_CHECKING:
    from kohort.testing.clients.client_world import ClientWorld
    from kohort.testing.clients.reader import Reader

#: Time by which a heartbeat may exceed its interval: a round trip, and the steps of the world's looks, ms.
_GRACE_MS: Final = 100
#: Within this time a subscription is known: round trips, and an answer that is under way, s.
_AT_ONCE_S: Final = 0.1


class HoldsFor(Pushing):
    """A policy that holds heartbeats for a share, 0 to below 1, of a member's interval; 0: never."""

    def __init__(self, values: Mapping[str, Any], clock: Clock, share: float) -> None:
        super().__init__(values, clock)
        self._share: Final = share

    def bears(self, request: Request) -> bool:
        """Return whether a request's client bears a hold, as `Pushing` does."""
        return self._share > 0 and super().bears(request)

    def hold_ms(self, connection: Peer, member: MemberKey) -> int:
        """Return the time of a hold: the chosen share of the member's interval."""
        return int(connection.told_intervals.get(member, 0) * self._share)


class TellsAlike(Listening):
    """The check of `ToldAlike` for every update beside heartbeats; `fail`: called if it is broken."""

    def __init__(
        self, fail: Callable[[Exception], None], runtime: Coordination, on_news: Callable[[MemberKey], None]
    ) -> None:
        super().__init__(runtime, on_news)
        self._fail: Final = fail

    def _translate(self, command: WatchMember) -> Callable[[Any, Any], MemberNews]:
        translate = super()._translate(command)

        def checked(asker: object, body: ConsumerGroupHeartbeatReply | Refusal) -> MemberNews:
            self._check(command, body)
            return translate(asker, body)

        return checked

    def _check(self, command: WatchMember, body: ConsumerGroupHeartbeatReply | Refusal) -> None:
        if isinstance(body, Refusal) and body.code is ErrorCode.NOT_COORDINATOR:
            return
        assert isinstance(self._runtime, NodeCoordination)
        runtime = self._runtime._runtime
        shard, now_ms = runtime._homes[runtime.index_of(command.group_id)].shard, runtime._clock.now_ms()
        member = find_member(shard.groups, command.group_id, command.member_id)
        heartbeat = ConsumerGroupHeartbeat(
            cause=command.cause,
            request=command.request,
            group_id=command.group_id,
            member_id=command.member_id,
            member_epoch=max(command.member_epoch if member is None else member.member_epoch, 1),
            client_id="" if member is None else member.client_id,
            client_host="" if member is None else member.client_host,
            tells_all=True,
        )
        replies = [each for each in shard.handle(heartbeat, now_ms=now_ms).effects if isinstance(each, Reply)]
        told = replies[0].body
        if isinstance(body, Refusal):
            is_alike = isinstance(told, Refusal) or body.code is ErrorCode.FENCED_MEMBER_EPOCH
        elif body.assignment is None:
            return
        else:
            is_alike = isinstance(told, ConsumerGroupHeartbeatReply) and (
                (told.member_epoch, told.assignment) == (body.member_epoch, body.assignment)
            )
        if not is_alike:
            self._fail(LawBroken("ToldAlike", f"{command.member_id} is told {body}, and by a heartbeat {told}"))


class Members:
    """The coordinator's view of the readers of a world."""

    def __init__(self, world: ClientWorld) -> None:
        self._world: Final = world

    def watch(self, runtime: Runtime) -> None:
        """Note each reader whose session ends, for `FreedIsLetGo`."""
        commit = runtime._commit

        def watched(home: Home, stimulus: Stimulus, decision: Decision, now_ms: int, **more: Any) -> bool:
            is_over = decision.due is not None and decision.due.kind == "session"
            found = self._reader_of(home, decision.due) if is_over else None
            is_taken = commit(home, stimulus, decision, now_ms, **more)
            if found is not None and is_taken:
                found.ownership.free("the coordinator has not heard of it for a session")
            return is_taken

        runtime._commit = watched  # type: ignore[method-assign]

    def _reader_of(self, home: Home, ended: TimerKey | None) -> Reader | None:
        """Find the reader that is still the member of an ended session; `None`: no reader is."""
        assert ended is not None
        for reader in self._world.readers:
            if reader.consumer is not None and reader.party.group_id == ended.group_id:
                identity = reader.consumer._context.deliveries.identity
                if identity.member_id == ended.member_id and identity.epoch >= 0:
                    return reader
        return None

    def check_beats(self) -> None:
        """Check `BeatsInTime` for every present member."""
        runtime = self._world.brokers.runtime
        now_ms = runtime._clock.now_ms()
        for group_id in self._world.groups:
            shard = runtime._homes[runtime.index_of(group_id)].shard
            settings = shard.settings_for(group_id)
            group = shard.groups.consumer.get(group_id)
            for member in () if group is None else group.members.values():
                ends_ms = shard.timers.deadline(member.session_key)
                assert ends_ms is not None, "a member has a session"
                silent_ms = now_ms + settings.group_consumer_session_timeout_ms - ends_ms
                if silent_ms > settings.group_consumer_heartbeat_interval_ms + _GRACE_MS:
                    raise LawBroken("BeatsInTime", f"{member.client_id} has been silent for {silent_ms} ms")

    def check_subscription(self, reader: Reader) -> None:
        """Check `HeardAtOnce` a moment from now, if the reader is a member now and then."""
        consumer, topics = reader.consumer, reader.topics
        assert consumer is not None
        before = self._find(reader)

        def look() -> None:
            group = self._find(reader)
            if before is None or group is None or reader.consumer is not consumer or reader.topics is not topics:
                return
            known = next(each for each in group.members.values() if each.client_id == reader.name)
            if set(known.subscribed_topic_names) != set(topics):
                why = f"{reader.name} subscribes to {topics}, not {known.subscribed_topic_names}"
                self._world.fail(LawBroken("HeardAtOnce", why))

        self._world.loop.call_later(_AT_ONCE_S, look)

    def check_taken(self, reader: Reader, partitions: Iterable[TopicPartition]) -> None:
        """Check `OneOwner` for partitions that the reader is told are its own."""
        for other in self._world.readers:
            doubled = other.ownership.next.keys() & set(partitions)
            if doubled and other is not reader and other.party is reader.party:
                raise LawBroken("OneOwner", f"{reader.name} takes {sorted(doubled)}, which {other.name} has")

    def _shard(self, reader: Reader) -> Any:
        runtime = self._world.brokers.runtime
        return runtime._homes[runtime.index_of(reader.party.group_id)].shard

    def _find(self, reader: Reader) -> ConsumerGroup | None:
        """Return the reader's group, if the reader is the only member of that name in it."""
        group: ConsumerGroup | None = self._shard(reader).groups.consumer.get(reader.party.group_id)
        if group is None or [each.client_id for each in group.members.values()].count(reader.name) != 1:
            return None
        return group
