"""Set, remove and describe configs of single groups, and apply a change to an existing group.

Laws: either all changes of a command are made, or none. Deadlines that depend on a config are re-armed at once.
Source: Apache Kafka 4.3's IncrementalAlterConfigs of groups; G8, H2; KIP-345's draft (mode, forced rebalance).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from kohort.base.options import as_text
from kohort.base.timers import TimerTable
from kohort.coordinator.classic import join, rebalance
from kohort.coordinator.classic.pending_decision import PendingDecision
from kohort.coordinator.classic.state import ClassicGroup, ClassicGroupState
from kohort.coordinator.commands import Done, JoinGroup, admin
from kohort.coordinator.configs import GROUP_CONFIGS, LONGEST_TEXT, configs_in, effective_settings
from kohort.coordinator.consumer.assignment.batching_window import assignment_key, target_due_ms
from kohort.coordinator.consumer.assignment.target import decide_forced
from kohort.coordinator.consumer.reconciliation.move_throttle import change_pace
from kohort.coordinator.decision import Additions, Arm, Decision, Effect, Reply, TimerKey
from kohort.coordinator.liveness import longest_interval_ms, settled_interval_ms
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records.types import GroupConfigsForgotten, GroupConfigsSet, Record
from kohort.coordinator.settings import GroupSettings
from kohort.coordinator.static_membership import mode
from kohort.errors import ConfigError, ErrorCode, Refused, UnknownOptionError

#: Prefixes of Kafka's configs for group types that are not served.
_NOT_OFFERED: Final = ("share.", "streams.", "errors.deadletterqueue.")


def decide_alter(
    groups: GroupsState,
    command: admin.AlterGroupConfigs,
    base: GroupSettings,
    timers: TimerTable[TimerKey],
    *,
    now_ms: int,
) -> Decision:
    """Set and remove configs of one group, all or none, and re-arm the deadlines that depend on them.

    Raises:
        Refused: INVALID_CONFIG.
    """
    group_id = command.group_id
    before = groups.configs.get(group_id, {})
    after = dict(before)
    try:
        for name, text in command.changes.items():
            _change(after, name, text, base)
        _check_pair(after, base)
        old, new = effective_settings(base, before), effective_settings(base, after)
        mode.check_switch(groups, group_id, old, new)
    except ConfigError as why:
        raise Refused(ErrorCode.INVALID_CONFIG, str(why)) from None
    reply = Reply(command.request, Done())
    if command.validate_only or after == before:
        return Decision(effects=(reply,))
    record: Record = GroupConfigsForgotten(group_id=group_id)
    if after:
        record = GroupConfigsSet(group_id=group_id, configs=after)
    group = groups.consumer.get(group_id)
    records, effects = [record], list[Effect]()
    if group is not None:
        effects += _rearm(group, old, new, timers, now_ms=now_ms)
        held_back, armed = change_pace(group, groups.image, old, new, now_ms=now_ms)
        records += held_back
        effects += armed
        more, armed = decide_consumer_mode(groups, group, old, new, now_ms=now_ms)
        records += more
        effects += armed
    classic = groups.classic.get(group_id)
    if classic is not None:
        changed = decide_classic_mode(classic, old, new, groups, now_ms=now_ms)
        records += changed.records
        effects += changed.effects
    return Decision(tuple(records), (reply, *effects))


def decide_describe_configs(groups: GroupsState, command: admin.DescribeGroupConfigs, base: GroupSettings) -> Decision:
    """Describe the configs of a group and the settings that result from them."""
    configs = groups.configs.get(command.group_id, {})
    reply = admin.DescribeGroupConfigsReply(
        configs=dict(configs), effective=configs_in(effective_settings(base, configs)), defaults=configs_in(base)
    )
    return Decision(effects=(Reply(command.request, reply),))


def decide_list_configs(groups: GroupsState, command: admin.ListGroupConfigs) -> Decision:
    """List the groups that have configs of their own."""
    return Decision(
        effects=(Reply(command.request, admin.ListGroupConfigsReply(group_ids=tuple(sorted(groups.configs)))),)
    )


def _change(configs: dict[str, str], name: str, text: str | None, base: GroupSettings) -> None:
    if len(name) > LONGEST_TEXT:
        raise ConfigError(f"unknown group config: no name is longer than {LONGEST_TEXT} characters")
    if name.startswith(_NOT_OFFERED):
        raise ConfigError(f"the group config {name} is not offered: this broker has no share and no streams groups")
    if text is None and name in configs:
        # Also a config of a newer version, which this one does not know.
        del configs[name]
        return
    config = GROUP_CONFIGS.get(name)
    if config is None:
        raise UnknownOptionError(name, GROUP_CONFIGS, what="group config")
    if text is None:
        return
    if len(text) > LONGEST_TEXT:
        raise ConfigError(f"the value of {name} has {len(text)} characters; at most {LONGEST_TEXT} are possible")
    configs[name] = as_text(config.parse(text, base))


def _check_pair(configs: Mapping[str, str], base: GroupSettings) -> None:
    """Check that the session timeout exceeds the heartbeat interval; the broker's value is the default."""
    shown: dict[str, tuple[int, str]] = {}
    for name in ("consumer.heartbeat.interval.ms", "consumer.session.timeout.ms"):
        text = configs.get(name)
        value = getattr(base, GROUP_CONFIGS[name].setting) if text is None else int(text)
        shown[name] = (value, f"{name} ({value}{', as the broker has it' if text is None else ''})")
    (interval_ms, interval), (session_ms, session) = shown.values()
    if interval_ms >= session_ms:
        raise ConfigError(f"{interval} has to be below {session}, or members are fenced between two heartbeats")


