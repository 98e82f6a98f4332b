"""Rows of the journal.

Laws: a row holds no payload: only ids, epochs, codes and names of topics, no content of records or metadata. `cause` is
the input that made the row; `origin` is the input that began the rebalance it belongs to, so that every step of one
rebalance can be found from any of them.
Source: requirement J1; architecture rule 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

#: Most characters of one text of a row.
TEXT_LIMIT: Final = 256


class RowKind(StrEnum):
    """Kind of a row: the input, a decision, or a change by it."""

    STIMULUS = "stimulus"
    DECISION = "decision"
    TRANSITION = "transition"


class Entry(NamedTuple):
    """Report of a coordinator; the journal adds time, order and origin.

    `event`: one of a fixed set of names, lower case with underscores. `member_id`: empty where the row is about the
    group. `details`: (name, value) in a fixed order per event.
    """

    kind: RowKind
    event: str
    group_id: str
    member_id: str = ""
    details: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True, kw_only=True)
class Row:
    """One entry in its place; `times` above 1: it was repeated until `last_time_ms` with no other between.

    `sequence`: rises by one per row while the broker runs. `time_ms`, `last_time_ms`: milliseconds since 1970.
    """

    sequence: int
    time_ms: int
    last_time_ms: int
    times: int
    cause: int
    origin: int
    entry: Entry
