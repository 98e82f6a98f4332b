"""The options of `format("kohort")`: Spark's Kafka source's names and values, and the few of our own.

Laws: options arrive as text with names in any case; an unknown one is an error that names the nearest; what the
client needs travels on as Kafka's dotted names.
Source: Spark's Kafka integration guide; P1 to P3.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kohort.client.options import CONSUMER_OPTIONS
from kohort.config import Option, OptionSet, parse_bool, parse_int, parse_list, parse_str
from kohort.errors import ConfigError, UnknownOptionError
from kohort.ids import TopicPartition

#: Spark's numbers for "from the beginning" and "from the end" inside a JSON of offsets.
EARLIEST: Final = -2
LATEST: Final = -1

#: One offset for all partitions (`EARLIEST` or `LATEST`), or one per partition.
Offsets = int | dict[TopicPartition, int]

ALL_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")

OPTIONS: Final = OptionSet(
    "kohort source option",
    [
        Option(name="subscribe", parse=parse_list, default=None, doc="Topics, with commas."),
        Option(name="assign", parse=parse_str, default=None, doc='Partitions as JSON: {"orders": [0, 1]}.'),
        Option(name="startingOffsets", parse=parse_str, default=None, doc="earliest, latest or JSON; for a new query."),
        Option(name="endingOffsets", parse=parse_str, default=None, doc="latest or JSON; batch only."),
        Option(
            name="maxOffsetsPerTrigger", parse=parse_int, default=None, doc="Cap of a micro-batch, records.", minimum=1
        ),
        Option(name="includeHeaders", parse=parse_bool, default=False, doc="Adds the column headers."),
        Option(name="columns", parse=parse_list, default=None, doc="The columns to produce, in this order."),
        Option(
            name="groupJoinTimeout",
            parse=parse_str,
            default="30s",
            doc="How long a plan waits to be a member of the group; AvailableNow: to own partitions.",
        ),
        Option(
            name="groupRebalanceTimeout",
            parse=parse_str,
            default="30min",
            doc="How long a revoked partition may stay with a running batch; longer than batch plus trigger.",
        ),
    ],
)
_BY_LOWER_NAME: Final = {option.name.lower(): option.name for option in OPTIONS}

#: Kafka settings that the source owns; giving them is an error, as in Spark's Kafka source.
_FORBIDDEN: Final = {
    "auto.commit.interval.ms": "offsets are committed when Spark has committed the batch",
    "auto.offset.reset": "use startingOffsets",
    "enable.auto.commit": "offsets are committed when Spark has committed the batch",
    "fetch.buffer.bytes": "each task takes what it needs",
    "group.protocol": "it is chosen by what the broker speaks",
    "max.poll.interval.ms": "use groupRebalanceTimeout",
    "max.poll.records": "use maxOffsetsPerTrigger",
}
#: Options that only a member of a group has a use for.
_OF_MEMBERS: Final = ("groupJoinTimeout", "groupRebalanceTimeout")


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one `load()`, checked. Picklable: readers travel to the executors with it.

    `starting`/`ending`: `None` where the default of batch or stream applies. `group_id` `None`: no membership.
    `api_timeout_ms`: how long a broker may be away or silent. `client`: Kafka's dotted names, `bootstrap.servers`
    among them.
    """

    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]
    starting: Offsets | None
    ending: Offsets | None
    max_offsets_per_trigger: int | None
    columns: tuple[str, ...]
    group_id: str | None
    group_join_timeout_ms: int
    group_rebalance_timeout_ms: int
    api_timeout_ms: int
    client: dict[str, str] = field(default_factory=dict)


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Check the options of one `load()`; `ConfigError` says which is wrong and what is expected."""
    client, own = _split(given)
    values = OPTIONS.parse(own)
    checked = CONSUMER_OPTIONS.parse(client)
    if "bootstrap.servers" not in client:
        raise ConfigError("option kafka.bootstrap.servers is needed: the address of a broker, HOST:PORT")
    if (values["subscribe"] is None) == (values["assign"] is None):
        raise ConfigError("exactly one of the options subscribe and assign is needed")
    if values["subscribe"] == []:
        raise ConfigError("subscribe names no topic")
    group_id = client.pop("group.id", None)
    if group_id == "":
        raise ConfigError("kafka.group.id cannot be empty: give the group a name, or leave the option out")
    if values["assign"] is not None and group_id is not None:
        raise ConfigError(
            "assign and kafka.group.id exclude each other: members of a group get their partitions from it"
        )
    options = SourceOptions(
        topics=tuple(sorted(set(values["subscribe"] or ()))),
        partitions=parse_assign(values["assign"]) if values["assign"] else (),
        starting=parse_offsets(values["startingOffsets"], option="startingOffsets"),
        ending=parse_offsets(values["endingOffsets"], option="endingOffsets"),
        max_offsets_per_trigger=values["maxOffsetsPerTrigger"],
        columns=parse_columns(values["columns"], has_headers=values["includeHeaders"]),
        group_id=group_id,
        group_join_timeout_ms=parse_duration_ms(values["groupJoinTimeout"], option="groupJoinTimeout"),
        group_rebalance_timeout_ms=parse_duration_ms(values["groupRebalanceTimeout"], option="groupRebalanceTimeout"),
        api_timeout_ms=checked["default.api.timeout.ms"],
        client=client,
    )
    idle = [name for name in _OF_MEMBERS if name in own and group_id is None]
    if idle:
        raise ConfigError(f"{idle[0]} is for members of a group: give kafka.group.id, too, or leave it out")
    return options


def _split(given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, object]]:
    """Kafka's settings (without their prefix) and our own options (under their proper case)."""
    client: dict[str, str] = {}
    own: dict[str, object] = {}
    for name, value in given.items():
        lowered = name.lower()
        if lowered.startswith("kafka."):
            setting = lowered.removeprefix("kafka.")
            if setting in _FORBIDDEN:
                raise ConfigError(f"option kafka.{setting} cannot be set: {_FORBIDDEN[setting]}")
            client[CONSUMER_OPTIONS.option(setting).name] = value
        elif lowered in _BY_LOWER_NAME:
            own[_BY_LOWER_NAME[lowered]] = value
        elif lowered == "path":
            # Spark adds an empty one.
            if value:
                raise ConfigError(f"load({value!r}) names no topic: load() it is, with the option subscribe")
        else:
            known = [*_BY_LOWER_NAME.values(), *(f"kafka.{option.name}" for option in CONSUMER_OPTIONS)]
            raise UnknownOptionError(name, known, what=OPTIONS.what)
    return client, own


