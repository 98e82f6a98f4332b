"""The two phases of a classic rebalance: all members join, then all members sync.

Laws: a phase that ends sends the responses of its delayed requests, and re-arms the sessions of their members. Its
timer ends it at the latest, and removes members that did not take part.
Source: Apache Kafka's `GroupMetadataManager` (prepareRebalance, completeClassicGroupJoin); KIP-62.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final

from kohort.coordinator import commands
from kohort.coordinator.classic import pending_decision, state, subscriptions
from kohort.coordinator.classic.validation import GROUP_METADATA_LIMIT_BYTES, NEW_MEMBER_TIMEOUT_MS, PENDING_LIMIT
from kohort.coordinator.decision import Disarm, Effect, Reply, TimerKey
from kohort.coordinator.records.types import ClassicGroupStored, ClassicRebalanceDone, ClassicRebalanceDue
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode, Refused


def begin_rebalance(
    pending: pending_decision.PendingDecision, settings: GroupSettings, *, reason: str, is_loading: bool = False
) -> None:
    """Begin the join phase; in an empty group, with `group.initial.rebalance.delay.ms`.

    `is_loading`: write no record, because another restart begins the same rebalance from the same log.
    """
    group = pending.group
    is_initial = group.state is state.ClassicGroupState.EMPTY
    if group.state is state.ClassicGroupState.COMPLETING_REBALANCE:
        # The assignment of the interrupted generation will not come.
        answer_syncs(pending, ErrorCode.REBALANCE_IN_PROGRESS)
    pending.disarm("sync")
    if settings.is_static and not is_initial and not is_loading:
        # In static mode a restart has to begin the rebalance again, for the same reason.
        note_due(pending, reason)
    delay_ms = settings.group_initial_rebalance_delay_ms if is_initial else 0
    pending.record(
        state.RebalanceBegun(
            group_id=pending.group_id,
            reason=reason,
            initial_remaining_ms=max(group.rebalance_timeout_ms - delay_ms, 0) if delay_ms > 0 else None,
            timestamp_ms=pending.now_ms,
        )
    )
    # The join phase admits the new members that waited outside of the group.
    admit_pending_joins(pending)
    if delay_ms > 0:
        pending.arm("initial_delay", delay_ms)
    elif is_initial:
        # Without a delay the phase waits for no member, not even for ids that were handed out: they join the next
        # round.
        complete_join(pending)
    else:
        pending.arm("join", group.rebalance_timeout_ms)
        complete_join_if_all_are_here(pending)


def extend_or_complete_initial_delay(pending: pending_decision.PendingDecision, settings: GroupSettings) -> None:
    """End the initial delay, or extend it if a member joined during it and time is left."""
    remaining_ms = pending.group.initial_remaining_ms
    # Kafka: each further member extends the delay, up to the rebalance timeout in total.
    if pending.group.new_member_added and remaining_ms:
        delay_ms = min(settings.group_initial_rebalance_delay_ms, remaining_ms)
        pending.record(
            state.InitialDelayExtended(group_id=pending.group_id, initial_remaining_ms=remaining_ms - delay_ms)
        )
        pending.arm("initial_delay", delay_ms)
    else:
        complete_join(pending)


def complete_join_if_all_are_here(pending: pending_decision.PendingDecision) -> None:
    """End the join phase once all members have joined; an initial delay always runs to its end."""
    group = pending.group
    if group.state is not state.ClassicGroupState.PREPARING_REBALANCE or group.initial_remaining_ms is not None:
        return
    # Members that are offline take part in their absence.
    awaited = len(group.members) - len(pending.offline)
    # KIP-394: a member id that was handed out is about to join.
    if not group.members or (len(group.awaiting_join) == awaited and not group.pending):
        complete_join(pending)


def complete_join(pending: pending_decision.PendingDecision) -> None:
    """End the join phase: remove dynamic members that did not join, and begin the next generation."""
    group = pending.group
    missing = [member for member_id, member in group.members.items() if member_id not in group.awaiting_join]
    for member in missing:
        # Only its session removes a static member.
        if member.instance_id is None:
            remove_member(pending, member.member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    # Only static members are missing: without a leader there is no generation, and the phase goes on.
    if group.members and not group.awaiting_join:
        pending.arm("join", group.rebalance_timeout_ms)
        return
    pending.disarm("join")
    pending.disarm("initial_delay")
    if not group.members:
        # The last member is gone: the group is stored as empty.
        pending.record(_build_empty(group, now_ms=pending.now_ms))
        note_done(pending)
        return
    enter_offline_members(pending)
    answered = dict(group.awaiting_join)
    # As in Kafka, the leader stays if it has joined.
    leader = group.leader if group.leader in answered else next(iter(answered))
    assert leader is not None
    pending.record(
        state.GenerationBegun(
            group_id=pending.group_id,
            generation=group.generation + 1,
            protocol_name=group.elect_protocol(),
            leader=leader,
            timestamp_ms=pending.now_ms,
        )
    )
    for member_id, request in answered.items():
        member = group.members[member_id]
        pending.reply(request, pending_decision.build_join_reply(group, member))
        # A delayed JoinGroup held the session; from the response on it counts again.
        pending.arm("session", member.session_timeout_ms, member_id)
    # All members have to send SyncGroup in time, the leader with the assignment.
    pending.arm("sync", group.rebalance_timeout_ms)


def answer_syncs(pending: pending_decision.PendingDecision, error: ErrorCode = ErrorCode.NONE) -> None:
    """Respond to every delayed SyncGroup, with the member's assignment or with `error`."""
    group = pending.group
    if not group.awaiting_sync:
        return
    for member_id, request in group.awaiting_sync.items():
        member = group.members[member_id]
        pending.reply(
            request,
            pending_decision.build_sync_error(error) if error else pending_decision.build_sync_reply(group, member),
        )
        # A session that ended while its request was delayed was not held against the member; from here on it counts
        # again.
        pending.arm("session", member.session_timeout_ms, member_id)
    pending.record(state.SyncsAnswered(group_id=pending.group_id))


