"""The options of `format("kohort")`, read and write, checked and split into kohort's own and Kafka's.

Laws: options arrive as text with names in any case. Each is acted on, answered with a log line that says why it changes
nothing, or refused by the name under which it was given; none is ignored in silence. An error names the nearest known
option, or the given value and the expected form. Settings of the client travel on as Kafka's dotted names. Options that
exclude each other are refused.
Source: Spark's Kafka integration guide, reading and writing; `JsonUtils` of Spark's Kafka source; Apache Kafka's client
configurations; P1 to P3.
"""

from __future__ import annotations

import json
import logging
import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, cast

from kohort.base.options import OptionSet, Verdict, as_keyword
from kohort.client.options import CONSUMER_OPTIONS, PRODUCER_OPTIONS
from kohort.client.securityoptions import security_settings
from kohort.errors import ConfigError, UnknownOptionError
from kohort.ids import TopicPartition
from kohort.spark import option_table
from kohort.spark.checkpoint import REMOTE, TELL_THE_END, to_local_path

_log = logging.getLogger(__name__)

#: How much longer than the session timeout a plan waits to join the group.
_JOIN_MARGIN_MS = 15_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one `load()`, checked. Picklable: readers travel to the executors with it."""

    #: Checked values of the options without the prefix kafka., by keyword; other fields are derived from all options.
    own: option_table.OwnReadOptions
    #: Exactly one of `topics`, `partitions` and `pattern` is given.
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]
    pattern: str | None
    #: Like `ending`, `None` if the default of a batch or a stream applies.
    starting: Offsets | None
    ending: Offsets | None
    max_trigger_delay_ms: int
    columns: tuple[str, ...]
    #: `None`: no membership.
    group_id: str | None
    group_instance_id: str | None
    group_join_timeout_ms: int
    group_rebalance_timeout_ms: int
    waits_in_doubt: bool
    follows_external_offsets: bool
    checkpoint_location: str | None
    #: How long a broker may be unreachable or silent.
    api_timeout_ms: int
    #: How long a task waits for records at one offset.
    poll_timeout_ms: int
    #: Kafka's dotted names, `bootstrap.servers` among them.
    client: dict[str, str] = field(default_factory=dict, repr=False)
    #: Names of the options that are given without the prefix kafka.
    given: frozenset[str] = frozenset()
    #: A log line for each given option that changes nothing.
    remarks: tuple[str, ...] = ()


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Parse the options of one `load()`; `ConfigError` names the wrong one and the expected form."""
    found = split_options(
        given,
        own=option_table.OPTIONS,
        settings=CONSUMER_OPTIONS,
        refused=option_table.REFUSED,
        idle=option_table.IDLE,
        instead_of_path="subscribe",
    )
    client, values, remarks = (
        found.kafka,
        option_table.OPTIONS.parse(found.own),
        [*found.remarks, *_passed_over(found.own)],
    )
    checked = CONSUMER_OPTIONS.parse(client)
    check_security(checked)
    api_timeout_ms: int = checked["default.api.timeout.ms"]
    group_id, group_instance_id = client.pop("group.id", None), client.pop("group.instance.id", None)
    if group_instance_id is not None and group_id is None:
        remarks.append("option kafka.group.instance.id changes nothing without kafka.group.id")
    _check_what(values, group_id)
    location = values["checkpointLocation"]
    if location is not None and to_local_path(location) is None:
        remarks.append(f"option checkpointLocation changes nothing: {location} is {REMOTE}; {TELL_THE_END}")
        location = None
    # Unless the option sets it: longer than the session of a member that was killed.
    join_timeout_ms = checked["session.timeout.ms"] + _JOIN_MARGIN_MS
    if values["groupJoinTimeout"] is not None:
        join_timeout_ms = parse_duration_ms(values["groupJoinTimeout"], option="groupJoinTimeout")
    options = SourceOptions(
        own=cast("option_table.OwnReadOptions", {as_keyword(name): value for name, value in values.items()}),
        topics=tuple(sorted(set(values["subscribe"] or ()))),
        partitions=() if values["assign"] is None else parse_assign(values["assign"]),
        pattern=None if values["subscribePattern"] is None else parse_pattern(values["subscribePattern"]),
        starting=_parse_bound(values, "starting"),
        ending=_parse_bound(values, "ending"),
        max_trigger_delay_ms=parse_duration_ms(values["maxTriggerDelay"], option="maxTriggerDelay"),
        columns=parse_columns(values["columns"], has_headers=values["includeHeaders"]),
        group_id=group_id,
        group_instance_id=group_instance_id,
        group_join_timeout_ms=join_timeout_ms,
        group_rebalance_timeout_ms=parse_duration_ms(values["groupRebalanceTimeout"], option="groupRebalanceTimeout"),
        waits_in_doubt=values["inDoubt"] == "wait",
        follows_external_offsets=values["externalOffsets"] == "follow",
        checkpoint_location=location,
        api_timeout_ms=api_timeout_ms,
        poll_timeout_ms=values["kafkaConsumer.pollTimeoutMs"] or api_timeout_ms,
        # A query for a topic that does not exist must not create it: its name may be a slip.
        client={**client, "allow.auto.create.topics": "false"},
        given=frozenset(found.own),
        remarks=tuple(remarks),
    )
    _check_together(options)
    return options


