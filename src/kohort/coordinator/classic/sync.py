"""SyncGroup: the leader sends the assignment, every member receives its part.

Laws: the assignment is in the log before any member receives it.
Source: Apache Kafka's `GroupMetadataManager.classicGroupSync`.
"""

from __future__ import annotations

from dataclasses import replace

from kohort.coordinator import commands, model, topics
from kohort.coordinator.classic import rebalance, static, subscriptions, validation
from kohort.coordinator.classic.pending_decision import PendingDecision, build_sync_error, build_sync_reply
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState, ClassicMember, SyncReceived, build_stored
from kohort.coordinator.decision import Arm, Decision, Disarm, Effect, Reply, TimerKey
from kohort.coordinator.records.types import StoredClassicMember
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode, Refused
from kohort.ids import RequestToken


def decide_sync(
    group: ClassicGroup | None,
    command: commands.SyncGroup,
    settings: GroupSettings,
    *,
    now_ms: int,
    image: topics.TopicImage | None,
    groups: model.GroupsState | None = None,
) -> Decision:
    """Delay a follower's SyncGroup until the leader's SyncGroup, which makes the group Stable.

    In a static group a SyncGroup marks an offline member as online. `groups`: the state with the clocks for that.

    Raises:
        Refused: UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, ILLEGAL_GENERATION,
            INCONSISTENT_GROUP_PROTOCOL, REBALANCE_IN_PROGRESS; UNKNOWN_SERVER_ERROR if the assignments are too large.
    """

    def decide(found: ClassicGroup | None) -> Decision:
        return _take_sync(found, command, settings, now_ms=now_ms, image=image, groups=groups)

    return static.decide_back(group, command.member_id, groups, decide, now_ms=now_ms)


