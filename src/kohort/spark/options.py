"""The options of one `load()` of `format("kohort")`, checked.

Laws: options arrive as text with names in any case; an unknown one is an error that names the nearest; what the
client needs travels on as Kafka's dotted names; options that contradict each other are refused.
Source: Spark's Kafka integration guide; P1 to P3.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, cast

from kohort.client.options import CONSUMER_OPTIONS
from kohort.config import as_keyword
from kohort.errors import ConfigError
from kohort.ids import TopicPartition
from kohort.spark.checkpoint import REMOTE, TELL_THE_END, to_local_path
from kohort.spark.kafka_settings import check_security, split_options
from kohort.spark.option_table import IDLE, OF_BATCHES, OF_MEMBERS, OF_STREAMS, OPTIONS, REFUSED, OwnReadOptions
from kohort.spark.option_values import (
    COMMITTED,
    EARLIEST,
    LATEST,
    Offsets,
    Times,
    parse_assign,
    parse_columns,
    parse_duration_ms,
    parse_offsets,
    parse_pattern,
    parse_times,
)

_log = logging.getLogger(__name__)

#: How much longer than a session a plan waits for the group.
_JOIN_MARGIN_MS = 15_000


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The options of one `load()`, checked. Picklable: readers travel to the executors with it.

    `own`: checked values of the options without kafka. in front, by keyword; the rest is what follows from them and
    from Kafka's. Exactly one of `topics`, `partitions` and `pattern` is there. `starting`/`ending`: `None` where the
    default of batch or stream applies. `group_id` `None`: no membership. `api_timeout_ms`: how long a broker may be
    away or silent; `poll_timeout_ms`: how long records may be. `client`: Kafka's dotted names, `bootstrap.servers`
    among them. `given`: names of our own options that are not left at their defaults. `remarks`: a sentence for each
    that changes nothing.
    """

    own: OwnReadOptions
    topics: tuple[str, ...]
    partitions: tuple[TopicPartition, ...]
    pattern: str | None
    starting: Offsets | None
    ending: Offsets | None
    max_trigger_delay_ms: int
    columns: tuple[str, ...]
    group_id: str | None
    group_instance_id: str | None
    group_join_timeout_ms: int
    group_rebalance_timeout_ms: int
    waits_in_doubt: bool
    follows_external_offsets: bool
    checkpoint_location: str | None
    api_timeout_ms: int
    poll_timeout_ms: int
    client: dict[str, str] = field(default_factory=dict, repr=False)
    given: frozenset[str] = frozenset()
    remarks: tuple[str, ...] = ()


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """Parse the options of one `load()`; `ConfigError` names the wrong one and the expected form."""
    found = split_options(
        given, own=OPTIONS, settings=CONSUMER_OPTIONS, refused=REFUSED, idle=IDLE, instead_of_path="subscribe"
    )
    client, values, remarks = found.kafka, OPTIONS.parse(found.own), [*found.remarks, *_passed_over(found.own)]
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
    options = SourceOptions(
        own=cast("OwnReadOptions", {as_keyword(name): value for name, value in values.items()}),
        topics=tuple(sorted(set(values["subscribe"] or ()))),
        partitions=() if values["assign"] is None else parse_assign(values["assign"]),
        pattern=None if values["subscribePattern"] is None else parse_pattern(values["subscribePattern"]),
        starting=_parse_bound(values, "starting", is_latest_else=_is_latest_else(values)),
        ending=_parse_bound(values, "ending", is_latest_else=True),
        max_trigger_delay_ms=parse_duration_ms(values["maxTriggerDelay"], option="maxTriggerDelay"),
        columns=parse_columns(values["columns"], has_headers=values["includeHeaders"]),
        group_id=group_id,
        group_instance_id=group_instance_id,
        group_join_timeout_ms=_join_timeout_ms(values["groupJoinTimeout"], checked["session.timeout.ms"]),
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


def _join_timeout_ms(given: str | None, session_timeout_ms: int) -> int:
    """Return the join timeout: longer than a killed member's session, unless the option sets it."""
    if given is None:
        return session_timeout_ms + _JOIN_MARGIN_MS
    return parse_duration_ms(given, option="groupJoinTimeout")


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
    idle = [f"option {name} changes nothing: it is for streams" for name in OF_STREAMS if name in options.given]
    return replace(options, remarks=(*options.remarks, *idle))


def for_stream(options: SourceOptions) -> SourceOptions:
    """Check options for a stream: refuse those that Spark refuses."""
    ending = [name for name in OF_BATCHES if name in options.given]
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
    idle = [name for name in OF_MEMBERS if name in options.given and options.group_id is None]
    if idle:
        raise ConfigError(f"{idle[0]} is for members of a group: give kafka.group.id, too, or leave it out")
    if options.group_id is None and options.starting == COMMITTED:
        raise ConfigError("startingOffsets cannot be committed without a group: give kafka.group.id, too")
    least, most = options.own["minOffsetsPerTrigger"], options.own["maxOffsetsPerTrigger"]
    if least is not None and most is not None and least > most:
        raise ConfigError(f"minOffsetsPerTrigger cannot be {least}: maxOffsetsPerTrigger is {most}, which is less")


def _is_latest_else(values: Mapping[str, Any]) -> bool:
    return bool(values["startingOffsetsByTimestampStrategy"] == "latest")


def _parse_bound(values: Mapping[str, Any], which: str, *, is_latest_else: bool) -> Offsets | None:
    """Parse a bound in Spark's order: one timestamp, timestamps by partition, then offsets."""
    one, several, offsets = f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets"
    if values[one] is not None:
        return Times(one, values[one], is_latest_else)
    if values[several] is not None:
        return Times(several, parse_times(values[several], option=several), is_latest_else)
    return parse_offsets(values[offsets], option=offsets)


def _passed_over(own: Mapping[str, object]) -> list[str]:
    """Build sentences for options that another option has made void."""
    remarks = []
    for which in ("starting", "ending"):
        given = [name for name in (f"{which}Timestamp", f"{which}OffsetsByTimestamp", f"{which}Offsets") if name in own]
        remarks += [f"option {name} changes nothing: {given[0]} goes before it" for name in given[1:]]
    if "maxTriggerDelay" in own and "minOffsetsPerTrigger" not in own:
        remarks.append("option maxTriggerDelay changes nothing without minOffsetsPerTrigger")
    return remarks