def _rearm(
    group: ConsumerGroup, old: GroupSettings, new: GroupSettings, timers: TimerTable[TimerKey], *, now_ms: int
) -> list[Effect]:
    """Return the effects of a change of settings from `old` to `new` on a group's deadlines."""
    effects: list[Effect] = []
    session_ms = new.group_consumer_session_timeout_ms
    is_shorter = session_ms < old.group_consumer_session_timeout_ms
    if session_ms != old.group_consumer_session_timeout_ms:
        # A member knows only when its next heartbeat is due, and learns of the new session timeout then.
        fair_ms = now_ms + session_ms + (longest_interval_ms(old) if is_shorter else 0)
        # Classic members have session timeouts of their own.
        for member in [member for member in group.members.values() if member.classic is None]:
            deadline_ms = timers.deadline(member.session_key)
            if deadline_ms is None:
                continue
            due_ms = fair_ms
            # Static members have no grace.
            if member.is_disconnected and member.instance_id is None and not is_shorter:
                due_ms = min(fair_ms, _grace_ends_ms(deadline_ms, old, new, len(group.members), now_ms=now_ms))
            if due_ms != deadline_ms and (deadline_ms > due_ms) is is_shorter:
                effects.append(Arm(member.session_key, due_ms))
    key = assignment_key(group.group_id)
    deadline_ms = timers.deadline(key)
    if deadline_ms is not None:
        effects.append(Arm(key, min(deadline_ms, max(now_ms, target_due_ms(group, new, now_ms=now_ms)))))
    elif group.members and _balance_wanted(old) != _balance_wanted(new):
        # A better balance may be possible now, a limit may allow more moves, or the assignor is another one.
        effects.append(Arm(key, max(now_ms, target_due_ms(group, new, now_ms=now_ms))))
    return effects


def _grace_ends_ms(deadline_ms: int, old: GroupSettings, new: GroupSettings, members: int, *, now_ms: int) -> int:
    """Return when a disconnected member is removed after its session timeout was made longer."""
    # The end of the shorter session may have cut its grace, and no one knows by how much: the grace ends as late as
    # possible, at most one grace from now.
    if new.group_disconnect_grace_ms < 0:
        return 2**63 - 1
    next_heartbeat_ms = deadline_ms - old.group_consumer_session_timeout_ms + settled_interval_ms(old, members, -1)
    return max(deadline_ms, max(now_ms, next_heartbeat_ms) + new.group_disconnect_grace_ms)