def tell_remarks(options: SourceOptions) -> None:
    """Log a line for each option that changes nothing.

    The planner calls this once for each plan.
    """
    for remark in options.remarks:
        _log.warning("%s", remark)


def for_batch(options: SourceOptions) -> SourceOptions:
    """Check options for a batch: refuse those that Spark refuses, and note those that it ignores."""
    if options.starting == LATEST:
        raise ConfigError("startingOffsets cannot be latest in a batch: it would read nothing")
    for partition, offset in _numbers(options.starting):
        if offset == LATEST:
            raise ConfigError(
                f"startingOffsets: {partition} cannot be at -1 (latest) in a batch: it would read nothing"
            )
    for partition, offset in _numbers(options.ending):
        if offset == EARLIEST:
            raise ConfigError(f"endingOffsets: {partition} cannot be at -2 (earliest): a batch would read nothing")
    idle = [
        f"option {name} changes nothing: it is for streams" for name in option_table.OF_STREAMS if name in options.given
    ]
    return replace(options, remarks=(*options.remarks, *idle))


def for_stream(options: SourceOptions) -> SourceOptions:
    """Check options for a stream: refuse those that Spark refuses."""
    ending = [name for name in option_table.OF_BATCHES if name in options.given]
    if ending:
        raise ConfigError(f"{ending[0]} is an option of batches; a stream has no end")
    return options


def _numbers(bound: Offsets | None) -> list[tuple[TopicPartition, int]]:
    return sorted(bound.items()) if isinstance(bound, dict) else []


def _check_what(values: Mapping[str, Any], group_id: str | None) -> None:
    what = ("subscribe", "subscribePattern", "assign")
    if sum(values[name] is not None for name in what) != 1:
        raise ConfigError("exactly one of the options subscribe, subscribePattern and assign is needed")
    if values["subscribe"] == []:
        raise ConfigError("subscribe names no topic")
    if group_id == "":
        raise ConfigError("kafka.group.id cannot be empty: give the group a name, or leave the option out")
    if values["assign"] is not None and group_id is not None:
        raise ConfigError(
            "assign and kafka.group.id exclude each other: members of a group get their partitions from it"
        )


def _check_together(options: SourceOptions) -> None:
    idle = [name for name in option_table.OF_MEMBERS if name in options.given and options.group_id is None]
    if idle:
        raise ConfigError(f"{idle[0]} is for members of a group: give kafka.group.id, too, or leave it out")
    if options.group_id is None and options.starting == COMMITTED:
        raise ConfigError("startingOffsets cannot be committed without a group: give kafka.group.id, too")
    least, most = options.own["minOffsetsPerTrigger"], options.own["maxOffsetsPerTrigger"]
    if least is not None and most is not None and least > most:
        raise ConfigError(f"minOffsetsPerTrigger cannot be {least}: maxOffsetsPerTrigger is {most}, which is less")