def _take_sync(
    group: ClassicGroup | None,
    command: commands.SyncGroup,
    settings: GroupSettings,
    *,
    now_ms: int,
    image: topics.TopicImage | None,
    groups: model.GroupsState | None,
) -> Decision:
    member = validation.check_member(group, command.member_id, command.instance_id)
    assert group is not None
    # A SyncGroup of an older generation must not get an assignment of this one.
    validation.check_generation(group, command.generation_id)
    if command.protocol_type not in (None, group.protocol_type):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if command.protocol_name not in (None, group.protocol_name):
        raise Refused(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    match group.state:
        # The join phase has begun again: the member has to join first.
        case ClassicGroupState.PREPARING_REBALANCE:
            raise Refused(ErrorCode.REBALANCE_IN_PROGRESS)
        case ClassicGroupState.COMPLETING_REBALANCE if group.leader == command.member_id:
            return _share_out(_draft(group, now_ms, image, groups), command, settings)
        # A follower waits for the assignment of the leader.
        case ClassicGroupState.COMPLETING_REBALANCE:
            return _note(group, command, pending_joins=command.request, effects=_supersede(group, command))
        case ClassicGroupState.STABLE if member.instance_id and subscriptions.leads_unaware(
            group, member.member_id, image
        ):
            return _share_out_anew(_draft(group, now_ms, image, groups), command, settings, member)
        # The assignment is known: a member that asks late, or again, gets it at once.
        case ClassicGroupState.STABLE:
            session = Arm(TimerKey("session", group.group_id, member.member_id), now_ms + member.session_timeout_ms)
            return _note(
                group,
                command,
                pending_joins=None,
                effects=(Reply(command.request, build_sync_reply(group, member)), session),
            )
        case ClassicGroupState.EMPTY:
            raise AssertionError("an empty group has no members")


def _draft(
    group: ClassicGroup, now_ms: int, image: topics.TopicImage | None, groups: model.GroupsState | None
) -> PendingDecision:
    return PendingDecision(group, group.group_id, now_ms=now_ms, image=image, known=groups)


def _supersede(group: ClassicGroup, command: commands.SyncGroup) -> tuple[Reply, ...]:
    """Reply REBALANCE_IN_PROGRESS to an older delayed SyncGroup of the same member, if there is one."""
    older = group.awaiting_sync.get(command.member_id)
    return () if older is None else (Reply(older, build_sync_error(ErrorCode.REBALANCE_IN_PROGRESS)),)


def _note(
    group: ClassicGroup, command: commands.SyncGroup, *, pending_joins: RequestToken | None, effects: tuple[Effect, ...]
) -> Decision:
    """Record a member's SyncGroup; disarm the sync deadline if no other member's is missing."""
    # No pending decision: every follower of a large group comes here.
    member_id = command.member_id
    is_awaited = member_id in group.unsynced
    # Nothing changes: a repeated SyncGroup of a Stable group is only answered.
    if not is_awaited and pending_joins is None:
        return Decision(effects=effects)
    # The last awaited member has sent SyncGroup: the phase cannot time out any more.
    if is_awaited and len(group.unsynced) == 1:
        effects = (Disarm(TimerKey("sync", group.group_id)), *effects)
    return Decision((SyncReceived(group_id=group.group_id, member_id=member_id, request=pending_joins),), effects)


def _share_out_anew(
    pending: PendingDecision, command: commands.SyncGroup, settings: GroupSettings, member: ClassicMember
) -> Decision:
    """Rebalance because the static leader of a Stable group has returned and topics have changed."""
    # The leader compares topics only from the response on, so it would never notice a change between its JoinGroup and
    # that (Apache Kafka goes on without those partitions, or with deleted ones). Any other leader has compared them
    # before.
    pending.reply(command.request, build_sync_error(ErrorCode.REBALANCE_IN_PROGRESS))
    pending.arm("session", member.session_timeout_ms, member.member_id)
    rebalance.begin_rebalance(pending, settings, reason=f"{member.member_id} leads, and topics have changed")
    return pending.decision()


def _share_out(pending: PendingDecision, command: commands.SyncGroup, settings: GroupSettings) -> Decision:
    """Store the leader's assignment and respond to all delayed SyncGroups."""
    # In a static group a member may have replaced another meanwhile, may have joined, or may be offline with partitions
    # to revoke (offline_members.py).
    group = pending.group
    size_bytes = sum(len(assignment) for assignment in command.assignments.values())
    # The assignments become one batch of the log.
    if size_bytes > validation.ASSIGNMENTS_LIMIT_BYTES:
        raise Refused(
            ErrorCode.UNKNOWN_SERVER_ERROR,
            f"the assignments take {size_bytes} bytes, {validation.ASSIGNMENTS_LIMIT_BYTES} are allowed",
        )
    for effect in _supersede(group, command):
        pending.reply(effect.request, effect.body)
    pending.record(SyncReceived(group_id=pending.group_id, member_id=command.member_id, request=command.request))
    if not group.unsynced:
        pending.disarm("sync")
    # The stored record below forgets the replaced members, so they are read before.
    unassigned, handed_on = build_stored(group), dict(group.handed_on)
    pending.record(
        replace(
            unassigned,
            state_timestamp_ms=pending.now_ms,
            # A member that the leader left out gets no partitions; an unknown member id is ignored.
            members=tuple(
                replace(member, assignment=_given(group, command, member, is_static=settings.is_static))
                for member in unassigned.members
            ),
        )
    )
    # The result is stored, so that a restart need not repeat the rebalance.
    rebalance.note_done(pending)
    rebalance.answer_syncs(pending)
    withheld = rebalance.find_withheld(pending, handed_on) if settings.is_static else None
    if withheld is not None:
        rebalance.begin_rebalance(pending, settings, reason=f"{withheld} is away and cannot give up what it has to")
    return pending.decision()


def _given(group: ClassicGroup, command: commands.SyncGroup, member: StoredClassicMember, *, is_static: bool) -> bytes:
    # The leader may know the member only by the id of the one that it replaced.
    former, found = group.handed_on.get(member.member_id), command.assignments.get(member.member_id, b"")
    if former is not None and not found:
        found = command.assignments.get(former.member_id, b"")
    if found or not is_static or group.protocol_type != subscriptions.CONSUMER_PROTOCOL_TYPE:
        return found
    # Empty bytes make the Java client of a member that the leader did not know throw an exception.
    return subscriptions.write_assignment({}, subscription=member.subscription)
