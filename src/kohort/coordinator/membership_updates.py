"""News for a member beside its heartbeats, in the responses to its fetches and commits.

The shell that watches a member names its known state: its epoch, and all its assigned partitions. If a heartbeat would
return something else now, the watch is answered at once; else it waits until there is news.

Laws: the news equals the response to a heartbeat sent now, and is carried out alike; a watch without news changes
nothing. It is no sign of life and acknowledges nothing: only a heartbeat that lists the owned partitions releases one.
A member that does not know its news yet is not fenced for that. Nor does a watch bring back an offline member of a
static group: that member gets no news before its heartbeat.
Source: requirement H10; KIP-848 (a coordinator answers heartbeats).
"""

from __future__ import annotations

from typing import Final

from kohort.coordinator.commands.base import Partitions, Refusal
from kohort.coordinator.commands.groups import ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply, WatchMember
from kohort.coordinator.consumer.heartbeat import decide_member
from kohort.coordinator.consumer.membership_updates import MemberHeard, MemberWatched, WatchEnded
from kohort.coordinator.decision import Decision, Reply
from kohort.coordinator.delayed_heartbeats import AssignmentTold, find_member, hold_heartbeat, without_life
from kohort.coordinator.model import ConsumerMember, Grants, GroupsState
from kohort.coordinator.records import MemberConnectionSeen
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.mode import is_offline
from kohort.errors import ErrorCode, Refused

#: Records that a watch leaves out: a fetch tells nothing of the connection for heartbeats, and delivers assignments
#: alone.
_OF_HEARTBEATS: Final = (MemberConnectionSeen, AssignmentTold)


def decide_watch(groups: GroupsState, command: WatchMember, settings: GroupSettings, *, now_ms: int) -> Decision:
    """Answer a watch with the news of its member, or let it wait; an answered watch ends."""
    try:
        return _decide(groups, command, settings, now_ms=now_ms)
    except Refused as refused:
        refusal = Refusal(code=refused.code, message=refused.message)
        return Decision(_ended(command), (Reply(command.request, refusal),))


def drop_watch(command: WatchMember) -> Decision:
    """Drop the watch of a member that has disconnected."""
    return Decision(_ended(command))


def _decide(groups: GroupsState, command: WatchMember, settings: GroupSettings, *, now_ms: int) -> Decision:
    member = find_member(groups, command.group_id, command.member_id)
    if member is None or member.classic is not None or member.member_epoch < 0:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    if command.member_epoch > member.member_epoch:
        raise Refused(ErrorCode.FENCED_MEMBER_EPOCH)
    if is_offline(groups, command.group_id, command.member_id):
        return _tell_nothing(command)
    is_known = command.member_epoch == member.member_epoch and _is_same(member.assigned, command.assigned)
    heartbeat = _heartbeat_of(member, command, tells_all=not is_known)
    decision = decide_member(groups, heartbeat, settings, now_ms=now_ms)
    decision = hold_heartbeat(groups, heartbeat, decision, now_ms=now_ms)
    body = next(
        effect.body for effect in decision.effects if isinstance(effect, Reply) and effect.request == command.request
    )
    assert isinstance(body, ConsumerGroupHeartbeatReply), "a refusal is raised"
    has_news = body.assignment is not None
    heard = MemberHeard(
        group_id=command.group_id, member_id=command.member_id, epoch=command.member_epoch, is_behind=has_news
    )
    records = [heard] if (heard.epoch, has_news) != (member.known_epoch, member.is_told_aside) else []
    if has_news:
        told = [record for record in decision.records if not isinstance(record, _OF_HEARTBEATS)]
        return Decision((*told, *records, *_ended(command)), without_life(decision.effects))
    if command.is_look:
        return Decision(tuple(records), (Reply(command.request, body),))
    return Decision((*records, MemberWatched(group_id=command.group_id, command=command)))


def _tell_nothing(command: WatchMember) -> Decision:
    """Answer the watch of an offline member without news, or let it wait."""
    # The next heartbeat of the member brings it back, and gets all news.
    if not command.is_look:
        return Decision((MemberWatched(group_id=command.group_id, command=command),))
    nothing = ConsumerGroupHeartbeatReply(
        member_id=command.member_id, member_epoch=command.member_epoch, heartbeat_interval_ms=0, assignment=None
    )
    return Decision((), (Reply(command.request, nothing),))


def _heartbeat_of(member: ConsumerMember, command: WatchMember, *, tells_all: bool) -> ConsumerGroupHeartbeat:
    """Build the heartbeat that the member would send now if its state had not changed."""
    return ConsumerGroupHeartbeat(
        cause=command.cause,
        request=command.request,
        group_id=command.group_id,
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        instance_id=member.instance_id,
        hold_ms=0,
        tells_all=tells_all,
        is_aside=True,
    )


def _ended(command: WatchMember) -> tuple[WatchEnded, ...]:
    return () if command.is_look else (WatchEnded(group_id=command.group_id, command=command),)


def _is_same(grants: Grants, known: Partitions) -> bool:
    return grants.keys() == known.keys() and all(
        found.keys() == set(known[topic_id]) for topic_id, found in grants.items()
    )
