"""Static members of a classic group: their return, the expansion window, offline members.

Laws: an instance id has one member, the newest that joined with it; the former holder is fenced. If the group is Stable
and the subscription unchanged, that takes no rebalance, and the new member id is in the log before the
response.
Source: KIP-345 and KIP-814; Apache Kafka's `updateStaticMemberThenRebalanceOrCompleteJoin`, which compares only the
protocol's name. So it never assigns topics that a returning member has newly subscribed to (KAFKA-12759).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from kohort.coordinator.classic import rebalance, state, subscriptions, validation
from kohort.coordinator.classic.pending_decision import PendingDecision, build_join_reply
from kohort.coordinator.commands import JoinGroup
from kohort.coordinator.decision import Decision
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records.types import OfflineMemberForgotten, StaticMemberFenced
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership import mode
from kohort.errors import ErrorCode


def take_over(
    pending: PendingDecision, command: JoinGroup, settings: GroupSettings, *, holder: str, member: state.ClassicMember
) -> None:
    """Replace `holder`, the former holder of the instance id, by `member`."""
    before = pending.group
    former = before.members[holder]
    validation.check_metadata_size(before, member, in_place_of=holder)
    # The instance keeps its assignment until the next rebalance.
    member = replace(member, assignment=former.assignment)
    rebalance.fence_delayed(pending, holder, ErrorCode.FENCED_INSTANCE_ID)
    pending.disarm("session", holder)
    pending.record(state.StaticMemberReplaced(group_id=pending.group_id, replaced_id=holder, member=member))
    # Without this the former process would join again under its instance id.
    if settings.is_static:
        pending.record(StaticMemberFenced(group_id=pending.group_id, member_id=holder))
    pending.arm("session", member.session_timeout_ms, member.member_id)
    group = pending.group
    reason = f"instance {member.instance_id} came back as {member.member_id}"
    match group.state:
        # No later event would show the leader that topics have changed.
        case state.ClassicGroupState.STABLE if subscriptions.leads_unaware(group, member.member_id, pending.image):
            _delay_join(pending, command, member)
            rebalance.begin_rebalance(pending, settings, reason=f"{reason}, it leads, and topics have changed")
        case state.ClassicGroupState.STABLE if (
            is_waiting(pending, member) and group.protocol_name in member.protocol_names
        ):
            # The member has no partitions yet, so no rebalance is needed before the other waiting members get theirs.
            pending.record(state.build_stored(group))
            _tell_the_generation(pending, command, member)
        case state.ClassicGroupState.STABLE if _wants_the_same(group, former, member):
            # The new member id is in the log before the response: a restart knows it.
            pending.record(state.build_stored(group))
            _tell_the_generation(pending, command, member)
        case state.ClassicGroupState.STABLE:
            _delay_join(pending, command, member)
            rebalance.begin_rebalance(pending, settings, reason=f"{reason} with another subscription")
        case state.ClassicGroupState.COMPLETING_REBALANCE if settings.is_static and _is_known_to_want(
            group, former, member
        ):
            # The leader's assignment to the former id is this member's; if it leads, it gets the member list and
            # assigns.
            pending.reply(command.request, build_join_reply(group, member))
        case state.ClassicGroupState.COMPLETING_REBALANCE:
            # The leader may be assigning to the former id at this moment (KAFKA-9801).
            _delay_join(pending, command, member)
            rebalance.begin_rebalance(pending, settings, reason=reason)
        case state.ClassicGroupState.PREPARING_REBALANCE:
            # The join phase is open anyway, so the member just takes part in it.
            _delay_join(pending, command, member)
            rebalance.complete_join_if_all_are_here(pending)
        case state.ClassicGroupState.EMPTY:
            raise AssertionError("an empty group has no instance")


def _wants_the_same(group: state.ClassicGroup, former: state.ClassicMember, member: state.ClassicMember) -> bool:
    """Return whether the group's present assignment still fits the returned member."""
    # Another vote needs another generation.
    if group.elect_protocol() != group.protocol_name:
        return False
    before, after = former.metadata(group.protocol_name), member.metadata(group.protocol_name)
    if group.protocol_type != subscriptions.CONSUMER_PROTOCOL_TYPE:
        # Other types' metadata cannot be compared: Kafka looks at the elected protocol only.
        return True
    if _has_to_rejoin(before, former.assignment):
        return False
    if before == after:
        return True
    # The bytes also hold owned partitions and the assignor's user data, which a restart of the member forgets.
    return _topics(before) == _topics(after)


