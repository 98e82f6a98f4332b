"""Between two readers: who read a partition last, and from when on its next owner does.

A member whose fetches say whose they are is seen to read; its latest fetch counts, until it is told to give something
up. Any other is taken to read as long as it is heard of, or as its connection stands, and a commit shows that it has.
The next owner reads from its first fetch that asks for the partition; a fetch that does not say whose it is belongs to
the members of that client id and host. Where it is never seen to fetch, its first commit shows that it reads by then.

Laws: nothing is decided here. Of a group at rest only the time of each member's latest fetch is kept. What is
remembered is bounded: of too much what was heard of first is forgotten, and nothing is told of it.
Source: requirement J1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from kohort.journal.words import Partition

#: Group id and member id.
MemberKey = tuple[str, str]
#: What a client calls itself and its address, as a member has them.
ClientKey = tuple[str, str]

#: Members whose latest fetch is remembered, and partitions whose next reader is waited for.
_MEMBERS_LIMIT: Final = 100_000
_PARTITIONS_LIMIT: Final = 100_000


@dataclass(frozen=True, slots=True, kw_only=True)
class LastRead:
    """Until when a member has read a partition, milliseconds of the coordinator.

    `is_seen`: a fetch, or the end of its connection, shows it; else it may have read longer than it is known to have.
    """

    reader: str
    read_ms: int
    is_seen: bool

    def later(self, by_ms: int) -> LastRead:
        """The same by a clock that was set by so much."""
        return replace(self, read_ms=self.read_ms + by_ms)

    def details(self, now_ms: int | None = None) -> dict[str, str]:
        """As a row has it; `now_ms`: when it is read again, `None`: it is not."""
        unread = "" if now_ms is None else str(max(0, now_ms - self.read_ms))
        return {"read_ms": str(self.read_ms), "unread_ms": unread, "at_most": "" if self.is_seen else "true"}


class Reads:
    """All groups of a broker."""

    __slots__ = ("_client_of", "_clients", "_looked", "_size", "awaited", "fetched")

    def __init__(self) -> None:
        #: Member -> when its latest fetch has come, or ended with its connection.
        self.fetched: Final[dict[MemberKey, int]] = {}
        #: Member -> partition that it has from another and has not read -> who did, until when. No empty inner mapping.
        self.awaited: Final[dict[MemberKey, dict[Partition, LastRead]]] = {}
        #: Client -> the members of `awaited` that it may be, with nothing; and the other way round.
        self._clients: Final[dict[ClientKey, dict[MemberKey, None]]] = {}
        self._client_of: Final[dict[MemberKey, ClientKey]] = {}
        #: Member of `awaited` -> connections of which a fetch was looked at since: what is new in later ones they name.
        self._looked: Final[dict[MemberKey, set[int]]] = {}
        #: Partitions in `awaited`.
        self._size = 0

    def follow_clock(self, by_ms: int) -> None:
        """The clock was set by so much: it is as long ago as before."""
        for key in self.fetched:
            self.fetched[key] += by_ms
        for awaited in self.awaited.values():
            for partition, last in awaited.items():
                awaited[partition] = last.later(by_ms)

    def note(self, key: MemberKey, now_ms: int) -> None:
        """A fetch of a member has come, or was waiting when its connection ended."""
        self.fetched[key] = now_ms
        if len(self.fetched) > _MEMBERS_LIMIT:
            del self.fetched[next(iter(self.fetched))]

    def expect(self, key: MemberKey, client: ClientKey, partitions: Mapping[Partition, LastRead]) -> None:
        """A member has partitions from now on that another one has read."""
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
        """The members that wait to read and may be that client."""
        return tuple(self._clients.get(client, ()))

    def is_new(self, key: MemberKey, connection: int) -> bool:
        """Whether a fetch by that connection is the first since the member has something to read, which this one is."""
        looked = self._looked.setdefault(key, set()) if key in self.awaited else None
        if looked is None or connection in looked:
            return False
        looked.add(connection)
        return True

    def begin(self, key: MemberKey, named: Iterable[Partition]) -> Iterator[tuple[LastRead, list[Partition]]]:
        """A member reads these partitions by now: those that it had not read before, by what is told of them."""
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
        """A member has a partition no more; who read it last if this one never has."""
        awaited = self.awaited.get(key)
        last = None if awaited is None else awaited.pop(partition, None)
        if last is not None:
            self._size -= 1
        if awaited is not None and not awaited:
            self._end(key)
        return last

    def forget(self, key: MemberKey) -> None:
        """A member is none any more; what it had was let go before."""
        self.fetched.pop(key, None)
        self._end(key)

    def rename(self, former: MemberKey, key: MemberKey, client: ClientKey) -> None:
        """Another process has the place of a member."""
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
