"""The configs of topics and of the broker, as the protocol shows them: validated, as text, with types.

Laws: a name or value that Kafka would refuse is refused with INVALID_CONFIG. A config that has no effect here is
accepted and reported: by DescribeConfigs, and in the broker's log when it is set.
Source: Apache Kafka 4.3: CreateTopics, DescribeConfigs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import Any, Final

from kohort.base.options import Option, as_text, parse_bool, parse_float, parse_int, parse_list, parse_str
from kohort.broker.options.settings import BROKER_OPTIONS, TOPIC_DEFAULTS, BrokerSettings
from kohort.broker.options.settings import topic_defaults as log_defaults
from kohort.broker.topics.topic_operations import Outcome, Wanted
from kohort.errors import ConfigError, ErrorCode, Refused
from kohort.storage.topicconfig import LONG_MAX, TOPIC_OPTIONS
from kohort.storage.topics import TopicChanges, TopicPlan
from kohort.wire.private import idle_documentation

log = logging.getLogger("kohort.broker.topics")


class Resource(IntEnum):
    """Kafka's numbers of the resource types with configs; the configs of loggers are their levels."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    GROUP = 32


#: Kafka's numbers of config sources, in this order: the topic, a dynamic config of one broker, a dynamic config of all
#: brokers, the broker's start, a default, a logger's level, the group.
TOPIC_SOURCE: Final = 1
DYNAMIC_BROKER_SOURCE: Final = 2
DYNAMIC_ALL_SOURCE: Final = 3
BROKER_SOURCE: Final = 4
DEFAULT_SOURCE: Final = 5
LOGGER_SOURCE: Final = 6
GROUP_SOURCE: Final = 8
#: Kafka's numbers of config types, by the function that parses a value.
_TYPE_OF_PARSER: Final[dict[Callable[[object], object], int]] = {parse_bool: 1, parse_str: 2, parse_float: 6}
#: Kafka's numbers of types that a parser alone does not decide.
_TYPE_INT: Final = 3
_TYPE_LONG: Final = 5
_TYPE_LIST: Final = 7
_TYPE_PASSWORD: Final = 9
_TYPE_TEXT: Final = 2


def config_type(option: Option) -> int:
    """Return Kafka's number of an option's type."""
    if option.parse is parse_int:
        return _TYPE_LONG if option.maximum == LONG_MAX else _TYPE_INT
    if option.is_secret:
        return _TYPE_PASSWORD
    # A config with a parser of its own is shown as a string.
    return _TYPE_LIST if is_list(option) else _TYPE_OF_PARSER.get(option.parse, _TYPE_TEXT)


def is_list(option: Option) -> bool:
    """Return whether an option's value is a list, to which entries may be added and removed."""
    return option.parse is parse_list or isinstance(option.default, list)


def check_topic_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Validate topic configs, and return them as Kafka writes them.

    Raises `Refused` with INVALID_CONFIG.
    """
    checked: dict[str, str] = {}
    if missing := [name for name, raw in configs.items() if raw is None]:
        raise Refused(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(missing)}")
    for name, raw in configs.items():
        try:
            option = TOPIC_OPTIONS.option(name)
            checked[option.name] = as_text(option.check(raw))
        except ConfigError as why:
            raise Refused(ErrorCode.INVALID_CONFIG, str(why)) from None
    _check_together(checked)
    return checked


def _check_together(configs: Mapping[str, str]) -> None:
    """Refuse combinations of configs that Kafka refuses, and tiered storage, which is missing here."""
    if configs.get("remote.storage.enable") == "true":
        raise Refused(ErrorCode.INVALID_CONFIG, "remote.storage.enable cannot be true: there is no tiered storage here")
    low, high = (int(configs.get(name, default)) for name, default in _LAGS.items())
    if low > high:
        raise Refused(
            ErrorCode.INVALID_CONFIG, f"min.compaction.lag.ms ({low}) cannot be above max.compaction.lag.ms ({high})"
        )


#: Two configs of which the first may not be above the second, with their defaults.
_LAGS: Final = {"min.compaction.lag.ms": 0, "max.compaction.lag.ms": LONG_MAX}


def documentation_of(option: Option, value: str) -> str:
    """Return the documentation of a topic's config, with a note in front if the value has no effect."""
    words = option.idle_words(value)
    return option.doc if words is None else idle_documentation(words, option.doc)


