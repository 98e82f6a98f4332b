"""JoinGroup: new and returning members, and the rebalances that they start.

Laws: a JoinGroup gets its response at once, or is delayed until the join phase ends, its member is removed, or the same
member sends a newer JoinGroup.
Source: Apache Kafka's `GroupMetadataManager.classicGroupJoin`; KIP-394 (member id required).
"""

from __future__ import annotations

from kohort.coordinator import commands, model, topics
from kohort.coordinator.classic import rebalance, state, static, validation
from kohort.coordinator.classic.pending_decision import PendingDecision, build_join_error, build_join_reply
from kohort.coordinator.decision import Decision
from kohort.coordinator.settings import GroupSettings
from kohort.errors import ErrorCode, Refused


def decide_join(
    group: state.ClassicGroup | None,
    command: commands.JoinGroup,
    settings: GroupSettings,
    *,
    now_ms: int,
    image: topics.TopicImage | None = None,
    groups: model.GroupsState | None = None,
) -> Decision:
    """Admit, re-admit or refuse a member.

    `group`: `None` if it does not exist; a member without an id then creates it. `image`: `None` leaves it to the
    leader to notice changes of topics. `groups`: state with the clocks of static groups.

    Raises:
        Refused: INVALID_SESSION_TIMEOUT, UNKNOWN_MEMBER_ID, FENCED_INSTANCE_ID, INVALID_REQUEST,
            GROUP_MAX_SIZE_REACHED, INCONSISTENT_GROUP_PROTOCOL.
    """
    check_form(command, settings)
    # Only a client without a member id founds a group: one with an id has lost a group that is gone.
    if group is None and command.member_id:
        raise Refused(ErrorCode.UNKNOWN_MEMBER_ID)
    pending = PendingDecision(group, command.group_id, now_ms=now_ms, image=image, known=groups)
    if group is None:
        pending.record(state.ClassicGroupOpened(group_id=command.group_id))
    if not _has_room(pending.group, command, settings):
        return _turn_away(pending, command, settings)
    names = tuple(name for name, _ in command.protocols)
    # A static member that returns replaces its former one, whose protocols do not count any more.
    former = pending.group.instance_ids.get(command.instance_id or "", command.member_id)
    if not pending.group.speaks(command.protocol_type, names, instead_of=former):
        raise Refused(
            ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
            f"the members of {command.group_id} have no protocol in common with {', '.join(names) or 'none'} of type "
            f"{command.protocol_type or 'none'}: give every member at least one that all of them have",
        )
    # KIP-394: a client that gives up before the response leaves no member behind. A static one is known by its instance
    # id.
    if not command.member_id and command.requires_known_member_id and command.instance_id is None:
        _hand_out_id(pending, command)
    elif not command.member_id:
        _admit(pending, command, settings, member_id=command.fresh_member_id)
    # KIP-394: the client joins with the member id that it was handed out.
    elif command.member_id in pending.group.pending:
        _admit(pending, command, settings, member_id=command.member_id)
    else:
        _rejoin(pending, command, settings)
    return pending.decision()


def check_form(command: commands.JoinGroup, settings: GroupSettings) -> None:
    """Refuse a malformed JoinGroup to a group of either type."""
    shortest, longest = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
    if not shortest <= command.session_timeout_ms <= longest:
        raise Refused(
            ErrorCode.INVALID_SESSION_TIMEOUT,
            f"the session timeout is {command.session_timeout_ms} ms, {shortest} to {longest} ms are allowed",
        )
    if command.instance_id == "":
        raise Refused(ErrorCode.INVALID_REQUEST, "an instance id cannot be empty: null means that there is none")
    if len(command.protocols) > validation.PROTOCOLS_LIMIT:
        raise Refused(
            ErrorCode.INVALID_REQUEST,
            f"the member has {len(command.protocols)} protocols, {validation.PROTOCOLS_LIMIT} are allowed",
        )


def _has_room(group: state.ClassicGroup, command: commands.JoinGroup, settings: GroupSettings) -> bool:
    holder = group.instance_ids.get(command.instance_id or "", command.member_id)
    match group.state:
        case state.ClassicGroupState.EMPTY:
            # An empty group has room for a first member.
            return True
        case state.ClassicGroupState.PREPARING_REBALANCE:
            # A waiting member keeps its place: after a lowered limit the last ones to rejoin are refused.
            return holder in group.awaiting_join or len(group.awaiting_join) < settings.group_max_size
        case state.ClassicGroupState.COMPLETING_REBALANCE | state.ClassicGroupState.STABLE:
            # Delayed new members need places in the next generation.
            waiting = len(group.pending_joins) - (command.instance_id in group.pending_joins)
            return holder in group.members or len(group.members) + waiting < settings.group_max_size


def _turn_away(pending: PendingDecision, command: commands.JoinGroup, settings: GroupSettings) -> Decision:
    # A member that is refused must not keep its place, as it does not come back.
    if command.member_id in pending.group.members:
        rebalance.remove_member(pending, command.member_id, ErrorCode.GROUP_MAX_SIZE_REACHED)
        rebalance.go_on_without(pending, settings, reason="a member was turned away because the group is full")
    elif command.member_id in pending.group.pending:
        pending.record(state.PendingMemberRemoved(group_id=command.group_id, member_id=command.member_id))
        pending.disarm("pending", command.member_id)
        rebalance.complete_join_if_all_are_here(pending)
    else:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED)
    pending.reply(command.request, build_join_error(ErrorCode.GROUP_MAX_SIZE_REACHED, ""))
    return pending.decision()


