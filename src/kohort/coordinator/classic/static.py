"""Return of a static member: the same instance id with a new member id.

Laws: one instance id, one member: the newest one is alive for sure, and the former holder is fenced. While the group is
Stable and the subscription is unchanged, no other member notices, and the new member id is in the log before the
response.
Source: KIP-345 and KIP-814; Apache Kafka's `updateStaticMemberThenRebalanceOrCompleteJoin`, which looks at the name
of the protocol alone and so never hands out topics that a returning member has newly subscribed to (KAFKA-12759).
"""

from __future__ import annotations

from dataclasses import replace

from kohort.coordinator.classic.checks import check_metadata_size
from kohort.coordinator.classic.expansion import is_waiting
from kohort.coordinator.classic.pending_decision import Draft
from kohort.coordinator.classic.rebalance import begin_rebalance, complete_join_if_all_are_here, fence_parked
from kohort.coordinator.classic.replies import build_join_reply
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState, ClassicMember, build_stored
from kohort.coordinator.classic.subscriptions import CONSUMER_PROTOCOL_TYPE, leads_unaware
from kohort.coordinator.classic.volatile import JoinParked, StaticMemberReplaced
from kohort.coordinator.commands.groups import JoinGroup
from kohort.coordinator.embeddedcodec import read_assignment, read_subscription
from kohort.coordinator.records import StaticMemberOusted
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode


def take_over(draft: Draft, command: JoinGroup, settings: GroupSettings, *, holder: str, member: ClassicMember) -> None:
    """Put `member` in the place of `holder`, the former holder of the instance id."""
    before = draft.group
    former = before.members[holder]
    check_metadata_size(before, member, in_place_of=holder)
    # The instance keeps its assignment until the next rebalance.
    member = replace(member, assignment=former.assignment)
    fence_parked(draft, holder, ErrorCode.FENCED_INSTANCE_ID)
    draft.disarm("session", holder)
    draft.record(StaticMemberReplaced(group_id=draft.group_id, replaced_id=holder, member=member))
    # Without this the former process would join again under its instance id.
    if settings.is_static:
        draft.record(StaticMemberOusted(group_id=draft.group_id, member_id=holder))
    draft.arm("session", member.session_timeout_ms, member.member_id)
    group = draft.group
    reason = f"instance {member.instance_id} came back as {member.member_id}"
    match group.state:
        # No later event would show the leader that topics have changed.
        case ClassicGroupState.STABLE if leads_unaware(group, member.member_id, draft.image):
            _park(draft, command, member)
            begin_rebalance(draft, settings, reason=f"{reason}, it leads, and topics have changed")
        case ClassicGroupState.STABLE if is_waiting(draft, member) and group.protocol_name in member.protocol_names:
            # The member has no partitions yet, so no rebalance is needed before the other waiting members get theirs.
            draft.record(build_stored(group))
            _tell_the_generation(draft, command, member)
        case ClassicGroupState.STABLE if _wants_the_same(group, former, member):
            # The new member id is in the log before the response: a restart knows it.
            draft.record(build_stored(group))
            _tell_the_generation(draft, command, member)
        case ClassicGroupState.STABLE:
            _park(draft, command, member)
            begin_rebalance(draft, settings, reason=f"{reason} with another subscription")
        case ClassicGroupState.COMPLETING_REBALANCE if settings.is_static and _is_known_to_want(group, former, member):
            # The leader's assignment to the former id is this member's; if it leads, it gets the member list and
            # assigns.
            draft.reply(command.request, build_join_reply(group, member))
        case ClassicGroupState.COMPLETING_REBALANCE:
            # The leader may be assigning to the former id at this moment (KAFKA-9801).
            _park(draft, command, member)
            begin_rebalance(draft, settings, reason=reason)
        case ClassicGroupState.PREPARING_REBALANCE:
            # The join phase is open anyway, so the member just takes part in it.
            _park(draft, command, member)
            complete_join_if_all_are_here(draft)
        case ClassicGroupState.EMPTY:
            raise AssertionError("nobody holds an instance in an empty group")


def _wants_the_same(group: ClassicGroup, former: ClassicMember, member: ClassicMember) -> bool:
    """Whether the group's present assignment is still right for the returned member."""
    # Another vote needs another generation.
    if group.elect_protocol() != group.protocol_name:
        return False
    before, after = former.metadata(group.protocol_name), member.metadata(group.protocol_name)
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        # Other types' metadata cannot be compared: Kafka looks at the elected protocol only.
        return True
    if _has_to_rejoin(before, former.assignment):
        return False
    if before == after:
        return True
    # The bytes also hold owned partitions and the assignor's user data, which a restart of the member forgets.
    return _topics(before) == _topics(after)


def _is_known_to_want(group: ClassicGroup, former: ClassicMember, member: ClassicMember) -> bool:
    """Whether the leader's coming assignment for the former member is right for this one."""
    if group.elect_protocol() != group.protocol_name:
        return False
    before, after = former.metadata(group.protocol_name), member.metadata(group.protocol_name)
    return before == after or (group.protocol_type == CONSUMER_PROTOCOL_TYPE and _topics(before) == _topics(after))


def _topics(metadata: bytes) -> tuple[str, ...]:
    found = read_subscription(metadata)
    return () if found is None else found.topics


def _has_to_rejoin(metadata: bytes, assignment: bytes) -> bool:
    """Whether the leader took a partition that others get only once the member has rejoined without it.

    Its successor owns no partitions, so no other member will cause that rebalance (KIP-429; Apache Kafka leaves those
    partitions without an owner until another rebalance).
    """
    said, given = read_subscription(metadata), read_assignment(assignment)
    if said is None or given is None:
        # Partitions that it listed and was not given: in a cooperative rebalance the others still wait for them.
        return False
    return any(set(owned) - set(given.partitions.get(topic, ())) for topic, owned in said.owned.items())


def _tell_the_generation(draft: Draft, command: JoinGroup, member: ClassicMember) -> None:
    """Answer the JoinGroup at once with the present generation.

    KIP-814: a leader with version 9 is told to skip the assignment. An older one assigns in vain, since no member asks
    for the assignment; but as the leader it watches for changed topics. Kafka tells such a client that its former id
    leads, and then no member watches (any leader whose JoinGroup is below version 9, as librdkafka's).
    """
    reply = build_join_reply(draft.group, member)
    is_skipping = command.supports_skip_assignment and draft.group.leader == member.member_id
    draft.reply(command.request, replace(reply, skip_assignment=is_skipping))


def _park(draft: Draft, command: JoinGroup, member: ClassicMember) -> None:
    draft.record(JoinParked(group_id=draft.group_id, member_id=member.member_id, request=command.request))
