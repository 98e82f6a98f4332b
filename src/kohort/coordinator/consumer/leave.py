"""Removal of a member: by its own request, by an administrator's, or by a timeout.

In a static group a silent static member counts as away until its registration timeout, and is then removed.

Laws: a removed member owns no partition. The group epoch rises once for all members that are removed together. The
target epoch of an empty group equals its group epoch (KAFKA-20442).
Source: KIP-848 (member failures).
"""

from __future__ import annotations

from collections.abc import Sequence

from kohort.coordinator import commands, model
from kohort.coordinator.consumer import (
    member_metadata,
    migration,
    regex,
    static,
    subscription_metadata,
    tombstones,
)
from kohort.coordinator.consumer.assignment.target import decide_change, decide_due, decide_forced
from kohort.coordinator.consumer.client_assignors.assignment_request import decide_late
from kohort.coordinator.consumer.reconciliation.move_throttle import decide_begin
from kohort.coordinator.decision import Additions, Decision, Disarm, Effect, Reply, TimerKey, TimerKind
from kohort.coordinator.records.types import MemberState, Record
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.mode import build_dynamic, note, start_offline
from kohort.errors import ErrorCode, Refused


def decide_leave(
    groups: model.GroupsState, command: commands.ConsumerGroupHeartbeat, settings: GroupSettings, *, now_ms: int
) -> Decision:
    """Decide a leave: epoch -1 frees the partitions at once, -2 is a static member's leave for a while."""
    group = groups.consumer.get(command.group_id)
    if group is not None and command.instance_id is not None:
        # A replaced process must not remove its successor: FENCED_INSTANCE_ID.
        static.bearer_of(group, command.instance_id, command.member_id)
    member = None if group is None else group.members.get(command.member_id)
    if group is None or member is None or command.instance_id not in (None, member.instance_id):
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID, f"the member {command.member_id} is not in the group")
    reply = commands.ConsumerGroupHeartbeatReply(
        member_id=command.member_id, member_epoch=command.member_epoch, heartbeat_interval_ms=0, assignment=None
    )
    if command.member_epoch == commands.LEAVE_STATIC_EPOCH:
        records, effects = static.decide_absence(group, member)
        # In static mode the registration timeout counts from the leave on.
        if settings.is_static:
            since = {member.member_id: now_ms}
            more, armed = start_offline(groups, group.group_id, since, settings, now_ms=now_ms, is_own_word=True)
            records, effects = records + more, effects + armed
        return Decision(tuple(records), (Reply(command.request, reply), *effects))
    records, effects = _remove(groups, group, [command.member_id], settings, now_ms=now_ms, is_urgent=True)
    return Decision(tuple(records), (Reply(command.request, reply), *effects))


def decide_removal(
    groups: model.GroupsState, command: commands.LeaveGroup, settings: GroupSettings, *, now_ms: int
) -> Decision:
    """Remove members of a KIP-848 group by LeaveGroup, static ones also by their instance id.

    Source: KAFKA-18188; KIP-345 (removal of static members).
    """
    group = groups.consumer[command.group_id]
    outcomes: list[tuple[commands.LeavingMember, ErrorCode]] = []
    removed: list[str] = []
    for leaving in command.members:
        member_id = _named(group, leaving)
        if isinstance(member_id, ErrorCode):
            outcomes.append((leaving, member_id))
            continue
        outcomes.append((leaving, ErrorCode.NONE))
        # An administrator may name one member twice, by member id and by instance id.
        if member_id not in removed:
            removed.append(member_id)
    reply = Reply(command.request, commands.LeaveGroupReply(members=tuple(outcomes)))
    if not removed:
        return Decision(effects=(reply,))
    records, effects = _remove(groups, group, removed, settings, now_ms=now_ms, is_urgent=True)
    return Decision(tuple(records), (reply, *effects))


def _named(group: model.ConsumerGroup, leaving: commands.LeavingMember) -> str | ErrorCode:
    """Return the id of the member that an administrator names by instance id, member id or both."""
    if leaving.instance_id is None:
        return leaving.member_id if leaving.member_id in group.members else ErrorCode.UNKNOWN_MEMBER_ID
    holder = group.instance_ids.get(leaving.instance_id)
    if holder is None:
        return ErrorCode.UNKNOWN_MEMBER_ID
    return holder if leaving.member_id in ("", holder) else ErrorCode.FENCED_INSTANCE_ID


