"""Open rebalances and moves of groups, remembered for the durations in the journal rows that end them.

Remembered are the beginning of a rebalance, the times at which a moving partition's old owner was told to revoke it and
released it, and since when others wait for a member.

Laws: nothing is decided here. Only groups in a rebalance and partitions without an owner are remembered, and only
a bounded number. Beyond it the oldest group is forgotten, and its next rows have no durations.
Source: requirements H3 (the phases of a move) and J1.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Final

from kohort.base.values import value
from kohort.journal.words import Partition

#: Most remembered partitions in a move, and most remembered groups.
_PARTITIONS_LIMIT: Final = 100_000
_GROUPS_LIMIT: Final = 10_000


@value
class Passage:
    """The departure of a partition from its old owner, `giver`; times in milliseconds of the coordinator.

    `granted_epoch`: the epoch at which the old owner was assigned the partition, a part of the move's id; `None` in
    classic groups. `asked_ms`: `None` if the owner was not told to revoke it. `committed_ms`: its latest commit of the
    partition since then, `None` if none. `released_ms`: `None` while the owner has it. `last_read`: until when the
    partition was read, `None` if unknown.
    """

    giver: str
    granted_epoch: int | None = None
    asked_ms: int | None = None
    committed_ms: int | None = None
    released_ms: int | None = None
    last_read: LastRead | None = None

    def later(self, by_ms: int) -> Passage:
        """Return the passage with all times shifted by a step of the clock."""
        asked_ms, committed_ms, released_ms = (
            None if at_ms is None else at_ms + by_ms for at_ms in (self.asked_ms, self.committed_ms, self.released_ms)
        )
        last_read = None if self.last_read is None else self.last_read.later(by_ms)
        return replace(self, asked_ms=asked_ms, committed_ms=committed_ms, released_ms=released_ms, last_read=last_read)

    @property
    def details(self) -> dict[str, str]:
        """Return the details for a journal row; a value that is missing is an empty text."""
        names = ("granted_epoch", "asked_ms", "committed_ms", "released_ms")
        read = {} if self.last_read is None else self.last_read.details()
        return {name: "" if (value := getattr(self, name)) is None else str(value) for name in names} | read


class OpenRebalance:
    """The open rebalance and moves of one group."""

    __slots__ = ("awaited", "began_ms", "counted", "is_answered", "moved", "passages", "triggers", "unowned_ms")

    def __init__(self) -> None:
        #: When the present rebalance began; `None` at rest.
        self.began_ms: int | None = None
        #: Whether the target is known: the next change begins another rebalance.
        self.is_answered = False
        #: Triggers of the rebalance, each once.
        self.triggers: dict[str, None] = {}
        #: Number of partitions that it has moved, and the longest time without an owner of one, milliseconds.
        self.moved = 0
        self.unowned_ms = 0
        #: Partition -> its way from its old owner; it has no new one yet.
        self.passages: dict[Partition, Passage] = {}
        #: Number of passages that `OpenRebalances` has counted.
        self.counted = 0
        #: Member -> time since which others wait for it.
        self.awaited: dict[str, int] = {}

    def begin(self, trigger: str, *, now_ms: int, is_new: bool = False) -> None:
        """Note a change of the group; `is_new`: begin a new rebalance even if one is open."""
        # Changes before the target belong to one rebalance; the first of them began it.
        if self.began_ms is None or self.is_answered or is_new:
            self.began_ms, self.is_answered = now_ms, False
            self.moved = self.unowned_ms = 0
            self.triggers = {}
        self.triggers[trigger] = None

    def ask(self, member_id: str, partitions: Iterable[Partition], *, now_ms: int) -> None:
        """Note that a member was told to revoke partitions."""
        passage = Passage(giver=member_id, asked_ms=now_ms)
        self.passages.update(dict.fromkeys(partitions, passage))
        # A member that is awaited already keeps the earlier time.
        self.awaited.setdefault(member_id, now_ms)

    def commit(self, member_id: str, partitions: Iterable[Partition], *, now_ms: int) -> None:
        """Note a member's commit of partitions that it was asked to revoke."""
        for partition in partitions:
            passage = self.passages.get(partition)
            # A commit after the release, or of another owner, is none of this move.
            if passage is not None and passage.giver == member_id and passage.released_ms is None:
                self.passages[partition] = replace(passage, committed_ms=now_ms)

    def release(
        self,
        member_id: str,
        partitions: Mapping[Partition, int | None],
        *,
        now_ms: int,
        last_reads: Mapping[Partition, LastRead] | None = None,
    ) -> None:
        """Note that a member has released partitions (partition -> epoch of its assignment).

        `last_reads`: the last reader of each partition, and the time until which it read.
        """
        unasked = Passage(giver=member_id)
        #: Partitions that went the same way share one passage, however many they are.
        released: dict[tuple[Passage, int | None, LastRead | None], Passage] = {}
        for partition, granted_epoch in partitions.items():
            passage = self.passages.get(partition)
            # The member lost the partition without being asked, e.g. with its session.
            if passage is None or passage.giver != member_id:
                passage = unasked
            # A repeated release keeps the first time.
            if passage.released_ms is None:
                last_read = None if last_reads is None else last_reads.get(partition)
                way = passage, granted_epoch, last_read
                if way not in released:
                    released[way] = replace(
                        passage, granted_epoch=granted_epoch, released_ms=now_ms, last_read=last_read
                    )
                passage = released[way]
            self.passages[partition] = passage

    def grant(
        self, member_id: str, partitions: Iterable[Partition], *, now_ms: int, former: str | None = None
    ) -> list[tuple[Passage, list[Partition]]]:
        """Note a member's new partitions; return those that came from other members, by passage.

        `former`: the process that this member replaced.
        """
        found: dict[Passage, list[Partition]] = {}
        for partition in sorted(partitions):
            passage = self.passages.pop(partition, None)
            # The partition was not released: the new owner has it from a state that is unknown here.
            if passage is None or passage.released_ms is None:
                continue
            self.unowned_ms = max(self.unowned_ms, now_ms - passage.released_ms)
            # A partition that returns to its owner, or goes to its successor, has not moved.
            if passage.giver not in (member_id, former):
                found.setdefault(passage, []).append(partition)
        self.moved += sum(map(len, found.values()))
        return list(found.items())

    def follow_clock(self, by_ms: int) -> None:
        """Shift all times by a step of the clock, so that it does not count as duration."""
        self.began_ms = None if self.began_ms is None else self.began_ms + by_ms
        self.awaited = {member_id: since_ms + by_ms for member_id, since_ms in self.awaited.items()}
        moved: dict[Passage, Passage] = {}
        for partition, passage in self.passages.items():
            # Many partitions share a passage: each is shifted once.
            if passage not in moved:
                moved[passage] = passage.later(by_ms)
            self.passages[partition] = moved[passage]

    def rest(self, *, now_ms: int) -> dict[str, int]:
        """Note the end of the rebalance; return its durations, or nothing if its beginning is unknown."""
        began_ms, self.began_ms = self.began_ms, None
        self.awaited.clear()
        if began_ms is None:
            return {}
        return {"took_ms": now_ms - began_ms, "moved": self.moved, "unowned_ms": self.unowned_ms}