def log_idle(topic: str, configs: Mapping[str, str], names: Iterable[str]) -> None:
    """Log a line for each reason why configs of `names` that were set have no effect."""
    # Not every client can show the warning in a response.
    said: dict[str, list[str]] = {}
    for name in sorted(set(names) & configs.keys()):
        words = TOPIC_OPTIONS.option(name).idle_words(configs[name])
        if words is not None:
            said.setdefault(words, []).append(f"{name}={configs[name]}")
    for words, pairs in said.items():
        log.warning("event=config_idle topic=%s why=%r configs=%s", topic, words, " ".join(pairs))


def topic_defaults(settings: BrokerSettings) -> dict[str, str]:
    """Return the default of every topic config: the broker's setting, or else Kafka's default."""
    return {option.name: as_text(option.default) for option in TOPIC_OPTIONS} | settings.topic_defaults()


# Configs of this broker that can change while it runs: their names, values and followers.
#
# Laws: a config that can be set only at the start is refused, in Apache Kafka's words. A changed config is written to
# the catalog before it is in force, and is in force again after a restart. Topics without a config of their own follow
# at once.
# Source: Apache Kafka's dynamic broker configs (KIP-226). Here they have one level instead of two: a cluster of one
# broker stores the configs of all brokers and those of that broker together.

#: Dynamic configs: the broker reads them whenever it needs them, so they can be changed while it runs.
DYNAMIC: Final = frozenset({
    *(name for name in TOPIC_DEFAULTS if name not in ("compression.type", "min.insync.replicas")),
    "auto.create.topics.enable",
    "delete.topic.enable",
    "log.retention.hours",
    "log.retention.minutes",
    "log.retention.ms",
    "log.roll.hours",
    "log.roll.ms",
    "num.partitions",
})  # fmt: skip


class BrokerConfigs:
    """The dynamic configs of the broker, and the settings that change with them."""

    def __init__(self, settings: BrokerSettings, changes: TopicChanges) -> None:
        """Apply the catalog's broker configs to `settings.values`, now and after each change."""
        self._changes: Final = changes
        #: (values in force, values at the start) of each broker of the cluster.
        self._followers: Final[list[tuple[dict[str, Any], dict[str, Any]]]] = []
        #: Configs that were set since the start of the first broker, as text.
        self.given: Mapping[str, str] = changes.catalog.broker_configs
        self.follow(settings)

    def follow(self, settings: BrokerSettings) -> None:
        """Apply the configs to the settings of another broker of the cluster, now and after each change."""
        self._followers.append((settings.values, dict(settings.values)))
        if self.given:
            self._apply(self.given)

    def checked(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        """Return the configs as text without null values; `Refused` for a config that is not dynamic."""
        fixed = sorted(name for name in configs if name in BROKER_OPTIONS and name not in DYNAMIC)
        if fixed:
            names = ", ".join(fixed)
            raise Refused(
                ErrorCode.INVALID_REQUEST,
                f"Cannot update these configs dynamically: [{names}]; they are settings of the broker's start",
            )
        checked = {}
        for name, value in configs.items():
            try:
                option = BROKER_OPTIONS.option(name)
                if value is not None:
                    checked[option.name] = as_text(option.check(value))
            except ConfigError as why:
                raise Refused(ErrorCode.INVALID_CONFIG, str(why)) from None
        return checked

    def change(
        self, changed: Callable[[Mapping[str, str]], Mapping[str, str | None]], done: Callable[[Outcome], None]
    ) -> Wanted:
        """Build a change of the configs; `changed` returns the new configs for the present ones."""

        def plan() -> TopicPlan:
            configs = self.checked(changed(self.given))
            made = self._changes.plan_broker_configs(configs)
            made.settle = lambda _: self._apply(configs)
            return made

        return Wanted(concern="/broker", plan=plan, done=done)

    def _apply(self, configs: Mapping[str, str]) -> None:
        self.given = dict(configs)
        parsed = {}
        for name, value in configs.items():
            # Another version of kohort may have had other dynamic configs.
            if name in DYNAMIC:
                parsed[name] = BROKER_OPTIONS.option(name).check(value)
        for values, at_start in self._followers:
            values.update(at_start | parsed)
        # Topics without configs of their own follow at once.
        self._changes.set_defaults(log_defaults(self._followers[0][0]))
