"""Configs of single groups: the configs that may be set, and the settings that result from them.

A group has the broker's settings, overridden by its own configs. Configs may be set before the group exists, and stay
when the group is deleted, as in Apache Kafka.

Laws: a value must be within the broker's bounds when it is set. If the bounds have changed since, the nearest allowed
value counts. A config that this version does not know is kept and ignored, so that a start never fails for it.
Source: Apache Kafka 4.3's group configs (KIP-848, KIP-1263); G8, H2.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

from kohort.base.options import Option, as_text, parse_bool, parse_float, parse_int, parse_str
from kohort.base.values import value
from kohort.coordinator.settings import (
    ENFORCEMENTS,
    LIVENESS,
    MEMBERSHIPS,
    MISMATCH_POLICIES,
    MOST_MOVES_AT_ONCE,
    MOST_MOVES_PER_SECOND,
    MOVE_ORDERS,
    OWNERSHIP_REFUSALS,
    STATIC_FALLBACKS,
    GroupSettings,
)
from kohort.errors import ConfigError

_INT32_MAX: Final = 2**31 - 1
#: Longest name and longest value of a config.
LONGEST_TEXT: Final = 249


@value
class GroupConfig:
    """One group config: `setting` is the field of `GroupSettings` that it replaces.

    `low`, `high`: its bounds, each a number or the field of the broker's setting that has it. `choices`: the allowed
    texts, or the field that has them; `None`: any text.
    """

    option: Option
    setting: str
    low: int | str = 0
    high: int | str = _INT32_MAX
    choices: tuple[str, ...] | str | None = ()

    @property
    def broker_option(self) -> str:
        """Return the broker's option that applies to groups without this config."""
        return self.setting.replace("_", ".")

    def bounds(self, settings: GroupSettings) -> tuple[int, int]:
        """Return the least and the greatest allowed number."""
        low, high = (getattr(settings, bound) if isinstance(bound, str) else bound for bound in (self.low, self.high))
        return low, high

    def chosen_from(self, settings: GroupSettings) -> tuple[str, ...] | None:
        """Return the allowed texts; `None` means any text."""
        if not isinstance(self.choices, str):
            return self.choices
        found: tuple[str, ...] = getattr(settings, self.choices)
        return found

    def may_be(self, text: str, settings: GroupSettings) -> bool:
        """Return whether the text is an allowed value."""
        choices = self.chosen_from(settings)
        return choices is None or text in choices

    def parse(self, text: str, settings: GroupSettings) -> float | bool | str:
        """Parse `text`; `ConfigError` names the allowed values and the broker's options that set them."""
        value: float | bool | str = self.option.check(text)
        if isinstance(value, str):
            if self.may_be(value, settings):
                return value
            expected = ", ".join(filter(None, self.chosen_from(settings) or ()))
            raise ConfigError(f"{self.option.name} cannot be {value}: one of {expected} is expected")
        low, high = self.bounds(settings)
        if isinstance(value, bool) or low <= value <= high:
            return value
        names = [bound.replace("_", ".") for bound in (self.low, self.high) if isinstance(bound, str)]
        source = f" (the broker's {' and '.join(names)})" if names else ""
        raise ConfigError(f"{self.option.name} cannot be {value}: {low} to {high} is expected{source}")


def _of_consumers(name: str, doc: str) -> GroupConfig:
    """Build a group config of Kafka; the broker options `group.consumer.min.*` and `max.*` are its bounds."""
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
    low: int | str = 0,
    high: int | str = _INT32_MAX,
    choices: tuple[str, ...] | str | None = (),
) -> GroupConfig:
    """Build a group config that Kafka does not have."""
    # The broker's option, if there is one, has the same name.
    option = Option(name=name, parse=parse, default=None, doc=doc)
    return GroupConfig(option=option, setting=name.replace(".", "_"), low=low, high=high, choices=choices)


