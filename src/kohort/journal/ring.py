"""The latest rows of a broker, in memory.

Laws: bounded in rows and in the length of each text. Where there is no room left, the group that has most rows loses
its oldest: no group washes out the rows of one that has fewer. All that happens to a group between two targets, or
between two generations, has one origin: the first of what set it off. What repeats (a heartbeat that changes nothing, a
commit) is counted; a refusal that repeats, or what a member does while others wait for it, is one row with a count.
Source: requirement J1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from kohort.journal.rows import TEXT_LIMIT, Entry, Row

#: Events with which a rebalance begins: what follows in the group has them for its origin.
BEGINNINGS: Final = frozenset({"epoch_bumped", "rebalance_began"})
#: What answers them: whatever changes after it sets off another rebalance.
ANSWERS: Final = frozenset({"target_computed", "generation_began", "group_converted"})
#: What an administrator asks for: neither it nor what follows at once belongs to the rebalance before it.
APART: Final = frozenset({"AlterGroupConfigs", "DeleteGroup", "DeleteOffsets"})
#: The group of rows that tell of the broker.
OF_NO_GROUP: Final = ""
#: After this the group is gone, and what was counted for it.
END: Final = "group_forgotten"
#: Events of which a member's rows are counted up as long as nothing else happens to it.
REPEATED: Final = frozenset({"refused", "meanwhile"})
#: A part of so many of a group's rows may be gone before they are moved up.
_MOST_GONE: Final = 8
#: Repeated rows are sought among this many groups and members, and this many of each.
_REPEATS_LIMIT: Final = 1_024
_REPEATS_OF_MEMBER: Final = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Rows of one group, oldest first, and what was only counted.

    `is_complete`: the group has no older rows, be it in an earlier life. `has_more`: the limit cut the list.
    """

    rows: tuple[Row, ...]
    counts: dict[str, int]
    is_complete: bool
    has_more: bool