def parse_columns(asked: list[str] | None, *, has_headers: bool) -> tuple[str, ...]:
    """The columns in the order asked; by default Spark's seven, and `headers` if wanted."""
    available = (*ALL_COLUMNS, "headers")
    if asked is None:
        return available if has_headers else ALL_COLUMNS
    by_lower = {column.lower(): column for column in available}
    unknown = [column for column in asked if column.lower() not in by_lower]
    if unknown:
        raise UnknownOptionError(unknown[0], available, what="column")
    chosen = tuple(by_lower[column.lower()] for column in asked)
    if not chosen or len(set(chosen)) < len(chosen):
        raise ConfigError(f"columns cannot be {','.join(asked)!r}: each of the wanted columns once is expected")
    return (*chosen, "headers") if has_headers and "headers" not in chosen else chosen


def parse_assign(text: str) -> tuple[TopicPartition, ...]:
    """`{"orders": [0, 1]}` as partitions, in order."""
    topics = _parse_json_object(text, option="assign", example='{"orders": [0, 1]}')
    found: list[TopicPartition] = []
    for topic, partitions in sorted(topics.items()):
        if not isinstance(partitions, list) or not all(_is_number(each, minimum=0) for each in partitions):
            raise ConfigError(
                f'assign: a list of partition numbers is expected for {topic}, as in {{"{topic}": [0, 1]}}'
            )
        found += [TopicPartition(topic, number) for number in sorted(set(partitions))]
    if not found:
        raise ConfigError("assign names no partition")
    return tuple(found)


def parse_offsets(text: str | None, *, option: str) -> Offsets | None:
    """`earliest`, `latest`, or `{"orders": {"0": 23, "1": -2}}`."""
    if text is None:
        return None
    word = text.strip().lower()
    if word == "earliest" and option == "startingOffsets":
        return EARLIEST
    if word == "latest":
        return LATEST
    topics = _parse_json_object(text, option=option, example='{"orders": {"0": 23, "1": -2}}')
    found: dict[TopicPartition, int] = {}
    for topic, offsets in topics.items():
        if not isinstance(offsets, dict):
            raise ConfigError(
                f'{option}: offsets by partition are expected for {topic}, as in {{"{topic}": {{"0": 23}}}}'
            )
        for partition, offset in offsets.items():
            if not (partition.isascii() and partition.isdigit()) or not _is_number(offset, minimum=EARLIEST):
                raise ConfigError(f"{option}: {topic}-{partition} cannot be at {offset!r}")
            found[TopicPartition(topic, int(partition))] = offset
    return found


def _is_number(value: object, *, minimum: int) -> bool:
    # JSON's true and false are integers to Python.
    return isinstance(value, int) and not isinstance(value, bool) and value >= minimum


def _parse_json_object(text: str, *, option: str, example: str) -> dict[str, object]:
    try:
        parsed = json.loads(text)
    except ValueError as why:
        raise ConfigError(f"{option} is not valid JSON ({why}); expected is something like {example}") from None
    if not isinstance(parsed, dict):
        raise ConfigError(f"{option} is not a JSON object; expected is something like {example}")
    return parsed


#: Kafka's times are 32 bit numbers of milliseconds; this is 24 days.
_LONGEST_MS: Final = 2**31 - 1
_UNITS_MS: Final[Mapping[str, int]] = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000}


def parse_duration_ms(text: str, *, option: str) -> int:
    """`500ms`, `30s`, `5min`, `1h`; a bare number means milliseconds, as Spark's own time options read it."""
    stripped = text.strip().lower()
    digits = stripped.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = stripped[len(digits) :].strip() or "ms"
    is_number = digits.isascii() and digits.isdigit()
    milliseconds = int(digits) * _UNITS_MS[unit] if is_number and unit in _UNITS_MS else 0
    if not 0 < milliseconds <= _LONGEST_MS:
        raise ConfigError(f"{option} cannot be {text!r}: a time such as 500ms, 30s, 5min or 1h is expected")
    return milliseconds
