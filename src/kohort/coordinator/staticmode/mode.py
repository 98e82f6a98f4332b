"""Static groups, what both protocols share: who may join, who is offline, when new members are let in, and the switch.

For the protocols' own parts:

- `settings.is_static` says whether a group is static; `is_offline`, `offline_ids` who of its members is away.
- `enter` is asked before every join, by the command table: it refuses who has no name, makes a group without members
  static where its first member wishes so, and makes a stable one dynamic where `group.static.fallback` is `join`.
- `start_offline` when a named member of a static group says -2, its connection closes, or its session ends; `heard`
  when it is heard of again. Both say what to add to the decision. Whoever is forgotten, removed or replaced by a
  decision need not be named, nor who is heard of in a KIP-848 group: `follow.follow_clocks` sees it.
- `open_window` when a new name joins a static group that has members and no rebalance under way: it is a member with
  nothing, and no rebalance begins. `follow_clocks` closes the window with the next rebalance, whatever its cause.
- The deadline `clock_key` means: `clock.expired` go now, in one rebalance; else the window is over, and a rebalance
  takes who waits; else `note` goes into the log and the deadline is set anew.
- `check_switch`: a group becomes static. `build_dynamic`: it becomes dynamic, and sessions run anew.
  `forces_rebalance`: its token is a new one.

Laws: nothing here changes a group. Whoever is offline uses nothing and is waited for by nobody.
Source: KIP-345's draft; requirements S1 to S4.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kohort.coordinator.classic.state import ClassicGroupState
from kohort.coordinator.commands import ConsumerGroupHeartbeat, JoinGroup
from kohort.coordinator.decision import Arm, Disarm, Effect, TimerKey
from kohort.coordinator.groupconfigs import effective_settings
from kohort.coordinator.model import GroupsState
from kohort.coordinator.records import (
    GroupConfigsSet,
    OfflineMemberForgotten,
    OfflineMemberSet,
    Record,
    StaticClockForgotten,
    StaticClockSet,
)
from kohort.coordinator.settings import DYNAMIC, STATIC, GroupSettings
from kohort.coordinator.staticmode.clock import NO_WINDOW, StaticClock
from kohort.errors import ConfigError, ErrorCode, Refused

#: What a member without a name is answered that joins a static group. With any other code than the first librdkafka
#: goes on joining for ever; the second is the one that all clients of that protocol end with in words that fit.
NAMELESS_ERRORS: Final = {JoinGroup: ErrorCode.FENCED_INSTANCE_ID, ConsumerGroupHeartbeat: ErrorCode.INVALID_CONFIG}
#: So many members without a name are told by id.
MOST_TOLD: Final = 10


class Entrance(NamedTuple):
    """What a join does to the mode of its group: what to write before it, by which settings it goes on."""

    records: tuple[Record, ...]
    effects: tuple[Effect, ...]
    settings: GroupSettings


def clock_key(group_id: str) -> TimerKey:
    """The deadline of a static group's clock."""
    return TimerKey("clock", group_id)


def is_offline(groups: GroupsState, group_id: str, member_id: str) -> bool:
    """Whether a member of a static group is offline."""
    clock = groups.clocks.get(group_id)
    return clock is not None and member_id in clock.offline


def offline_ids(groups: GroupsState, group_id: str) -> frozenset[str]:
    """Ids of the members of a static group that are offline."""
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
) -> tuple[list[Record], list[Effect]]:
    """Members are offline from now on, if they are not already.

    Args:
        groups: as they are.
        group_id: of a static group.
        member_ids: member id -> when it was last heard of, coordinator time.
        settings: of the group.
        now_ms: coordinator time.
        is_own_word: they say so themselves: whoever was offline already was heard of by that.
    """
    clock = groups.clocks.get(group_id)
    after = StaticClock(now_ms) if clock is None else clock.copy()
    added = {
        member_id: heard_ms - after.lost_ms
        for member_id, heard_ms in member_ids.items()
        if is_own_word or member_id not in after.offline
    }
    if not added:
        return [], []
    after.offline.update(added)
    records: list[Record] = [] if clock is not None else [_build_clock(group_id, after, now_ms=now_ms)]
    records += [
        OfflineMemberSet(group_id=group_id, member_id=member_id, since_ms=since_ms)
        for member_id, since_ms in added.items()
    ]
    return records, [Arm(clock_key(group_id), max(now_ms, after.due_ms(settings)))]


def heard(groups: GroupsState, group_id: str, member_id: str) -> list[Record]:
    """A member is not offline any more, if it was."""
    if not is_offline(groups, group_id, member_id):
        return []
    return [OfflineMemberForgotten(group_id=group_id, member_id=member_id)]


def open_window(
    groups: GroupsState, group_id: str, settings: GroupSettings, *, now_ms: int
) -> tuple[list[Record], list[Effect]]:
    """A new member waits from now on; the first of them opens the window."""
    clock = groups.clocks.get(group_id)
    if clock is not None and clock.has_window:
        return [], []
    after = StaticClock(now_ms) if clock is None else clock.copy()
    after.window_opened_ms = now_ms - after.lost_ms
    record = _build_clock(group_id, after, now_ms=now_ms)
    after.noted_ms = now_ms
    return [record], [Arm(clock_key(group_id), max(now_ms, after.due_ms(settings)))]


def has_window(groups: GroupsState, group_id: str) -> bool:
    """Whether new members of the group wait."""
    clock = groups.clocks.get(group_id)
    return clock is not None and clock.has_window