def remove_member(pending: pending_decision.PendingDecision, member_id: str, error: ErrorCode) -> None:
    """Remove a member and respond to its delayed requests with `error`."""
    fence_delayed(pending, member_id, error)
    pending.record(state.MemberRemoved(group_id=pending.group_id, member_id=member_id))
    pending.disarm("session", member_id)


def fence_delayed(pending: pending_decision.PendingDecision, member_id: str, error: ErrorCode) -> None:
    """Respond to a member's delayed requests with `error`; the caller's record removes them from the group."""
    group = pending.group
    join = group.awaiting_join.get(member_id)
    if join is not None:
        pending.reply(join, pending_decision.build_join_error(error, member_id))
    sync = group.awaiting_sync.get(member_id)
    if sync is not None:
        pending.reply(sync, pending_decision.build_sync_error(error))


def go_on_without(pending: pending_decision.PendingDecision, settings: GroupSettings, *, reason: str) -> None:
    """Begin a rebalance after members were removed, or end an open join phase that waited for them."""
    match pending.group.state:
        case state.ClassicGroupState.STABLE | state.ClassicGroupState.COMPLETING_REBALANCE:
            begin_rebalance(pending, settings, reason=reason)
        case state.ClassicGroupState.PREPARING_REBALANCE:
            if settings.is_static:
                note_due(pending, pending.group.rebalance_reason)
            complete_join_if_all_are_here(pending)
        case state.ClassicGroupState.EMPTY:
            pass


def _build_empty(group: state.ClassicGroup, *, now_ms: int) -> ClassicGroupStored:
    return ClassicGroupStored(
        group_id=group.group_id,
        protocol_type=group.protocol_type or "",
        generation=group.generation + 1,
        protocol_name=None,
        leader=None,
        state_timestamp_ms=now_ms,
        members=(),
    )


# New members pending outside of a static group until its next rebalance.
#
# These are members of other protocol types than "consumer", for which only their leader could write an empty
# assignment, and members that do not support the generation's protocol. A JoinGroup is delayed for as long as all
# clients allow. Then it is refused with a code by which clients take the coordinator for not ready yet, and repeat the
# request.
#
# Laws: a client with a pending join is no member. The next rebalance admits all of them.
# Source: requirement S1; the time that clients give a JoinGroup (aiokafka: 40 s).

