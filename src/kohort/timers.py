"""Deadlines as data: one instant per (kind, group, member), and the earliest of them.

Laws: nothing here reads a clock; equal deadlines fire in the order in which they were armed.
Source: architecture rule 1.
"""

from __future__ import annotations

from heapq import heappop, heappush
from typing import Generic, TypeVar

Key = TypeVar("Key")


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
        #: key -> (deadline_ms, sequence) of its live entry.
        self._armed: dict[Key, tuple[int, int]] = {}
        #: (deadline_ms, sequence, key); entries that `_armed` does not confirm are dead.
        self._heap: list[tuple[int, int, Key]] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._armed)

    def arm(self, key: Key, deadline_ms: int) -> None:
        """Set the deadline of `key`, in place of the one that it had."""
        self._sequence += 1
        self._armed[key] = (deadline_ms, self._sequence)
        heappush(self._heap, (deadline_ms, self._sequence, key))
        if len(self._heap) > 64 + 4 * len(self._armed):
            self._rebuild()

    def disarm(self, key: Key) -> None:
        """Forget the deadline of `key`; one that is not armed is fine."""
        self._armed.pop(key, None)

    def deadline(self, key: Key) -> int | None:
        """The deadline of `key`, `None` if it has none."""
        entry = self._armed.get(key)
        return None if entry is None else entry[0]

    def next_deadline(self) -> int | None:
        """The earliest deadline, `None` if nothing is armed."""
        self._drop_dead()
        return self._heap[0][0] if self._heap else None

    def pop_due(self, now_ms: int) -> Key | None:
        """Disarm and return the key whose deadline is the earliest one at or before `now_ms`."""
        self._drop_dead()
        if not self._heap or self._heap[0][0] > now_ms:
            return None
        key = heappop(self._heap)[2]
        del self._armed[key]
        return key

    def shift(self, by_ms: int) -> None:
        """Move every deadline by `by_ms`: a process that stood still fences nobody (architecture rule 17)."""
        self._armed = {key: (deadline + by_ms, sequence) for key, (deadline, sequence) in self._armed.items()}
        self._rebuild()

    def _drop_dead(self) -> None:
        heap, armed = self._heap, self._armed
        while heap:
            deadline, sequence, key = heap[0]
            if armed.get(key) == (deadline, sequence):
                return
            heappop(heap)

    def _rebuild(self) -> None:
        live = ((deadline, sequence, key) for key, (deadline, sequence) in self._armed.items())
        self._heap = sorted(live, key=_order)


def _order(entry: tuple[int, int, object]) -> tuple[int, int]:
    return entry[:2]