def _balance_wanted(settings: GroupSettings) -> tuple[str, int, int]:
    return settings.group_assignor, settings.group_assignor_max_moves, settings.group_assignor_imbalance


# Effects of changed configs on a classic group: membership mode, forced rebalance, timeouts.
#
# Laws: a change of the mode alone moves no partition; it only admits waiting new members. Instance ids stay.
# Source: KIP-345's draft (enableStaticMembership, enableDynamicMembership, forceRebalance); requirements S3 and S4.


def decide_classic_mode(
    group: ClassicGroup, old: GroupSettings, new: GroupSettings, groups: GroupsState, *, now_ms: int
) -> Decision:
    """Decide the effects of a change of a group's settings from `old` to `new` on its members."""
    pending = PendingDecision(group, group.group_id, now_ms=now_ms, image=groups.image, known=groups)
    _change_classic_mode(pending, old, new, groups)
    return pending.decision()


def decide_fallback(
    group: ClassicGroup, command: JoinGroup, old: GroupSettings, new: GroupSettings, groups: GroupsState, *, now_ms: int
) -> Decision:
    """Decide a join that makes a static group dynamic.

    Raises:
        Refused: as `decide_join` does.
    """
    pending = PendingDecision(group, group.group_id, now_ms=now_ms, image=groups.image, known=groups)
    _change_classic_mode(pending, old, new, groups)
    changed, joined = (
        pending.decision(),
        join.decide_join(pending.group, command, new, now_ms=now_ms, image=groups.image),
    )
    return Decision((*changed.records, *joined.records), (*changed.effects, *joined.effects))


def _change_classic_mode(pending: PendingDecision, old: GroupSettings, new: GroupSettings, groups: GroupsState) -> None:
    group = pending.group
    is_at_work = group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE)
    if old.is_static and not new.is_static:
        had_window = mode.has_window(groups, group.group_id)
        pending.add(*mode.stop_clock(groups, group.group_id))
        for member in group.members.values():
            if member.member_id not in group.new_members:
                # Silence counts from now on: the time before is held against no member.
                pending.arm("session", member.session_timeout_ms, member.member_id)
        if had_window and is_at_work:
            rebalance.begin_rebalance(pending, new, reason="the group is dynamic now, and new members have waited")
        return
    clock = groups.clocks.get(group.group_id)
    if clock is not None:
        pending.add((), [Arm(mode.clock_key(group.group_id), max(pending.now_ms, clock.due_ms(new)))])
    if mode.forces_rebalance(old, new) and is_at_work:
        rebalance.begin_rebalance(
            pending, new, reason=f"an administrator has asked for it ({new.group_rebalance_token})"
        )


# Effects of changed configs on a static KIP-848 group: dynamic mode, timeouts, forced rebalance.
#
# Laws: back in dynamic mode every member keeps its instance id and has its whole session; waiting members get
# partitions.
# Source: KIP-345's draft (enableDynamicMembership, forceRebalance); S3, S4.


def decide_consumer_mode(
    groups: GroupsState, group: ConsumerGroup, old: GroupSettings, new: GroupSettings, *, now_ms: int
) -> Additions:
    """Decide the effects of a change from `old` to `new` settings on offline and waiting members."""
    group_id, clock = group.group_id, groups.clocks.get(group.group_id)
    records: list[Record] = []
    effects: list[Effect] = []
    is_left = old.is_static and not new.is_static
    if is_left:
        records, effects = mode.build_dynamic(groups, group_id, new, now_ms=now_ms)
    elif clock is not None:
        effects.append(Arm(mode.clock_key(group_id), max(now_ms, clock.due_ms(new))))
    if group.members and (mode.forces_rebalance(old, new) or (is_left and mode.has_window(groups, group_id))):
        more, armed = decide_forced(group, groups.image, new, now_ms=now_ms)
        records, effects = records + more, effects + armed
    return records, effects
