"""Configs of single groups: what may be set, and what the limits of a group come to.

A group has the broker's settings, but for what was set for it by name. Configs may be set before the group exists and
outlive it, as in Apache Kafka: deleting a group leaves them.

Laws: a value lies within the broker's bounds when it is set. One that was stored under other bounds counts as the
nearest that is allowed, and one that this version does not know is kept and not used: a start never fails for it.
Source: Apache Kafka 4.3's group configs (KIP-848, KIP-1263); G8, H2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final

from kohort.config import Option, as_text, parse_bool, parse_float, parse_int, parse_str
from kohort.coordinator.commands import (
    AlterGroupConfigs,
    DescribeGroupConfigs,
    DescribeGroupConfigsReply,
    Done,
    ListGroupConfigs,
    ListGroupConfigsReply,
)
from kohort.coordinator.consumer.reconciliation.pace import change_pace
from kohort.coordinator.consumer.targets.window import assignment_key, target_due_ms
from kohort.coordinator.decision import Arm, Decision, Effect, Reply, TimerKey
from kohort.coordinator.liveness import longest_interval_ms, settled_interval_ms
from kohort.coordinator.model import ConsumerGroup, GroupsState
from kohort.coordinator.records import GroupConfigsForgotten, GroupConfigsSet, Record
from kohort.coordinator.settings import MOST_MOVES_AT_ONCE, MOST_MOVES_PER_SECOND, MOVE_ORDERS, GroupSettings
from kohort.errors import ConfigError, ErrorCode, Refused, UnknownOptionError
from kohort.timers import TimerTable

_INT32_MAX: Final = 2**31 - 1
#: No name and no value of a config is longer.
LONGEST_TEXT: Final = 249
#: Kafka's configs of kinds of groups that are not served.
_NOT_OFFERED: Final = ("share.", "streams.", "errors.deadletterqueue.")


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupConfig:
    """One config: `setting` is the field of `GroupSettings` that it replaces, `low` and `high` its bounds.

    A bound is a number, or the field of the broker's setting that says it. `choices`: what a text may be, or the
    field that says it.
    """

    option: Option
    setting: str
    low: int | str = 0
    high: int | str = _INT32_MAX
    choices: tuple[str, ...] | str = ()

    @property
    def broker_option(self) -> str:
        """The broker's option that every group follows which has no config of its own."""
        return self.setting.replace("_", ".")

    def bounds(self, settings: GroupSettings) -> tuple[int, int]:
        """The least and the greatest number that is allowed."""
        low, high = (getattr(settings, bound) if isinstance(bound, str) else bound for bound in (self.low, self.high))
        return low, high

    def chosen_from(self, settings: GroupSettings) -> tuple[str, ...]:
        """What a text may be."""
        found: tuple[str, ...] = getattr(settings, self.choices) if isinstance(self.choices, str) else self.choices
        return found

    def parse(self, text: str, settings: GroupSettings) -> float | bool | str:
        """The value of `text`; `ConfigError` tells what is allowed and which options of the broker say so."""
        value: float | bool | str = self.option.check(text)
        if isinstance(value, str):
            choices = self.chosen_from(settings)
            if value in choices:
                return value
            expected = ", ".join(filter(None, choices))
            raise ConfigError(f"{self.option.name} cannot be {value}: one of {expected} is expected")
        low, high = self.bounds(settings)
        if isinstance(value, bool) or low <= value <= high:
            return value
        names = [bound.replace("_", ".") for bound in (self.low, self.high) if isinstance(bound, str)]
        source = f" (the broker's {' and '.join(names)})" if names else ""
        raise ConfigError(f"{self.option.name} cannot be {value}: {low} to {high} is expected{source}")


def _of_consumers(name: str, doc: str) -> GroupConfig:
    """One of Kafka's configs, whose bounds are the broker's options with min and max in their names."""
    what = name.replace(".", "_")
    return GroupConfig(
        option=Option(name=f"consumer.{name}", parse=parse_int, default=None, doc=doc),
        setting=f"group_consumer_{what}",
        low=f"group_consumer_min_{what}",
        high=f"group_consumer_max_{what}",
    )


