"""The configs of a topic as the protocol shows them: checked, as text, with Kafka's type numbers.

Laws: a name or value that Kafka would refuse is refused with INVALID_CONFIG. One that changes nothing is taken, and
reported: by DescribeConfigs, and in the broker's log when it is set.
Source: Apache Kafka 4.3: CreateTopics, DescribeConfigs.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from kohort.config import Option, as_text, parse_bool, parse_float, parse_int, parse_list, parse_str
from kohort.errors import ConfigError, ErrorCode, Refused
from kohort.storage.topicconfig import LONG_MAX, TOPIC_OPTIONS
from kohort.wire.private import idle_documentation

log = logging.getLogger("kohort.broker")

if TYPE_CHECKING:
    from kohort.broker.options.settings import BrokerSettings


class Resource(IntEnum):
    """Kafka's numbers of the kinds of resources with configs."""

    TOPIC = 2
    BROKER = 4
    GROUP = 32


#: Kafka's numbers of where a value comes from: the topic, a change of the broker or of all of them while they run, the
#: broker's start, a default, the group.
TOPIC_SOURCE: Final = 1
DYNAMIC_BROKER_SOURCE: Final = 2
DYNAMIC_ALL_SOURCE: Final = 3
BROKER_SOURCE: Final = 4
DEFAULT_SOURCE: Final = 5
GROUP_SOURCE: Final = 8
#: Kafka's numbers of config types, by the function that parses a value.
_TYPE_OF_PARSER: Final[dict[Callable[[object], object], int]] = {
    parse_bool: 1,
    parse_str: 2,
    parse_float: 6,
}
#: Kafka's numbers of types that a parser alone does not decide.
_TYPE_INT: Final = 3
_TYPE_LONG: Final = 5
_TYPE_LIST: Final = 7


def config_type(option: Option) -> int:
    """Return Kafka's number of an option's type."""
    if option.parse is parse_int:
        return _TYPE_LONG if option.maximum == LONG_MAX else _TYPE_INT
    return _TYPE_LIST if is_list(option) else _TYPE_OF_PARSER[option.parse]


def is_list(option: Option) -> bool:
    """Whether an option's value is a list, with entries that may be added and removed."""
    return option.parse is parse_list or isinstance(option.default, list)


def check_topic_configs(configs: Mapping[str, str | None]) -> dict[str, str]:
    """Check the given topic configs; return them as Kafka writes them.

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


#: The two that have to be in order, with their defaults.
_LAGS: Final = {"min.compaction.lag.ms": 0, "max.compaction.lag.ms": LONG_MAX}


def documentation_of(option: Option, value: str) -> str:
    """Return the documentation of a topic's config; it begins with a note if the value has no effect."""
    words = option.idle_words(value)
    return option.doc if words is None else idle_documentation(words, option.doc)


def log_idle(topic: str, configs: Mapping[str, str], names: Iterable[str]) -> None:
    """Log one line about configs of `names` that were set and have no effect."""
    # Not every client can show a warning of its own.
    said: dict[str, list[str]] = {}
    for name in sorted(set(names) & configs.keys()):
        words = TOPIC_OPTIONS.option(name).idle_words(configs[name])
        if words is not None:
            said.setdefault(words, []).append(f"{name}={configs[name]}")
    for words, pairs in said.items():
        log.warning("event=config_idle topic=%s why=%r configs=%s", topic, words, " ".join(pairs))


def topic_defaults(settings: BrokerSettings) -> dict[str, str]:
    """Return the default of every topic config: the broker's settings before Kafka's defaults."""
    return {option.name: as_text(option.default) for option in TOPIC_OPTIONS} | settings.topic_defaults()
