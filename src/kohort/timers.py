"""Deadlines as data: one instant per (kind, group, member), and the earliest of them.

Laws: nothing here reads a clock; equal deadlines fire in the order in which they were armed. Moving a deadline to
a later time, as each heartbeat does, touches no queue: the entry in the queue is put right when it comes up.
Source: architecture rule 1.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush, heapreplace
from typing import Generic, TypeVar

Key = TypeVar("Key")


class _Timer(Generic[Key]):
    """One armed key, and where it is queued."""

    __slots__ = ("deadline_ms", "key", "queued_ms", "queued_sequence", "sequence")

    def __init__(self, key: Key, deadline_ms: int, sequence: int) -> None:
        self.key = key
        #: When it fires.
        self.deadline_ms = deadline_ms
        #: Number of the call that armed it last.
        self.sequence = sequence
        #: Time of its live entry in the queue; never after `deadline_ms`.
        self.queued_ms = deadline_ms
        #: Number of that entry; -1 once it is disarmed.
        self.queued_sequence = sequence


class TimerTable(Generic[Key]):
    """One deadline per key, in milliseconds of whatever clock the caller passes in.

    >>> timers: TimerTable[str] = TimerTable()
    >>> timers.arm("session", 100)
    >>> timers.arm("rebalance", 50)
    >>> timers.next_deadline()
    50
    >>> timers.pop_due(120)
    'rebalance'
    >>> timers.pop_due(120)
    'session'
    >>> timers.pop_due(120) is None
    True
    """

    __slots__ = ("_armed", "_heap", "_sequence")

    def __init__(self) -> None:
        #: key -> its timer.
        self._armed: dict[Key, _Timer[Key]] = {}
        #: (time, number, timer); an entry is dead unless its number is the timer's `queued_sequence`.
        self._heap: list[tuple[int, int, _Timer[Key]]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._armed)

    def arm(self, key: Key, deadline_ms: int) -> None:
        """Set the deadline of `key`, in place of the one that it had."""
        self._sequence = sequence = self._sequence + 1
        timer = self._armed.get(key)
        if timer is None:
            self._armed[key] = timer = _Timer(key, deadline_ms, sequence)
        else:
            timer.deadline_ms = deadline_ms
            timer.sequence = sequence
            if timer.queued_ms <= deadline_ms:
                return
            timer.queued_ms = deadline_ms
            timer.queued_sequence = sequence
        heappush(self._heap, (deadline_ms, sequence, timer))
        if len(self._heap) > 64 + 4 * len(self._armed):
            self._rebuild()

    def disarm(self, key: Key) -> None:
        """Forget the deadline of `key`; one that is not armed is fine."""
        timer = self._armed.pop(key, None)
        if timer is not None:
            timer.queued_sequence = -1

    def deadline(self, key: Key) -> int | None:
        """The deadline of `key`, `None` if it has none."""
        timer = self._armed.get(key)
        return None if timer is None else timer.deadline_ms

    def next_deadline(self) -> int | None:
        """The earliest deadline, `None` if nothing is armed."""
        self._settle()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Key | None:
        """Disarm and return the key whose deadline is the earliest one at or before `now_ms`."""
        self._settle()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        key = heappop(self._heap)[2].key
        del self._armed[key]
        return key

    def shift(self, by_ms: int) -> None:
        """Move every deadline by `by_ms`: a process that stood still fences nobody (architecture rule 17)."""
        for timer in self._armed.values():
            timer.deadline_ms += by_ms
        self._rebuild()

    def _settle(self) -> None:
        """Bring the earliest deadline to the top of the queue."""
        heap = self._heap
        while heap:
            _, sequence, timer = heap[0]
            if timer.queued_sequence != sequence:
                heappop(heap)
            elif timer.sequence != sequence:
                # It was moved to a later time, or armed again for the same one, behind others of that time.
                timer.queued_ms = timer.deadline_ms
                timer.queued_sequence = timer.sequence
                heapreplace(heap, (timer.deadline_ms, timer.sequence, timer))
            else:
                return

    def _rebuild(self) -> None:
        for timer in self._armed.values():
            timer.queued_ms = timer.deadline_ms
            timer.queued_sequence = timer.sequence
        self._heap = [(timer.deadline_ms, timer.sequence, timer) for timer in self._armed.values()]
        heapify(self._heap)
