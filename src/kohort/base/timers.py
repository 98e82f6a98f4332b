"""Deadlines as data: one instant per (kind, group, member), and the earliest of them.

Laws: nothing here reads a clock; equal deadlines fire in the order in which they were armed. Moving a deadline to
a later time, as each heartbeat does, changes no queue: the queue's entry is corrected when it gets to the top.
Source: architecture rule 1; bench/memory.py: as an object with four numbers and a tuple in the queue, the deadline of
an idle member's session took 330 bytes, a fifth of what the member took; as a row of columns it takes half of that.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable
from functools import partial
from heapq import heapify, heappop, heappush, heapreplace
from typing import Final, Generic, TypeVar

Key = TypeVar("Key")


#: An entry of the queue is one number of deadline, call of `arm`, and place, so that entries sort as timers fire.
_PLACE_BITS: Final = 32
_SEQUENCE_BITS: Final = 64
_PLACE_MASK: Final = (1 << _PLACE_BITS) - 1
_SEQUENCE_MASK: Final = (1 << _SEQUENCE_BITS) - 1


class TimerTable(Generic[Key]):
    """A table with one deadline per key, in milliseconds of the caller's clock.

    >>> timers: TimerTable[str] = TimerTable()
    >>> timers.arm("session", 100)
    >>> timers.arm("rebalance", 50)
    >>> timers.next_deadline()
    50
    >>> timers.due(49), timers.due(120)
    (None, 'rebalance')
    >>> timers.pop_due(120)
    'rebalance'
    >>> timers.pop_due(120)
    'session'
    >>> timers.pop_due(120) is None
    True
    """

    __slots__ = (
        "_deadlines",
        "_free",
        "_heap",
        "_keys",
        "_places",
        "_queued",
        "_queued_sequences",
        "_sequence",
        "_sequences",
    )

    def __init__(self) -> None:
        #: key -> its place in the columns below.
        self._places: Final[dict[Key, int]] = {}
        #: Place -> its key; the key of a free place does not matter.
        self._keys: Final[list[Key]] = []
        #: Place -> when it fires, and the number of the call that armed it last.
        self._deadlines: Final = array("q")
        self._sequences: Final = array("q")
        #: Place -> the time of its live entry in the queue, never after the deadline, and that entry's number;
        #: -1 is a place without one.
        self._queued: Final = array("q")
        self._queued_sequences: Final = array("q")
        self._free: Final[list[int]] = []
        #: (time, number, place) as one number; an entry is dead unless its number is the place's `_queued_sequences`.
        self._heap: list[int] = []
        self._sequence = 0

    def __len__(self) -> int:
        return len(self._places)

    def arm(self, key: Key, deadline_ms: int) -> None:
        """Set the deadline of `key`, replacing an earlier one."""
        self._sequence = sequence = self._sequence + 1
        place = self._places.get(key)
        if place is None:
            place = self._places[key] = self._take_place(key)
        elif self._queued[place] <= deadline_ms:
            self._deadlines[place] = deadline_ms
            self._sequences[place] = sequence
            return
        self._deadlines[place] = self._queued[place] = deadline_ms
        self._sequences[place] = self._queued_sequences[place] = sequence
        heappush(self._heap, _entry(deadline_ms, sequence, place))
        if len(self._heap) > 64 + 4 * len(self._places):
            self._rebuild()

    def disarm(self, key: Key) -> None:
        """Forget the deadline of `key`; without one do nothing."""
        place = self._places.pop(key, None)
        if place is not None:
            self._queued_sequences[place] = -1
            self._free.append(place)

    def deadline(self, key: Key) -> int | None:
        """Return the deadline of `key`, `None` if it has none."""
        place = self._places.get(key)
        return None if place is None else self._deadlines[place]

    def next_deadline(self) -> int | None:
        """Return the earliest deadline, `None` if nothing is armed."""
        place = self._settle()
        return None if place is None else self._deadlines[place]

    def due(self, now_ms: int) -> Key | None:
        """Return the key that `pop_due` would return."""
        place = self._settle()
        return None if place is None or self._deadlines[place] > now_ms else self._keys[place]

    def pop_due(self, now_ms: int) -> Key | None:
        """Disarm and return the key with the earliest deadline at or before `now_ms`."""
        place = self._settle()
        if place is None or self._deadlines[place] > now_ms:
            return None
        heappop(self._heap)
        key = self._keys[place]
        self.disarm(key)
        return key

    def shift(self, by_ms: int, *, but_for: Callable[[Key], bool] = lambda _: False) -> None:
        """Move every deadline by `by_ms`, except for keys for which `but_for` is true."""
        # So that a process that was suspended fences no member because of that.
        for key, place in self._places.items():
            if not but_for(key):
                self._deadlines[place] += by_ms
        self._rebuild()

    def _take_place(self, key: Key) -> int:
        if self._free:
            place = self._free.pop()
            self._keys[place] = key
            return place
        self._keys.append(key)
        for column in (self._deadlines, self._sequences, self._queued, self._queued_sequences):
            column.append(-1)
        return len(self._keys) - 1

    def _settle(self) -> int | None:
        """Bring the earliest deadline to the top of the queue, and return its place."""
        heap = self._heap
        while heap:
            entry = heap[0]
            place = entry & _PLACE_MASK
            sequence = entry >> _PLACE_BITS & _SEQUENCE_MASK
            if self._queued_sequences[place] != sequence:
                heappop(heap)
                continue
            latest = self._sequences[place]
            if latest == sequence:
                return place
            # It was moved to a later time, or armed again for the same one, behind others of that time.
            self._queued[place] = self._deadlines[place]
            self._queued_sequences[place] = latest
            heapreplace(heap, _entry(self._deadlines[place], latest, place))
        return None

    def _rebuild(self) -> None:
        for place in self._places.values():
            self._queued[place] = self._deadlines[place]
            self._queued_sequences[place] = self._sequences[place]
        self._heap = [_entry(self._deadlines[place], self._sequences[place], place) for place in self._places.values()]
        heapify(self._heap)


def _entry(deadline_ms: int, sequence: int, place: int) -> int:
    return (deadline_ms << _SEQUENCE_BITS | sequence) << _PLACE_BITS | place


#: The deadline of a part that has none.
_NEVER: Final = 1 << 62


class Schedule:
    """The parts of a state machine that have work to do: woken ones, and those whose deadline has passed.

    Laws: parts work in the order in which they were added, each once in a run. A part that is woken after its turn
    works in the next run. The deadline of a part is read only after it was woken or has worked: code that moves a
    deadline to an earlier time must wake the part.
    """

    __slots__ = ("_deadlines", "_parts", "_woken", "earliest_ms")

    def __init__(self) -> None:
        #: Index of a part -> its work, and the function that returns its deadline; `None` if it has none.
        self._parts: Final[list[tuple[Callable[[int], None], Callable[[], int | None] | None]]] = []
        #: Index -> its deadline. With a dozen parts the minimum of a list is faster than a queue.
        self._deadlines: Final[list[int]] = []
        self._woken: Final[set[int]] = set()
        #: The earliest deadline, `None` if no part has one.
        self.earliest_ms: int | None = None

    def add(
        self, work: Callable[[int], None], next_deadline: Callable[[], int | None] | None = None
    ) -> Callable[[], None]:
        """Add a part after the others; return the function that wakes it.

        `next_deadline` returns the time at which the part has work even if nothing wakes it.
        """
        place = len(self._parts)
        self._parts.append((work, next_deadline))
        self._deadlines.append(_NEVER)
        # Its deadline is not known before its first run.
        self._woken.add(place)
        return partial(self._woken.add, place)

    def wake_all(self) -> None:
        """Wake every part."""
        self._woken.update(range(len(self._parts)))

    def run(self, now_ms: int) -> None:
        """Let the parts work that were woken or are due, and arm their next deadlines."""
        woken, deadlines = self._woken, self._deadlines
        worked = []
        for place, (work, _) in enumerate(self._parts):
            if place in woken or deadlines[place] <= now_ms:
                woken.discard(place)
                worked.append(place)
                work(now_ms)
        # Only now: the work of one part may have moved the deadline of another one.
        for place in woken.union(worked):
            if (next_deadline := self._parts[place][1]) is not None:
                deadline_ms = next_deadline()
                deadlines[place] = _NEVER if deadline_ms is None else deadline_ms
        earliest_ms = min(deadlines)
        self.earliest_ms = None if earliest_ms == _NEVER else earliest_ms
