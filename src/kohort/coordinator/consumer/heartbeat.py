"""ConsumerGroupHeartbeat: joins, renewed sessions, revocations and assignments.

Laws: a refused heartbeat changes nothing and does not prolong the session. A heartbeat of a live member is never
refused with GROUP_ID_NOT_FOUND, which stock clients take as fatal: UNKNOWN_MEMBER_ID makes them rejoin.
Source: KIP-848, KIP-1082 (member ids made by clients), Apache Kafka's group coordinator.
"""

from __future__ import annotations

from dataclasses import field, replace

from kohort.base.values import value
from kohort.coordinator import delayed_heartbeats
from kohort.coordinator.commands import JOIN_EPOCH, ConsumerGroupHeartbeat, ConsumerGroupHeartbeatReply, Partitions
from kohort.coordinator.consumer import migration, static
from kohort.coordinator.consumer.assignment import assignor_input, async_assignor, target
from kohort.coordinator.consumer.client_assignors.assignor_metadata import take_assignors
from kohort.coordinator.consumer.client_assignors.heartbeat_fields import has_word
from kohort.coordinator.consumer.leave import decide_leave
from kohort.coordinator.consumer.member_metadata import is_told
from kohort.coordinator.consumer.reconciliation import effective_target, reconcile, revocation_timeout
from kohort.coordinator.consumer.regex import build_regex_records, resolve_regex
from kohort.coordinator.consumer.subscription_metadata import MembershipChange, joining, topics_of, unite_topics
from kohort.coordinator.consumer.validation import check_heartbeat
from kohort.coordinator.decision import Additions, Arm, Decision, Effect, Reply
from kohort.coordinator.liveness import pending_interval_ms, told_interval_ms, waiting_interval_ms
from kohort.coordinator.model import ConsumerGroup, ConsumerMember, GroupsState
from kohort.coordinator.records import types as facts
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.mode import open_window, wait_ms
from kohort.errors import ErrorCode, Refused
from kohort.ids import TopicId


def decide_heartbeat(
    groups: GroupsState, command: ConsumerGroupHeartbeat, settings: GroupSettings, *, now_ms: int
) -> Decision:
    """Answer one heartbeat; raises `Refused`."""
    settled = decide_settled(groups, command, settings, now_ms=now_ms)
    if settled is not None:
        return settled
    check_heartbeat(command, settings)
    if command.member_epoch < JOIN_EPOCH:
        return decide_leave(groups, command, settings, now_ms=now_ms)
    return decide_member(groups, command, settings, now_ms=now_ms)


def decide_settled(
    groups: GroupsState, command: ConsumerGroupHeartbeat, settings: GroupSettings, *, now_ms: int
) -> Decision | None:
    """Decide the common heartbeat, in which neither member nor coordinator has news; `None` for others.

    The cost does not depend on the size of the group.
    """
    found = _find_calm(groups, command)
    if found is None:
        return None
    session = Arm(found[1].session_key, now_ms + settings.group_consumer_session_timeout_ms)
    return Decision(
        (), (Reply(command.request, build_settled_reply(command, settings, *found, now_ms=now_ms)), session)
    )


def find_settled(groups: GroupsState, command: ConsumerGroupHeartbeat) -> tuple[ConsumerGroup, ConsumerMember] | None:
    """Return the member and its group if neither the heartbeat nor the coordinator has news."""
    found = _find_calm(groups, command)
    return found if found is not None and is_told(found[0], command) else None


def _find_calm(groups: GroupsState, command: ConsumerGroupHeartbeat) -> tuple[ConsumerGroup, ConsumerMember] | None:
    """Return the member and its group if neither side has news, apart from published metadata."""
    group = groups.consumer.get(command.group_id)
    if group is None:
        return None
    member = group.members.get(command.member_id)
    if member is None or not _is_settled(group, member, command):
        return None
    return group, member


def build_settled_reply(
    command: ConsumerGroupHeartbeat,
    settings: GroupSettings,
    group: ConsumerGroup,
    member: ConsumerMember,
    *,
    now_ms: int,
) -> ConsumerGroupHeartbeatReply:
    """Build the reply to a member that `find_settled` has found."""
    return ConsumerGroupHeartbeatReply(
        member_id=member.member_id,
        member_epoch=member.member_epoch,
        heartbeat_interval_ms=told_interval_ms(settings, group, command, now_ms=now_ms),
        assignment=None,
    )


