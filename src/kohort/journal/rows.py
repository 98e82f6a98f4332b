"""Rows of the journal, and their format in the topic `__group_journal`.

Laws: a row has ids, epochs, codes and topic names, but no content of records or metadata. `cause` is the number of the
input that made the row. `origin` is the number of the input that began the row's rebalance, so that all rows of one
rebalance can be found from any of them.
Source: requirement J1; architecture rule 9.
"""

from __future__ import annotations

from enum import StrEnum
from json.encoder import encode_basestring
from sys import intern
from typing import Any, Final, NamedTuple

from kohort.base.jsontext import parse_json
from kohort.base.values import value

#: Most characters of one text of a row.
TEXT_LIMIT: Final = 256
#: Begin of the key in place of a group id in rows about a transactional id: no group of a client has a NUL in its name.
TRANSACTION_PREFIX: Final = "\0transaction:"


def transaction_key(transactional_id: str) -> str:
    """Return the key of the rows about a transactional id."""
    return intern(TRANSACTION_PREFIX + transactional_id)


class RowKind(StrEnum):
    """Kind of a row: an input, a decision, or a change of state that follows from it."""

    STIMULUS = "stimulus"
    DECISION = "decision"
    TRANSITION = "transition"


class Entry(NamedTuple):
    """An event reported by a coordinator; the journal adds time, sequence number and origin.

    `event`: one of a fixed set of names, lower case with underscores. `group_id`: the group, or the key of a
    transactional id (`transaction_key`), whose rows have the producer id for a member. `member_id`: empty if the event
    concerns the group. `details`: (name, value) in a fixed order per event.
    """

    kind: RowKind
    event: str
    group_id: str
    member_id: str = ""
    details: tuple[tuple[str, str], ...] = ()


@value(frozen=False)
class Row:
    """One entry in the journal; `times` above 1: it was repeated until `last_time_ms`.

    `sequence`: rises by one per row while the broker runs. `time_ms`, `last_time_ms`: milliseconds since 1970.
    """

    sequence: int
    time_ms: int
    last_time_ms: int
    times: int
    cause: int
    origin: int
    entry: Entry


# Format of rows in the topic `__group_journal`: JSON, keyed by group.
#
# Laws: `decode_row` returns the row that `encode_row` encoded, and `None` for other bytes or another version. It never
# raises.
# Source: requirement J1; the fields are those of `kohort group history --json`.

#: Version of the format; raised where a reader of today would misread new rows.
VERSION: Final = 1


def encode_row(row: Row) -> tuple[bytes, bytes]:
    """Encode a row as key and value of a record of `__group_journal`."""
    entry, quote = row.entry, encode_basestring
    details = ",".join([f"{quote(name)}:{quote(value)}" for name, value in entry.details])
    # A broker writes thousands of rows in a second: formatted by hand they take half as long.
    value = (
        f'{{"v":{VERSION},"group_id":{quote(entry.group_id)},"sequence":{row.sequence},"time_ms":{row.time_ms},'
        f'"last_time_ms":{row.last_time_ms},"times":{row.times},"cause":{row.cause},"origin":{row.origin},'
        f'"kind":"{entry.kind.value}","event":{quote(entry.event)},"member_id":{quote(entry.member_id)},'
        f'"details":{{{details}}}}}'
    )
    return encode_key(entry.group_id), value.encode("utf-8", "replace")


def encode_key(group_id: str) -> bytes:
    """Encode the key of a group's rows; a client's group id may not be valid UTF-8."""
    return group_id.encode("utf-8", "replace")


def decode_row(value: bytes | None) -> Row | None:
    """Decode the row in a record's value; `None` if it is not a valid row of this version."""
    try:
        found: dict[str, Any] = parse_json(value or b"")
        if found["v"] != VERSION:
            return None
        details = tuple((str(name), str(text)) for name, text in found["details"].items())
        return Row(
            sequence=int(found["sequence"]),
            time_ms=int(found["time_ms"]),
            last_time_ms=int(found["last_time_ms"]),
            times=int(found["times"]),
            cause=int(found["cause"]),
            origin=int(found["origin"]),
            entry=Entry(
                kind=RowKind(found["kind"]),
                event=str(found["event"]),
                group_id=str(found["group_id"]),
                member_id=str(found["member_id"]),
                details=details,
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
