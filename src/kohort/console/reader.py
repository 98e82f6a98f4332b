"""The cluster as the console sees it: read once over the wire, however many tabs look at it.

Laws: one question of a kind is under way at a time. A page never waits long for a cluster: it shows the latest state
and its age, and is renewed when there is another. What is kept of a group is bounded, and goes when no page looks at
the group any more.
Source: requirement J3; `Admin.group_history(after=)`, which is followed as `kohort group history --follow` does.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from kohort.base.values import or_none
from kohort.cli.verbs.grouphistory import fold
from kohort.errors import BrokerError, ErrorCode, KohortError, UnsupportedFeatureError
from kohort.journal.explain.explaining import explain
from kohort.journal.words import MemberNames
from kohort.metrics.cluster import ClusterSnapshot, EndOffsets, GroupState, collect, note_ends

if TYPE_CHECKING:
    from kohort.client.admin.results.groups import GroupDescription, GroupOffset, HistoryEvent
    from kohort.journal.explain.explanation import GroupExplanation, HoldingTransaction

R = TypeVar("R")
#: Seconds between two looks at the cluster; a look never takes more than this share of the time.
CLUSTER_SECONDS: Final = 2.0
_SHARE: Final = 0.2
#: Seconds between two looks at the history of a group, of up to five groups that tabs follow; and at its members.
HISTORY_SECONDS: Final = 0.2
MEMBERS_SECONDS: Final = 2.0
#: A page waits so long for a newer state of what it has an older one of.
_PATIENCE_SECONDS: Final = 0.4
#: Groups that are kept, rows of each, and readings of its lag.
_MOST_GROUPS: Final = 200
MOST_ROWS: Final = 20_000
_LAG_READINGS: Final = 1_800
#: A group that no page has looked at for so long is forgotten.
_FORGOTTEN_SECONDS: Final = 120.0
#: Time for which comings and goings of members are counted.
_HOUR_MS: Final = 3_600_000
_MOST_CHANGES: Final = 1_000


class Changed:
    """A number that rises with each change, and can be waited for; no other object has had it."""

    _numbers: ClassVar[Iterator[int]] = count(1)

    def __init__(self) -> None:
        self.version = next(self._numbers)
        self._event = asyncio.Event()

    def note(self) -> None:
        """Raise the number, and wake those that wait."""
        self.version = next(self._numbers)
        self._event.set()
        self._event = asyncio.Event()

    async def beyond(self, version: int, *, seconds: float) -> bool:
        """Wait for a higher number; return whether there is one."""
        if self.version <= version:
            try:
                await asyncio.wait_for(self._event.wait(), seconds)
            except TimeoutError:
                return False
        return True


@dataclass(slots=True)
class _Under:
    """One question under way at a time."""

    task: asyncio.Task[None] | None = None

    def ask(self, question: Callable[[], Coroutine[Any, Any, None]]) -> asyncio.Task[None]:
        """Ask unless it is asked already."""
        if self.task is None or self.task.done():
            self.task = asyncio.create_task(question())
        return self.task


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLine:
    """One group of many; `lag` and `lag_ms` are `None` where they are not known."""

    state: GroupState
    lag: int | None = None
    lag_ms: int | None = None
    #: How often a member came or went in the last hour, as far as the console has looked.
    changes: int = 0


@dataclass(slots=True)
class ClusterView:
    """The latest state of the cluster, and why it is not newer; `None`: it is not known yet."""

    snapshot: ClusterSnapshot | None = None
    lines: Sequence[GroupLine] = ()
    failure: str = ""
    took_s: float = 0.0
    read_at: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Told:
    """A row of a group's history with its sentence."""

    sequence: int
    time_ms: int
    said: str


@dataclass(slots=True)
class GroupView:
    """The latest state of one group; `explanation` is `None` where the broker keeps no history."""

    description: GroupDescription | None = None
    offsets: Sequence[GroupOffset] = ()
    explanation: GroupExplanation | None = None
    told: Sequence[Told] = ()
    has_history: bool = True
    is_gone: bool = False
    failure: str = ""
    lag_ms: int | None = None
    #: (time, lag), ms since 1970 and records.
    lags: deque[tuple[int, int]] = field(default_factory=lambda: deque(maxlen=_LAG_READINGS))


