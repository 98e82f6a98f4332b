"""Schedules of moves in files, as CSV with a heading or JSON objects: each partition's new owner.

Laws: an error in one line or entry refuses the whole file, and names the line or entry. A file is refused if it is
larger than the most moves that a coordinator accepts can need.
"""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final

from kohort.base.jsontext import parse_json
from kohort.cli.arguments import input_name, read_input
from kohort.client.admin.results.moves import MOST_MOVES
from kohort.errors import ConfigError
from kohort.ids import TopicPartition

#: Columns of each row; other columns are ignored.
COLUMNS: Final = ("topic", "partition", "to")
_MOST_BYTES: Final = 8 * 1024 * 1024


def read_schedule(path: str) -> dict[TopicPartition, str]:
    """Read the new owner (a member's name) of each partition from a file; `-` is the standard input.

    Raises:
        ConfigError: the file is no valid schedule; the error names the line or entry, and the reason.
        OSError: the file cannot be opened.
    """
    name = input_name(path)
    moves: dict[TopicPartition, str] = {}
    for place, row in _rows(_read(path, name), name):
        partition, to = _move(row, f"{name}, {place}")
        if partition in moves:
            raise ConfigError(f"{name}, {place}: {partition} is named twice; name it once")
        if len(moves) == MOST_MOVES:
            raise ConfigError(f"{name} has more than {MOST_MOVES} moves; that many can be submitted at once")
        moves[partition] = to
    if not moves:
        raise ConfigError(f"{name} has no moves; each has {', '.join(COLUMNS)}")
    return moves


def _read(path: str, name: str) -> str:
    data = read_input(path, _MOST_BYTES, remark=f", more than {MOST_MOVES} moves need")
    try:
        # Spreadsheets put a byte order mark in front.
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as why:
        raise ConfigError(f"{name} is no text in UTF-8: byte {why.start} is {data[why.start]:#04x}") from None


def _rows(text: str, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the position of each row in the file, as in `line 3` or `entry 3`, and its fields."""
    if text.lstrip().startswith(("[", "{")):
        yield from _json_rows(text, name)
        return
    lines = csv.DictReader(io.StringIO(text), strict=True)
    try:
        missing = [column for column in COLUMNS if column not in (lines.fieldnames or ())]
        if text.strip() and missing:
            raise ConfigError(
                f"{name} has no column {missing[0]}: its first line has to be {','.join(COLUMNS)} (or it is a JSON "
                "array of objects with these names)"
            )
        for row in lines:
            yield f"line {lines.line_num}", row
    except csv.Error as why:
        raise ConfigError(f"{name} is no CSV behind line {lines.line_num}: {why}") from None


def _json_rows(text: str, name: str) -> Iterator[tuple[str, Mapping[str, Any]]]:
    try:
        entries = parse_json(text)
    except ValueError as why:
        raise ConfigError(f"{name} is no JSON: {why}") from None
    if not isinstance(entries, list):
        raise ConfigError(f"{name} is a JSON object; an array of objects with {', '.join(COLUMNS)} is expected")
    for number, entry in enumerate(entries, 1):
        if not isinstance(entry, dict):
            raise ConfigError(f"{name}, entry {number}: {json.dumps(entry)[:40]} is no object")
        yield f"entry {number}", entry


def _move(row: Mapping[str, Any], place: str) -> tuple[TopicPartition, str]:
    topic, number, to = (row.get(column) for column in COLUMNS)
    for column, value in (("topic", topic), ("to", to)):
        if not isinstance(value, str) or not value.strip():
            raise ConfigError(f"{place}: {column} is {_shown(value)}; a name is expected")
    if isinstance(number, str) and number.strip().isdecimal() and len(number.strip()) <= 10:
        number = int(number)
    if isinstance(number, bool) or not isinstance(number, int) or number < 0:
        raise ConfigError(f"{place}: partition is {_shown(number)}; a number from 0 is expected")
    return TopicPartition(str(topic).strip(), number), str(to).strip()


def _shown(value: object) -> str:
    return "missing" if value is None else repr(value)[:40]