_ALL: Final = (
    _of_consumers("session.timeout.ms", "Time without heartbeats before a KIP-848 member is fenced."),
    _of_consumers("heartbeat.interval.ms", "Heartbeat interval of KIP-848 members of the group."),
    _of_consumers("assignment.interval.ms", "Shortest time between two computations of the assignment."),
    GroupConfig(
        option=Option(
            name="consumer.assignor.offload.enable",
            parse=parse_bool,
            default=None,
            doc="Whether a user-defined assignor runs in its own process; built-in ones always run in the loop.",
        ),
        setting="group_consumer_assignor_offload_enable",
    ),
    _of_ours(
        "group.disconnect.grace.ms",
        "How long a member stays after its connection closed without a leave, from its next heartbeat on; -1: "
        "its session decides.",
        low=-1,
    ),
    _of_ours(
        "group.assignor",
        "The assignor of the group, whichever its members name: one of the broker's group.consumer.assignors; "
        "empty: what most of them name.",
        parse=parse_str,
        choices="assignor_choices",
    ),
    _of_ours(
        "group.consumer.assignor.mismatch",
        "How a member is treated that names another assignor than the group uses: vote: it has one vote; refuse: it "
        "may not join.",
        parse=parse_str,
        choices=MISMATCH_POLICIES,
    ),
    _of_ours(
        "group.assignor.max.moves",
        "Most partitions that one assignment moves from a living owner to another; -1: as many as balance needs.",
        low=-1,
    ),
    _of_ours("group.assignor.imbalance", "Members may differ by so many more than one partition before a move."),
    _of_ours(
        "group.moves.per.second",
        "Most partitions that begin to move from member to member in a second; 0: all at once.",
        parse=parse_float,
        high=MOST_MOVES_PER_SECOND,
    ),
    _of_ours(
        "group.moves.burst",
        "Moves that may begin together after a time without any.",
        low=1,
        high=MOST_MOVES_AT_ONCE,
    ),
    _of_ours(
        "group.moves.paused",
        "Whether no move begins; a partition without an owner is assigned all the same.",
        parse=parse_bool,
    ),
    _of_ours(
        "group.moves.order",
        "Which waiting move begins next: name: by topic and partition; lag: that with most records that the "
        "group has not committed; size: that with most bytes.",
        parse=parse_str,
        choices=MOVE_ORDERS,
    ),
    _of_ours("group.initial.rebalance.delay.ms", "How long the group, empty and classic, waits for more members."),
    _of_ours(
        "group.membership",
        "dynamic: the group accepts any member; static: only those with a group.instance.id, which keep partitions "
        "while they are offline.",
        parse=parse_str,
        choices=MEMBERSHIPS,
    ),
    _of_ours(
        "group.registration.timeout.ms",
        "How long the group, if it is static, keeps the partitions of an offline member.",
        low="group_min_registration_timeout_ms",
        high="group_max_registration_timeout_ms",
    ),
    _of_ours(
        "group.expansion.timeout.ms",
        "How long new members of the group, if it is static, wait for the rebalance that assigns partitions to them.",
        low="group_min_expansion_timeout_ms",
        high="group_max_expansion_timeout_ms",
    ),
    _of_ours(
        "group.rebalance.token",
        "A new value makes the group, if it is static, rebalance now.",
        parse=parse_str,
        choices=None,
    ),
    _of_ours(
        "group.ownership.enforce",
        "Which fetches are checked for partitions of other members: off: none; ours: those that name their member, by "
        "a tag or a token; all: also those of a client id and host that only one member has.",
        parse=parse_str,
        choices=ENFORCEMENTS,
    ),
    _of_ours(
        "group.ownership.refusal",
        "The response to a stock client for a partition of another member: quiet: no error and no records; strict: "
        "NOT_LEADER_OR_FOLLOWER.",
        parse=parse_str,
        choices=OWNERSHIP_REFUSALS,
    ),
    _of_ours(
        "group.ownership.lease.ms",
        "How long a member may read without contact to the coordinator; -1: half of the session timeout, which is "
        "also the most.",
        low=-1,
    ),
    _of_ours(
        "group.liveness",
        "What keeps the session of a stable member alive: heartbeat: its heartbeats; fetch: also fetches that name "
        "the member.",
        parse=parse_str,
        choices=LIVENESS,
    ),
    _of_ours(
        "group.static.fallback",
        "How a static group becomes dynamic again: by an administrator alone (admin), or also by the first member that "
        "joins it without a name while it is stable (join).",
        parse=parse_str,
        choices=STATIC_FALLBACKS,
    ),
)
#: Config name -> config; the order is that of the documentation.
GROUP_CONFIGS: Final[dict[str, GroupConfig]] = {config.option.name: config for config in _ALL}


def effective_settings(base: GroupSettings, configs: Mapping[str, str]) -> GroupSettings:
    """Return the settings of a group with `configs`; a value out of bounds becomes the nearest allowed."""
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
            # A choice that the broker no longer offers counts as not set.
            if config.may_be(value, base):
                texts[config.setting] = value
            continue
        low, high = config.bounds(base)
        values[config.setting] = value if isinstance(value, bool) else min(max(value, low), high)
    session_ms = values.get("group_consumer_session_timeout_ms", base.group_consumer_session_timeout_ms)
    interval_ms = values.get("group_consumer_heartbeat_interval_ms", base.group_consumer_heartbeat_interval_ms)
    if interval_ms >= session_ms:
        # The broker's own values were changed since: the session timeout of the group takes precedence.
        values["group_consumer_heartbeat_interval_ms"] = session_ms // 2
        values["group_consumer_min_heartbeat_interval_ms"] = min(
            session_ms // 2, base.group_consumer_min_heartbeat_interval_ms
        )
    # The type checker cannot match names made at run time to the fields' types.
    return replace(base, **values, **texts)  # type: ignore[arg-type]


def configs_in(settings: GroupSettings) -> dict[str, str]:
    """Return every group config of `settings` as text."""
    return {name: as_text(getattr(settings, config.setting)) for name, config in GROUP_CONFIGS.items()}