#: How long a JoinGroup is delayed, ms.
PENDING_JOIN_MS: Final = 25_000
#: A refused client that has not repeated its request after this time, ms, has given up.
RETURNS_WITHIN_MS: Final = 25_000
#: Error for a coordinator that is loading: the Java client, librdkafka, kafka-python and aiokafka all repeat the
#: request.
SENT_BACK: Final = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def add_pending_join(
    pending: pending_decision.PendingDecision, command: commands.JoinGroup, member: state.ClassicMember
) -> None:
    """Delay the JoinGroup of a new member until the next rebalance."""
    group = pending.group
    waiting_bytes = sum(each.member.metadata_bytes for each in group.pending_joins.values()) + member.metadata_bytes
    # Delayed metadata counts as well, since the next rebalance adds it to the group.
    if len(group.pending_joins) >= PENDING_LIMIT or group.metadata_bytes + waiting_bytes > GROUP_METADATA_LIMIT_BYTES:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "too many members wait for the group's next rebalance")
    pending_join = state.PendingJoin(
        member=member, protocol_type=command.protocol_type, request=command.request, since_ms=pending.now_ms
    )
    pending.record(state.NewMemberPending(group_id=pending.group_id, pending_join=pending_join))
    pending.arm("join", PENDING_JOIN_MS, member.member_id)


def fence_pending_join(pending: pending_decision.PendingDecision, member: state.ClassicMember) -> None:
    """Refuse an older delayed JoinGroup with the same instance id: the newer member replaces it."""
    assert member.instance_id is not None
    older = pending.group.pending_joins.get(member.instance_id)
    # The same instance id is delayed already: two processes have it, and the newer one counts.
    if older is not None:
        _answer(pending, older, ErrorCode.FENCED_INSTANCE_ID)
        pending.record(state.NewMemberGone(group_id=pending.group_id, instance_id=member.instance_id))


def send_back(pending: pending_decision.PendingDecision, member_id: str) -> None:
    """Refuse a JoinGroup at the end of its delay, before the client times out, so that it is repeated."""
    for found in pending.group.pending_joins.values():
        if found.member.member_id == member_id and found.request is not None:
            pending.reply(found.request, pending_decision.build_join_error(SENT_BACK, ""))
            # The entry stays, so that the client's next JoinGroup finds its place.
            sent = replace(found, request=None, since_ms=pending.now_ms)
            pending.record(state.NewMemberPending(group_id=pending.group_id, pending_join=sent))
            return


def has_pending_joins(pending: pending_decision.PendingDecision) -> bool:
    """Return whether a pending JoinGroup is delayed, or was refused so recently that it will be repeated."""
    return any(
        found.request is not None or 0 <= pending.now_ms - found.since_ms < RETURNS_WITHIN_MS
        for found in pending.group.pending_joins.values()
    )


def admit_pending_joins(pending: pending_decision.PendingDecision) -> None:
    """Admit all pending JoinGroups to the open join phase; clients that were refused join it later."""
    for instance_id, found in list(pending.group.pending_joins.items()):
        pending.record(state.NewMemberGone(group_id=pending.group_id, instance_id=instance_id))
        # The client was refused and has not come back yet: it joins the open phase by itself.
        if found.request is None:
            continue
        member = found.member
        pending.disarm("join", member.member_id)
        if not pending.group.speaks(found.protocol_type, member.protocol_names):
            # Members with other protocols may have joined since.
            pending.reply(found.request, pending_decision.build_join_error(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, ""))
            continue
        put = state.MemberPut(group_id=pending.group_id, protocol_type=found.protocol_type, member=member)
        pending.record(put)
        pending.record(state.JoinDelayed(group_id=pending.group_id, member_id=member.member_id, request=found.request))
        # A delayed member cannot heartbeat, so its first session is long.
        pending.arm("session", max(NEW_MEMBER_TIMEOUT_MS, member.session_timeout_ms), member.member_id)


def dismiss_pending_joins(group: state.ClassicGroup) -> list[Effect]:
    """Refuse all pending JoinGroups because the group becomes a KIP-848 group; clients repeat them."""
    effects: list[Effect] = []
    for found in group.pending_joins.values():
        effects.append(Disarm(TimerKey("join", group.group_id, found.member.member_id)))
        if found.request is not None:
            effects.append(Reply(found.request, pending_decision.build_join_error(SENT_BACK, "")))
    return effects


def _answer(pending: pending_decision.PendingDecision, found: state.PendingJoin, error: ErrorCode) -> None:
    if found.request is not None:
        pending.disarm("join", found.member.member_id)
        pending.reply(found.request, pending_decision.build_join_error(error, ""))


