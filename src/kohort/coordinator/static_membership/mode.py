"""Static membership mode for both protocols: joins, offline members, expansion window, change of the mode.

For the protocols' own parts:

- `settings.is_static`: whether a group is static; `is_offline`, `offline_ids`: its offline members.
- `enter` runs before every join, from the command table: it refuses a member without an instance id, makes a group
  without members static where its first member asks for that, and makes a stable one dynamic where
  `group.static.fallback` is `join`.
- `start_offline` runs when a static member of a static group sends epoch -2, its connection closes, or its session
  ends; `heard` when the member is heard of again. Both return additions to the decision. They need not be called for
  members that a decision removes or replaces, nor for members of a KIP-848 group that are heard of:
  `clock_updates.follow_clocks` handles those.
- `open_window` runs when a new member joins a static group with members and without a rebalance: the member gets no
  partitions, and no rebalance begins. `follow_clocks` closes the window with the next rebalance, whatever its cause.
- The deadline `clock_key`: members in `clock.expired` are removed, in one rebalance; else the window may be over, and
  a rebalance admits the waiting members; else `note` goes into the log and the deadline is set anew.
- `check_switch`: before a group becomes static. `build_dynamic`: as it becomes dynamic, and sessions run anew.
  `forces_rebalance`: whether its token has changed.

Laws: nothing here changes a group. An offline member reads no partition, and a rebalance does not wait for it.
Source: KIP-345's draft; requirements S1 to S4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kohort.coordinator.classic.state import ClassicGroupState
from kohort.coordinator.commands import ConsumerGroupHeartbeat, JoinGroup
from kohort.coordinator.configs import effective_settings
from kohort.coordinator.decision import Additions, Arm, Disarm, Effect, TimerKey
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records import types as facts
from kohort.coordinator.records.types import OfflineMemberForgotten
from kohort.coordinator.settings import DYNAMIC, STATIC, GroupSettings
from kohort.coordinator.static_membership.clock import NO_WINDOW, StaticClock
from kohort.errors import ConfigError, ErrorCode, Refused

#: Error for a member without an instance id that joins a static group. With any other code than the first librdkafka
#: repeats the join for ever; the second is the one at which all KIP-848 clients stop, with a message that fits.
NAMELESS_ERRORS: Final = {JoinGroup: ErrorCode.FENCED_INSTANCE_ID, ConsumerGroupHeartbeat: ErrorCode.INVALID_CONFIG}
#: Most members without an instance id that an error names.
MOST_TOLD: Final = 10


class Entrance(NamedTuple):
    """A join's effect on the mode of its group: records to write before it, and the settings for it."""

    records: tuple[facts.Record, ...]
    effects: tuple[Effect, ...]
    settings: GroupSettings


def clock_key(group_id: str) -> TimerKey:
    """Return the timer key of the deadline of a static group's clock."""
    return TimerKey("clock", group_id)


def is_offline(groups: GroupsState, group_id: str, member_id: str) -> bool:
    """Return whether a member of a static group is offline."""
    clock = groups.clocks.get(group_id)
    return clock is not None and member_id in clock.offline


def offline_ids(groups: GroupsState, group_id: str) -> frozenset[str]:
    """Return the ids of the offline members of a static group."""
    clock = groups.clocks.get(group_id)
    return frozenset() if clock is None else frozenset(clock.offline)


def start_offline(
    groups: GroupsState,
    group_id: str,
    member_ids: Mapping[str, int],
    settings: GroupSettings,
    *,
    now_ms: int,
    is_own_word: bool = False,
) -> Additions:
    """Mark members offline since their last signs of life (member id -> time), if they are not already.

    `is_own_word`: the members asked for this themselves (epoch -2), which restarts the time of those already offline.
    """
    clock = groups.clocks.get(group_id)
    after = StaticClock(now_ms) if clock is None else clock.copy()
    added = {
        member_id: heard_ms - after.lost_ms
        for member_id, heard_ms in member_ids.items()
        # A leave is a sign of life: it restarts the offline time of a member that is offline already.
        if is_own_word or member_id not in after.offline
    }
    if not added:
        return [], []
    after.offline.update(added)
    # A group's first offline member starts its clock.
    records: list[facts.Record] = [] if clock is not None else [_build_clock(group_id, after, now_ms=now_ms)]
    records += [
        facts.OfflineMemberSet(group_id=group_id, member_id=member_id, since_ms=since_ms)
        for member_id, since_ms in added.items()
    ]
    return records, [Arm(clock_key(group_id), max(now_ms, after.due_ms(settings)))]


