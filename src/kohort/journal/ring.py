"""Latest rows of a broker's journal, in memory.

Laws: the number of rows and the length of each text are bounded. When the journal is full, the group with most rows
loses its oldest one, so that no group displaces rows of a smaller one. All rows of a group between two targets, or
between two generations, have one origin: the first trigger. Heartbeats and commits that change nothing are counted
only. A repeated refusal, or an action of a member for which others wait, is one row with a count.
Source: requirement J1.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Final

from kohort.base import values
from kohort.journal.rows import TEXT_LIMIT, TRANSACTION_PREFIX, Entry, Row

#: Events that begin a rebalance: the next rows of the group have their cause as origin.
BEGINNINGS: Final = frozenset({"epoch_bumped", "rebalance_began"})
#: Events after which any later change begins another rebalance.
ANSWERS: Final = frozenset({"target_computed", "generation_began", "group_converted"})
#: Commands of an administrator: neither they nor their direct effects belong to the previous rebalance.
APART: Final = frozenset({"AlterGroupConfigs", "DeleteGroup", "DeleteOffsets"})
#: Group id of rows about the broker.
OF_NO_GROUP: Final = ""
#: Events that remove the group or the transactional id, and its counts.
ENDS: Final = frozenset({"group_forgotten", "transactional_id_forgotten"})
#: Events whose rows of a member are counted up as long as no other row of the member comes.
REPEATED: Final = frozenset({
    "meanwhile", "refused", "transaction_began", "transaction_completed", "transaction_decided"
})  # fmt: skip
#: Removed rows stay in the list until they are more than one in this many.
_MOST_GONE: Final = 8
#: Most members of groups whose latest rows are compared with new ones, and most rows of each.
_REPEATS_LIMIT: Final = 1_024
_REPEATS_OF_MEMBER: Final = 4
#: One in so many rows may be about transactional ids, which are many more than groups.
_TRANSACTIONAL_SHARE: Final = 4


@values.value
class History:
    """Rows of one group, oldest first, and the counts of events without rows.

    `is_complete`: no older rows of the group existed, not even before a restart. `has_more`: the limit cut the list.
    """

    rows: tuple[Row, ...]
    counts: dict[str, int]
    is_complete: bool
    has_more: bool


class _Shelf:
    """Rows of one group, oldest first, and whether older ones were dropped."""

    __slots__ = ("_gone", "_rows", "is_cut")

    def __init__(self, *, is_cut: bool) -> None:
        self._rows: Final[list[Row]] = []
        #: Number of removed rows at the front; to delete each by itself would move all the others.
        self._gone = 0
        self.is_cut = is_cut

    def __len__(self) -> int:
        return len(self._rows) - self._gone

    def all(self) -> list[Row]:
        """Return every row."""
        return self._rows[self._gone :]

    def append(self, row: Row) -> None:
        """Append a row."""
        self._rows.append(row)

    def drop_oldest(self) -> None:
        """Drop the oldest row."""
        self._gone += 1
        self.is_cut = True
        # Deletion at the front of a list moves all other rows, so it waits until many are gone.
        if self._gone * _MOST_GONE > len(self._rows):
            del self._rows[: self._gone]
            self._gone = 0


class Journal:
    """Journal of all groups of a broker.

    >>> from kohort.journal.rows import RowKind
    >>> journal = Journal(limit=100)
    >>> joined = Entry(kind=RowKind.TRANSITION, event="member_joined", group_id="g", member_id="m")
    >>> journal.record([joined], cause=7, now_ms=1_000)
    >>> [row.entry.event for row in journal.history("g").rows]
    ['member_joined']
    """

    def __init__(self, *, limit: int, counted_groups: int = 100_000) -> None:
        """Create a journal of at most `limit` rows; 0 turns it off.

        `counted_groups`: most groups with a count of the same event.
        """
        self._counted_groups: Final = counted_groups
        self._limit: Final = limit
        self._next = self._first = 1
        #: Called with each new row, and with a repeated one whenever its count has doubled.
        self.on_row: Callable[[Row], None] = lambda _: None
        #: Number of rows.
        self._size = 0
        #: Group -> its rows, at least one.
        self._shelves: Final[dict[str, _Shelf]] = {}
        #: Number of rows -> groups with so many, in the order in which they reached it; no empty entry. Filled when the
        #: journal is full for the first time.
        self._by_size: Final[dict[int, OrderedDict[str, None]]] = {}
        #: Upper bound of the number of rows of any group.
        self._largest = 0
        #: Whether a group, any of them, has lost all of its rows.
        self._has_lost_groups = False
        #: Transactional ids with rows, in the order of their first one; how many rows; whether any has lost all of its.
        self._transactional: Final[dict[str, None]] = {}
        self._transactional_size = 0
        self._has_lost_ids = False
        #: Group -> the input that began its latest rebalance, and the reason.
        self._origins: Final[dict[str, int]] = {}
        #: Groups whose latest rebalance has no target or generation yet: new triggers belong to it.
        self._unanswered: Final[set[str]] = set()
        self._reasons: Final[dict[str, str]] = {}
        #: Counted event -> group -> count; by groups within, as they are many and the events are few.
        self._counts: Final[dict[str, dict[str, int]]] = {}
        #: (group, member) -> its latest rows that may be repeated.
        self._repeatable: Final[dict[tuple[str, str], list[Row]]] = {}

    @property
    def is_on(self) -> bool:
        """Whether the journal keeps rows."""
        return self._limit > 0

    def record(self, entries: Iterable[Entry], *, cause: int, now_ms: int) -> None:
        """Append the rows of one input; `now_ms` is the time of day."""
        entries = list(entries)
        is_apart = False
        for entry in entries:
            is_apart = is_apart or entry.event in APART
            if entry.event in BEGINNINGS:
                # A change before the target of the latest rebalance belongs to that rebalance.
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
                # A command of an administrator is an origin of its own.
                origin=cause if is_apart else self._origins.get(group_id, cause),
                entry=_shorten(entry),
            )
            if entry.event in REPEATED and self._is_repeated(row):
                continue
            # Another row of the member ends the repetition: later equal rows start a new one.
            if entry.event not in REPEATED:
                self._repeatable.pop((group_id, entry.member_id), None)
            self._next += 1
            self._keep(row)
            self.on_row(row)
            if entry.event in ANSWERS:
                self._unanswered.discard(group_id)
            # A new group with this id has nothing in common with the old one.
            if entry.event in ENDS:
                self._unanswered.discard(group_id)
                self._origins.pop(group_id, None)
                self._reasons.pop(group_id, None)
                for counts in self._counts.values():
                    # Sequence numbers continue over restarts, so that a reader of `__group_journal` can order all rows.
                    counts.pop(group_id, None)

    def resume(self, last_sequence: int) -> None:
        """Continue the sequence numbers of an earlier run; call this before the first row of this run."""
        assert self._next == 1, "a life begins once"
        self._next = self._first = last_sequence + 1

    def count(self, group_id: str, what: str) -> None:
        """Count an event that gets no row."""
        counts = self._counts.get(what)
        if counts is None:
            counts = self._counts[what] = {}
        times = counts.get(group_id, 0)
        counts[group_id] = times + 1
        # Beyond the limit the group that was counted first is forgotten.
        if not times and len(counts) > self._counted_groups:
            del counts[next(iter(counts))]

    def counted(self, group_id: str, what: str) -> int:
        """Return the count of an event that gets no row; -1: the journal is off."""
        return self._counts.get(what, {}).get(group_id, 0) if self.is_on else -1

    def reason(self, group_id: str) -> str | None:
        """Return why the group's latest rebalance began; `None` if none has since the broker started."""
        return self._reasons.get(group_id)

    def history(self, group_id: str, *, after: int = 0, limit: int = 10_000) -> History:
        """Return at most `limit` rows of a group with a sequence above `after`, the oldest first."""
        # Rows about the broker are included between the group's own, and before them where older ones may be missing.
        shelf = self._shelves.get(group_id)
        rows = [] if shelf is None else shelf.all()
        is_cut = self._has_lost_groups if shelf is None else shelf.is_cut
        # An earlier run has had rows, perhaps also of this group.
        is_complete = not is_cut and self._first == 1
        common = self._shelves.get(OF_NO_GROUP)
        # A crash may have cost rows of any group with older ones: its row stands among theirs.
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
        """Append a row to its group's rows, and drop an old one if the journal is full."""
        if self._limit <= 0:
            return
        group_id = row.entry.group_id
        shelf = self._shelves.get(group_id)
        if shelf is None:
            # A new list is incomplete if the group may have had rows before.
            is_transactional = group_id.startswith(TRANSACTION_PREFIX)
            shelf = self._shelves[group_id] = _Shelf(
                is_cut=self._has_lost_ids if is_transactional else self._has_lost_groups
            )
            if is_transactional:
                self._transactional[group_id] = None
        shelf.append(row)
        if self._by_size and self._size == self._limit and group_id in self._by_size[self._largest]:
            # The group has more rows than any other by now.
            shelf.drop_oldest()
            return
        self._size += 1
        if self._by_size:
            self._resized(group_id, len(shelf) - 1, len(shelf))
        if group_id in self._transactional:
            self._transactional_size += 1
            if self._transactional_size > max(1, self._limit // _TRANSACTIONAL_SHARE):
                self._drop_from(next(iter(self._transactional)))
        # Until the journal is full, no group has to lose rows, and their sizes need not be known.
        if self._size > self._limit:
            if not self._by_size:
                for each, rows in self._shelves.items():
                    self._resized(each, 0, len(rows))
            self._drop_from(next(iter(self._by_size[self._largest])))

    def _drop_from(self, group_id: str) -> None:
        shelf = self._shelves[group_id]
        shelf.drop_oldest()
        self._size -= 1
        is_transactional = group_id in self._transactional
        self._transactional_size -= is_transactional
        if not len(shelf):
            del self._shelves[group_id]
            if is_transactional:
                del self._transactional[group_id]
                self._has_lost_ids = True
            else:
                self._has_lost_groups = True
        if self._by_size:
            self._resized(group_id, len(shelf) + 1, len(shelf))

    def _resized(self, group_id: str, before: int, after: int) -> None:
        """Update the index of groups by their number of rows, after one row more or less."""
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
            # Only one size changes at a time, so the next largest is the same or one less.
            self._largest = after

    def _is_repeated(self, row: Row) -> bool:
        """Return whether a row repeats one of the member's latest rows, and count that one up."""
        key = (row.entry.group_id, row.entry.member_id)
        latest = self._repeatable.get(key, [])
        # A row that was dropped with all others of its group says nothing any more.
        has_rows = not self.is_on or row.entry.group_id in self._shelves
        for last in latest if has_rows else ():
            if last.entry == row.entry:
                last.times += 1
                last.last_time_ms = row.time_ms
                # Each doubling is written again: few writes, and a count that is never off by more than half.
                if not last.times & (last.times - 1):
                    self.on_row(last)
                return True
        # Forgetting is harmless: the next equal row starts a new count.
        if key not in self._repeatable and len(self._repeatable) >= _REPEATS_LIMIT:
            del self._repeatable[next(iter(self._repeatable))]
        self._repeatable[key] = [*latest[1 - _REPEATS_OF_MEMBER :], row]
        return False


def _reason(beginning: Entry, entries: Iterable[Entry]) -> str:
    """Return the trigger of a rebalance, with the reason that was given or a member of the same input."""
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
