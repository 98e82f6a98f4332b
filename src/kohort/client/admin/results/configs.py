"""Configs of resources, and the requests that describe and change them.

Laws: the value of a config that the broker marks as sensitive is never shown.
Source: Kafka's Admin; KIP-133, KIP-226, KIP-339, KIP-569.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from kohort.base import values
from kohort.base.options import as_text
from kohort.base.values import from_row
from kohort.client.arguments import encode
from kohort.errors import ConfigError
from kohort.wire.messages import describe_configs, incremental_alter_configs
from kohort.wire.private import idle_words_in


class ConfigResource(NamedTuple):
    """A resource that has configs: `kind` is "topic", "broker", "group", "client-metrics" or "broker-logger".

    The `name` of a broker is its id; an empty name means the defaults of all brokers.
    """

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}" if self.name else f"all {self.kind}s"


@values.value
class ConfigSynonym:
    """One candidate for the value of a config: the first of its `synonyms` that is set counts; see `ConfigEntry`."""

    name: str
    value: str | None
    source: str


@values.value
class ConfigEntry:
    """One config with its effective value.

    `value`: `None` if there is none, and always if it `is_sensitive`. `source`: Kafka's name of the level that sets it,
    e.g. "DYNAMIC_TOPIC_CONFIG" (set on the topic), "STATIC_BROKER_CONFIG" (in the broker's start-up options),
    "DEFAULT_CONFIG". `default`: the value while it is set nowhere, `None` if the broker does not report it. `type`:
    Kafka's name, e.g. "LONG". `idle`: the broker's remark if it accepts the value but ignores it. `doc`: the broker's
    documentation, if it has any.
    """

    name: str
    value: str | None
    source: str
    default: str | None
    is_read_only: bool
    is_sensitive: bool
    type: str
    synonyms: tuple[ConfigSynonym, ...]
    idle: str | None
    doc: str | None

    @property
    def is_default(self) -> bool:
        """Whether the value is the default, e.g. `min.insync.replicas`, which Apache Kafka sets to its default."""
        is_preset = self.source == "DYNAMIC_DEFAULT_BROKER_CONFIG" and self.value == self.default
        return is_preset or self.source == "DEFAULT_CONFIG"


#: Kafka's numbers of the kinds of things with configs.
KINDS: Final = {"topic": 2, "broker": 4, "broker-logger": 8, "client-metrics": 16, "group": 32}
_KIND_OF: Final = {number: kind for kind, number in KINDS.items()}
#: Kafka's names of the sources of values, by their numbers.
_SOURCES: Final = {
    1: "DYNAMIC_TOPIC_CONFIG",
    2: "DYNAMIC_BROKER_CONFIG",
    3: "DYNAMIC_DEFAULT_BROKER_CONFIG",
    4: "STATIC_BROKER_CONFIG",
    5: "DEFAULT_CONFIG",
    6: "DYNAMIC_BROKER_LOGGER_CONFIG",
    7: "DYNAMIC_CLIENT_METRICS_CONFIG",
    8: "DYNAMIC_GROUP_CONFIG",
}
_DEFAULT: Final = 5
_TYPES: Final = ("UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD")
SET, DELETE, APPEND, SUBTRACT = range(4)
_ONE: Final = "('topic', 'orders')"

#: (config, Kafka's number of the operation, value).
Change = tuple[str, int, str | None]


def to_resources(given: object) -> list[ConfigResource]:
    """Check one or several resources: pairs of kind and name, or another client's ConfigResource."""
    one = _resource_of(given)
    if one is not None:
        return [one]
    if isinstance(given, (str, bytes, Mapping)) or not isinstance(given, Iterable):
        raise TypeError(f"resources cannot be {given!r}: {_ONE} or a list of such is expected")
    found = []
    for each in given:
        resource = _resource_of(each)
        if resource is None:
            raise TypeError(f"{each!r} has no configs: {_ONE} is expected")
        found.append(resource)
    return list(dict.fromkeys(found))


def _resource_of(value: object) -> ConfigResource | None:
    for attribute in ("restype", "resource_type"):
        if hasattr(value, attribute):
            kind = getattr(value, attribute)
            value = (getattr(kind, "name", kind), getattr(value, "name", None))
    if not isinstance(value, tuple) or len(value) != 2 or not isinstance(value[0], str):
        return None
    kind, name = value[0].lower().replace("_", "-"), str(value[1]) if isinstance(value[1], int) else value[1]
    if kind not in KINDS:
        raise ConfigError(f"{value[0]!r} has no configs: {', '.join(KINDS)} have")
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is no name: {_ONE} is expected")
    encode(name, f"the name of a {kind}")
    if kind.startswith("broker") and name and not name.isdecimal():
        raise ConfigError(f"{name!r} is no broker: its number is expected, or '' for what all are set to together")
    return ConfigResource(kind, name)


def to_changes(
    changes: Mapping[str, object] | None,
    *,
    delete: Iterable[str],
    append: Mapping[str, object] | None,
    subtract: Mapping[str, object] | None,
) -> list[Change]:
    """Check the changes of each config; a config may be named only once."""
    if isinstance(delete, str | bytes):
        raise TypeError(f"delete cannot be {delete!r}: a list of names is expected, like [{delete!r}]")
    rows: list[Change] = [(_config(name), DELETE, None) for name in delete]
    for given, operation in ((changes, SET), (append, APPEND), (subtract, SUBTRACT)):
        if not isinstance(given, Mapping | None):
            raise TypeError(f"{given!r} are no changes: a mapping is expected, like {{'retention.ms': 60000}}")
        for name, value in (given or {}).items():
            if value is None and operation == SET:
                rows.append((_config(name), DELETE, None))
            elif value is None:
                raise ConfigError(f"{name} needs the entries that are to be added or taken out")
            else:
                rows.append((_config(name), operation, as_text(value)))
    if not rows and changes is None:
        raise ConfigError("there is nothing to change: name configs with their values, or what is to be deleted")
    names = [name for name, _, _ in rows]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{name} is changed twice: name it once")
    return rows


def _config(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"{name!r} is no name of a config: text is expected, like 'retention.ms'")
    return name


def describe_request(
    resources: Iterable[ConfigResource], names: Sequence[str] | None = None, *, include_synonyms: bool = False
) -> describe_configs.DescribeConfigsRequest:
    """Ask for configs, `None`: all of them, and the broker's documentation of each."""
    keys = None if names is None else list(names)
    rows = [
        describe_configs.DescribeConfigsResource(
            resource_type=KINDS[each.kind], resource_name=each.name, configuration_keys=keys
        )
        for each in resources
    ]
    return describe_configs.DescribeConfigsRequest(
        resources=rows, include_synonyms=include_synonyms, include_documentation=True
    )


def alter_request(
    resources: Iterable[ConfigResource], changes: Iterable[Change], *, validate_only: bool
) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    """Build the request that makes the same changes to several resources."""
    rows = [
        incremental_alter_configs.AlterableConfig(name=name, config_operation=operation, value=value)
        for name, operation, value in changes
    ]
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=KINDS[each.kind], resource_name=each.name, configs=rows
            )
            for each in resources
        ],
        validate_only=validate_only,
    )