class ClusterReader:
    """Reads a cluster with one login, for all pages of that login."""

    def __init__(self, options: Mapping[str, Any], threads: ThreadPoolExecutor) -> None:
        from kohort import Admin

        #: Of the clients of this login.
        self.options: Final = options
        self.admin: Final = Admin(options)
        self._threads: Final = threads
        self.view: Final = ClusterView()
        self.changed: Final = Changed()
        self.watchers = 0
        self._under: Final = _Under()
        self._groups: Final[dict[str, GroupReader]] = {}
        self._ends: Final = EndOffsets()
        #: Group -> its members at the latest look, and when they changed, ms.
        self._members: dict[str, frozenset[str]] = {}
        self._changes: Final[dict[str, deque[int]]] = {}
        self.since_ms: Final = _now_ms()
        self._following: asyncio.Task[None] | None = None

    def close(self) -> None:
        """Close the admin client; its calls under way fail."""
        self.admin.close()

    async def call(self, work: Callable[[], R]) -> R:
        """Carry out a call of the admin client on a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def look(self) -> ClusterView:
        """Return the state of the cluster; one that is too old is renewed."""
        pause = max(CLUSTER_SECONDS, self.view.took_s / _SHARE) if self.view.snapshot else CLUSTER_SECONDS / 2
        if not self.view.read_at or time.monotonic() - self.view.read_at > pause:
            version = self.changed.version
            self._under.ask(self._renew)
            # Of a large cluster the newer state would not come in that time: it comes to the open page by an event.
            if self.view.took_s < _PATIENCE_SECONDS:
                await self.changed.beyond(version, seconds=_PATIENCE_SECONDS)
        return self.view

    async def know(self) -> None:
        """Wait for the first state of the cluster, or for the reason that there is none."""
        if not self.view.read_at:
            await asyncio.wait({self._under.ask(self._renew)})

    async def _renew(self) -> None:
        began = time.monotonic()
        try:
            if not self.view.lines:
                # One request has the names and states of all groups: pages show them while the rest is read.
                self.view.lines = await self.call(self._list)
                self.changed.note()
            self.view.snapshot, self.view.lines = await self.call(self._collect)
            self.view.failure = ""
            self.view.took_s = time.monotonic() - began
        except KohortError as why:
            self.view.failure = str(why)
        self.view.read_at = time.monotonic()
        self.changed.note()

    def _list(self) -> list[GroupLine]:
        return [GroupLine(state=GroupState(group_id=row.group_id, state=row.state)) for row in self.admin.list_groups()]

    def _collect(self) -> tuple[ClusterSnapshot, list[GroupLine]]:
        snapshot = collect(self.admin)
        note_ends(self._ends, snapshot.topics.values(), now_ms=snapshot.now_ms)
        members = {group.group_id: frozenset(each.member_id for each in group.members) for group in snapshot.groups}
        for group_id, now in members.items():
            if group_id in self._members and now != self._members[group_id]:
                self._changes.setdefault(group_id, deque(maxlen=_MOST_CHANGES)).append(snapshot.now_ms)
        self._members = members
        for group_id in [each for each in self._changes if each not in members]:
            del self._changes[group_id]
        return snapshot, [self._line(snapshot, group) for group in snapshot.groups]

    def _line(self, snapshot: ClusterSnapshot, group: GroupState) -> GroupLine:
        lags: list[int] = []
        ages: list[int] = []
        for topic, offsets in group.offsets.items():
            for partition, offset in offsets.items():
                end = snapshot.end_of(topic, partition)
                if end >= 0:
                    lags.append(max(0, end - offset))
                    ages.append(self._ends.lag_ms(topic, partition, offset, now_ms=snapshot.now_ms))
        changes = self._changes.get(group.group_id, ())
        return GroupLine(
            state=group,
            lag=sum(lags) if lags else None,
            lag_ms=or_none(max(ages, default=-1)),
            changes=sum(each > snapshot.now_ms - _HOUR_MS for each in changes),
        )

    def group(self, group_id: str) -> GroupReader:
        """Return the reader of a group; the one that was used longest ago makes room."""
        self._forget()
        found = self._groups.pop(group_id, None) or GroupReader(self, group_id)
        self._groups[group_id] = found
        found.used_at = time.monotonic()
        return found

    def _forget(self) -> None:
        limit = time.monotonic() - _FORGOTTEN_SECONDS
        idle = [name for name, each in self._groups.items() if not each.watchers]
        surplus = len(self._groups) - _MOST_GROUPS
        for at, name in enumerate(idle):
            if at < surplus or self._groups[name].used_at < limit:
                del self._groups[name]

    def keep_following(self) -> None:
        """Renew the state of the cluster and of groups while open tabs show them."""
        if self._following is None or self._following.done():
            self._following = asyncio.create_task(self._follow())

    async def _follow(self) -> None:
        while True:
            watched = [each for each in self._groups.values() if each.watchers]
            if not watched and not self.watchers:
                return
            if self.watchers:
                # Beside it, so that a large cluster delays no group.
                _quiet(asyncio.ensure_future(self.look()))
            for each in watched:
                _quiet(asyncio.ensure_future(each.look(fresh_s=HISTORY_SECONDS / 2)))
            await asyncio.sleep(HISTORY_SECONDS * max(1.0, len(watched) / 5))


class GroupReader:
    """Reads one group: its description now and then, its history as it grows."""

    def __init__(self, cluster: ClusterReader, group_id: str) -> None:
        self._cluster: Final = cluster
        self.group_id: Final = group_id
        self.view: Final = GroupView()
        self.changed: Final = Changed()
        self.watchers = 0
        self.used_at = 0.0
        self._under: Final = _Under()
        self.events: list[HistoryEvent] = []
        self._is_complete = True
        #: Open transactions for which members wait.
        self._held_by: tuple[HoldingTransaction, ...] = ()
        self._ends: Final = EndOffsets()
        self._read_at = self._described_at = self._took_s = 0.0

    @property
    def newest(self) -> int:
        """The sequence of the latest row, 0 without one."""
        return self.view.told[-1].sequence if self.view.told else 0

    async def look(self, *, fresh_s: float = 0.3) -> GroupView:
        """Return the state of the group; one that is older than so many seconds is renewed."""
        # A long history takes a while to explain: that is never more than a part of the time.
        pause = max(fresh_s, self._took_s * (1 / _SHARE - 1))
        if not self._read_at or time.monotonic() - self._read_at > pause:
            task = self._under.ask(self._renew)
            is_known = self.view.description is not None
            await asyncio.wait({task}, timeout=_PATIENCE_SECONDS if is_known else None)
        return self.view

    async def _renew(self) -> None:
        began = time.monotonic()
        try:
            has_changed = await self._cluster.call(self._read)
            self._took_s = time.monotonic() - began
        except KohortError as why:
            has_changed = self.view.failure != str(why)
            self.view.failure = str(why)
            self._described_at = 0.0
        self._read_at = time.monotonic()
        if has_changed:
            self.changed.note()

    def _read(self) -> bool:
        """Read new history and, when due, the description; return whether pages change."""
        view, had_failed = self.view, bool(self.view.failure)
        has_rows = self._read_history()
        is_due = time.monotonic() - self._described_at > MEMBERS_SECONDS
        if not has_rows and not is_due and not had_failed:
            return False
        self._describe()
        if view.has_history:
            self._explain(has_rows=has_rows)
        view.failure = ""
        self._described_at = time.monotonic()
        return True

    def _read_history(self) -> bool:
        admin, view = self._cluster.admin, self.view
        if not view.has_history:
            return False
        try:
            # The last row is asked for again: a broker that has forgotten it was started anew.
            last = self.events[-1] if self.events else None
            found = admin.group_history(self.group_id, after=None if last is None else last.sequence - 1)
            self._held_by = found.held_by
            if last is not None:
                again = found.events[0] if found.events else None
                if again is not None and (again.sequence, again.time_ms) == (last.sequence, last.time_ms):
                    self.events[-1:] = found.events
                    return len(found.events) > 1 or again.times != last.times
                found = admin.group_history(self.group_id)
            self.events, self._is_complete = list(found.events), found.is_complete and not found.has_older
        except UnsupportedFeatureError:
            view.has_history = False
            return False
        return bool(self.events) or last is not None

    def _describe(self) -> None:
        admin, view = self._cluster.admin, self.view
        try:
            view.description = admin.describe_group(self.group_id)
            view.is_gone = False
        except BrokerError as why:
            if why.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            view.description, view.is_gone, view.offsets = None, True, ()
            return
        view.offsets = admin.group_offsets(self.group_id)
        now_ms, ages = _now_ms(), []
        for row in view.offsets:
            if row.end_offset >= 0:
                self._ends.note(row.topic, row.partition, row.end_offset, now_ms=now_ms)
            if row.committed is not None:
                ages.append(self._ends.lag_ms(row.topic, row.partition, row.committed, now_ms=now_ms))
        view.lag_ms = or_none(max(ages, default=-1))
        lags = [row.lag for row in view.offsets if row.lag is not None]
        if lags:
            view.lags.append((now_ms, sum(lags)))

    def _explain(self, *, has_rows: bool) -> None:
        view = self.view
        if len(self.events) > MOST_ROWS:
            del self.events[: MOST_ROWS // 4]
            self._is_complete = False
        # What waits goes on waiting though no row comes.
        if has_rows or view.explanation is None or view.explanation.now:
            found = explain(self.group_id, self.events, now_ms=_now_ms(), is_complete=self._is_complete)
            view.explanation = replace(found, has_older=not self._is_complete)
        view.explanation = replace(view.explanation, held_by=self._held_by)
        if has_rows or not view.told:
            names = MemberNames()
            names.learn(self.events)
            view.told = [
                Told(sequence=event.sequence, time_ms=event.time_ms, said=said)
                for event, said in fold(self.events, names)
            ]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _quiet(task: asyncio.Future[object]) -> None:
    # The loop keeps no strong reference to a task.
    _BESIDE.add(task)
    task.add_done_callback(_BESIDE.discard)


_BESIDE: Final[set[asyncio.Future[object]]] = set()