def _of_ours(
    name: str,
    doc: str,
    *,
    parse: Callable[[object], Any] = parse_int,
    low: int = 0,
    high: int = _INT32_MAX,
    choices: tuple[str, ...] | str = (),
) -> GroupConfig:
    """A config that Kafka does not have; the broker's option has the same name."""
    option = Option(name=name, parse=parse, default=None, doc=doc)
    return GroupConfig(option=option, setting=name.replace(".", "_"), low=low, high=high, choices=choices)


_ALL: Final = (
    _of_consumers("session.timeout.ms", "Silence after which a KIP-848 member of the group is fenced."),
    _of_consumers("heartbeat.interval.ms", "How often a KIP-848 member of the group is told to heartbeat."),
    _of_consumers("assignment.interval.ms", "Shortest time between two computations of the group's target."),
    GroupConfig(
        option=Option(
            name="consumer.assignor.offload.enable",
            parse=parse_bool,
            default=None,
            doc="Whether an assignor of your own runs beside the coordinator's loop; built-in ones always run in it.",
        ),
        setting="group_consumer_assignor_offload_enable",
    ),
    _of_ours(
        "group.disconnect.grace.ms",
        "How long a member lives on whose connection closed without a word, from its next heartbeat on; -1: "
        "its session decides.",
        low=-1,
    ),
    _of_ours(
        "group.assignor",
        "The assignor of the group, whatever its members name: one of the broker's group.consumer.assignors; "
        "empty: what most of them name.",
        parse=parse_str,
        choices="assignor_choices",
    ),
    _of_ours(
        "group.assignor.max.moves",
        "Most partitions that one assignment moves from a living owner to another; -1: as many as balance needs.",
        low=-1,
    ),
    _of_ours("group.assignor.imbalance", "By how many partitions beyond one members may differ before any is moved."),
    _of_ours(
        "group.moves.per.second",
        "Most partitions that begin to move from member to member in a second; 0: all at once.",
        parse=parse_float,
        high=MOST_MOVES_PER_SECOND,
    ),
    _of_ours(
        "group.moves.burst",
        "How many of them may begin together after a time without any.",
        low=1,
        high=MOST_MOVES_AT_ONCE,
    ),
    _of_ours(
        "group.moves.paused",
        "Whether none of them begins; what nobody owns is given out all the same.",
        parse=parse_bool,
    ),
    _of_ours(
        "group.moves.order",
        "Which of those that wait begins next: name: by topic and partition; lag: that with most records that the "
        "group has not committed; size: that with most bytes.",
        parse=parse_str,
        choices=MOVE_ORDERS,
    ),
    _of_ours("group.initial.rebalance.delay.ms", "How long the group, empty and classic, waits for more members."),
)
#: Config -> what it is; the order is that of the documentation.
GROUP_CONFIGS: Final[dict[str, GroupConfig]] = {config.option.name: config for config in _ALL}


def effective_settings(base: GroupSettings, configs: Mapping[str, str]) -> GroupSettings:
    """The settings of a group that has `configs` of its own; what cannot be taken as it stands is made to fit."""
    values: dict[str, float | bool] = {}
    texts: dict[str, str] = {}
    for name, text in configs.items():
        config = GROUP_CONFIGS.get(name)
        if config is None:
            continue
        try:
            value: float | bool | str = config.option.check(text)
        except ConfigError:
            continue
        if isinstance(value, str):
            # One that the broker no longer offers counts as none.
            if value in config.chosen_from(base):
                texts[config.setting] = value
            continue
        low, high = config.bounds(base)
        values[config.setting] = value if isinstance(value, bool) else min(max(value, low), high)
    session_ms = values.get("group_consumer_session_timeout_ms", base.group_consumer_session_timeout_ms)
    interval_ms = values.get("group_consumer_heartbeat_interval_ms", base.group_consumer_heartbeat_interval_ms)
    if interval_ms >= session_ms:
        # The broker's own values were changed since: the session is what was promised.
        values["group_consumer_heartbeat_interval_ms"] = session_ms // 2
        values["group_consumer_min_heartbeat_interval_ms"] = min(
            session_ms // 2, base.group_consumer_min_heartbeat_interval_ms
        )
    # The type checker cannot match names made at run time to the fields' types.
    return replace(base, **values, **texts)  # type: ignore[arg-type]


