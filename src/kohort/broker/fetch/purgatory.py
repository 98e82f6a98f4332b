"""The fetch purgatory: delayed fetches, which are completed when a log grows or `max.wait` has passed.

A fetch may name the group member that sends it. Membership updates for that member complete the fetch at once.
Fetches that expire at about the same time are completed together: a wait of `LONG_WAIT_MS` or more ends up to
`LONG_TICK_MS` late.

Laws: a parked fetch leaves the purgatory exactly once: it is answered, or dropped with its connection. When a log grows
many times in one turn of the event loop, each waiting fetch checks that log once, and none of its other logs. A turn of
the loop handles about `LOGS_AT_ONCE` rows, however many fetches are woken or have expired. The rows of all parked
fetches are bounded: above the bound the fetch that has waited longest is answered early.
Source: Kafka's fetch purgatory (min.bytes, max.wait); architecture: the purgatory only keeps tokens.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Iterable, Sequence
from heapq import heappop, heappush
from typing import Final, Protocol

from kohort.broker.connections.memberconnections import MemberKey
from kohort.storage.partitions.partition import PartitionLog

#: The longest wait of any fetch, even above its max.wait; a client that vanished is noticed by then.
LONGEST_WAIT_MS: Final = 60_000
#: Waits of so long, ms, end at whole numbers of ticks, ms; shorter ones at whole milliseconds.
LONG_WAIT_MS: Final = 100
LONG_TICK_MS: Final = 10
#: Rows of all parked fetches together, of a tenth of a KB each: a few tens of MB in all.
MOST_ROWS: Final = 500_000
#: Places of parked fetches that are given up in one turn of the loop, or little more.
LOGS_AT_ONCE: Final = 2_000
#: Bytes of an answer that count as much as one place.
BYTES_PER_LOG: Final = 2_048


class Waiting(Protocol):
    """The part of a fetch that the purgatory uses."""

    @property
    def logs(self) -> Sequence[PartitionLog | None]:
        """The partition log of each row; `None` where the row has no log to wait for."""

    @property
    def size_bytes(self) -> int:
        """The bytes that were read for the response so far."""

    def look(self, rows: Iterable[int]) -> bool:
        """Return whether the fetch has enough data, after the logs of these rows have grown."""

    def answer(self) -> None:
        """Send a response with the available data and end the wait."""


class DelayedFetch:
    """One parked fetch."""

    __slots__ = ("_purgatory", "due_ms", "logs", "member", "waiting")

    def __init__(self, purgatory: Purgatory, waiting: Waiting, member: MemberKey | None) -> None:
        self._purgatory = purgatory
        self.waiting: Final = waiting
        #: The logs that it waits for; those of `waiting` may be gone, or denied, when it leaves them.
        self.logs: Final = tuple(waiting.logs)
        #: The member that is told news by this fetch, if any.
        self.member: Final = member
        #: When its time is over, by the loop's clock; `None`: it is not parked.
        self.due_ms: int | None = None

    @property
    def is_parked(self) -> bool:
        """Whether the fetch still waits in the purgatory."""
        return self.due_ms is not None

    def cancel(self) -> None:
        """Remove the fetch from the purgatory without a response."""
        self._purgatory.remove(self)

    def expire(self) -> None:
        """Remove the fetch from the purgatory, and answer it with the available data."""
        self._purgatory.remove(self)
        self.waiting.answer()


class Purgatory:
    """All parked fetches of the broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop: Final = loop
        #: Log -> the fetches that read it, oldest first, and in which row.
        self._by_log: Final[dict[PartitionLog, dict[DelayedFetch, int]]] = {}
        #: Member -> the fetches by which it is to hear.
        self._by_member: Final[dict[MemberKey, dict[DelayedFetch, None]]] = {}
        #: All parked fetches, oldest first, and the number of their rows.
        self._parked: Final[dict[DelayedFetch, None]] = {}
        self._rows = 0
        #: Time, ms -> the fetches that are due then; times without fetches stay until they have come.
        self._due_at: Final[dict[int, dict[DelayedFetch, None]]] = {}
        #: These times, and the timer of the earliest: one of the loop for each fetch would be compared with all others.
        self._times: Final[list[int]] = []
        self._timer: asyncio.TimerHandle | None = None
        #: Fetches that were answered early for want of room since the start.
        self.gave_way = 0
        #: Fetches to be asked, and the rows that have more.
        self._woken: Final[dict[DelayedFetch, dict[int, None]]] = {}
        #: Fetches whose time is over and that are no longer parked, to be answered.
        self._due: Final[deque[Waiting]] = deque()

    def __len__(self) -> int:
        return len(self._parked)

    def park(self, waiting: Waiting, *, max_wait_ms: int, member: MemberKey | None = None) -> DelayedFetch:
        """Park a fetch until it has enough data, `max_wait_ms` pass, or `member` has membership updates.

        Above `MOST_ROWS` rows the oldest fetches are answered early.
        """
        fetch = DelayedFetch(self, waiting, member)
        if member is not None:
            self._by_member.setdefault(member, {})[fetch] = None
        for row, log in enumerate(fetch.logs):
            if log is not None:
                self._by_log.setdefault(log, {})[fetch] = row
        self._schedule(fetch, min(max_wait_ms, LONGEST_WAIT_MS))
        self._parked[fetch] = None
        self._rows += len(fetch.logs)
        # The longest waiting fetch is answered early, so that the memory of all is bounded.
        while self._rows > MOST_ROWS and len(self._parked) > 1:
            oldest = next(iter(self._parked))
            self.remove(oldest)
            self.gave_way += 1
            self._loop.call_soon(oldest.waiting.answer)
        return fetch

    def notify(self, log: PartitionLog) -> None:
        """Wake the fetches that wait for `log`, after its visible end has moved or the log was deleted."""
        fetches = self._by_log.get(log)
        if not fetches:
            return
        self._arm()
        for fetch, row in fetches.items():
            self._woken.setdefault(fetch, {})[row] = None

    def tell_member(self, member: MemberKey) -> None:
        """Answer the fetches of a member that has membership updates, in the next turn of the loop."""
        if member in self._by_member:
            # The answer comes after the decision that made the news.
            self._loop.call_soon(self._answer_member, member)

    def _answer_member(self, member: MemberKey) -> None:
        for fetch in list(self._by_member.get(member, ())):
            fetch.expire()

    def remove(self, fetch: DelayedFetch) -> None:
        """Remove a fetch from the purgatory; do nothing if the fetch is not parked."""
        if fetch.due_ms is None:
            return
        del self._due_at[fetch.due_ms][fetch]
        fetch.due_ms = None
        del self._parked[fetch]
        if fetch.member is not None:
            of_member = self._by_member[fetch.member]
            del of_member[fetch]
            if not of_member:
                del self._by_member[fetch.member]
        self._rows -= len(fetch.logs)
        if fetch in self._woken:
            # Its place stays, so that one turn of the loop is scheduled as long as there are any.
            self._woken[fetch] = {}
        for log in fetch.logs:
            fetches = None if log is None else self._by_log.get(log)
            if fetches is not None and log is not None:
                fetches.pop(fetch, None)
                if not fetches:
                    del self._by_log[log]

    def release_all(self) -> None:
        """Answer every parked fetch with the available data, since the broker stops."""
        while self._due:
            self._due.popleft().answer()
        for fetch in list(self._parked):
            fetch.expire()

    def _schedule(self, fetch: DelayedFetch, wait_ms: int) -> None:
        tick_ms = LONG_TICK_MS if wait_ms >= LONG_WAIT_MS else 1
        # Never earlier than the client has asked for.
        fetch.due_ms = due_ms = -int(-(self._loop.time() * 1000 + wait_ms) // tick_ms) * tick_ms
        fetches = self._due_at.get(due_ms)
        if fetches is not None:
            fetches[fetch] = None
            return
        self._due_at[due_ms] = {fetch: None}
        heappush(self._times, due_ms)
        if self._times[0] == due_ms:
            if self._timer is not None:
                self._timer.cancel()
            self._timer = self._loop.call_at(due_ms / 1000, self._expire, due_ms)

    def _expire(self, now_ms: int) -> None:
        """Remove the fetches whose wait has expired, and answer them in a later turn of the loop."""
        times = self._times
        while times and times[0] <= now_ms:
            for fetch in list(self._due_at[times[0]]):
                self.remove(fetch)
                self._arm()
                self._due.append(fetch.waiting)
            del self._due_at[heappop(times)]
        self._timer = self._loop.call_at(times[0] / 1000, self._expire, times[0]) if times else None

    def _arm(self) -> None:
        if not self._woken and not self._due:
            self._loop.call_soon(self._retry)

    def _retry(self) -> None:
        done = 0
        while self._due and done < LOGS_AT_ONCE:
            done += _answer(self._due.popleft())
        for fetch, rows in list(self._woken.items()):
            if done >= LOGS_AT_ONCE:
                break
            del self._woken[fetch]
            if fetch.due_ms is not None and fetch.waiting.look(rows):
                self.remove(fetch)
                done += _answer(fetch.waiting)
        if self._woken or self._due:
            self._loop.call_soon(self._retry)


def _answer(waiting: Waiting) -> int:
    """Answer a fetch; return the cost of the response: its rows, plus one for each `BYTES_PER_LOG` bytes."""
    waiting.answer()
    return len(waiting.logs) + waiting.size_bytes // BYTES_PER_LOG
