"""Parsers of arguments that several verbs share: topics, offsets, times, durations, brokers, inputs."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from kohort.errors import ConfigError
from kohort.ids import TopicPartition

#: A duration in ISO 8601, as Kafka's tools accept it, and in a short form such as 30m.
_ISO: Final = re.compile(r"P(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+)S)?)?", re.IGNORECASE)
_SHORT: Final = re.compile(r"(\d+)([smhd])")
_UNITS: Final = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}
#: A topic, and perhaps partitions of it: orders, orders:0,2
_TOPIC: Final = re.compile(r"([^:]+)(?::(\d+(?:,\d+)*))?")
#: The brokers of each partition, as kafka-topics takes them: 1:2,2:3
_BROKERS: Final = re.compile(r"\d+(:\d+)*(,\d+(:\d+)*)*")
_LONGEST: Final = 100_000


def parse_pairs(pairs: Sequence[str], *, option: str) -> dict[str, str]:
    """Parse `NAME=VALUE` arguments to a mapping; `ConfigError` for one without `=`."""
    parsed = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        if not equals or not name.strip():
            # The value of a client's option may be a password, so the error does not show it.
            raise ConfigError(f"{option} {'is followed by what' if option == '-X' else repr(pair)} is not NAME=VALUE")
        parsed[name.strip()] = value.strip()
    return parsed


def parse_topic(text: str) -> tuple[str, tuple[int, ...]]:
    """Parse a topic and some of its partitions, such as `orders:0,2`; no partitions mean all."""
    found = _TOPIC.fullmatch(text)
    if found is None or len(text) > _LONGEST:
        raise argparse.ArgumentTypeError(
            f"{text[:60]!r} is no topic: orders is one, and orders:0,2 two of its partitions"
        )
    return found[1], tuple(int(number) for number in (found[2] or "").split(",") if number)


def flat_topics(topics: Sequence[tuple[str, tuple[int, ...]]]) -> list[str | TopicPartition]:
    """Return each partition named in results of `parse_topic`, and topics without partitions by name."""
    return [
        each
        for topic, numbers in topics
        for each in ([TopicPartition(topic, number) for number in numbers] if numbers else [topic])
    ]


def parse_offset(text: str) -> int:
    """Parse an offset."""
    if not text.isdecimal() or len(text) > 18:
        raise argparse.ArgumentTypeError(f"{text!r} is no offset: a whole number, 0 or above, is expected")
    return int(text)


def parse_datetime(text: str) -> datetime:
    """Parse a time; without a time zone it is in this machine's."""
    try:
        # The first and the last day of the calendar cannot be converted to another zone.
        return datetime.fromisoformat(text).astimezone()
    except (ValueError, OverflowError):
        raise argparse.ArgumentTypeError(f"{text!r} is no time: 2026-01-31T12:00 is one, Z behind it is UTC") from None


def parse_duration(text: str) -> timedelta:
    """Parse a duration, such as `30m` or `PT30M`."""
    short, iso = _SHORT.fullmatch(text), _ISO.fullmatch(text)
    try:
        if short is not None:
            return timedelta(**{_UNITS[short[2]]: int(short[1])})
        if iso is not None and any(iso.groups()):
            days, hours, minutes, seconds = (int(each or 0) for each in iso.groups())
            return timedelta(days=days, hours=hours, minutes=minutes, seconds=seconds)
    except OverflowError:
        pass
    raise argparse.ArgumentTypeError(f"{text!r} is no span: 30m, 2h, 7d and PT30M are")


def parse_time(text: str) -> datetime | timedelta | None:
    """Parse a time, or a duration before now; return `None` for text that is neither."""
    for parse in (parse_duration, parse_datetime):
        try:
            return parse(text)
        except argparse.ArgumentTypeError:
            continue
    return None


def parse_since(text: str, *, now: datetime) -> datetime | None:
    """Parse a time, or a duration before `now`, which ends in 1970; `None` for text that is neither."""
    when = parse_time(text)
    try:
        return now - when if isinstance(when, timedelta) else when
    except OverflowError:
        return datetime.fromtimestamp(0, UTC)


def parse_brokers(text: str) -> list[list[int]]:
    """Parse the brokers of each partition: `1:2,2:3` are those of two partitions."""
    if _BROKERS.fullmatch(text) is None or len(text) > _LONGEST:
        raise argparse.ArgumentTypeError(f"{text[:60]!r} names no brokers: 1:2,2:3 are those of two partitions")
    return [[int(each) for each in row.split(":")] for row in text.split(",")]


def input_name(path: str) -> str:
    """Return the name of an input for error messages; `-` is the standard input."""
    return "the standard input" if path == "-" else path


def read_input(path: str, most_bytes: int, *, remark: str = "") -> bytes:
    """Read the whole input; `remark` is the end of the error message if it is too long.

    Raises:
        ConfigError: the input is longer than `most_bytes`.
        OSError: the input cannot be opened.
    """
    if path == "-":
        data = sys.stdin.buffer.read(most_bytes + 1)
    else:
        with Path(path).open("rb") as file:
            data = file.read(most_bytes + 1)
    if len(data) > most_bytes:
        raise ConfigError(f"{input_name(path)} is longer than {most_bytes} bytes{remark}")
    return data