class OpenRebalances:
    """All groups that are in a rebalance, or have partitions without an owner."""

    def __init__(self) -> None:
        #: Group -> its open rebalance, in the order in which the groups were noted.
        self.by_group: Final[dict[str, OpenRebalance]] = {}
        #: Number of partitions in a move, over all groups.
        self._size = 0

    def follow_clock(self, by_ms: int) -> None:
        """Shift all times by a step of the clock."""
        for rebalance in self.by_group.values():
            rebalance.follow_clock(by_ms)

    def of(self, group_id: str) -> OpenRebalance:
        """Return the open rebalance of a group, a new one if it has none."""
        rebalance = self.by_group.get(group_id)
        if rebalance is None:
            rebalance = self.by_group[group_id] = OpenRebalance()
        return rebalance

    def end(self, group_id: str) -> None:
        """Forget a group."""
        rebalance = self.by_group.pop(group_id, None)
        if rebalance is not None:
            self._size -= rebalance.counted

    def tidy(self, group_id: str) -> None:
        """Forget a group's rebalance if it has ended, and the oldest rebalances beyond the limits."""
        rebalance = self.by_group.get(group_id)
        if rebalance is None:
            return
        # At rest, and no partition is without an owner: nothing is left to remember.
        if rebalance.began_ms is None and not rebalance.passages:
            self.end(group_id)
            return
        self._size += len(rebalance.passages) - rebalance.counted
        rebalance.counted = len(rebalance.passages)
        # Beyond the limits the group that was noted first is forgotten.
        while len(self.by_group) > _GROUPS_LIMIT or self._size > _PARTITIONS_LIMIT:
            self.end(next(iter(self.by_group)))


# Times between two readers of a partition: the last fetch of the old owner, the first of the new.
#
# A member whose fetches name it is seen to read. Its latest fetch counts, until it is told to revoke partitions. Any
# other member is taken to read as long as it is heard of, or as its connection stands, and a commit shows that it has
# read. The next owner reads from its first fetch of the partition; a fetch without a member id counts for the members
# with that client id and host. Where no fetch of the next owner is ever seen, its first commit shows that it reads by
# then.
#
# Laws: no decision is made here. Of a group at rest only the time of each member's latest fetch is kept. The memory is
# bounded: beyond it the oldest entries are forgotten, and the journal reports nothing of them.
# Source: requirement J1.

