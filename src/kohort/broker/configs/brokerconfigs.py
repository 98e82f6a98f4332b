"""Configs of this broker that can change while it runs: their names, values and followers.

Laws: a config that only a start can change is refused, in Apache Kafka's words; what was changed is written to the
catalog before it is in force, and in force again after a restart; topics that say nothing of their own follow at once.
Source: Apache Kafka's dynamic broker configs (KIP-226), of which there are no two levels here: a cluster of one broker
keeps what is set for all brokers and what is set for that one in one place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from kohort.broker.options.logoptions import TOPIC_DEFAULTS, topic_defaults
from kohort.broker.options.settings import BROKER_OPTIONS, BrokerSettings
from kohort.broker.topics.topic_operations import Outcome, Wanted
from kohort.config import as_text
from kohort.errors import ConfigError, ErrorCode, Refused
from kohort.storage.topics.topicchanges import TopicChanges, TopicPlan

#: Configs that are read whenever they are needed, and so can be changed while the broker runs.
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
    """The configs that the broker was given at its start and since."""

    def __init__(self, settings: BrokerSettings, changes: TopicChanges) -> None:
        """Follow the catalog's broker configs; `settings.values`, which all parts read, change with them."""
        self._changes: Final = changes
        #: (values in force, values at the start), of each broker that has these configs.
        self._followers: Final[list[tuple[dict[str, Any], dict[str, Any]]]] = []
        #: Configs that were set since the start of the first broker, as text.
        self.given: Mapping[str, str] = changes.catalog.broker_configs
        self.follow(settings)

    def follow(self, settings: BrokerSettings) -> None:
        """Have the settings of a further broker of the cluster change as well."""
        self._followers.append((settings.values, dict(settings.values)))
        if self.given:
            self._apply(self.given)

    def checked(self, configs: Mapping[str, str | None]) -> dict[str, str]:
        """Return the given configs as text without null values; refuse a config that cannot be changed so."""
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
        """Build the change of the configs; `changed` makes the new ones from the present ones."""

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
        self._changes.set_defaults(topic_defaults(self._followers[0][0]))
