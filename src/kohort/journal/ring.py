"""The latest rows of a broker, in memory.

Laws: bounded in rows and in the length of each text; the oldest row goes first, whatever group it is of. What repeats
(a heartbeat that changes nothing, a commit) is counted; a refusal that repeats is one row with a count.
Source: requirement J1.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final

from kohort.journal.rows import Entry, Row

#: Characters of one text that are kept.
TEXT_LIMIT: Final = 256
#: Events with which a rebalance begins: what follows in the group has them for its origin.
BEGINNINGS: Final = frozenset({"epoch_bumped", "rebalance_began"})
#: What an administrator asks for: neither it nor what follows at once belongs to the rebalance before it.
APART: Final = frozenset({"AlterGroupConfigs", "DeleteGroup", "DeleteOffsets"})
#: After this the group is gone, and what was counted for it.
END: Final = "group_forgotten"
#: Repeated rows are sought among this many groups and members.
_REPEATS_LIMIT: Final = 1_024


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Rows of one group, oldest first, and what was only counted.

    `is_complete`: no row of any group has been dropped since the broker started. `has_more`: the limit cut the list.
    """

    rows: tuple[Row, ...]
    counts: dict[str, int]
    is_complete: bool
    has_more: bool


class Journal:
    """Takes rows and gives them back.

    >>> from kohort.journal.rows import RowKind
    >>> journal = Journal(limit=100)
    >>> joined = Entry(kind=RowKind.TRANSITION, event="member_joined", group_id="g", member_id="m")
    >>> journal.record([joined], cause=7, now_ms=1_000)
    >>> [row.entry.event for row in journal.history("g").rows]
    ['member_joined']
    """

    def __init__(self, *, limit: int, counted_groups: int = 100_000) -> None:
        """`limit`: how many rows are kept; 0 keeps none. `counted_groups`: for how many groups each number is kept."""
        self._counted_groups: Final = counted_groups
        self._rows: Final[deque[Row]] = deque(maxlen=limit)
        self._next = 1
        #: Group -> the input that began its latest rebalance, and why there is one.
        self._origins: Final[dict[str, int]] = {}
        self._reasons: Final[dict[str, str]] = {}
        #: What was counted -> group -> how often; by groups within, since they are many and the names are few.
        self._counts: Final[dict[str, dict[str, int]]] = {}
        #: (group, member) -> its latest row that may be repeated.
        self._repeatable: Final[dict[tuple[str, str], Row]] = {}

    @property
    def is_on(self) -> bool:
        """Whether rows are kept at all."""
        return self._rows.maxlen != 0

    def record(self, entries: Iterable[Entry], *, cause: int, now_ms: int) -> None:
        """Append what one input led to; `now_ms` is the time of day."""
        entries = list(entries)
        is_apart = False
        for entry in entries:
            is_apart = is_apart or entry.event in APART
            if entry.event in BEGINNINGS:
                self._origins[entry.group_id] = cause
                self._reasons[entry.group_id] = _reason(entry, entries)
        for entry in entries:
            group_id = entry.group_id
            row = Row(
                sequence=self._next,
                time_ms=now_ms,
                last_time_ms=now_ms,
                times=1,
                cause=cause,
                origin=cause if is_apart else self._origins.get(group_id, cause),
                entry=_shorten(entry),
            )
            if entry.event == "refused" and self._is_repeated(row):
                continue
            if entry.event != "refused":
                self._repeatable.pop((group_id, entry.member_id), None)
            self._next += 1
            self._rows.append(row)
            if entry.event == END:
                self._origins.pop(group_id, None)
                self._reasons.pop(group_id, None)
                for counts in self._counts.values():
                    counts.pop(group_id, None)

    def count(self, group_id: str, what: str) -> None:
        """Something happened that changed nothing but a number."""
        counts = self._counts.get(what)
        if counts is None:
            counts = self._counts[what] = {}
        times = counts.get(group_id, 0)
        counts[group_id] = times + 1
        if not times and len(counts) > self._counted_groups:
            del counts[next(iter(counts))]

    def reason(self, group_id: str) -> str | None:
        """Why the group's latest rebalance began; `None` if none has since the broker started."""
        return self._reasons.get(group_id)

    def history(self, group_id: str, *, after: int = 0, limit: int = 10_000) -> History:
        """The rows of one group with a sequence above `after`; at most `limit`, the oldest of them."""
        found: list[Row] = []
        has_more = False
        for row in self._rows:
            if row.sequence <= after or row.entry.group_id != group_id:
                continue
            if len(found) == limit:
                has_more = True
                break
            found.append(row)
        return History(
            rows=tuple(found),
            counts={what: counts[group_id] for what, counts in sorted(self._counts.items()) if group_id in counts},
            is_complete=self._next - 1 == len(self._rows),
            has_more=has_more,
        )

    def _is_repeated(self, row: Row) -> bool:
        """Whether the member's latest row said the same; then that one is counted up."""
        key = (row.entry.group_id, row.entry.member_id)
        last = self._repeatable.get(key)
        if last is not None and last.entry == row.entry:
            last.times += 1
            last.last_time_ms = row.time_ms
            return True
        if len(self._repeatable) >= _REPEATS_LIMIT:
            self._repeatable.clear()
        self._repeatable[key] = row
        return False


def _reason(beginning: Entry, entries: Iterable[Entry]) -> str:
    """In the coordinator's words; where these do not say it, the member that is in the same rows stands behind them."""
    details = dict(beginning.details)
    trigger = details.get("trigger", "")
    why = details.get("why") or next((entry.member_id for entry in entries if entry.member_id), "")
    return ": ".join(filter(None, (trigger, why)))[:TEXT_LIMIT]


def _shorten(entry: Entry) -> Entry:
    if len(entry.member_id) <= TEXT_LIMIT and all(len(value) <= TEXT_LIMIT for _, value in entry.details):
        return entry
    return replace(
        entry,
        member_id=entry.member_id[:TEXT_LIMIT],
        details=tuple((name, value[:TEXT_LIMIT]) for name, value in entry.details),
    )