def wait_ms(
    groups: GroupsState, group_id: str, records: Sequence[Record], settings: GroupSettings, *, now_ms: int
) -> int | None:
    """How long new members wait once the records of a decision are applied; `None`: none wait."""
    clock = groups.clocks.get(group_id)
    if clock is not None and clock.has_window:
        return clock.window_ends_ms(settings) - now_ms
    is_first = any(isinstance(record, StaticClockSet) and record.window_opened_ms != NO_WINDOW for record in records)
    return settings.group_expansion_timeout_ms if is_first else None


def note(
    groups: GroupsState, group_id: str, settings: GroupSettings, *, now_ms: int
) -> tuple[list[Record], list[Effect]]:
    """Write how far the group's clock has run."""
    after = groups.clocks[group_id].copy()
    record = _build_clock(group_id, after, now_ms=now_ms)
    after.noted_ms = now_ms
    return [record], [Arm(clock_key(group_id), max(now_ms, after.due_ms(settings)))]


def stop_clock(groups: GroupsState, group_id: str) -> tuple[list[Record], list[Effect]]:
    """The group measures nothing any more: it is dynamic. Sessions are for its protocol to begin anew."""
    clock = groups.clocks.get(group_id)
    if clock is None:
        return [], []
    records: list[Record] = [
        OfflineMemberForgotten(group_id=group_id, member_id=member_id) for member_id in sorted(clock.offline)
    ]
    return [*records, StaticClockForgotten(group_id=group_id)], [Disarm(clock_key(group_id))]


def build_dynamic(
    groups: GroupsState, group_id: str, settings: GroupSettings, *, now_ms: int
) -> tuple[list[Record], list[Effect]]:
    """A static group becomes dynamic: its clock stops, and the session of every member runs anew from now.

    `settings`: of the group from now on. Who waited for a share is for the protocol's rebalance.
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
    """Whether the change from `old` to `new` says that the group shall rebalance."""
    return new.is_static and new.group_rebalance_token != old.group_rebalance_token


def check_switch(groups: GroupsState, group_id: str, old: GroupSettings, new: GroupSettings) -> None:
    """Refuse what cannot be: a static group has no members without names, and only a static one is made to rebalance.

    Raises:
        ConfigError: names those members.
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
        raise ConfigError(
            "group.rebalance.token makes a static group rebalance, and this one is dynamic: set "
            "group.membership=static first"
        )


def nameless_ids(groups: GroupsState, group_id: str) -> list[str]:
    """Ids of the members that have no name, ascending."""
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
    """What a join does to the mode of its group, before anything else of it is looked at.

    Args:
        groups: as they are.
        command: a join.
        settings: of the group.
        base: the broker's.
        now_ms: coordinator time.

    Raises:
        Refused: one of `NAMELESS_ERRORS`; INVALID_REQUEST for timeouts that are out of bounds.
    """
    found = _wished(groups, command, settings, base)
    if command.instance_id is not None or not found.settings.is_static:
        return found
    if found.settings.group_static_fallback == "join" and not found.records and _is_stable(groups, command.group_id):
        made = _configured(groups, command.group_id, {"group.membership": DYNAMIC}, base)
        if isinstance(command, JoinGroup) and command.group_id in groups.classic:
            # A classic group's own decision stops the clock.
            return made
        records, effects = build_dynamic(groups, command.group_id, made.settings, now_ms=now_ms)
        return Entrance((*made.records, *records), tuple(effects), made.settings)
    raise Refused(
        NAMELESS_ERRORS[type(command)],
        f"the group {command.group_id} is static: each of its members needs a group.instance.id of its own, and this "
        "one has none; set one, or make the group dynamic (group.membership=dynamic)",
    )


def _wished(
    groups: GroupsState,
    command: ConsumerGroupHeartbeat | JoinGroup,
    settings: GroupSettings,
    base: GroupSettings,
) -> Entrance:
    """The first member of a group that has none says how it shall be."""
    wishes = {
        "group.registration.timeout.ms": command.registration_timeout_ms,
        "group.expansion.timeout.ms": command.expansion_timeout_ms,
    }
    wishes = {name: value for name, value in wishes.items() if value != -1}
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
    """Whether the group is there and has members."""
    consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
    return bool((consumer is not None and consumer.members) or (classic is not None and classic.members))


def _configured(groups: GroupsState, group_id: str, changes: Mapping[str, str], base: GroupSettings) -> Entrance:
    before = groups.configs.get(group_id, {})
    after = {**before, **changes}
    settings = effective_settings(base, after)
    if after == before:
        return Entrance((), (), settings)
    return Entrance((GroupConfigsSet(group_id=group_id, configs=after),), (), settings)


def _is_stable(groups: GroupsState, group_id: str) -> bool:
    """Whether nobody who is there has another step to take."""
    consumer, classic = groups.consumer.get(group_id), groups.classic.get(group_id)
    if consumer is not None:
        is_done = consumer.target_epoch == consumer.epoch
        return is_done and all(consumer.members[each].member_epoch < 0 for each in consumer.behind)
    return classic is None or classic.state is ClassicGroupState.STABLE


def _build_clock(group_id: str, clock: StaticClock, *, now_ms: int) -> StaticClockSet:
    return StaticClockSet(
        group_id=group_id, noted_ms=now_ms, lost_ms=clock.lost_ms, window_opened_ms=clock.window_opened_ms
    )


def without_window(group_id: str, clock: StaticClock) -> StaticClockSet:
    """The clock once the new members have been let in.

    How far it has run is not noted anew: while a group is loaded, the time since the last note is not known yet.
    """
    return StaticClockSet(group_id=group_id, noted_ms=clock.noted_ms, lost_ms=clock.lost_ms, window_opened_ms=NO_WINDOW)