def _is_known_to_want(group: state.ClassicGroup, former: state.ClassicMember, member: state.ClassicMember) -> bool:
    """Return whether the assignment that the leader computes for the former member fits this one."""
    if group.elect_protocol() != group.protocol_name:
        return False
    before, after = former.metadata(group.protocol_name), member.metadata(group.protocol_name)
    return before == after or (
        group.protocol_type == subscriptions.CONSUMER_PROTOCOL_TYPE and _topics(before) == _topics(after)
    )


def _topics(metadata: bytes) -> tuple[str, ...]:
    found = subscriptions.read_subscription(metadata)
    return () if found is None else found.topics


def _has_to_rejoin(metadata: bytes, assignment: bytes) -> bool:
    """Return whether the leader withdrew a partition that the former member has not yet given up."""
    # Its successor owns no partitions, so no other member will cause that rebalance (KIP-429; Apache Kafka leaves those
    # partitions without an owner until another rebalance).
    said, given = subscriptions.read_subscription(metadata), subscriptions.read_assignment(assignment)
    if said is None or given is None:
        # Partitions that it listed and was not given: in a cooperative rebalance the others still wait for them.
        return False
    return any(set(owned) - set(given.partitions.get(topic, ())) for topic, owned in said.owned.items())


def _tell_the_generation(pending: PendingDecision, command: JoinGroup, member: state.ClassicMember) -> None:
    """Respond to the JoinGroup at once with the present generation."""
    # KIP-814: a leader with version 9 is told to skip the assignment. An older one assigns in vain, since no member
    # asks for the assignment; but as the leader it watches for changed topics. Kafka tells such a client that its
    # former id leads, and then no member watches (any leader whose JoinGroup is below version 9, as librdkafka's).
    reply = build_join_reply(pending.group, member)
    is_skipping = command.supports_skip_assignment and pending.group.leader == member.member_id
    pending.reply(command.request, replace(reply, skip_assignment=is_skipping))


def _delay_join(pending: PendingDecision, command: JoinGroup, member: state.ClassicMember) -> None:
    pending.record(state.JoinDelayed(group_id=pending.group_id, member_id=member.member_id, request=command.request))


# New members of a static group with members: they wait for the end of the window, or any rebalance.
#
# A consumer is put into the present generation with an empty assignment, heartbeats like any other member, and rejoins
# when it is told to. Members of other protocol types have pending joins (rebalance.py).
#
# Laws: no member gains or loses a partition by a join while the window is open. A group without any assignment does not
# wait for new members.
# Source: KIP-345's draft (expansion timeout); requirement S1.


def is_window_for(group: state.ClassicGroup, member: state.ClassicMember, settings: GroupSettings) -> bool:
    """Return whether a new member waits for the end of the expansion window, without a rebalance."""
    # A member without an instance id never waits: outside of static mode, each join begins a rebalance.
    if not settings.is_static or member.instance_id is None:
        return False
    if group.state is state.ClassicGroupState.COMPLETING_REBALANCE:
        # An empty group's first assignment waits for no member, and so no member that joins before it waits.
        return any(each.assignment for each in group.members.values())
    return group.state is state.ClassicGroupState.STABLE


def is_waiting(pending: PendingDecision, member: state.ClassicMember) -> bool:
    """Return whether a member waits for the next generation, without partitions in the present one."""
    known = pending.known
    return (
        known is not None
        and member.instance_id is not None
        and mode.has_window(known, pending.group_id)
        and rebalance.has_nothing(pending.group, member)
    )


