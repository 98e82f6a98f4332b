"""Triggers by name: the reason of a decision's new epoch, rebalance or removals.

Laws: nothing is decided or changed here; a trigger follows from the state before the decision. A member removed by an
administrator does not count as one that left.
Source: requirements G4 and J1.
"""

from __future__ import annotations

from math import inf
from typing import Final

from kohort.coordinator import commands, configs, model
from kohort.coordinator.classic import state, subscriptions
from kohort.coordinator.commands.admin import AlterGroupConfigs, SubmitMoves
from kohort.coordinator.consumer.moves import BY_ADMINISTRATOR
from kohort.coordinator.decision import Decision, TimerKey
from kohort.coordinator.journal_events.decision_view import LOST, SILENT
from kohort.coordinator.records import types as facts
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership.mode import forces_rebalance

#: Stimulus of a decision: a command, or a passed deadline.
Stimulus = commands.Command | TimerKey

#: Kinds of deadlines in words.
TIMERS: Final = {
    "session": SILENT,
    "rebalance": "rebalance timeout",
    "join": "join timeout",
    "sync": "sync timeout",
    "pending": "member id was not used",
    "initial_delay": "initial delay over",
    "assignment": "assignment due",
    "moves": "moves due",
    "compute": "assignor is late",
    "edition": "published metadata due",
    "hold": "heartbeat held for long enough",
    "clock": "expansion timeout",
}
#: Triggers of an epoch without a change of the group.
STEP: Final = "next step to an even target"
LIFTED: Final = "limit on moves lifted"
OTHER_ASSIGNOR: Final = "group's assignor changed"
ASKED_FOR: Final = "member asked for an assignment"
REMOVED: Final = "removed by an administrator"
#: Triggers of static groups.
REGISTRATION: Final = "registration timeout"
FORCED: Final = "forced by an administrator"
DYNAMIC: Final = "group became dynamic"
#: Config changes that raise an epoch at once, if any.
AT_ONCE: Final = (FORCED, DYNAMIC)
FULL: Final = "group is full"
_GONE: Final = (facts.ConsumerMemberForgotten, state.MemberRemoved)
#: Beginning of the reason that Java's and librdkafka's admin clients send.
_ADMIN_REASON: Final = "member was removed by an admin"


def find_trigger(groups: model.GroupsState, stimulus: Stimulus, group_id: str, decision: Decision) -> str:
    """Return why the group changes, derived from the state and the input of the decision."""
    match stimulus:
        case TimerKey(kind="clock") if any(isinstance(record, _GONE) for record in decision.records):
            return REGISTRATION
        case TimerKey():
            return _of_deadline(groups, stimulus)
        case commands.TopicsChanged():
            return "topics changed"
        # Only a step raises an epoch with its result.
        case commands.TargetComputed() | commands.InstallAssignment():
            return STEP
        case SubmitMoves():
            return BY_ADMINISTRATOR
        case commands.LeaveGroup():
            return REMOVED if is_removal(groups, stimulus) else "member left"
        case AlterGroupConfigs():
            # No other config makes a group rebalance at once.
            return DYNAMIC if "group.membership" in stimulus.changes else FORCED
        case commands.ConsumerGroupHeartbeat():
            return _of_heartbeat(groups, stimulus)
        case commands.JoinGroup():
            # The joining member itself was removed: there was no room for it.
            is_out = any(
                isinstance(record, state.MemberRemoved) and record.member_id == stimulus.member_id
                for record in decision.records
                if record.group_id == group_id
            )
            return FULL if is_out else _of_join(groups, stimulus)
        case _:
            return type(stimulus).__name__


def is_removal(groups: model.GroupsState, command: commands.LeaveGroup) -> bool:
    """Return whether a client other than the leaving member sent the LeaveGroup.

    A classic member sends only its own member id, with its own client id. A member with the consumer protocol never
    sends this request.
    """
    # Only an administrator removes several members at once.
    if len(command.members) != 1:
        return True
    (leaving,) = command.members
    # An administrator names the instance id alone, or sends a reason of its own.
    if not leaving.member_id or (leaving.reason or "").startswith(_ADMIN_REASON):
        return True
    hosted, classic = groups.find_member(command.group_id, leaving.member_id), groups.classic.get(command.group_id)
    if hosted is not None:
        # A consumer-protocol member leaves by heartbeat; a classic one by its own client.
        return hosted.classic is None or command.client_id not in (None, hosted.client_id)
    member = None if classic is None else classic.members.get(leaving.member_id)
    return member is not None and command.client_id not in (None, member.client_id)