def decide_expiry(groups: model.GroupsState, key: TimerKey, settings: GroupSettings, *, now_ms: int) -> Decision | None:
    """Decide a passed deadline of a KIP-848 group; `None` if it is obsolete."""
    group = groups.consumer[key.group_id]
    if key.kind == "assignment":
        records, effects = decide_due(group, groups.image, settings, now_ms=now_ms)
        return Decision(tuple(records), tuple(effects)) if records or effects else None
    if key.kind == "moves":
        return decide_begin(group, settings, now_ms=now_ms)
    if key.kind == "compute":
        return decide_late(group, key.member_id, now_ms=now_ms)
    if key.kind == "edition":
        return member_metadata.decide_edition(groups, group, settings, now_ms=now_ms)
    member = group.members.get(key.member_id)
    if member is None:
        return None
    # Only classic members have time limits for rejoining and for SyncGroup.
    if key.kind not in ("session", "rebalance") and (key.kind not in ("join", "sync") or member.classic is None):
        return None
    # The member has revoked all of them meanwhile: the deadline is obsolete.
    if key.kind == "rebalance" and member.state != MemberState.UNREVOKED_PARTITIONS:
        return None
    if settings.is_static and member.instance_id is not None:
        return _decide_offline(groups, group, member, key.kind, settings, now_ms=now_ms)
    records, effects = _remove(groups, group, [key.member_id], settings, now_ms=now_ms, is_urgent=False)
    return Decision(tuple(records), tuple(effects))


def decide_clock(groups: model.GroupsState, group_id: str, settings: GroupSettings, *, now_ms: int) -> Decision | None:
    """Decide the deadline of a static group's clock: remove members offline too long, or admit new ones.

    Source: KIP-345's draft; S1.
    """
    clock, group = groups.clocks.get(group_id), groups.consumer.get(group_id)
    if clock is None:
        return None
    # The group is gone or dynamic: its clock has no purpose.
    if group is None or not settings.is_static:
        records, effects = build_dynamic(groups, group_id, settings, now_ms=now_ms)
        return Decision(tuple(records), tuple(effects))
    expired = [member_id for member_id in clock.expired(settings, now_ms=now_ms) if member_id in group.members]
    # One rebalance for all whose registration has ended.
    if expired:
        records, effects = _remove(groups, group, expired, settings, now_ms=now_ms, is_urgent=True)
    elif clock.is_window_over(settings, now_ms=now_ms):
        records, effects = decide_forced(group, groups.image, settings, now_ms=now_ms)
    else:
        records, effects = note(groups, group_id, settings, now_ms=now_ms)
    return Decision(tuple(records), tuple(effects))


def _decide_offline(
    groups: model.GroupsState,
    group: model.ConsumerGroup,
    member: model.ConsumerMember,
    kind: TimerKind,
    settings: GroupSettings,
    *,
    now_ms: int,
) -> Decision | None:
    """Mark a silent or slow member of a static group as away; it keeps the partitions of its target."""
    own = member.classic
    session_ms = settings.group_consumer_session_timeout_ms if own is None else own.session_timeout_ms
    # A session that has ended tells when the member was last heard of.
    heard_ms = now_ms - session_ms if kind == "session" else now_ms
    records, effects = static.decide_absence(group, member)
    more, armed = start_offline(groups, group.group_id, {member.member_id: heard_ms}, settings, now_ms=now_ms)
    if not records and not more:
        return None
    # A member that is away rejoins by no deadline.
    if own is not None:
        keys = (TimerKey("join", group.group_id, member.member_id), TimerKey("sync", group.group_id, member.member_id))
        effects += map(Disarm, keys)
    return Decision(tuple(records + more), tuple(effects + armed))


def _remove(
    groups: model.GroupsState,
    group: model.ConsumerGroup,
    member_ids: Sequence[str],
    settings: GroupSettings,
    *,
    now_ms: int,
    is_urgent: bool,
) -> Additions:
    """Remove members and raise the epoch.

    `is_urgent`: compute the target now, if no window delays it. Otherwise a timer does: if many sessions end together,
    one computation follows all of them.
    """
    group_id = group.group_id
    # The last members may be classic ones: then the group changes its protocol instead.
    if migration.can_downgrade(group, member_ids, settings):
        reason = "the last member of the consumer protocol is gone"
        found = migration.decide_downgrade(groups, group, member_ids, settings, now_ms=now_ms, reason=reason)
        if found is not None:
            return list(found[0].records), list(found[0].effects)
    records: list[Record] = []
    effects: list[Effect] = []
    for member_id in member_ids:
        records.extend(tombstones.build_member_tombstones(group_id, member_id))
        effects.append(Disarm(group.members[member_id].session_key))
        effects.append(Disarm(TimerKey("rebalance", group_id, member_id)))
        if group.members[member_id].classic is not None:
            effects.append(Disarm(TimerKey("join", group_id, member_id)))
            effects.append(Disarm(TimerKey("sync", group_id, member_id)))
    records.extend(regex.build_forgotten_regexes(group, member_ids))
    change = subscription_metadata.MembershipChange(gone=member_ids)
    more, armed = decide_change(group, groups.image, settings, change, now_ms=now_ms, is_urgent=is_urgent)
    return records + more, effects + armed