def receive(pending: PendingDecision, command: JoinGroup, settings: GroupSettings, member: state.ClassicMember) -> None:
    """Let a new member wait for the expansion window, and open the window if there is none."""
    assert pending.known is not None, "a static group has a clock"
    rebalance.fence_pending_join(pending, member)
    # The leader need not know a consumer: an empty assignment can be written for it here.
    if (
        command.protocol_type == subscriptions.CONSUMER_PROTOCOL_TYPE
        and pending.group.protocol_name in member.protocol_names
    ):
        host(pending, command, member)
    else:
        rebalance.add_pending_join(pending, command, member)
    pending.add(*mode.open_window(pending.known, pending.group_id, settings, now_ms=pending.now_ms))


def host(pending: PendingDecision, command: JoinGroup, member: state.ClassicMember) -> None:
    """Add a member to the present generation with an empty assignment, or update it there."""
    group_id, group = pending.group_id, pending.group
    nothing = subscriptions.write_assignment({}, subscription=member.metadata(group.protocol_name))
    member = replace(member, assignment=nothing)
    pending.record(state.MemberPut(group_id=group_id, protocol_type=command.protocol_type, member=member))
    pending.record(state.NewMemberHosted(group_id=group_id, member_id=member.member_id))
    # A restart must know the member; during a rebalance the log keeps the last stored state.
    if group.state is state.ClassicGroupState.STABLE:
        pending.record(state.build_stored(group))
    pending.reply(command.request, build_join_reply(group, member))
    pending.arm("session", member.session_timeout_ms, member.member_id)


def may_stay(pending: PendingDecision, member: state.ClassicMember) -> bool:
    """Return whether a member that waits for the window may keep waiting although its protocols changed."""
    group = pending.group
    return (
        group.state in (state.ClassicGroupState.STABLE, state.ClassicGroupState.COMPLETING_REBALANCE)
        and is_waiting(pending, group.members[member.member_id])
        # A leader that rejoins may know of changed topics: that needs a rebalance.
        and group.leader != member.member_id
        and group.protocol_name in member.protocol_names
    )


def end_window(pending: PendingDecision, settings: GroupSettings) -> None:
    """End the expansion window: begin one rebalance for all waiting members, if there are any."""
    group, known = pending.group, pending.known
    assert known is not None
    waiting = [member.member_id for member in group.members.values() if rebalance.has_nothing(group, member)]
    if group.state is not state.ClassicGroupState.PREPARING_REBALANCE and (
        waiting or rebalance.has_pending_joins(pending)
    ):
        count = len(waiting) + sum(found.request is not None for found in group.pending_joins.values())
        rebalance.begin_rebalance(
            pending, settings, reason=f"the expansion timeout ended, and {count} members have nothing"
        )
        return
    # No member waits any more: the window closes without a rebalance.
    for instance_id in list(group.pending_joins):
        pending.record(state.NewMemberGone(group_id=pending.group_id, instance_id=instance_id))
    pending.record(mode.without_window(pending.group_id, known.clocks[pending.group_id]))


# Offline members of a static classic group: silent for a session, or with a closed connection.
#
# An offline member keeps its place and its partitions until the registration timeout of the earliest one ends. Then it
# and all members that have been offline for as long are removed in one rebalance. A member that is heard of again is
# back, and no partition moves.
#
# Laws: the group does not wait for an offline member. A member with an accepted request is online.
# Source: KIP-345's draft (registration timeout); requirement S1.

#: Most members that the reason of a rebalance names.
MOST_NAMED: Final = 3


def go_offline(pending: PendingDecision, settings: GroupSettings, heard_ms: Mapping[str, int]) -> None:
    """Mark members offline since their last request (`heard_ms`); the rebalance no longer waits for them."""
    assert pending.known is not None, "a static group has a clock"
    group = pending.group
    pending.add(*mode.start_offline(pending.known, pending.group_id, heard_ms, settings, now_ms=pending.now_ms))
    for member_id in heard_ms:
        # From here on the registration timeout counts, not the session.
        pending.disarm("session", member_id)
        if member_id in group.unsynced:
            # The sync phase does not wait for an offline member.
            pending.record(state.SyncReceived(group_id=pending.group_id, member_id=member_id, request=None))
            if not group.unsynced:
                pending.disarm("sync")
    if group.state is state.ClassicGroupState.COMPLETING_REBALANCE and group.leader in heard_ms:
        # Without its leader a generation gets no assignment.
        rebalance.begin_rebalance(pending, settings, reason=f"{group.leader}, the leader, is offline")
    else:
        rebalance.complete_join_if_all_are_here(pending)