#: Group id and member id.
MemberKey = tuple[str, str]
#: Client id and address, as a member has them.
ClientKey = tuple[str, str]

#: Most remembered members with a latest fetch, and most partitions that wait for their next reader.
_MEMBERS_LIMIT: Final = 100_000
_AWAITED_LIMIT: Final = 100_000


@value
class LastRead:
    """Last time at which a member read a partition, milliseconds of the coordinator.

    `is_seen`: a fetch, or the end of the member's connection, proves that; otherwise it may have read longer.
    """

    reader: str
    read_ms: int
    is_seen: bool

    def later(self, by_ms: int) -> LastRead:
        """Return this value with its time shifted by a step of the clock."""
        return replace(self, read_ms=self.read_ms + by_ms)

    def details(self, now_ms: int | None = None) -> dict[str, str]:
        """Return the details for a journal row; `now_ms`: time of the next read, `None` if not yet."""
        unread = "" if now_ms is None else str(max(0, now_ms - self.read_ms))
        return {"read_ms": str(self.read_ms), "unread_ms": unread, "at_most": "" if self.is_seen else "true"}


class Reads:
    """Latest fetches and commits of members, and first reads of moved partitions, in all groups."""

    __slots__ = ("_client_of", "_clients", "_looked", "_size", "awaited", "committed", "fetched", "polled_ms")

    def __init__(self) -> None:
        #: Member -> time of its latest fetch, or of the end of a waiting fetch's connection.
        self.fetched: Final[dict[MemberKey, int]] = {}
        #: Member -> time of its latest commit.
        self.committed: Final[dict[MemberKey, int]] = {}
        #: Member -> for how long its application had not polled by its latest heartbeat, ms.
        self.polled_ms: Final[dict[MemberKey, int]] = {}
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
        for times in (self.fetched, self.committed):
            for key in times:
                times[key] += by_ms
        for awaited in self.awaited.values():
            for partition, last in awaited.items():
                awaited[partition] = last.later(by_ms)

    def note(self, key: MemberKey, now_ms: int) -> None:
        """Note a member's fetch, or that a fetch was waiting when its connection ended."""
        self.fetched[key] = now_ms
        if len(self.fetched) > _MEMBERS_LIMIT:
            del self.fetched[next(iter(self.fetched))]

    def note_poll(self, key: MemberKey, last_poll_ms: int) -> None:
        """Note the time since the application's last poll as a heartbeat reports it, ms; -1: not reported."""
        if last_poll_ms < 0:
            return
        self.polled_ms[key] = last_poll_ms
        if len(self.polled_ms) > _MEMBERS_LIMIT:
            del self.polled_ms[next(iter(self.polled_ms))]

    def latest(self, key: MemberKey) -> tuple[int | None, int | None]:
        """Return the times of a member's latest fetch and latest commit; `None` if unknown."""
        return self.fetched.get(key), self.committed.get(key)

    def note_commit(self, key: MemberKey, now_ms: int) -> None:
        """Note a member's commit."""
        self.committed[key] = now_ms
        if len(self.committed) > _MEMBERS_LIMIT:
            del self.committed[next(iter(self.committed))]

    def expect(self, key: MemberKey, client: ClientKey, partitions: Mapping[Partition, LastRead]) -> None:
        """Note that a member has been assigned partitions that another member read, and will read them."""
        if not partitions:
            return
        awaited = self.awaited.setdefault(key, {})
        self._size -= len(awaited)
        awaited.update(partitions)
        self._size += len(awaited)
        self._looked.pop(key, None)
        self._clients.setdefault(self._client_of.setdefault(key, client), {})[key] = None
        while self._size > _AWAITED_LIMIT:
            self._end(next(iter(self.awaited)))

    def of_client(self, client: ClientKey) -> Iterable[MemberKey]:
        """Return the members with partitions yet to read that may be this client."""
        return tuple(self._clients.get(client, ()))

    def is_new(self, key: MemberKey, connection: int) -> bool:
        """Return whether a fetch is its connection's first since the member has partitions yet to read."""
        looked = self._looked.setdefault(key, set()) if key in self.awaited else None
        if looked is None or connection in looked:
            return False
        looked.add(connection)
        return True

    def begin(self, key: MemberKey, named: Iterable[Partition]) -> Iterator[tuple[LastRead, list[Partition]]]:
        """Note that a member reads partitions; yield those it reads first now, grouped by last read."""
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
        self.committed.pop(key, None)
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