def resource_of(kind: int, name: str) -> ConfigResource:
    """Return the resource that a row of a response is about."""
    return ConfigResource(_KIND_OF.get(kind, str(kind)), name)


def entries(rows: Iterable[describe_configs.DescribeConfigsResourceResult]) -> list[ConfigEntry]:
    """Read configs, by name."""
    return sorted(map(_entry, rows), key=lambda row: row.name)


def _entry(row: describe_configs.DescribeConfigsResourceResult) -> ConfigEntry:
    def shown(value: str | None) -> str | None:
        return None if row.is_sensitive else value

    synonyms = tuple(
        ConfigSynonym(name=each.name, value=shown(each.value), source=_source(each.source)) for each in row.synonyms
    )
    by_default = [each.value for each in row.synonyms if each.source == _DEFAULT]
    if row.config_source == _DEFAULT:
        by_default.append(row.value)
    return from_row(
        ConfigEntry,
        row,
        value=shown(row.value),
        source=_source(row.config_source),
        default=shown(by_default[0]) if by_default else None,
        is_read_only=row.read_only,
        type=_TYPES[row.config_type] if 0 <= row.config_type < len(_TYPES) else _TYPES[0],
        synonyms=synonyms,
        idle=idle_words_in(row.documentation),
        doc=row.documentation,
    )


def _source(number: int) -> str:
    return _SOURCES.get(number, "UNKNOWN")