def come_back(pending: PendingDecision, member_id: str) -> None:
    """Mark an offline member as online."""
    if pending.is_offline(member_id):
        assert pending.known is not None
        for record in mode.heard(pending.known, pending.group_id, member_id):
            pending.record(record)


def decide_connection_closed(
    group: state.ClassicGroup,
    member_id: str,
    settings: GroupSettings,
    groups: GroupsState,
    *,
    heard_ms: int,
    now_ms: int,
) -> Decision:
    """Mark a static member with a closed connection offline since `heard_ms`; drop its delayed requests.

    A new member whose first JoinGroup is still delayed is removed: it has no partitions to keep.
    """
    pending = PendingDecision(group, group.group_id, now_ms=now_ms, image=groups.image, known=groups)
    if member_id in group.new_members:
        rebalance.remove_member(pending, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        rebalance.go_on_without(pending, settings, reason=f"the connection of the new member {member_id} was closed")
    elif not pending.is_offline(member_id):
        if member_id in group.awaiting_join or member_id in group.awaiting_sync:
            # A member with a delayed request sends nothing meanwhile.
            heard_ms = now_ms
        # The connection of the delayed requests is closed: no response would arrive.
        rebalance.fence_delayed(pending, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
        pending.record(state.ClassicConnectionLost(group_id=group.group_id, member_id=member_id))
        go_offline(pending, settings, {member_id: heard_ms})
    return pending.decision()


def decide_back(
    group: state.ClassicGroup | None,
    member_id: str,
    groups: GroupsState | None,
    decide: Callable[[state.ClassicGroup | None], Decision],
    *,
    now_ms: int,
) -> Decision:
    """Decide a member's request with `decide`; if the request is accepted, mark the member as online."""
    clock = None if group is None or groups is None else groups.clocks.get(group.group_id)
    # The usual case: the member is online.
    if group is None or clock is None or member_id not in clock.offline:
        return decide(group)
    pending = PendingDecision(group, group.group_id, now_ms=now_ms, known=groups)
    come_back(pending, member_id)
    # The request is decided for the group with the member online; a refusal is raised and brings no one back.
    back, decision = pending.decision(), decide(pending.group)
    return Decision((*back.records, *decision.records), (*back.effects, *decision.effects))


def look_at_clock(pending: PendingDecision, settings: GroupSettings) -> None:
    """Act on the deadline of a static group's clock: a registration timeout, the window, or a record."""
    clock = None if pending.known is None else pending.known.clocks.get(pending.group_id)
    if clock is None:
        return
    assert pending.known is not None
    expired = clock.expired(settings, now_ms=pending.now_ms)
    gone = [member_id for member_id in expired if member_id in pending.group.members]
    for member_id in expired:
        if member_id not in pending.group.members:
            # The member had this id in a rebalance that a crash has undone.
            pending.record(OfflineMemberForgotten(group_id=pending.group_id, member_id=member_id))
    for member_id in gone:
        rebalance.remove_member(pending, member_id, ErrorCode.UNKNOWN_MEMBER_ID)
    if gone:
        more = f" and {len(gone) - MOST_NAMED} others" if gone[MOST_NAMED:] else ""
        reason = f"the registration of {', '.join(gone[:MOST_NAMED])}{more} ended"
        rebalance.go_on_without(pending, settings, reason=reason)
    # No registration has ended, so the deadline may be that of the window.
    elif clock.is_window_over(settings, now_ms=pending.now_ms):
        end_window(pending, settings)
    elif not expired:
        # Otherwise only the progress of the clock is due.
        pending.add(*mode.note(pending.known, pending.group_id, settings, now_ms=pending.now_ms))