# Record of an open rebalance of a static group, by which a restart begins it again.
#
# In a dynamic group the session timeout removes a member again that was removed before a restart. In a static group
# that would take the registration timeout, and new members would wait for a window that is closed.
#
# Laws: the record is in the log from the beginning of the rebalance until its result is written.
# Source: requirement S1.


def note_due(pending: pending_decision.PendingDecision, reason: str) -> None:
    """Record the open rebalance: its reason, and the members of the stored group that were removed."""
    group = pending.group
    stored = () if group.stored is None else group.stored.members
    removed = tuple(
        member.member_id
        for member in stored
        if member.member_id not in group.members
        and (member.instance_id is None or member.instance_id not in group.instance_ids)
    )
    due = ClassicRebalanceDue(group_id=pending.group_id, reason=reason, removed=removed)
    if due != group.due:
        pending.record(due)


def note_done(pending: pending_decision.PendingDecision) -> None:
    """Remove the record of the open rebalance, because its result is written."""
    if pending.group.due is not None:
        pending.record(ClassicRebalanceDone(group_id=pending.group_id))


# Offline members of a static group in a rebalance, which take part in their absence.
#
# The rebalance does not wait for them. The leader gets their last subscriptions, as if each had joined again with its
# partitions, so that an assignor that moves little leaves the partitions with them. A cooperative leader that takes a
# partition from an offline member gives it to another only after the member has rejoined without it. An offline member
# cannot rejoin: so the group rebalances once more, at once.
#
# Laws: the metadata of present members is never touched.
# Source: KIP-345's draft (an offline member keeps its place); KIP-429 (two rebalances for what moves), KIP-792.


def enter_offline_members(pending: pending_decision.PendingDecision) -> None:
    """Add owned partitions to the subscriptions of offline members, which cannot send them themselves."""
    group = pending.group
    if group.protocol_type != subscriptions.CONSUMER_PROTOCOL_TYPE:
        return
    for member in pending.offline:
        held = subscriptions.read_assignment(member.assignment)
        if held is None:
            continue
        protocols = tuple(
            (name, subscriptions.with_owned(metadata, held.partitions, generation=group.generation))
            for name, metadata in member.protocols
        )
        if protocols != member.protocols:
            entered = replace(member, protocols=protocols)
            pending.record(state.OfflineMemberEntered(group_id=pending.group_id, member=entered))


def find_withheld(pending: pending_decision.PendingDecision, handed_on: Mapping[str, state.FormerMember]) -> str | None:
    """Return a member that cannot give up partitions that the leader reassigns; `None`: none.

    It is offline, or was replaced. `handed_on`: as in `ClassicGroup` before the leader has assigned.
    """
    group = pending.group
    if group.protocol_type != subscriptions.CONSUMER_PROTOCOL_TYPE:
        return None
    told = [(member, member.metadata(group.protocol_name)) for member in pending.offline]
    told += [
        (group.members[member_id], former.metadata)
        for member_id, former in handed_on.items()
        if member_id in group.members
    ]
    if not told:
        return None
    given = _owned_by(group.members.values())
    for member, metadata in told:
        said = subscriptions.read_subscription(metadata)
        if said is None:
            continue
        owned = {(topic, number) for topic, numbers in said.owned.items() for number in numbers}
        if _is_withheld(owned - _owned_by((member,)), given, pending):
            return member.member_id
    return None


def has_nothing(group: state.ClassicGroup, member: state.ClassicMember) -> bool:
    """Return whether a consumer has no assigned partition."""
    if group.protocol_type != subscriptions.CONSUMER_PROTOCOL_TYPE:
        return False
    found = subscriptions.read_assignment(member.assignment)
    return found is not None and not any(found.partitions.values())


def _owned_by(members: Iterable[state.ClassicMember]) -> set[tuple[str, int]]:
    owned: set[tuple[str, int]] = set()
    for member in members:
        found = subscriptions.read_assignment(member.assignment)
        if found is not None:
            owned.update((topic, number) for topic, numbers in found.partitions.items() for number in numbers)
    return owned


def _is_withheld(
    lost: set[tuple[str, int]], given: set[tuple[str, int]], pending: pending_decision.PendingDecision
) -> bool:
    """Return whether an existing partition in `lost` has no owner in `given`."""
    image = pending.image
    if image is None or not image.version:
        return bool(lost - given)
    by_name = image.by_name
    return any(topic in by_name and number < by_name[topic].partition_count for topic, number in lost - given)