def _hand_out_id(pending: PendingDecision, command: commands.JoinGroup) -> None:
    if len(pending.group.pending) >= validation.PENDING_LIMIT:
        raise Refused(ErrorCode.GROUP_MAX_SIZE_REACHED, "too many members are about to join")
    pending.record(state.MemberIdHandedOut(group_id=command.group_id, member_id=command.fresh_member_id))
    # A member id that is never used expires with the session timeout.
    pending.arm("pending", command.session_timeout_ms, command.fresh_member_id)
    pending.reply(command.request, build_join_error(ErrorCode.MEMBER_ID_REQUIRED, command.fresh_member_id))


def _admit(pending: PendingDecision, command: commands.JoinGroup, settings: GroupSettings, *, member_id: str) -> None:
    assert member_id not in pending.group.members, "a fresh member id is fresh"
    member = _build_member(command, member_id, instance_id=command.instance_id)
    if member_id in pending.group.pending:
        pending.disarm("pending", member_id)
    holder = pending.group.instance_ids.get(command.instance_id or "")
    # KIP-345: the instance id is taken, so this process replaces its holder.
    if holder is not None:
        static.take_over(pending, command, settings, holder=holder, member=member)
        return
    validation.check_metadata_size(pending.group, member)
    if static.is_window_for(pending.group, member, settings):
        static.receive(pending, command, settings, member)
        return
    _delay_join(pending, command, member)
    # A delayed member cannot heartbeat, so its first session is long.
    pending.arm("session", max(validation.NEW_MEMBER_TIMEOUT_MS, command.session_timeout_ms), member_id)
    _rebalance_or_complete(pending, settings, reason=f"member {member_id} joined")


def _rejoin(pending: PendingDecision, command: commands.JoinGroup, settings: GroupSettings) -> None:
    group = pending.group
    member = validation.check_member(group, command.member_id, command.instance_id)
    # A JoinGroup is a sign of life of an offline member.
    static.come_back(pending, member.member_id)
    rejoined = _build_member(command, member.member_id, instance_id=member.instance_id, assignment=member.assignment)
    reason = _reason_to_rebalance(group, member, rejoined)
    if reason is None:
        # The response to the member's last JoinGroup was lost: the generation has not changed, so it is sent once more.
        pending.reply(command.request, build_join_reply(group, member))
        pending.arm("session", member.session_timeout_ms, member.member_id)
        return
    validation.check_metadata_size(group, rejoined)
    if static.may_stay(pending, rejoined):
        static.host(pending, command, rejoined)
        return
    # A client whose connection broke repeats its JoinGroup: only the newer request is answered later.
    older = group.awaiting_join.get(member.member_id)
    if older is not None:
        pending.reply(older, build_join_error(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    _delay_join(pending, command, rejoined)
    _rebalance_or_complete(pending, settings, reason=reason)


def _reason_to_rebalance(
    group: state.ClassicGroup, member: state.ClassicMember, rejoined: state.ClassicMember
) -> str | None:
    """Return why a rejoin starts a rebalance or takes part in one; `None` if it changes nothing."""
    # A member that joins during the join phase takes part in it.
    if group.state is state.ClassicGroupState.PREPARING_REBALANCE:
        return group.rebalance_reason
    if group.state is state.ClassicGroupState.STABLE and group.leader == member.member_id:
        # The leader may know of changes that its metadata does not show, e.g. a topic that has grown.
        return f"leader {member.member_id} rejoined"
    return None if rejoined.protocols == member.protocols else f"member {member.member_id} changed its protocols"


def _delay_join(pending: PendingDecision, command: commands.JoinGroup, member: state.ClassicMember) -> None:
    pending.record(state.MemberPut(group_id=command.group_id, protocol_type=command.protocol_type, member=member))
    pending.record(state.JoinDelayed(group_id=command.group_id, member_id=member.member_id, request=command.request))


def _rebalance_or_complete(pending: PendingDecision, settings: GroupSettings, *, reason: str) -> None:
    if pending.group.state is state.ClassicGroupState.PREPARING_REBALANCE:
        rebalance.complete_join_if_all_are_here(pending)
    else:
        rebalance.begin_rebalance(pending, settings, reason=reason)


def _build_member(
    command: commands.JoinGroup, member_id: str, *, instance_id: str | None, assignment: bytes = b""
) -> state.ClassicMember:
    has_rebalance_timeout = command.rebalance_timeout_ms >= 0  # Version 0 has none of its own.
    return state.ClassicMember(
        member_id=member_id,
        instance_id=instance_id,
        client_id=command.client_id,
        client_host=command.client_host,
        session_timeout_ms=command.session_timeout_ms,
        rebalance_timeout_ms=command.rebalance_timeout_ms if has_rebalance_timeout else command.session_timeout_ms,
        protocols=command.protocols,
        assignment=assignment,
    )