def _parse_bound(values: Mapping[str, Any], which: str) -> Offsets | None:
    """Parse the bound from the first option given, in the order Timestamp, OffsetsByTimestamp, Offsets."""
    one, several, offsets = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    is_latest_else = which == "ending" or values["startingOffsetsByTimestampStrategy"] == "latest"
    if values[one] is not None:
        return Times(one, values[one], is_latest_else)
    if values[several] is not None:
        example = '{"orders": {"0": 1700000000000}}'
        at = _parse_by_partition(values[several], option=several, example=example, minimum=0)
        return Times(several, at, is_latest_else)
    return parse_offsets(values[offsets], option=offsets)


def _passed_over(own: Mapping[str, object]) -> list[str]:
    """Build a log line for each option that changes nothing because of another option."""
    remarks = []
    for which in ("starting", "ending"):
        given = [name for name in (f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets") if name in own]
        remarks += [f"option {name} changes nothing: {given[0]} goes before it" for name in given[1:]]
    if "maxTriggerDelay" in own and "minOffsetsPerTrigger" not in own:
        remarks.append("option maxTriggerDelay changes nothing without minOffsetsPerTrigger")
    return remarks


#: Spark's numbers for "from the beginning" and "from the end" inside a JSON of offsets.
EARLIEST: Final = -2
LATEST: Final = -1
#: The committed offset of the group; the number is kohort's own.
COMMITTED: Final = -3

ALL_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


@dataclass(frozen=True, slots=True)
class Times:
    """A bound by time: in each partition the first record that is not older than a timestamp.

    `option`: the option that gave the time. `at`: milliseconds since 1970, one for all or by partition.
    `is_latest_else`: whether a partition without such a record gets its latest offset; otherwise that is an error.
    """

    option: str
    at: int | dict[TopicPartition, int]
    is_latest_else: bool


#: One offset for all partitions (`EARLIEST`, `LATEST` or `COMMITTED`), one per partition, or by time.
Offsets = int | dict[TopicPartition, int] | Times


def option_of(bound: Offsets, which: str) -> str:
    """Return the name of the option that gave a batch's bound (`which`: starting or ending)."""
    return bound.option if isinstance(bound, Times) else f"{which}Offsets"


def parse_columns(asked: list[str] | None, *, has_headers: bool) -> tuple[str, ...]:
    """Parse the columns, keeping their order; by default Spark's seven, and `headers` if wanted."""
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
    """Parse partitions in the form `{"orders": [0, 1]}`, in order."""
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


def parse_pattern(text: str) -> str:
    """Parse a regular expression in Python's syntax, which differs from Java's in details."""
    pattern = text.strip()
    if not pattern:
        raise ConfigError("subscribePattern is empty: a regular expression that names of topics match is expected")
    try:
        re.compile(pattern)
    except re.error as why:
        raise ConfigError(
            f"subscribePattern cannot be {text!r}: {why}; Python's syntax is expected, which is Java's but for "
            "(?<name>...), written (?P<name>...), and \\p{...}"
        ) from None
    return pattern


def parse_offsets(text: str | None, *, option: str) -> Offsets | None:
    """Parse `earliest`, `latest`, `committed`, or `{"orders": {"0": 23, "1": -2}}`."""
    if text is None:
        return None
    word = text.strip().lower()
    if word == "latest":
        return LATEST
    if word in ("earliest", "committed"):
        if option != "startingOffsets":
            raise ConfigError(f"{option} cannot be {word}: latest or offsets by partition are expected")
        return EARLIEST if word == "earliest" else COMMITTED
    return _parse_by_partition(text, option=option, example='{"orders": {"0": 23, "1": -2}}', minimum=EARLIEST)


def _parse_by_partition(text: str, *, option: str, example: str, minimum: int) -> dict[TopicPartition, int]:
    topics = _parse_json_object(text, option=option, example=example)
    found: dict[TopicPartition, int] = {}
    for topic, numbers in topics.items():
        if not isinstance(numbers, dict):
            raise ConfigError(f"{option}: numbers by partition are expected for {topic}, as in {example}")
        for partition, number in numbers.items():
            is_partition = partition.isascii() and partition.isdigit() and len(partition) <= 10
            if not is_partition or not _is_number(number, minimum=minimum):
                raise ConfigError(f"{option}: {topic}-{partition} cannot be at {number!r}")
            found[TopicPartition(topic, int(partition))] = number
    return found


#: The largest offset or timestamp of the protocol, which has 64 bits for them, and 32 bits for partitions.
_LARGEST: Final = 2**63 - 1


def _is_number(value: object, *, minimum: int) -> bool:
    # JSON's true and false are integers to Python.
    return isinstance(value, int) and not isinstance(value, bool) and minimum <= value <= _LARGEST


def _parse_json_object(text: str, *, option: str, example: str) -> dict[str, object]:
    try:
        parsed = json.loads(text)
    except (ValueError, RecursionError) as why:
        raise ConfigError(f"{option} is not valid JSON ({why}); expected is something like {example}") from None
    if not isinstance(parsed, dict):
        raise ConfigError(f"{option} is not a JSON object; expected is something like {example}")
    return parsed


#: Kafka's timeouts are 32-bit numbers of milliseconds, at most 24 days.
_LONGEST_MS: Final = 2**31 - 1
_UNITS_MS: Final[Mapping[str, int]] = {"ms": 1, "s": 1000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration_ms(text: str, *, option: str) -> int:
    """Parse `500ms`, `30s`, `5min`, `1h`, `1d`; a bare number means milliseconds."""
    stripped = text.strip().lower()
    digits = stripped.rstrip("abcdefghijklmnopqrstuvwxyz ")
    # A bare number means milliseconds, as in Spark's own time options.
    unit = stripped[len(digits) :].strip() or "ms"
    is_number = digits.isascii() and digits.isdigit() and len(digits) <= 10
    milliseconds = int(digits) * _UNITS_MS[unit] if is_number and unit in _UNITS_MS else 0
    if not 0 < milliseconds <= _LONGEST_MS:
        raise ConfigError(f"{option} cannot be {text!r}: a time such as 500ms, 30s, 5min or 1h is expected")
    return milliseconds


# Measured with PySpark 4.3: a data source gets the options of CREATE TABLE when the table is made, but not when the
# table is read or written.
_PREFIX: Final = "kafka."
#: Prefixes of settings that protect a connection: if one is not supported it is refused, not only logged.
_SECURITY: Final = ("security.", "ssl.", "enable.ssl.", "sasl.", "enable.sasl.", "oauth", "https.")
#: Settings that only a Java virtual machine can apply, and why or what to use instead.
_JVM_ONLY: Final = {
    "sasl.login.class": "it names a Java class",
    "sasl.login.callback.handler.class": "it names a Java class; name a function as sasl.oauth.token.provider",
    "sasl.client.callback.handler.class": "it names a Java class",
    "sasl.kerberos.service.name": "Kerberos logins are made by Java; use another mechanism",
    "security.providers": "it names Java classes",
    "ssl.engine.factory.class": "it names a Java class",
}
#: Java class of an assignor -> its name here.
_ASSIGNORS: Final = {
    "org.apache.kafka.clients.consumer.RangeAssignor": "range",
    "org.apache.kafka.clients.consumer.RoundRobinAssignor": "roundrobin",
    "org.apache.kafka.clients.consumer.CooperativeStickyAssignor": "cooperative-sticky",
}
#: A property that Spark adds to the options of a table in its catalog.
_OF_TABLES: Final = "provider"
_TABLES_INSTEAD: Final = "CREATE TEMPORARY VIEW ... USING kohort OPTIONS (...) keeps them"


@dataclass(frozen=True, slots=True)
class Given:
    """Options with checked names and unparsed values."""

    #: Options without the prefix kafka., by their names in the proper case.
    own: dict[str, object] = field(default_factory=dict)
    #: Kafka's settings, by their names without the prefix.
    kafka: dict[str, str] = field(default_factory=dict)
    #: A log line for each option that changes nothing.
    remarks: list[str] = field(default_factory=list)


def split_options(
    given: Mapping[str, str],
    *,
    own: OptionSet,
    settings: OptionSet,
    refused: Mapping[str, str],
    idle: Mapping[str, str],
    instead_of_path: str,
) -> Given:
    """Split the options of one `load()`, `save()` or `start()`, as Spark hands them over.

    Args:
        own: the options without the prefix kafka.
        settings: the client's settings, which have that prefix.
        refused: settings that kohort sets itself, and what to do instead.
        idle: settings that change nothing, and why.
        instead_of_path: the option to use instead of a path, as in `load("orders")`; Spark itself adds an empty path.
    """
    if _OF_TABLES in map(str.lower, given):
        raise ConfigError(
            f"CREATE TABLE ... USING kohort is no use: Spark forgets the table's options; {_TABLES_INSTEAD}"
        )
    found = Given()
    by_lower = {option.name.lower(): option for option in own}
    for name, value in given.items():
        lowered = name.lower()
        option = by_lower.get(lowered)
        if lowered.startswith(_PREFIX):
            _take_setting(found, lowered.removeprefix(_PREFIX), value, settings=settings, refused=refused, idle=idle)
        elif option is not None:
            found.own[option.name] = value
            words = option.idle_words(value)
            if words is not None:
                found.remarks.append(f"option {option.name} changes nothing: {words}")
        elif lowered == "path":
            if value:
                raise ConfigError(f"the path {value!r} names no topic: leave it out, and give option {instead_of_path}")
        elif lowered.startswith("spark.kafka.clusters."):
            raise ConfigError(f"option {name} cannot be set: delegation tokens are fetched and renewed by a JVM")
        else:
            known = [*(each.name for each in own), *(_PREFIX + each.name for each in settings)]
            raise UnknownOptionError(name, known, what=own.what)
    if "bootstrap.servers" not in found.kafka:
        table = "" if given else f" (no option is given at all: those of a table Spark forgets; {_TABLES_INSTEAD})"
        raise ConfigError(f"option kafka.bootstrap.servers is needed: the address of a broker, HOST:PORT{table}")
    return found


def check_security(checked: Mapping[str, object]) -> None:
    """Check that TLS and SASL can be set up from a client's parsed settings, reading their files once."""
    try:
        security_settings(checked)
    except ConfigError as wrong:
        raise ConfigError(f"options with kafka. in front: {wrong}") from None


def _take_setting(
    found: Given, name: str, value: str, *, settings: OptionSet, refused: Mapping[str, str], idle: Mapping[str, str]
) -> None:
    why = refused.get(name)
    is_known = name in settings
    if why is None and not is_known:
        why = _JVM_ONLY.get(name)
    if why is not None:
        raise ConfigError(f"option {_PREFIX}{name} cannot be set: {why}")
    if name in idle:
        found.remarks.append(f"option {_PREFIX}{name} changes nothing: {idle[name]}")
    elif is_known:
        option = settings.option(name)
        if option.name == "partition.assignment.strategy":
            value = ",".join(_ASSIGNORS.get(each.strip(), each.strip()) for each in value.split(","))
        try:
            option.check(value)
        except ConfigError as wrong:
            raise ConfigError(f"option {_PREFIX}{wrong}") from None
        if option.name in found.kafka:
            raise ConfigError(f"option {_PREFIX}{option.name} is given twice, under two names: leave one out")
        found.kafka[option.name] = value
    else:
        _answer_unknown(found, name, settings)


def _answer_unknown(found: Given, name: str, settings: OptionSet) -> None:
    unserved = settings.unserved(name)
    if unserved is None:
        known = [_PREFIX + each.name for each in settings]
        raise UnknownOptionError(_PREFIX + name, known, what=settings.what)
    if unserved.verdict is Verdict.CALLED:
        raise UnknownOptionError(_PREFIX + name, (), what=settings.what, why=f"is called {_PREFIX}{unserved.why} here")
    if unserved.verdict is Verdict.REFUSED or name.startswith(_SECURITY):
        why = f"{unserved.verdict.value}: {unserved.why}"
        raise UnknownOptionError(_PREFIX + name, (), what=settings.what, why=why)
    found.remarks.append(f"option {_PREFIX}{name} changes nothing: {unserved.why}")


#: Kafka settings that the sink owns; giving them is an error, as in Spark's Kafka sink.
SINK_REFUSED: Final = {
    "interceptor.classes": "change rows by Spark's functions",
    "ssl.context": "an object cannot travel: name files by ssl.ca.location and ssl.certificate.location",
    "key.serializer": "keys are written as they are; cast or encode the column key",
    "transactional.id": "kohort.exactlyOnce writes in transactions; kohort.transactionalId names them",
    "value.serializer": "values are written as they are; cast or encode the column value",
}
#: Options of the streaming query itself, which Spark passes on to its sink.
_OF_QUERIES: Final = ("checkpointlocation", "queryname")
_ASYNC_PROGRESS: Final = "asyncprogresstracking"


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """The checked options of one `save()` or `start()`, pickled to the executors with a writer."""

    #: `None` if each row names its topic.
    topic: str | None
    adds_batch_headers: bool
    is_exactly_once: bool = False
    #: The name of the query's transactions; `None` if its checkpoint gives it.
    transactional_id: str | None = None
    #: The checkpointLocation of the query.
    checkpoint_location: str | None = None
    #: Kafka's dotted names, `bootstrap.servers` among them.
    client: dict[str, str] = field(default_factory=dict, repr=False)
    #: A log line for each option that changes nothing.
    remarks: tuple[str, ...] = ()


def parse_sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Parse the options of one `save()` or `start()`; `ConfigError` names the wrong one."""
    found = split_options(
        _without_those_of_queries(given),
        own=option_table.SINK_OPTIONS,
        settings=PRODUCER_OPTIONS,
        refused=SINK_REFUSED,
        idle={},
        instead_of_path="topic",
    )
    values, client = option_table.SINK_OPTIONS.parse(found.own), found.kafka
    check_security(PRODUCER_OPTIONS.parse(client))
    topic = values["topic"] and values["topic"].strip()
    if topic == "":
        raise ConfigError("option topic cannot be empty: name a topic, or leave it out and give a column topic")
    is_exactly_once = values[option_table.EXACTLY_ONCE]
    if is_exactly_once:
        client = _check_exactly_once(topic, client)
    elif values[option_table.TRANSACTIONAL_ID] is not None:
        found.remarks.append(f"option {option_table.TRANSACTIONAL_ID} changes nothing without kohort.exactlyOnce")
    return SinkOptions(
        topic=topic,
        adds_batch_headers=values[option_table.BATCH_HEADERS],
        is_exactly_once=is_exactly_once,
        transactional_id=values[option_table.TRANSACTIONAL_ID],
        checkpoint_location=next((given[name] for name in given if name.lower() == "checkpointlocation"), None),
        client=client,
        remarks=tuple(found.remarks),
    )


#: Longest time of a batch's transaction, where `kafka.transaction.timeout.ms` is not given; Kafka's own is a minute.
_TRANSACTION_TIMEOUT_MS: Final = 300_000


def _check_exactly_once(topic: str | None, client: Mapping[str, str]) -> dict[str, str]:
    """Return the producer's settings of a query that writes in transactions."""
    from kohort.client.producer.context import is_idempotent

    if topic is None:
        raise ConfigError(
            "kohort.exactlyOnce needs the option topic: the number of the last batch is kept as an offset of that topic"
        )
    found = {"transaction.timeout.ms": str(_TRANSACTION_TIMEOUT_MS), **client}
    try:
        is_idempotent(PRODUCER_OPTIONS.parse({**found, "transactional.id": "any"}), found)
    except ConfigError as wrong:
        raise ConfigError(f"kohort.exactlyOnce, options with kafka. in front: {wrong}") from None
    return found


def _without_those_of_queries(given: Mapping[str, str]) -> dict[str, str]:
    kept = {}
    for name, value in given.items():
        lowered = name.lower()
        if lowered.startswith(_ASYNC_PROGRESS):
            if value.strip().lower() != "false":
                raise ConfigError(
                    f"option {name} cannot be set: Spark would say that a batch is finished before its log has it, and "
                    "offsets would be committed to groups too early"
                )
        elif lowered not in _OF_QUERIES:
            kept[name] = value
    return kept