def decide_member(
    groups: GroupsState, command: ConsumerGroupHeartbeat, settings: GroupSettings, *, now_ms: int
) -> Decision:
    """Decide a valid heartbeat, which may be made from a classic member's JoinGroup (`command.classic`)."""
    return _decide_full(_PendingDecision(groups=groups, command=command, settings=settings, now_ms=now_ms))


def _is_settled(group: ConsumerGroup, member: ConsumerMember, command: ConsumerGroupHeartbeat) -> bool:
    """Return whether neither the heartbeat nor the coordinator has news, and the member has its target."""
    return (
        command.member_epoch == member.member_epoch
        and not command.tells_all
        and group.target_epoch == group.epoch
        and member.member_id not in group.behind
        and command.topic_partitions is None
        and command.subscribed_topic_names is None
        and command.subscribed_topic_regex is None
        and command.server_assignor is None
        and command.client_assignors is None
        and (group.client_assignors is None or not has_word(group, member.member_id))
        and command.rack_id is None
        and (command.instance_id is None or command.instance_id == member.instance_id)
        and not member.is_disconnected
        and not member.is_told_aside
        and command.rebalance_timeout_ms == -1
        and member.classic is None
        and command.client_id == member.client_id
        and command.client_host == member.client_host
    )


@value(frozen=False)
class _PendingDecision:
    """Intermediate state of a decision: the command, and the records and effects so far."""

    groups: GroupsState
    command: ConsumerGroupHeartbeat
    settings: GroupSettings
    now_ms: int
    #: The static member that a new process replaces; `None` in all other cases.
    predecessor: ConsumerMember | None = None
    records: list[facts.Record] = field(default_factory=list)
    effects: list[Effect] = field(default_factory=list)


def _decide_full(pending: _PendingDecision) -> Decision:
    """Decide the heartbeat of a member that joins, changes, or has not reconciled its target."""
    command, settings = pending.command, pending.settings
    group = _find_group(pending)
    member = _find_member(pending, group)
    # A member with an older epoch did not get its last response: it is told its assignment again.
    is_behind = command.member_epoch not in (JOIN_EPOCH, member.member_epoch)
    # The subscription comes first: it may change the target that the member goes to.
    target_epoch, names = _decide_subscription(pending, group, member)
    by_name = pending.groups.image.by_name
    goal = reconcile.ReconciliationTarget(
        epoch=target_epoch,
        target=effective_target.effective_target_after(pending.records, group, member.member_id),
        subscribed=frozenset(by_name[name].topic_id for name in names if name in by_name),
        holders=group.holders,
        existing=pending.groups.image.by_id,
    )
    step = _decide_step(pending, group, member, goal)
    if step is not None:
        pending.records.append(step)
    # A step changes which partitions have deadlines; a list alone may end the wait for new ones.
    if step is not None or member.untaken:
        records, effects = revocation_timeout.decide_times(member, step, command, now_ms=pending.now_ms)
        pending.records += records
        pending.effects += effects
    # A heartbeat shows that the connection lives, and takes the mark of a closed one away.
    if member.is_disconnected:
        pending.records.append(
            facts.MemberConnectionSeen(group_id=group.group_id, member_id=member.member_id, is_gone=False)
        )
    # News that a watch has told is repeated here, as the member may not have got it.
    overdue = () if command.is_aside else delayed_heartbeats.heard_now(group.group_id, member)
    pending.records += overdue
    assigned = member.assigned if step is None else step.assigned
    # The assignment is sent only where the member may not know it; otherwise the field is null.
    is_told = (
        command.member_epoch == JOIN_EPOCH
        or is_behind
        or command.tells_all
        or bool(overdue)
        or _is_full_request(command)
        or (step is not None and not reconcile.is_same(assigned, member.assigned))
    )
    after = member if step is None else step
    epochs = [record.epoch for record in pending.records if isinstance(record, facts.ConsumerGroupEpochSet)]
    # Complete means: by a target that is as new as the group, after all records of this decision.
    is_complete = goal.epoch == (epochs[-1] if epochs else group.epoch) and effective_target.is_settled(
        after, goal.target
    )
    reply = ConsumerGroupHeartbeatReply(
        member_id=member.member_id,
        member_epoch=after.member_epoch,
        heartbeat_interval_ms=_interval_ms(pending, group, after, is_complete=is_complete),
        assignment=_as_partitions(assigned) if is_told else None,
        is_complete=is_complete,
    )
    session = Arm(member.session_key, pending.now_ms + settings.group_consumer_session_timeout_ms)
    return Decision(tuple(pending.records), (Reply(command.request, reply), session, *pending.effects))


