"""Values of options: offsets, timestamps and partitions as Spark's JSON, columns, durations.

Laws: an invalid value is refused with one sentence: the option, the given value and the expected form.
Source: `JsonUtils` of Spark's Kafka source; its time options.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from kohort.errors import ConfigError, UnknownOptionError
from kohort.ids import TopicPartition

#: Spark's numbers for "from the beginning" and "from the end" inside a JSON of offsets.
EARLIEST: Final = -2
LATEST: Final = -1
#: Where the group stands.
COMMITTED: Final = -3

ALL_COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")


@dataclass(frozen=True, slots=True)
class Times:
    """The first offset with a record not older than a timestamp.

    `option`: the option that says so. `at`: milliseconds since 1970, one for all or by partition. `is_latest_else`:
    whether a partition without so young a record gets its latest offset; otherwise that is an error.
    """

    option: str
    at: int | dict[TopicPartition, int]
    is_latest_else: bool


#: One offset for all partitions (`EARLIEST`, `LATEST` or `COMMITTED`), one per partition, or by time.
Offsets = int | dict[TopicPartition, int] | Times


def option_of(bound: Offsets, which: str) -> str:
    """Name the option that says where a batch starts or ends (`which`: starting or ending)."""
    return bound.option if isinstance(bound, Times) else f"{which}Offsets"


def parse_columns(asked: list[str] | None, *, has_headers: bool) -> tuple[str, ...]:
    """Parse the columns in the order asked; by default Spark's seven, and `headers` if wanted."""
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
    """Parse a regular expression of Python's; Java's differs in details."""
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


def parse_times(text: str, *, option: str) -> dict[TopicPartition, int]:
    """Parse timestamps in the form `{"orders": {"0": 1700000000000}}`."""
    return _parse_by_partition(text, option=option, example='{"orders": {"0": 1700000000000}}', minimum=0)


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


#: The largest that travels: offsets and timestamps are 64 bit, partitions 32 bit numbers.
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


#: Kafka's times are 32 bit numbers of milliseconds; this is 24 days.
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
