"""The follower of one group's rows, which finds its rebalances, gaps, stays, waits and refusals.

Laws: nothing is measured here: every cause and every time is from a row that the coordinator wrote. A rebalance begins
with the first new epoch since the latest target, as in `kohort group why`. It ends when every member has the newest
epoch and waits for no partition, with the row `group_at_rest` (a member that an epoch does not change has no row), or
when the next rebalance begins. A classic rebalance ends with `group_at_rest`. A partition is unread from its owner's
last fetch or commit, which is in the row that takes it away, to the row of the next owner's first fetch. Rows of an
earlier version have neither: there the time counts from the row that takes it away, or from the time when the owner's
connection was lost or the owner left for a while, to the row that assigns it again. Partitions that no row names are
only counted. Rows that arrive twice count once. No I/O: rows in, facts out; only members and partitions take memory.
Source: docs/how-to/explain-a-rebalance.md; `coordinator/journal_events/`, which writes the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from kohort.journal.words import JournalRow, Partition, read_partitions
from kohort.pipelines.fact import Fact, Kind
from kohort.pipelines.groupstate import KnownMember, OpenGap, OpenRebalance

#: The reason of the removal of a member that sent nothing any more.
SILENT: Final = "session timeout"
RETURNED: Final = "static member returned"
ASKED_BACK: Final = "asked back"
AWAY: Final = "away"
#: The most joins and leaves that a cause names; further ones are counted.
NAMED_CAUSES: Final = 8


class Follower:
    """The follower of one group's rows, read in order.

    >>> from kohort.client.admin.results.groups import HistoryEvent
    >>> def row(time_ms, event, member_id="", **details):
    ...     return HistoryEvent(sequence=time_ms, time_ms=time_ms, last_time_ms=time_ms, times=1, cause=1, origin=1,
    ...                         kind="transition", event=event, member_id=member_id, details=details)
    >>> follower = Follower("billing")
    >>> follower.read(row(1000, "member_joined", "m1", client="ada"))
    >>> follower.read(row(1001, "epoch_bumped", epoch="2", trigger="member joined"))
    >>> follower.read(row(1050, "target_computed", epoch="2", members_changed="1"))
    >>> follower.read(row(1100, "assignment_changed", "m1", epoch="2", state="STABLE", gained="orders-0"))
    >>> [(fact.kind.value, fact.cause, fact.ended_ms - fact.began_ms) for fact in follower.take()]
    [('rebalance', 'ada joined', 99)]
    """

    def __init__(self, group_id: str) -> None:
        self._group_id: Final = group_id
        self._members: dict[str, KnownMember] = {}
        self._gaps: dict[Partition, OpenGap] = {}
        #: Partition -> the member that it was assigned to last.
        self._owners: dict[Partition, str] = {}
        self._epoch = 0
        self._is_classic = False
        self._open: OpenRebalance | None = None
        #: Whether moves wait for their turn.
        self._holds_back = False
        #: Rebalances that are over, with the partitions that they assigned and that are not read yet.
        self._unread: list[tuple[Fact, set[Partition]]] = []
        #: The causes of the next rebalance, and the number of further ones.
        self._causes: list[str] = []
        self._more_causes = 0
        #: The name of a static member that has restarted: the next row is the join of its new process.
        self._returned = ""
        self._last = (-1, -1)
        self._told: list[Fact] = []
        #: Members that the broker found again after a crash.
        self._found_ids: set[str] = set()

    def read(self, row: JournalRow) -> None:
        """Process the next row."""
        tell = _READERS.get(row.event)
        if tell is None:
            return
        # A restarted broker counts from 1 again, at a later time; if only its clock was set back, numbers go on.
        if row.sequence <= self._last[0] and row.time_ms <= self._last[1]:
            return
        self._last = (row.sequence, row.time_ms)
        tell(self, row)
        if not self._is_classic and row.event != "member_found":
            self._close_if_at_rest(row.time_ms)

    def take(self) -> list[Fact]:
        """Return the facts that have ended since the last call."""
        told, self._told = self._told, []
        return told

    def finish(self) -> list[Fact]:
        """Return the remaining facts, unfinished ones without an end; read no row after this."""
        if self._open is not None:
            self._end_rebalance(self._open, None)
        self._tell_unread()
        for partition, gap in self._gaps.items():
            self._tell_gap(partition, gap, None, gap.next_member)
        for member in list(self._members.values()):
            self._tell_waits(member, None, None)
            self._tell_stay(member, None, None)
        return self.take()

    # Members.

    def _joined(self, row: JournalRow) -> None:
        known = row.member_id in self._members
        member = self._member(row)
        member.settled = -1
        if row.event == "member_joined" and not known and member.name != self._returned:
            self._add_cause(f"{member.name} joined")
        self._returned = ""

    def _member(self, row: JournalRow) -> KnownMember:
        details = row.details
        member = self._members.get(row.member_id)
        if member is None:
            name = details.get("instance") or details.get("client") or row.member_id
            member = KnownMember(member_id=row.member_id, name=name, began_ms=row.time_ms)
            member.host = details.get("host", "").removeprefix("/")
            self._members[row.member_id] = member
        return member

    def _removed(self, row: JournalRow) -> None:
        reason = row.details.get("reason", "")
        member = self._members.pop(row.member_id, None)
        name = row.member_id if member is None else member.name
        if reason == RETURNED:
            # The next row is the join of its next process, which concerns no other member.
            self._returned = name
        else:
            farewells = {SILENT: f"{name} silent", "member left": f"{name} left"}
            self._add_cause(farewells.get(reason, f"{name} removed: {reason}"))
        if member is not None:
            self._let_go(member, member.owned, row, reason)
            for partition in member.just_released:
                gap = self._gaps.get(partition)
                if gap is not None and not gap.reason:
                    gap.reason = reason
            self._end(member, row.time_ms, reason)

    def _replaced(self, row: JournalRow) -> None:
        former = self._members.pop(row.details.get("former", ""), None)
        if former is not None:
            self._end(former, row.time_ms, "replaced")
        self._member(row)

    def _add_cause(self, cause: str) -> None:
        if len(self._causes) < NAMED_CAUSES:
            self._causes.append(cause)
        else:
            self._more_causes += 1

    def _take_causes(self) -> str:
        told = ", ".join(self._causes) + (f" and {self._more_causes} more" if self._more_causes else "")
        self._causes, self._more_causes = [], 0
        return told

    def _end(self, member: KnownMember, now_ms: int, reason: str) -> None:
        self._tell_waits(member, now_ms, reason)
        self._tell_stay(member, now_ms, reason)
        if not self._members:
            for gap in self._gaps.values():
                gap.is_empty = True

    def _went_away(self, row: JournalRow) -> None:
        member = self._member(row)
        self._released(member, row)
        member.away_since_ms, member.away = row.time_ms, len(member.owned) + member.unnamed
        for partition in read_partitions(row.details.get("held", ""))[0]:
            self._gaps[partition] = OpenGap(began_ms=row.time_ms, member=member.name, reason=AWAY)

    def _connection_lost(self, row: JournalRow) -> None:
        self._member(row).lost_since_ms = row.time_ms

    def _connection_back(self, row: JournalRow) -> None:
        self._member(row).lost_since_ms = None

    # A crash of the broker: some rows may be missing.

    def _crashed(self, row: JournalRow) -> None:
        self._found_ids = set()

    def _found_member(self, row: JournalRow) -> None:
        self._found_ids.add(row.member_id)
        member = self._member(row)
        held, unnamed = read_partitions(row.details.get("held", ""))
        if not unnamed:
            member.owned = set(held)
            member.unnamed = 0
        self._owners.update(dict.fromkeys(held, row.member_id))
        is_settled = row.details.get("state", "STABLE") == "STABLE"
        member.settled = int(row.details.get("epoch", -1)) if is_settled else -1

    def _found(self, row: JournalRow) -> None:
        if int(row.details.get("members", 0)) == len(self._found_ids):
            for member in [each for key, each in self._members.items() if key not in self._found_ids]:
                del self._members[member.member_id]
                self._tell_stay(member, row.time_ms, "the broker crashed")
        self._epoch = int(row.details.get("epoch", 0))
        self._take_causes()
        if self._open is not None:
            rebalance, self._open = self._open, None
            self._end_rebalance(rebalance, None)

    # Partitions.

    def _assigned(self, row: JournalRow) -> None:
        member, details, now_ms = self._member(row), row.details, row.time_ms
        if member.away_since_ms is not None:
            self._tell_wait(member, AWAY, member.away_since_ms, until_ms=now_ms, end="returned", count=member.away)
            member.away_since_ms = None
        self._released(member, row)
        for name in ("gained", "held"):
            self._gained(member, details.get(name, ""), row.time_ms)
        asked, more = read_partitions(details.get("asked_back", ""))
        if asked or more:
            member.asked_ms = row.time_ms if member.asked_ms is None else member.asked_ms
            member.asked += len(asked) + more
            if self._open is not None:
                self._open.givers.add(member.member_id)
        is_waiting = details["state"] != "STABLE"
        member.settled = -1 if is_waiting else int(details["epoch"])
        if details["state"] == "UNRELEASED_PARTITIONS":
            member.waits_since_ms = row.time_ms if member.waits_since_ms is None else member.waits_since_ms
        elif member.waits_since_ms is not None:
            since_ms = member.waits_since_ms
            self._tell_wait(member, "waits for others", since_ms, until_ms=now_ms, end="got them", count=None)
            member.waits_since_ms = None

    def _gained(self, member: KnownMember, text: str, now_ms: int) -> None:
        named, more = read_partitions(text)
        member.unnamed += more
        member.owned.update(named)
        for partition in named:
            owner = self._owners.get(partition)
            gap, newest = self._gaps.get(partition), self._open
            if newest is not None and owner in self._members and owner != member.member_id:
                newest.moved += 1
            if gap is not None and gap.is_measured:
                gap.next_member = member.name
                if newest is not None:
                    newest.awaited.add(partition)
            elif gap is not None:
                del self._gaps[partition]
                self._tell_gap(partition, gap, now_ms, member.name)
                if newest is not None:
                    newest.unread += 1
                    newest.unread_ms = max(newest.unread_ms, now_ms - gap.began_ms)
            self._owners[partition] = member.member_id

    def _read_again(self, row: JournalRow) -> None:
        for partition in read_partitions(row.details.get("partitions", ""))[0]:
            gap = self._gaps.pop(partition, None)
            if gap is None:
                continue
            gap.began_ms = int(row.details.get("read_ms", gap.began_ms))
            gap.is_at_most = row.details.get("at_most") == "true"
            self._tell_gap(partition, gap, row.time_ms, gap.next_member)
            self._count_unread(partition, row.time_ms - gap.began_ms)

    def _count_unread(self, partition: Partition, unread_ms: int) -> None:
        """Add a partition's unread time to the rebalance that assigned it to its new owner."""
        if self._open is not None and partition in self._open.awaited:
            self._open.awaited.discard(partition)
            self._open.unread += 1
            self._open.unread_ms = max(self._open.unread_ms, unread_ms)
        for fact, awaited in self._unread:
            if partition in awaited:
                awaited.discard(partition)
                fact.unread = (fact.unread or 0) + 1
                fact.unread_ms = max(fact.unread_ms or 0, unread_ms)
        while self._unread and not self._unread[0][1]:
            self._told.append(self._unread.pop(0)[0])

    def _released(self, member: KnownMember, row: JournalRow) -> None:
        named, more = read_partitions(row.details.get("released", ""))
        if not named and not more:
            return
        member.unnamed = max(0, member.unnamed - more)
        if row.event == "assignment_released":
            member.just_released = named
        self._let_go(member, named, row, "" if member.just_released else ASKED_BACK)
        member.owned.difference_update(named)
        if member.asked_ms is not None and row.event == "assignment_changed":
            asked_ms, now_ms = member.asked_ms, row.time_ms
            self._tell_wait(member, ASKED_BACK, asked_ms, until_ms=now_ms, end="given back", count=member.asked)
            member.asked_ms, member.asked = None, 0

    def _gave_up(self, row: JournalRow) -> None:
        self._released(self._member(row), row)

    def _let_go(self, member: KnownMember, partitions: Iterable[Partition], row: JournalRow, reason: str) -> None:
        lost_ms = None if reason == ASKED_BACK else member.lost_since_ms
        read_ms, now_ms = row.details.get("read_ms"), row.time_ms
        for partition in partitions:
            before = self._gaps.get(partition)
            if before is not None and read_ms is not None and not before.is_measured:
                before.began_ms, before.is_noticed, before.is_measured = int(read_ms), True, True
            # If the member was offline, or has lost the partition already, the gap has begun before.
            if partition not in self._gaps and self._owners.get(partition, member.member_id) == member.member_id:
                gap = OpenGap(began_ms=now_ms, member=member.name, reason=reason)
                if read_ms is not None:
                    gap.began_ms, gap.is_noticed, gap.is_measured = int(read_ms), True, True
                elif lost_ms is not None:
                    gap.began_ms, gap.is_noticed = lost_ms, True
                self._gaps[partition] = gap

    # Rebalances.

    def _bumped(self, row: JournalRow) -> None:
        self._is_classic = False
        self._epoch = int(row.details["epoch"])
        self._begin(row, self._epoch)

    def _began(self, row: JournalRow) -> None:
        self._is_classic = True
        self._begin(row, None)

    def _begin(self, row: JournalRow, epoch: int | None) -> None:
        why = row.details.get("trigger", "")
        cause = self._take_causes() or row.details.get("why") or why
        latest = self._open
        if latest is not None and epoch is not None and latest.epoch is not None and not latest.is_computed:
            # One target assignment covers all changes before it.
            latest.epoch = epoch
            latest.cause = ", ".join(dict.fromkeys((latest.cause, cause)))
            return
        if latest is not None:
            self._end_rebalance(latest, row.time_ms)
        self._open = OpenRebalance(began_ms=row.time_ms, epoch=epoch, why=why, cause=cause)

    def _computed(self, row: JournalRow) -> None:
        latest = self._open
        if latest is not None and latest.epoch is not None and int(row.details.get("epoch", 0)) >= latest.epoch:
            latest.is_computed = True

    def _held_back(self, row: JournalRow) -> None:
        self._holds_back = row.details.get("moves", "0") != "0"

    def _let_begin(self, row: JournalRow) -> None:
        self._holds_back = row.details.get("left", "0") != "0"

    def _generation(self, row: JournalRow) -> None:
        self._is_classic = True
        if self._open is not None:
            self._open.epoch = int(row.details["generation"])

    def _close_if_at_rest(self, now_ms: int) -> None:
        is_computed = self._open is not None and self._open.is_computed and not self._holds_back
        if is_computed and all(member.settled == self._epoch for member in self._members.values()):
            self._close(now_ms)

    def _at_rest(self, row: JournalRow) -> None:
        self._close(row.time_ms)

    def _close(self, now_ms: int) -> None:
        rebalance, self._open = self._open, None
        if rebalance is None:
            return
        if self._is_classic and self._causes:
            # A member that joins or leaves while a classic group rebalances starts no other rebalance.
            rebalance.cause += f", {self._take_causes()}"
        self._end_rebalance(rebalance, now_ms)

    def _forgotten(self, row: JournalRow) -> None:
        self._close(row.time_ms)
        for partition, gap in self._gaps.items():
            self._tell_gap(partition, gap, row.time_ms, None)
        members = list(self._members.values())
        self._members, self._gaps, self._owners = {}, {}, {}
        self._take_causes()
        for member in members:
            self._end(member, row.time_ms, "the group is gone")

    # Facts.

    def _end_rebalance(self, rebalance: OpenRebalance, ended_ms: int | None) -> None:
        """Record a rebalance once the partitions that it assigned are read, or another one is over."""
        self._tell_unread()
        fact = self._build_rebalance(rebalance, ended_ms)
        if rebalance.awaited:
            self._unread.append((fact, rebalance.awaited))
        else:
            self._told.append(fact)

    def _tell_unread(self) -> None:
        self._told += [fact for fact, _ in self._unread]
        self._unread = []

    def _build_rebalance(self, rebalance: OpenRebalance, ended_ms: int | None) -> Fact:
        fact = Fact(
            kind=Kind.REBALANCE, group_id=self._group_id, began_ms=rebalance.began_ms, ended_ms=ended_ms,
            why=rebalance.why, cause=rebalance.cause, epoch=rebalance.epoch,
            protocol="classic" if self._is_classic else "consumer", members=len(self._members),
        )  # fmt: skip
        if not self._is_classic:
            loads = [len(member.owned) + member.unnamed for member in self._members.values()]
            fact.partitions, fact.fewest, fact.most = sum(loads), min(loads, default=0), max(loads, default=0)
            fact.moved, fact.given_back_by = rebalance.moved, len(rebalance.givers)
            fact.unread, fact.unread_ms = rebalance.unread, rebalance.unread_ms
        return fact

    def _tell_gap(self, partition: Partition, gap: OpenGap, ended_ms: int | None, next_member: str | None) -> None:
        topic, number = partition
        fact = Fact(
            kind=Kind.GAP, group_id=self._group_id, began_ms=gap.began_ms, ended_ms=ended_ms,
            why=gap.reason, member=gap.member, next_member=next_member, topic=topic, partition=number,
            is_empty=gap.is_empty, is_noticed=gap.is_noticed, is_at_most=gap.is_at_most,
        )  # fmt: skip
        self._told.append(fact)

    def _tell_waits(self, member: KnownMember, ended_ms: int | None, end: str | None) -> None:
        for what, since_ms, partitions in (
            (ASKED_BACK, member.asked_ms, member.asked),
            ("waits for others", member.waits_since_ms, None),
            (AWAY, member.away_since_ms, member.away),
        ):
            if since_ms is not None:
                self._tell_wait(member, what, since_ms, until_ms=ended_ms, end=end, count=partitions)

    def _tell_wait(
        self, member: KnownMember, what: str, since_ms: int, *, until_ms: int | None, end: str | None, count: int | None
    ) -> None:
        fact = Fact(
            kind=Kind.WAIT, group_id=self._group_id, began_ms=since_ms, ended_ms=until_ms,
            why=what, cause=end, member_id=member.member_id, member=member.name, partitions=count,
        )  # fmt: skip
        self._told.append(fact)

    def _tell_stay(self, member: KnownMember, ended_ms: int | None, reason: str | None) -> None:
        namesakes = sum(other.name == member.name for other in self._members.values() if other is not member)
        fact = Fact(
            kind=Kind.STAY, group_id=self._group_id, began_ms=member.began_ms, ended_ms=ended_ms,
            why=reason, member_id=member.member_id, member=member.name, host=member.host, members=namesakes + 1,
        )  # fmt: skip
        self._told.append(fact)

    def _refused(self, row: JournalRow) -> None:
        member = self._members.get(row.member_id)
        fact = Fact(
            kind=Kind.REFUSAL, group_id=self._group_id, began_ms=row.time_ms, ended_ms=row.last_time_ms,
            why=row.details.get("error"), cause=row.details.get("why"), protocol=row.details.get("api"),
            member_id=row.member_id, member=row.member_id if member is None else member.name, times=row.times,
        )  # fmt: skip
        self._told.append(fact)


#: Event -> its handler; other rows change no fact.
_READERS: Final = {
    "member_joined": Follower._joined,
    "member_kept": Follower._joined,
    "member_removed": Follower._removed,
    "member_replaced": Follower._replaced,
    "member_away": Follower._went_away,
    "connection_lost": Follower._connection_lost,
    "connection_back": Follower._connection_back,
    "assignment_changed": Follower._assigned,
    "assignment_released": Follower._gave_up,
    "partitions_read": Follower._read_again,
    "epoch_bumped": Follower._bumped,
    "target_computed": Follower._computed,
    "moves_waiting": Follower._held_back,
    "moves_begun": Follower._let_begin,
    "rebalance_began": Follower._began,
    "generation_began": Follower._generation,
    "group_at_rest": Follower._at_rest,
    "group_forgotten": Follower._forgotten,
    "refused": Follower._refused,
    "broker_started": Follower._crashed,
    "member_found": Follower._found_member,
    "group_found": Follower._found,
}
#: The events that the follower reads.
EVENTS: Final = frozenset(_READERS)