def _interval_ms(
    pending: _PendingDecision,
    group: ConsumerGroup,
    after: ConsumerMember | facts.CurrentAssignmentSet,
    *,
    is_complete: bool,
) -> int:
    """Return the interval to the member's next heartbeat; `after` is its state after this one."""
    settings, command = pending.settings, pending.command
    proposed_ms, is_pushed = command.proposed_heartbeat_interval_ms, command.hold_ms >= 0
    # A member that revokes acknowledges by itself, and that heartbeat may be held for the interval of this one. A
    # joining member without partitions has none to acknowledge: its next heartbeat comes soon, to be held.
    has_word = after.assigned or not (command.tells_all or command.member_epoch == JOIN_EPOCH)
    is_pending = is_pushed and not (has_word or after.pending_revocation)
    if is_complete and is_pending:
        left_ms = wait_ms(pending.groups, group.group_id, pending.records, settings, now_ms=pending.now_ms)
        if left_ms is not None:
            return waiting_interval_ms(settings, len(group.members), proposed_ms, left_ms=left_ms)
    if (is_complete and not is_pending) or (is_pushed and after.state == facts.MemberState.UNREVOKED_PARTITIONS):
        return told_interval_ms(settings, group, command, now_ms=pending.now_ms)
    return pending_interval_ms(settings, group, proposed_ms, is_pushed=is_pushed)


def _find_group(pending: _PendingDecision) -> ConsumerGroup:
    """Return the group of a heartbeat with epoch 0 or above; a join creates it."""
    group_id = pending.command.group_id
    group = pending.groups.consumer.get(group_id)
    if group is not None:
        return group
    if pending.command.member_epoch != JOIN_EPOCH:
        raise _unknown_member(pending.command)
    conversion = migration.decide_convert_to_consumer(pending.groups, group_id, pending.settings, now_ms=pending.now_ms)
    pending.records.extend(conversion.records)
    pending.effects.extend(conversion.effects)
    return conversion.group


def _find_member(pending: _PendingDecision, group: ConsumerGroup) -> ConsumerMember:
    """Return the member of a heartbeat: a known one, a new one, or the successor of a static one."""
    command = pending.command
    if command.member_epoch == JOIN_EPOCH:
        # In a static group the newest process takes the instance id, whether the former one is gone or not.
        pending.predecessor = static.find_predecessor(group, command, is_newest=pending.settings.is_static)
        if pending.predecessor is not None:
            return static.successor_of(pending.predecessor, group.group_id, command.member_id)
    elif command.instance_id is not None:
        static.check_holder(group, command, command.member_id)
    member = group.members.get(command.member_id)
    if member is None:
        # Only a join creates a member: an epoch above 0 belongs to a member that the group has lost.
        if command.member_epoch != JOIN_EPOCH:
            raise _unknown_member(command)
        limit = pending.settings.group_consumer_max_size
        if len(group.members) >= limit:
            raise Refused(
                ErrorCode.GROUP_MAX_SIZE_REACHED,
                f"the group has {len(group.members)} members, and group.consumer.max.size is {limit}",
            )
        return ConsumerMember(group.group_id, command.member_id)
    # KAFKA-19233: a known member may join again, as the response to its first join may have been lost.
    if command.member_epoch not in (JOIN_EPOCH, member.member_epoch):
        delayed_heartbeats.check_epoch(member, command)
    # A client that has changed its protocol has to join as a new member.
    if command.member_epoch != JOIN_EPOCH and member.classic is not None:
        raise Refused(ErrorCode.FENCED_MEMBER_EPOCH, "the member speaks the classic protocol; it has to join anew")
    return member