def session_timeout_ms(groups: model.GroupsState, key: TimerKey) -> int | None:
    """Return a classic member's own session timeout, in a group of either type; `None`: no such member."""
    classic = groups.classic.get(key.group_id)
    if classic is not None and key.member_id in classic.members:
        return classic.members[key.member_id].session_timeout_ms
    hosted = groups.find_member(key.group_id, key.member_id)
    return None if hosted is None or hosted.classic is None else hosted.classic.session_timeout_ms


def _of_deadline(groups: model.GroupsState, key: TimerKey) -> str:
    member = groups.find_member(key.group_id, key.member_id)
    # A static member keeps its session whatever happens to its connection.
    if key.kind == "session" and member is not None and member.is_disconnected and member.instance_id is None:
        return LOST
    return TIMERS.get(key.kind, key.kind)


def _of_heartbeat(groups: model.GroupsState, command: commands.ConsumerGroupHeartbeat) -> str:
    if command.member_epoch == -2:
        return "static member left for a while"
    if command.member_epoch < 0:
        return "member left"
    group = groups.consumer.get(command.group_id)
    member = None if group is None else group.members.get(command.member_id)
    if member is not None:
        has_other_topics = _names_other_topics(member, command)
        is_same_assignor = command.server_assignor in (None, member.server_assignor)
        # Assignors that are sent again without another change ask for a computation.
        if command.client_assignors is not None and is_same_assignor and not has_other_topics:
            return ASKED_FOR
        return "subscription changed" if is_same_assignor or has_other_topics else "assignor changed"
    # The instance id is taken, so this process replaces its holder.
    is_borne = group is not None and command.instance_id in group.instance_ids
    return "static member returned" if is_borne else "member joined"


def _names_other_topics(member: model.ConsumerMember, command: commands.ConsumerGroupHeartbeat) -> bool:
    names, regex = command.subscribed_topic_names, command.subscribed_topic_regex
    has_other_names = names is not None and tuple(sorted(set(names))) != member.subscribed_topic_names
    return has_other_names or (regex is not None and (regex or None) != member.subscribed_topic_regex)


def _of_join(groups: model.GroupsState, command: commands.JoinGroup) -> str:
    consumer, classic = groups.consumer.get(command.group_id), groups.classic.get(command.group_id)
    before: tuple[tuple[str, bytes], ...] | None = None
    instances: dict[str, str] = {}
    if consumer is not None and consumer.members:
        hosted, instances = consumer.members.get(command.member_id), consumer.instance_ids
        if hosted is not None:
            before = () if hosted.classic is None else hosted.classic.protocols
    elif classic is not None:
        member, instances = classic.members.get(command.member_id), classic.instance_ids
        before = None if member is None else member.protocols
    # Unknown as a member: it joins, or returns under its instance id.
    if before is None:
        return "static member returned" if command.instance_id in instances else "member joined"
    if not before:
        return "member rejoined"
    # Other protocol names mean another assignor.
    if [name for name, _ in before] != [name for name, _ in command.protocols]:
        return "assignor changed"
    old, new = subscriptions.read_subscription(before[0][1]), subscriptions.read_subscription(command.protocols[0][1])
    return "subscription changed" if old and new and old.topics != new.topics else "member rejoined"


def find_step_reason(
    groups: model.GroupsState, record: facts.GroupConfigsSet | facts.GroupConfigsForgotten, base: GroupSettings
) -> str:
    """Return why a change of configs makes partitions move; empty if it does not.

    `base`: settings of groups without own configs.
    """
    before = configs.effective_settings(base, groups.configs.get(record.group_id, {}))
    after = configs.effective_settings(base, record.configs if isinstance(record, facts.GroupConfigsSet) else {})
    # A forced rebalance takes precedence over other effects of the same change.
    if forces_rebalance(before, after):
        return FORCED
    if before.is_static and not after.is_static:
        return DYNAMIC
    if after.group_assignor != before.group_assignor:
        return OTHER_ASSIGNOR
    # A negative limit is none: it counts as larger than any number.
    limits = (settings.group_assignor_max_moves for settings in (before, after))
    moves = [limit if limit >= 0 else inf for limit in limits]
    is_lifted = moves[1] > moves[0] or after.group_assignor_imbalance < before.group_assignor_imbalance
    return LIFTED if is_lifted else ""
