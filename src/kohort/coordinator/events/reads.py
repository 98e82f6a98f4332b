"""Times between two readers of a partition: the last fetch of the old owner, the first of the new.

A member whose fetches name it is seen to read. Its latest fetch counts, until it is told to revoke partitions. Any
other member is taken to read as long as it is heard of, or as its connection stands, and a commit shows that it has
read. The next owner reads from its first fetch of the partition; a fetch without a member id counts for the members
with that client id and host. Where no fetch of the next owner is ever seen, its first commit shows that it reads by
then.

Laws: no decision is made here. Of a group at rest only the time of each member's latest fetch is kept. The memory is
bounded: beyond it the oldest entries are forgotten, and the journal reports nothing of them.
Source: requirement J1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kohort.journal.words import Partition

#: Group id and member id.
MemberKey = tuple[str, str]
#: Client id and address, as a member has them.
ClientKey = tuple[str, str]

#: Most remembered members with a latest fetch, and most partitions that wait for their next reader.
_MEMBERS_LIMIT: Final = 100_000
_PARTITIONS_LIMIT: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRead:
    """Last time at which a member has read a partition, milliseconds of the coordinator.

    `is_seen`: a fetch, or the end of its connection, shows it; else the member may have read longer than known.
    """

    reader: str
    read_ms: int
    is_seen: bool

    def later(self, by_ms: int) -> LastRead:
        """Return the value with its time after a step of the clock."""
        return replace(self, read_ms=self.read_ms + by_ms)

    def details(self, now_ms: int | None = None) -> dict[str, str]:
        """Return the details of a journal row; `now_ms`: time of the next read, `None`: there is none."""
        unread = "" if now_ms is None else str(max(0, now_ms - self.read_ms))
        return {"read_ms": str(self.read_ms), "unread_ms": unread, "at_most": "" if self.is_seen else "true"}


class Reads:
    """Reads of all groups of a broker."""

    __slots__ = ("_client_of", "_clients", "_looked", "_size", "awaited", "fetched")

    def __init__(self) -> None:
        #: Member -> time of its latest fetch, or of the end of a waiting fetch's connection.
        self.fetched: Final[dict[MemberKey, int]] = {}
        #: Member -> partition from another member that it has not read yet -> that one's last read. No empty inner
        #: mapping.
        self.awaited: Final[dict[MemberKey, dict[Partition, LastRead]]] = {}
        #: Client -> members of `awaited` that it may be (the values mean nothing); and member -> client.
        self._clients: Final[dict[ClientKey, dict[MemberKey, None]]] = {}
        self._client_of: Final[dict[MemberKey, ClientKey]] = {}
        #: Member of `awaited` -> connections with a checked fetch since: their later fetches name only what is new.
        self._looked: Final[dict[MemberKey, set[int]]] = {}
        #: Number of partitions in `awaited`.
        self._size = 0

    def follow_clock(self, by_ms: int) -> None:
        """Shift all times by a step of the clock."""
        for key in self.fetched:
            self.fetched[key] += by_ms
        for awaited in self.awaited.values():
            for partition, last in awaited.items():
                awaited[partition] = last.later(by_ms)

    def note(self, key: MemberKey, now_ms: int) -> None:
        """Note a member's fetch: now, or as waiting when its connection ended."""
        self.fetched[key] = now_ms
        if len(self.fetched) > _MEMBERS_LIMIT:
            del self.fetched[next(iter(self.fetched))]

    def expect(self, key: MemberKey, client: ClientKey, partitions: Mapping[Partition, LastRead]) -> None:
        """Note that a member has got partitions that another one has read."""
        if not partitions:
            return
        awaited = self.awaited.setdefault(key, {})
        self._size -= len(awaited)
        awaited.update(partitions)
        self._size += len(awaited)
        self._looked.pop(key, None)
        self._clients.setdefault(self._client_of.setdefault(key, client), {})[key] = None
        while self._size > _PARTITIONS_LIMIT:
            self._end(next(iter(self.awaited)))

    def of_client(self, client: ClientKey) -> Iterable[MemberKey]:
        """Return the waiting members that may be that client."""
        return tuple(self._clients.get(client, ()))

    def is_new(self, key: MemberKey, connection: int) -> bool:
        """Whether a fetch is the first of its connection since the member waits to read."""
        looked = self._looked.setdefault(key, set()) if key in self.awaited else None
        if looked is None or connection in looked:
            return False
        looked.add(connection)
        return True

    def begin(self, key: MemberKey, named: Iterable[Partition]) -> Iterator[tuple[LastRead, list[Partition]]]:
        """Note that a member reads partitions; yield the ones new to it, grouped by last read."""
        awaited = self.awaited.get(key)
        if awaited is None:
            return
        found: dict[LastRead, list[Partition]] = {}
        for partition in named:
            last = awaited.pop(partition, None)
            if last is not None:
                self._size -= 1
                found.setdefault(last, []).append(partition)
        if not awaited:
            self._end(key)
        yield from found.items()

    def let_go(self, key: MemberKey, partition: Partition) -> LastRead | None:
        """Note that a member lost a partition; return its last reader if the member never read it."""
        awaited = self.awaited.get(key)
        last = None if awaited is None else awaited.pop(partition, None)
        if last is not None:
            self._size -= 1
        if awaited is not None and not awaited:
            self._end(key)
        return last

    def forget(self, key: MemberKey) -> None:
        """Forget a removed member, whose partitions were released before."""
        self.fetched.pop(key, None)
        self._end(key)

    def rename(self, former: MemberKey, key: MemberKey, client: ClientKey) -> None:
        """Pass a member's entries on to the process that replaces it."""
        awaited = dict(self.awaited.get(former, {}))
        self.forget(former)
        self.expect(key, client, awaited)

    def _end(self, key: MemberKey) -> None:
        self._size -= len(self.awaited.pop(key, ()))
        self._looked.pop(key, None)
        client = self._client_of.pop(key, None)
        if client is not None:
            del self._clients[client][key]
            if not self._clients[client]:
                del self._clients[client]