def heard(groups: GroupsState, group_id: str, member_id: str) -> list[facts.Record]:
    """Return the record that marks an offline member as online; none if it is not offline."""
    if not is_offline(groups, group_id, member_id):
        return []
    return [OfflineMemberForgotten(group_id=group_id, member_id=member_id)]


def open_window(groups: GroupsState, group_id: str, settings: GroupSettings, *, now_ms: int) -> Additions:
    """Open the expansion window for a waiting new member, if none is open."""
    clock = groups.clocks.get(group_id)
    # Further new members wait for the same end.
    if clock is not None and clock.has_window:
        return [], []
    after = StaticClock(now_ms) if clock is None else clock.copy()
    # The window counts in the group's own clock, which stands still while the broker does.
    after.window_opened_ms = now_ms - after.lost_ms
    return _note(group_id, after, settings, now_ms=now_ms)


def has_window(groups: GroupsState, group_id: str) -> bool:
    """Return whether new members of the group wait for an expansion window."""
    clock = groups.clocks.get(group_id)
    return clock is not None and clock.has_window


def wait_ms(
    groups: GroupsState, group_id: str, records: Sequence[facts.Record], settings: GroupSettings, *, now_ms: int
) -> int | None:
    """Return the time left of the expansion window after a decision's records, ms; `None`: no window."""
    clock = groups.clocks.get(group_id)
    if clock is not None and clock.has_window:
        return clock.window_ends_ms(settings) - now_ms
    # This decision opens the window itself.
    is_first = any(
        isinstance(record, facts.StaticClockSet) and record.window_opened_ms != NO_WINDOW for record in records
    )
    return settings.group_expansion_timeout_ms if is_first else None


def note(groups: GroupsState, group_id: str, settings: GroupSettings, *, now_ms: int) -> Additions:
    """Write the progress of the group's clock to the log."""
    return _note(group_id, groups.clocks[group_id].copy(), settings, now_ms=now_ms)


def _note(group_id: str, after: StaticClock, settings: GroupSettings, *, now_ms: int) -> Additions:
    after.noted_ms = now_ms
    record = _build_clock(group_id, after, now_ms=now_ms)
    return [record], [Arm(clock_key(group_id), max(now_ms, after.due_ms(settings)))]


def stop_clock(groups: GroupsState, group_id: str) -> Additions:
    """Stop the clock of a group that becomes dynamic."""
    # The group's protocol begins the sessions anew.
    clock = groups.clocks.get(group_id)
    if clock is None:
        return [], []
    records: list[facts.Record] = [
        OfflineMemberForgotten(group_id=group_id, member_id=member_id) for member_id in sorted(clock.offline)
    ]
    return [*records, facts.StaticClockForgotten(group_id=group_id)], [Disarm(clock_key(group_id))]


def build_dynamic(groups: GroupsState, group_id: str, settings: GroupSettings, *, now_ms: int) -> Additions:
    """Make a static group dynamic: stop its clock, and begin the session of every member anew.

    `settings`: settings of the dynamic group. The rebalance, decided elsewhere, admits waiting new members.
    """
    records, effects = stop_clock(groups, group_id)
    consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
    sessions: dict[str, int] = {}
    for member in () if consumer is None else consumer.members.values():
        own = member.classic
        sessions[member.member_id] = (
            settings.group_consumer_session_timeout_ms if own is None else own.session_timeout_ms
        )
    for each in () if classic is None else classic.members.values():
        sessions[each.member_id] = each.session_timeout_ms
    effects += (Arm(TimerKey("session", group_id, who), now_ms + after_ms) for who, after_ms in sessions.items())
    return records, effects


def forces_rebalance(old: GroupSettings, new: GroupSettings) -> bool:
    """Return whether the change from `old` to `new` forces a rebalance."""
    return new.is_static and new.group_rebalance_token != old.group_rebalance_token


def check_switch(groups: GroupsState, group_id: str, old: GroupSettings, new: GroupSettings) -> None:
    """Refuse a static group with members without instance ids, and a forced rebalance of a dynamic one.

    Raises:
        ConfigError: with the ids of those members.
    """
    if new.is_static and not old.is_static:
        nameless = nameless_ids(groups, group_id)
        if nameless:
            told = ", ".join(nameless[:MOST_TOLD]) + (" and others" if nameless[MOST_TOLD:] else "")
            raise ConfigError(
                f"group.membership cannot be static: {len(nameless)} of the group's members have no "
                f"group.instance.id ({told}): give each of them one, or stop them, and set it again"
            )
    elif not new.is_static and new.group_rebalance_token not in ("", old.group_rebalance_token):
        # A token that is set in advance would force a rebalance at an unexpected time.
        raise ConfigError(
            "group.rebalance.token makes a static group rebalance, and this one is dynamic: set "
            "group.membership=static first"
        )