def decide_alter(
    groups: GroupsState,
    command: AlterGroupConfigs,
    base: GroupSettings,
    timers: TimerTable[TimerKey],
    *,
    now_ms: int,
) -> Decision:
    """Set and take back configs of one group, all or none; deadlines that they concern are set anew at once.

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
        old, new = effective_settings(base, before), effective_settings(base, after)
        effects += _rearm(group, old, new, timers, now_ms=now_ms)
        held_back, armed = change_pace(group, groups.image, old, new, now_ms=now_ms)
        records += held_back
        effects += armed
    return Decision(tuple(records), (reply, *effects))


def decide_describe_configs(groups: GroupsState, command: DescribeGroupConfigs, base: GroupSettings) -> Decision:
    """What was set for a group, and what its configs come to."""
    configs = groups.configs.get(command.group_id, {})
    reply = DescribeGroupConfigsReply(
        configs=dict(configs), effective=configs_in(effective_settings(base, configs)), defaults=configs_in(base)
    )
    return Decision(effects=(Reply(command.request, reply),))


def decide_list_configs(groups: GroupsState, command: ListGroupConfigs) -> Decision:
    """The groups that have configs of their own."""
    return Decision(effects=(Reply(command.request, ListGroupConfigsReply(group_ids=tuple(sorted(groups.configs)))),))


def configs_in(settings: GroupSettings) -> dict[str, str]:
    """Every group config as text, as `settings` have it."""
    return {name: as_text(getattr(settings, config.setting)) for name, config in GROUP_CONFIGS.items()}


def apply_configs_set(groups: GroupsState, record: GroupConfigsSet) -> None:
    """Type 20,001."""
    groups.configs[record.group_id] = record.configs


def apply_configs_forgotten(groups: GroupsState, record: GroupConfigsForgotten) -> None:
    """Tombstone of type 20,001."""
    groups.configs.pop(record.group_id, None)


def _change(configs: dict[str, str], name: str, text: str | None, base: GroupSettings) -> None:
    if len(name) > LONGEST_TEXT:
        raise ConfigError(f"unknown group config: no name is longer than {LONGEST_TEXT} characters")
    if name.startswith(_NOT_OFFERED):
        raise ConfigError(f"the group config {name} is not offered: this broker has no share and no streams groups")
    if text is None and name in configs:
        # Also one of a newer version, which this one does not know.
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
    """A session has to outlast an interval, whichever of the two is the group's own."""
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
    """The deadlines of a group whose limits change from `old` to `new`."""
    effects: list[Effect] = []
    session_ms = new.group_consumer_session_timeout_ms
    is_shorter = session_ms < old.group_consumer_session_timeout_ms
    if session_ms != old.group_consumer_session_timeout_ms:
        # A member was told when to come next, and does not know of the new session before that.
        fair_ms = now_ms + session_ms + (longest_interval_ms(old) if is_shorter else 0)
        # Classic members have asked for sessions of their own.
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
        # More balance may be had now, or what a limit held back, or another assignor wants something else.
        effects.append(Arm(key, max(now_ms, target_due_ms(group, new, now_ms=now_ms))))
    return effects


def _grace_ends_ms(deadline_ms: int, old: GroupSettings, new: GroupSettings, members: int, *, now_ms: int) -> int:
    """When a member whose connection is gone is given up once its session is longer.

    Its grace may have been cut by the end of the shorter session, and nobody knows any more by how much: it ends as
    late as it can have been meant to, at most one grace from now.
    """
    if new.group_disconnect_grace_ms < 0:
        return 2**63 - 1
    next_heartbeat_ms = deadline_ms - old.group_consumer_session_timeout_ms + settled_interval_ms(old, members, -1)
    return max(deadline_ms, max(now_ms, next_heartbeat_ms) + new.group_disconnect_grace_ms)


def _balance_wanted(settings: GroupSettings) -> tuple[str, int, int]:
    return settings.group_assignor, settings.group_assignor_max_moves, settings.group_assignor_imbalance
