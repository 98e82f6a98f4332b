"""Laws of updates sent beside heartbeats, and of the heartbeats that follow them.

| law | check |
| --- | --- |
| ToldAlike | the answer to a word, when it is decided, beside that to a heartbeat of then |
| ToldAgain | the next heartbeat of a member that was told an update, and has not shown that it knows it |

Source: requirement H10; `kohort.coordinator.membership_updates`.
"""

from __future__ import annotations

from kohort.coordinator.commands.base import GroupCommand, Refusal
from kohort.coordinator.commands.groups import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply, WatchMember
from kohort.coordinator.commands.replies import ReplyBody
from kohort.coordinator.consumer.membership_updates import MemberWatched
from kohort.coordinator.decision import Decision, Reply
from kohort.coordinator.delayed_heartbeats import find_member
from kohort.coordinator.model import ConsumerMember
from kohort.coordinator.shard import Shard
from kohort.errors import ErrorCode
from kohort.testing.trace import LawBroken


class WordLaws:
    """Checks of the updates and heartbeat answers of one shard."""

    def __init__(self) -> None:
        #: (group id, member id) of members told by an answer to a watch -> the epoch that each knew then.
        self._told: dict[tuple[str, str], int] = {}

    def before_step(self, decision: Decision) -> None:
        """Note that a member with a watch that waits for updates knows all earlier ones."""
        for record in decision.records:
            if isinstance(record, MemberWatched):
                self._told.pop((record.group_id, record.command.member_id), None)

    def on_decided(self, shard: Shard, command: GroupCommand, body: ReplyBody, *, now_ms: int) -> None:
        """Check an answer after the records that it needs are applied."""
        if isinstance(command, WatchMember):
            _check_told_alike(shard, command, body, now_ms=now_ms)
            if isinstance(body, ConsumerGroupHeartbeatReply):
                self._told.pop((command.group_id, command.member_id), None)
                if body.assignment is not None:
                    self._told[command.group_id, command.member_id] = command.member_epoch
        elif isinstance(command, ConsumerGroupHeartbeat):
            self._check_told_again(shard, command, body)

    def _check_told_again(self, shard: Shard, command: ConsumerGroupHeartbeat, body: ReplyBody) -> None:
        key = (command.group_id, command.member_id)
        known_epoch = self._told.get(key)
        member = find_member(shard.groups, *key)
        if known_epoch is None:
            return
        if member is None or member.classic is not None or member.member_epoch < 0:
            del self._told[key]
        elif isinstance(body, ConsumerGroupHeartbeatReply):
            del self._told[key]
            if body.assignment is None and not _says_what_it_has(command, member):
                why = f"{command.member_id} was told something by a fetch, and its heartbeat is told {body}"
                raise LawBroken("ToldAgain", why, group_id=command.group_id)
        elif isinstance(body, Refusal) and body.code is ErrorCode.FENCED_MEMBER_EPOCH:
            is_fair = command.topic_partitions is not None or command.member_epoch > member.member_epoch
            if not is_fair and command.member_epoch >= known_epoch:
                why = f"{command.member_id} was told something by a fetch, and is fenced since it does not know that"
                raise LawBroken("ToldAgain", why, group_id=command.group_id)


def _says_what_it_has(command: ConsumerGroupHeartbeat, member: ConsumerMember) -> bool:
    """Whether a member lists exactly its assignment, and so shows that it knows every update."""
    if command.topic_partitions is None:
        return False
    said = {topic_id: set(partitions) for topic_id, partitions in command.topic_partitions.items() if partitions}
    return said == {topic_id: set(partitions) for topic_id, partitions in member.assigned.items() if partitions}


def _check_told_alike(shard: Shard, command: WatchMember, body: ReplyBody, *, now_ms: int) -> None:
    member = find_member(shard.groups, command.group_id, command.member_id)
    heartbeat = ConsumerGroupHeartbeat(
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
    if isinstance(body, Refusal):
        # A member that claims a future epoch is refused for that.
        is_alike = isinstance(told, Refusal) or body.code is ErrorCode.FENCED_MEMBER_EPOCH
    else:
        assert isinstance(body, ConsumerGroupHeartbeatReply), body
        is_alike = body.assignment is None or (
            isinstance(told, ConsumerGroupHeartbeatReply)
            and (told.member_epoch, told.assignment) == (body.member_epoch, body.assignment)
        )
    if not is_alike:
        why = f"{command.member_id} is told {body}, and by a heartbeat {told}"
        raise LawBroken("ToldAlike", why, group_id=command.group_id)
