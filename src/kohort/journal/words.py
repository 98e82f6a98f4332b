"""Short texts for the contents of journal rows: members, partitions, times.

Laws: a short name belongs to one member, or to all processes with one instance id. It does not change while a reader
follows the rows.
Source: `coordinator/journal_events/`, which writes the rows.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from typing import Final, Protocol

from kohort.journal.rows import TEXT_LIMIT

#: Topic and partition number.
Partition = tuple[str, int]
#: Most partitions that one text of a row names; the rest is a number.
PARTITIONS_SHOWN: Final = 32
#: Most characters of their names; a short text follows.
_NAMES_LIMIT: Final = TEXT_LIMIT - len(" and 1000000 more")
#: The pace of paused moves.
PAUSED: Final = "paused"
#: Number of cached texts: one member revokes and another gets partitions with the same text.
_TEXTS: Final = 256
#: Least number of shown characters of a member id.
_SHORTEST: Final = 4


class JournalRow(Protocol):
    """Readable fields of a row, as `HistoryEvent` of an admin client has them; ms since 1970."""

    @property
    def sequence(self) -> int: ...
    @property
    def time_ms(self) -> int: ...
    @property
    def last_time_ms(self) -> int: ...
    @property
    def times(self) -> int: ...
    @property
    def event(self) -> str: ...
    @property
    def member_id(self) -> str: ...
    @property
    def details(self) -> Mapping[str, str]: ...


class ToldRow(JournalRow, Protocol):
    """A row with its cause: the number of the coordinator's input that made the row."""

    @property
    def cause(self) -> int: ...


class MemberNames:
    """Short names of members: instance id, client id, or client id with the beginning of the member id."""

    def __init__(self) -> None:
        #: Member id -> name.
        self._names: dict[str, str] = {}

    def learn(self, events: Iterable[ToldRow]) -> None:
        """Choose short names for the members of these rows; members with a name keep it."""
        clients: dict[str, str] = {}
        instances: dict[str, str] = {}
        for event in events:
            for member_id in (event.member_id, event.details.get("former", ""), event.details.get("from", "")):
                if member_id and member_id not in self._names:
                    clients.setdefault(member_id, "")
                    instance, client = event.details.get("instance", ""), event.details.get("client", "")
                    instances.update({member_id: instance} if instance else {})
                    clients.update({member_id: client} if client and member_id == event.member_id else {})
        for member_id, instance in instances.items():
            self._names[member_id] = instance
        taken = Counter(self._names.values())
        taken.update(client for member_id, client in clients.items() if member_id not in instances)
        for member_id, client in clients.items():
            if member_id not in instances:
                is_alone = client and taken[client] == 1
                self._names[member_id] = client if is_alone else self._shorten(member_id, client)

    def of(self, member_id: str) -> str:
        """Return the short name of a member, or its member id if it has none."""
        return self._names.get(member_id, member_id)

    def within(self, text: str) -> str:
        """Replace every member id in a text by the member's short name."""
        for member_id, name in self._names.items():
            if member_id in text:
                text = text.replace(member_id, name)
        return text

    def _shorten(self, member_id: str, client: str) -> str:
        # A classic coordinator puts the client id in front of the member's own part of the id.
        own = member_id.removeprefix(f"{client}-")
        used = set(self._names.values())
        prefix = f"{client}/" if client else ""
        for length in range(_SHORTEST, len(own)):
            if prefix + own[:length] not in used:
                return prefix + own[:length]
        return prefix + own


@lru_cache(_TEXTS)
def read_partitions(text: str) -> tuple[tuple[Partition, ...], int]:
    """Parse a row's text of partitions: the named ones, and the number of further ones.

    >>> read_partitions("orders-0 my-topic-11 and 3 more")
    ((('orders', 0), ('my-topic', 11)), 3)
    """
    named, _, more = text.partition(" and ")
    pairs = (name.rpartition("-") for name in named.split())
    found = tuple((topic, int(number)) for topic, _, number in pairs if topic and number.isdecimal())
    count = more.partition(" ")[0]
    return found, int(count) if count.isdecimal() else 0


def write_partitions(partitions: Iterable[Partition]) -> str:
    """Format partitions for a row; `read_partitions` reads the text.

    >>> write_partitions([("orders", 1), ("orders", 0)])
    'orders-0 orders-1'
    """
    shown = sorted(partitions)
    names = [f"{topic}-{number}" for topic, number in shown[:PARTITIONS_SHOWN]]
    # The journal would cut a longer text within a name, which would then be that of another partition.
    while names and sum(map(len, names)) + len(names) > _NAMES_LIMIT:
        names.pop()
    more = len(shown) - len(names)
    return " ".join(names) + (f" and {more} more" if more > 0 else "")


def show_partitions(partitions: Iterable[Partition]) -> str:
    """Format a set of partitions as a short text.

    >>> show_partitions([("orders", 0), ("returns", 1), ("orders", 1)])
    'orders:0-1 returns:1'
    """
    shown = []
    for topic, rows in groupby(sorted(partitions), key=lambda row: row[0]):
        numbers = [number for _, number in rows]
        runs = [
            [number for _, number in run] for _, run in groupby(enumerate(numbers), key=lambda pair: pair[1] - pair[0])
        ]
        shown.append(f"{topic}:" + ",".join(str(run[0]) if len(run) == 1 else f"{run[0]}-{run[-1]}" for run in runs))
    return " ".join(shown) or "-"


def name_principal(said: str, by: str, word: str = "by") -> str:
    """Add the principal of a request to a sentence, in place of "an administrator" if that is in it.

    Otherwise `word` and the principal are appended.

    >>> name_principal("ann was removed by an administrator", "User:root")
    'ann was removed by User:root'
    >>> name_principal("ann left", "User:ann")
    'ann left, by User:ann'
    """
    if not by:
        return said
    return said.replace("an administrator", by) if "an administrator" in said else f"{said}, {word} {by}"


def show_principal(principal: str, label: str) -> str:
    """Format a principal, with the label of its capability token if there is one.

    >>> show_principal("User:ann", ""), show_principal("Token:x", "billing")
    ('User:ann', 'Token:x (billing)')
    """
    return f"{principal} ({label})" if label else principal


def show_clock(time_ms: int) -> str:
    """Format a time of day in the local time zone."""
    return f"{datetime.fromtimestamp(time_ms / 1000):%H:%M:%S.%f}"[:-3]


def show_duration(ms: int) -> str:
    """Format a time span.

    >>> [show_duration(ms) for ms in (0, 350, 5_040, 61_000, 3_723_000)]
    ['0 ms', '350 ms', '5.0 s', '61 s', '62 min']
    """
    if ms < 1_000:
        return f"{ms} ms"
    if ms < 10_000:
        return f"{ms / 1000:.1f} s"
    return f"{ms / 1000:.0f} s" if ms < 600_000 else f"{ms / 60_000:.0f} min"