class _Shelf:
    """The rows of one group, oldest first, and whether older ones are gone."""

    __slots__ = ("_gone", "_rows", "is_cut")

    def __init__(self, *, is_cut: bool) -> None:
        self._rows: Final[list[Row]] = []
        #: So many at the front are no more; to take each out by itself would move all that are behind it.
        self._gone = 0
        self.is_cut = is_cut

    def __len__(self) -> int:
        return len(self._rows) - self._gone

    def all(self) -> list[Row]:
        """Every row."""
        return self._rows[self._gone :]

    def append(self, row: Row) -> None:
        """Put a row behind the others."""
        self._rows.append(row)

    def drop_oldest(self) -> None:
        """Put the first row away."""
        self._gone += 1
        self.is_cut = True
        if self._gone * _MOST_GONE > len(self._rows):
            del self._rows[: self._gone]
            self._gone = 0


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
        self._limit: Final = limit
        self._next = self._first = 1
        #: Called with each new row, and with one that was repeated whenever its number has doubled.
        self.on_row: Callable[[Row], None] = lambda _: None
        #: How many rows there are.
        self._size = 0
        #: Group -> its rows, at least one.
        self._shelves: Final[dict[str, _Shelf]] = {}
        #: Number of rows -> the groups that have so many, in the order in which they came to it; none is empty. Nobody
        #: asks before the journal is full for the first time.
        self._by_size: Final[dict[int, OrderedDict[str, None]]] = {}
        #: No group has more rows than this.
        self._largest = 0
        #: Whether all the rows of some group are gone, whichever it was.
        self._has_lost_groups = False
        #: Group -> the input that began its latest rebalance, and why there is one.
        self._origins: Final[dict[str, int]] = {}
        #: Groups whose latest rebalance has no target or generation yet: what comes now belongs to it.
        self._unanswered: Final[set[str]] = set()
        self._reasons: Final[dict[str, str]] = {}
        #: What was counted -> group -> how often; by groups within, since they are many and the names are few.
        self._counts: Final[dict[str, dict[str, int]]] = {}
        #: (group, member) -> its latest rows that may be repeated.
        self._repeatable: Final[dict[tuple[str, str], list[Row]]] = {}

    @property
    def is_on(self) -> bool:
        """Whether rows are kept at all."""
        return self._limit > 0

    @property
    def first_sequence(self) -> int:
        """The number of this life's first row."""
        return self._first

    def record(self, entries: Iterable[Entry], *, cause: int, now_ms: int) -> None:
        """Append what one input led to; `now_ms` is the time of day."""
        entries = list(entries)
        is_apart = False
        for entry in entries:
            is_apart = is_apart or entry.event in APART
            if entry.event in BEGINNINGS:
                if entry.group_id not in self._unanswered:
                    self._unanswered.add(entry.group_id)
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
            if entry.event in REPEATED and self._is_repeated(row):
                continue
            if entry.event not in REPEATED:
                self._repeatable.pop((group_id, entry.member_id), None)
            self._next += 1
            self._keep(row)
            self.on_row(row)
            if entry.event in ANSWERS:
                self._unanswered.discard(group_id)
            if entry.event == END:
                self._unanswered.discard(group_id)
                self._origins.pop(group_id, None)
                self._reasons.pop(group_id, None)
                for counts in self._counts.values():
                    counts.pop(group_id, None)

    def resume(self, last_sequence: int) -> None:
        """Go on behind the rows of an earlier life, before any row of this one."""
        assert self._next == 1, "a life begins once"
        self._next = self._first = last_sequence + 1

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
        """The rows of one group with a sequence above `after`; at most `limit`, the oldest of them.

        Rows of no group, which tell of the broker, are among those of each that has, or may have, older ones.
        """
        shelf = self._shelves.get(group_id)
        rows = [] if shelf is None else shelf.all()
        is_cut = self._has_lost_groups if shelf is None else shelf.is_cut
        # An earlier life has had rows, and this group perhaps some of them.
        is_complete = not is_cut and self._first == 1
        common = self._shelves.get(OF_NO_GROUP)
        if common is not None and group_id != OF_NO_GROUP and (rows or not is_complete):
            later = (row for row in common.all() if not is_complete or row.sequence > rows[0].sequence)
            rows = sorted((*rows, *later), key=lambda row: row.sequence)
        first = bisect_right(rows, after, key=lambda row: row.sequence)
        found = rows[first : first + limit]
        return History(
            rows=tuple(found),
            counts={what: counts[group_id] for what, counts in sorted(self._counts.items()) if group_id in counts},
            is_complete=is_complete,
            has_more=first + len(found) < len(rows),
        )

    def _keep(self, row: Row) -> None:
        """Put a row where its group's are, and another one away where there is no room."""
        if self._limit <= 0:
            return
        group_id = row.entry.group_id
        shelf = self._shelves.get(group_id)
        if shelf is None:
            shelf = self._shelves[group_id] = _Shelf(is_cut=self._has_lost_groups)
        shelf.append(row)
        if self._by_size and self._size == self._limit and group_id in self._by_size[self._largest]:
            # It has more than any other by now.
            shelf.drop_oldest()
            return
        self._size += 1
        if self._by_size:
            self._resized(group_id, len(shelf) - 1, len(shelf))
        if self._size > self._limit:
            if not self._by_size:
                for each, rows in self._shelves.items():
                    self._resized(each, 0, len(rows))
            self._drop_from(next(iter(self._by_size[self._largest])))

    def _drop_from(self, group_id: str) -> None:
        shelf = self._shelves[group_id]
        shelf.drop_oldest()
        self._size -= 1
        if not len(shelf):
            del self._shelves[group_id]
            self._has_lost_groups = True
        self._resized(group_id, len(shelf) + 1, len(shelf))

    def _resized(self, group_id: str, before: int, after: int) -> None:
        """Note how many rows a group has; it is one more or one less than before."""
        if before:
            groups = self._by_size[before]
            del groups[group_id]
            if not groups:
                del self._by_size[before]
        if after:
            if after not in self._by_size:
                self._by_size[after] = OrderedDict()
            self._by_size[after][group_id] = None
        if after > self._largest or self._largest not in self._by_size:
            self._largest = after

    def _is_repeated(self, row: Row) -> bool:
        """Whether one of the member's latest rows said the same; then that one is counted up."""
        key = (row.entry.group_id, row.entry.member_id)
        latest = self._repeatable.get(key, [])
        for last in latest:
            if last.entry == row.entry:
                last.times += 1
                last.last_time_ms = row.time_ms
                if not last.times & (last.times - 1):
                    self.on_row(last)
                return True
        if len(self._repeatable) >= _REPEATS_LIMIT:
            self._repeatable.clear()
        self._repeatable[key] = [*latest[1 - _REPEATS_OF_MEMBER :], row]
        return False


def _reason(beginning: Entry, entries: Iterable[Entry]) -> str:
    """In the coordinator's words; where these do not say it, the member that is in the same rows stands behind them."""
    details = dict(beginning.details)
    trigger = details.get("trigger", "")
    why = details.get("why") or next((entry.member_id for entry in entries if entry.member_id), "")
    return ": ".join(filter(None, (trigger, why)))[:TEXT_LIMIT]


def _shorten(entry: Entry) -> Entry:
    is_short = len(entry.member_id) <= TEXT_LIMIT
    for _, value in entry.details:
        is_short = is_short and len(value) <= TEXT_LIMIT
    if is_short:
        return entry
    return entry._replace(
        member_id=entry.member_id[:TEXT_LIMIT],
        details=tuple((name, value[:TEXT_LIMIT]) for name, value in entry.details),
    )