def _decide_subscription(
    pending: _PendingDecision, group: ConsumerGroup, member: ConsumerMember
) -> tuple[int, tuple[str, ...]]:
    """Apply the member's subscription; return the target's epoch and the member's topics after it."""
    subscribed = _merge(group.group_id, member, pending.command)
    succeeded = pending.predecessor
    is_new = member.member_id not in group.members and succeeded is None
    image, settings, now_ms = pending.groups.image, pending.settings, pending.now_ms
    gone = member.member_id if succeeded is None else succeeded.member_id
    assignor_input.check_wish(group, subscribed.server_assignor, settings, member=member, gone=gone)
    resolved = resolve_regex(group, subscribed.subscribed_topic_regex, image, pending.command.sight, now_ms=now_ms)
    names = unite_topics(subscribed.subscribed_topic_names, () if resolved is None else resolved.topics)
    has_other_topics = is_new or names != topics_of(group, member)
    if succeeded is not None:
        records, effects = static.build_succession(group, succeeded, subscribed)
        pending.records.extend(records)
        if settings.is_static and not static.is_away(succeeded):
            # The replaced process may still run, and would join anew by its instance id.
            pending.records.append(facts.StaticMemberFenced(group_id=group.group_id, member_id=succeeded.member_id))
        pending.effects.extend(effects)
    elif is_new or not _is_subscribed_as(member, subscribed):
        pending.records.append(subscribed)
    pending.records.extend(build_regex_records(group, member, subscribed, resolved))
    change = joining(subscribed, names)
    # A new member would wait in vain for a target of a failing assignor.
    if is_new:
        async_assignor.refuse_joins(group, settings, change)
    if succeeded is not None:
        change = replace(change, gone=(succeeded.member_id,))
    former_id = member.member_id if succeeded is None else succeeded.member_id
    said, change, is_asked_for = take_assignors(
        group, pending.command, change, settings, member_id=member.member_id, former_id=former_id
    )
    pending.records.extend(said)
    # A new member of a static group changes no target until the expansion window is over.
    waiting = decide_waiting(pending.groups, group, settings, change, now_ms=now_ms) if is_new else None
    if waiting is not None:
        pending.records.extend(waiting[0])
        pending.effects.extend(waiting[1])
        return group.target_epoch, names
    # KAFKA-20434: another choice of the assignor requires a new target.
    if has_other_topics or is_asked_for:
        # The replacing member's target is not stored under its id before this decision is applied: a timer computes it
        # anew.
        is_urgent = succeeded is None
        records, effects = target.decide_change(group, image, settings, change, now_ms=now_ms, is_urgent=is_urgent)
    # A static member that returned unchanged gets its former target: the group does not notice.
    elif succeeded is not None:
        records, effects = [], []
    else:
        # An unchanged member may still end the wait of an outdated target.
        records, effects = target.decide_pending(group, image, settings, now_ms=now_ms)
    pending.records.extend(records)
    pending.effects.extend(effects)
    return target.target_epoch_in(records, group), names


def _decide_step(
    pending: _PendingDecision, group: ConsumerGroup, member: ConsumerMember, goal: reconcile.ReconciliationTarget
) -> facts.CurrentAssignmentSet | None:
    """Decide the member's next current assignment in its reconciliation."""
    owned = _owned(pending.command)
    untaken = revocation_timeout.untaken_after(member, pending.command, now_ms=pending.now_ms)
    step = reconcile.decide_next_assignment(
        member, goal, owned=owned, group_id=group.group_id, untaken=untaken, released=pending.command.released
    )
    state = member.state if step is None else step.state
    # Only members that want more partitions look for those of members that are away.
    if state == facts.MemberState.STABLE or not group.instance_ids:
        return step
    # Partitions that members which are away have to give up are no obstacle.
    released, holders = static.decide_release(group, goal, pending.records)
    if not released:
        return step
    pending.records.extend(released)
    goal = replace(goal, holders=holders)
    return reconcile.decide_next_assignment(
        member, goal, owned=owned, group_id=group.group_id, untaken=untaken, released=pending.command.released
    )


