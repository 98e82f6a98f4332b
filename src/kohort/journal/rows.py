"""What one row of the journal says.

Laws: a row holds no payload: ids, epochs, codes and names of topics, nothing that a client wrote into records or
metadata. `cause` is the input that made the row; `origin` is the input that began the rebalance it belongs to, so that
every step of one rebalance can be found from any of them.
Source: requirement J1; architecture rule 9.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

#: Characters of one text of a row that are kept.
TEXT_LIMIT: Final = 256


class RowKind(StrEnum):
    """What came in, what was decided, and what has changed by it."""

    STIMULUS = "stimulus"
    DECISION = "decision"
    TRANSITION = "transition"


class Entry(NamedTuple):
    """What a coordinator tells; the journal adds when, in what order, and why.

    `event`: one of a fixed set of names, lower case with underscores. `member_id`: empty where it is about the group.
    `details`: (name, value) in a fixed order per event.
    """

    kind: RowKind
    event: str
    group_id: str
    member_id: str = ""
    details: tuple[tuple[str, str], ...] = ()


@dataclass(slots=True, kw_only=True)
class Row:
    """One entry in its place; `times` above 1: it was repeated until `last_time_ms` with nothing else in between.

    `sequence`: rises by one per row of a broker's life. `time_ms`, `last_time_ms`: milliseconds since 1970.
    """

    sequence: int
    time_ms: int
    last_time_ms: int
    times: int
    cause: int
    origin: int
    entry: Entry