def nameless_ids(groups: GroupsState, group_id: str) -> list[str]:
    """Return the ids of the members without an instance id, ascending."""
    consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
    found = [] if consumer is None else [each.member_id for each in consumer.members.values() if not each.instance_id]
    if classic is not None:
        found += [each.member_id for each in classic.members.values() if not each.instance_id]
    return sorted(found)


def enter(
    groups: GroupsState,
    command: ConsumerGroupHeartbeat | JoinGroup,
    settings: GroupSettings,
    base: GroupSettings,
    *,
    now_ms: int,
) -> Entrance:
    """Decide a join's effect on its group's membership mode, before the join; `base`: broker settings.

    Raises:
        Refused: one of `NAMELESS_ERRORS`; INVALID_REQUEST for timeouts that are out of bounds.
    """
    found = _wished(groups, command, settings, base)
    # Only a join without an instance id may conflict with static mode.
    if command.instance_id is not None or not found.settings.is_static:
        return found
    # During a rebalance the group stays static: its members may be on their way to partitions.
    if found.settings.group_static_fallback == "join" and not found.records and _is_stable(groups, command.group_id):
        made = _configured(groups, command.group_id, {"group.membership": DYNAMIC}, base)
        if isinstance(command, JoinGroup) and command.group_id in groups.classic:
            # The classic group's own decision stops the clock.
            return made
        records, effects = build_dynamic(groups, command.group_id, made.settings, now_ms=now_ms)
        return Entrance((*made.records, *records), tuple(effects), made.settings)
    raise Refused(
        NAMELESS_ERRORS[type(command)],
        f"the group {command.group_id} is static: each of its members needs a group.instance.id of its own, and this "
        "one has none; set one, or make the group dynamic (group.membership=dynamic)",
    )


def _wished(
    groups: GroupsState, command: ConsumerGroupHeartbeat | JoinGroup, settings: GroupSettings, base: GroupSettings
) -> Entrance:
    """Apply the static mode and timeouts that the first member of an empty group requests."""
    wishes = {
        "group.registration.timeout.ms": command.registration_timeout_ms,
        "group.expansion.timeout.ms": command.expansion_timeout_ms,
    }
    wishes = {name: value for name, value in wishes.items() if value != -1}
    # Only the first member of an empty group decides about its mode.
    if not wishes or has_members(groups, command.group_id):
        return Entrance((), (), settings)
    for name, value in wishes.items():
        field = name.removeprefix("group.").replace(".", "_")
        low, high = getattr(base, f"group_min_{field}"), getattr(base, f"group_max_{field}")
        if not low <= value <= high:
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"{field} cannot be {value}: {low} to {high} is expected (the broker's "
                f"{name.replace('group.', 'group.min.')} and {name.replace('group.', 'group.max.')})",
            )
    changes = {"group.membership": STATIC, **{name: str(value) for name, value in wishes.items()}}
    return _configured(groups, command.group_id, changes, base)


def has_members(groups: GroupsState, group_id: str) -> bool:
    """Return whether the group exists and has members."""
    consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
    return bool((consumer is not None and consumer.members) or (classic is not None and classic.members))


def _configured(groups: GroupsState, group_id: str, changes: Mapping[str, str], base: GroupSettings) -> Entrance:
    before = groups.configs.get(group_id, {})
    after = {**before, **changes}
    settings = effective_settings(base, after)
    # The configs are the same: no record is needed.
    if after == before:
        return Entrance((), (), settings)
    return Entrance((facts.GroupConfigsSet(group_id=group_id, configs=after),), (), settings)


def _is_stable(groups: GroupsState, group_id: str) -> bool:
    """Return whether the group is stable: every present member has reconciled its target."""
    consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
    if consumer is not None:
        # Members that are away take no step until they are back.
        is_done = consumer.target_epoch == consumer.epoch
        return is_done and all(consumer.members[each].member_epoch < 0 for each in consumer.behind)
    return classic is None or classic.state is ClassicGroupState.STABLE


def _build_clock(group_id: str, clock: StaticClock, *, now_ms: int) -> facts.StaticClockSet:
    return facts.StaticClockSet(
        group_id=group_id, noted_ms=now_ms, lost_ms=clock.lost_ms, window_opened_ms=clock.window_opened_ms
    )


def without_window(group_id: str, clock: StaticClock) -> facts.StaticClockSet:
    """Build the record of a clock after its expansion window has ended."""
    # The progress is not noted anew: while a group is loaded, the time since the last note is not known yet.
    return facts.StaticClockSet(
        group_id=group_id, noted_ms=clock.noted_ms, lost_ms=clock.lost_ms, window_opened_ms=NO_WINDOW
    )