def _merge(group_id: str, member: ConsumerMember, command: ConsumerGroupHeartbeat) -> facts.ConsumerMemberSubscribed:
    """Merge the member's subscription with the changed fields of the heartbeat."""
    # A join replaces all fields.
    names = command.subscribed_topic_names
    regex = command.subscribed_topic_regex
    timeout_ms = command.rebalance_timeout_ms
    is_join = command.member_epoch == JOIN_EPOCH
    # Apache Kafka lets a static member that now subscribes by name continue with the pattern, the rack and the assignor
    # of the process before it.
    if is_join:
        names, regex = names or (), regex or ""
    return facts.ConsumerMemberSubscribed(
        group_id=group_id,
        member_id=member.member_id,
        instance_id=member.instance_id if command.instance_id is None else command.instance_id,
        rack_id=member.rack_id if command.rack_id is None and not is_join else command.rack_id,
        client_id=command.client_id,
        client_host=command.client_host,
        subscribed_topic_names=member.subscribed_topic_names if names is None else tuple(sorted(set(names))),
        subscribed_topic_regex=member.subscribed_topic_regex if regex is None else regex or None,
        rebalance_timeout_ms=member.rebalance_timeout_ms if timeout_ms == -1 else timeout_ms,
        server_assignor=(
            member.server_assignor if command.server_assignor is None and not is_join else command.server_assignor
        ),
        classic=command.classic,
    )


def _is_subscribed_as(member: ConsumerMember, subscribed: facts.ConsumerMemberSubscribed) -> bool:
    return (
        member.instance_id == subscribed.instance_id
        and member.subscribed_topic_names == subscribed.subscribed_topic_names
        and member.subscribed_topic_regex == subscribed.subscribed_topic_regex
        and member.server_assignor == subscribed.server_assignor
        and member.classic == subscribed.classic
        and member.rack_id == subscribed.rack_id
        and member.rebalance_timeout_ms == subscribed.rebalance_timeout_ms
        and member.client_id == subscribed.client_id
        and member.client_host == subscribed.client_host
    )


def _owned(command: ConsumerGroupHeartbeat) -> Partitions | None:
    """Return the partitions that the member lists as owned, without topics that have none."""
    owned = command.topic_partitions
    if owned is None:
        return None
    return {topic_id: partitions for topic_id, partitions in owned.items() if partitions}


def _is_full_request(command: ConsumerGroupHeartbeat) -> bool:
    """Return whether the heartbeat has all fields, which clients send after an error or a lost response."""
    return (
        command.rebalance_timeout_ms != -1
        and (command.subscribed_topic_names is not None or command.subscribed_topic_regex is not None)
        and command.topic_partitions is not None
    )


def _as_partitions(grants: facts.Grants) -> dict[TopicId, tuple[int, ...]]:
    return {topic_id: tuple(sorted(partitions)) for topic_id, partitions in grants.items()}


def _unknown_member(command: ConsumerGroupHeartbeat) -> Refused:
    return Refused(
        ErrorCode.UNKNOWN_MEMBER_ID,
        f"the member {command.member_id} is not in the group {command.group_id}; it has to rejoin",
    )


# New members of a static KIP-848 group, without partitions until the expansion window is over.
#
# Laws: neither the group's epoch nor a member's target changes by such a member. An empty group's first member does not
# wait, and a member that joins while a target is about to be computed is part of it.
# Source: KIP-345's draft (expansion timeout); S1.


def decide_waiting(
    groups: GroupsState, group: ConsumerGroup, settings: GroupSettings, change: MembershipChange, *, now_ms: int
) -> Additions | None:
    """Decide the effects of a new member that has to wait for the expansion window; `None`: no wait."""
    if not settings.is_static or not group.members or group.target_epoch < group.epoch:
        return None
    records, effects = open_window(groups, group.group_id, settings, now_ms=now_ms)
    metadata_hash = target.hash_after(group, groups.image, change)
    if metadata_hash != group.metadata_hash:
        # Otherwise the new member's topics would count as changed topics.
        epoch = facts.ConsumerGroupEpochSet(group_id=group.group_id, epoch=group.epoch, metadata_hash=metadata_hash)
        return [epoch, *records], effects
    return records, effects
