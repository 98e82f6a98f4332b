"""News that members get beside their heartbeats, and the watches that wait for it.

Laws: none of this is written; a restart forgets it, as connections close. News told aside is told by the member's next
heartbeat as well, unless the member has shown before that it knows it.
Source: requirement H10.
"""

from __future__ import annotations

from dataclasses import dataclass

from kohort.coordinator.commands.base import Partitions
from kohort.coordinator.commands.groups import ConsumerGroupHeartbeat, WatchMember
from kohort.coordinator.model import ConsumerMember, GroupsState
from kohort.coordinator.records import VolatileRecord
from kohort.errors import ErrorCode, Refused


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberWatched(VolatileRecord):
    """A watch waits: the reply to `command` comes when there is news for its member."""

    command: WatchMember


@dataclass(frozen=True, slots=True, kw_only=True)
class WatchEnded(VolatileRecord):
    """A watch has ended; a newer one of the member goes on."""

    command: WatchMember


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberHeard(VolatileRecord):
    """A member has shown that it knows `epoch`; `is_behind`: it was told more aside since."""

    member_id: str
    epoch: int
    is_behind: bool


def apply_watched(groups: GroupsState, record: MemberWatched) -> None:
    """Add the watch of a member, in place of an older one."""
    groups.watches.setdefault(record.group_id, {})[record.command.member_id] = record.command


def apply_watch_ended(groups: GroupsState, record: WatchEnded) -> None:
    """Remove the watch of a member, answered or not."""
    if is_watched(groups, record.command):
        watched = groups.watches[record.group_id]
        del watched[record.command.member_id]
        if not watched:
            del groups.watches[record.group_id]


def apply_heard(groups: GroupsState, record: MemberHeard) -> None:
    """Set the epoch that a member knows, and whether it may not know the latest news."""
    group = groups.consumer.get(record.group_id)
    member = None if group is None else group.members.get(record.member_id)
    if member is not None:
        member.known_epoch, member.is_told_aside = record.epoch, record.is_behind


def heard_now(group_id: str, member: ConsumerMember) -> tuple[MemberHeard, ...]:
    """Return the record of a heartbeat's response that repeats the news told aside."""
    if not member.is_told_aside:
        return ()
    return (MemberHeard(group_id=group_id, member_id=member.member_id, epoch=member.known_epoch, is_behind=False),)


def check_epoch(member: ConsumerMember, command: ConsumerGroupHeartbeat) -> None:
    """Accept an older epoch only of a member that may not know its latest one; else FENCED_MEMBER_EPOCH.

    That is the previous epoch of a member that missed its last response and lists its partitions, or any epoch since it
    was told news aside: a heartbeat without a list releases no partition.
    """
    epoch, owned = command.member_epoch, command.topic_partitions
    if epoch > member.member_epoch:
        why = f"a larger epoch ({epoch}) than the coordinator knows ({member.member_epoch})"
    elif 0 < member.known_epoch <= epoch if owned is None else _has_missed_answer(member, epoch, owned):
        return
    else:
        why = f"a smaller epoch ({epoch}) than the coordinator knows ({member.member_epoch})"
    raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, f"the member has {why}; it has to give up its partitions and rejoin")


def _has_missed_answer(member: ConsumerMember, epoch: int, owned: Partitions) -> bool:
    return epoch == member.previous_member_epoch and _is_held(owned, member)


def _is_held(owned: Partitions, member: ConsumerMember) -> bool:
    """Whether all listed partitions are assigned to the member or pending revocation."""
    return all(
        partition in member.assigned.get(topic_id, ()) or partition in member.pending_revocation.get(topic_id, ())
        for topic_id, partitions in owned.items()
        for partition in partitions
    )


def is_watched(groups: GroupsState, command: WatchMember) -> bool:
    """Whether exactly this watch waits, by its request token."""
    watched = groups.watches.get(command.group_id, {}).get(command.member_id)
    return watched is not None and watched.request == command.request
