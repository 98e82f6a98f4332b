"""The order of answers on one socket: requests are read ahead, answers may come late, none overtakes another.

A `ReplySlot` stands for one request that was read. It is HELD while nobody knows the answer (a parked JoinGroup, a
long poll), UNSYNCED while the answer is known but must not be seen before the log is on disk, READY when it may leave.
A `ReplyQueue` gives out the ready answers from its head only.

Laws: each slot leaves exactly once, in the order in which the slots were added; a slot whose connection is gone
swallows whatever still comes. Nothing here knows sockets or clocks.
Source: Kafka's clients match answers to requests by order; architecture: "keeps each socket's order".
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from enum import IntEnum
from typing import Final, TypeVar

#: What is written to a socket.
Buffer = bytes | bytearray | memoryview


class SlotState(IntEnum):
    """Where a reply is."""

    HELD = 0
    UNSYNCED = 1
    READY = 2
    SENT = 3
    GONE = 4


class SlotEvent(IntEnum):
    """What may happen to a reply."""

    FILL = 0
    FILL_UNSYNCED = 1
    SYNC = 2
    SEND = 3
    ABANDON = 4


Slot = TypeVar("Slot", bound="ReplySlot")

#: (state, event) -> next state; a pair that is missing is a bug.
TRANSITIONS: Final = {
    (SlotState.HELD, SlotEvent.FILL): SlotState.READY,
    (SlotState.HELD, SlotEvent.FILL_UNSYNCED): SlotState.UNSYNCED,
    (SlotState.HELD, SlotEvent.ABANDON): SlotState.GONE,
    (SlotState.UNSYNCED, SlotEvent.SYNC): SlotState.READY,
    (SlotState.UNSYNCED, SlotEvent.ABANDON): SlotState.GONE,
    (SlotState.READY, SlotEvent.SEND): SlotState.SENT,
    (SlotState.READY, SlotEvent.ABANDON): SlotState.GONE,
    (SlotState.GONE, SlotEvent.FILL): SlotState.GONE,
    (SlotState.GONE, SlotEvent.FILL_UNSYNCED): SlotState.GONE,
    (SlotState.GONE, SlotEvent.SYNC): SlotState.GONE,
    (SlotState.GONE, SlotEvent.ABANDON): SlotState.GONE,
}


class ReplySlot:
    """The place of one answer in the order of its socket."""

    __slots__ = ("parts", "state")

    def __init__(self) -> None:
        #: HELD at first; moves along `TRANSITIONS` only.
        self.state: SlotState = SlotState.HELD
        #: The whole frame of the answer; empty for a request that gets none. Meaningful from UNSYNCED on.
        self.parts: list[Buffer] = []

    def fill(self, parts: list[Buffer]) -> None:
        """The answer is known and may leave as soon as it is its turn."""
        self.state = TRANSITIONS[self.state, SlotEvent.FILL]
        self._keep(parts)

    def fill_unsynced(self, parts: list[Buffer]) -> None:
        """The answer is known but waits for `sync`."""
        self.state = TRANSITIONS[self.state, SlotEvent.FILL_UNSYNCED]
        self._keep(parts)

    def sync(self) -> None:
        """What the answer tells is on disk now."""
        self.state = TRANSITIONS[self.state, SlotEvent.SYNC]

    def abandon(self) -> None:
        """The connection is gone; the answer has nowhere to go."""
        self.state = TRANSITIONS[self.state, SlotEvent.ABANDON]
        self.parts = []

    def _keep(self, parts: list[Buffer]) -> None:
        if self.state is not SlotState.GONE:
            self.parts = parts


class ReplyQueue:
    """The open slots of one socket, oldest first."""

    __slots__ = ("_slots", "limit")

    def __init__(self, limit: int) -> None:
        """`limit`: slots above which the owner stops reading requests."""
        assert limit > 0
        self.limit: Final = limit
        #: Every slot that was added and has not left.
        self._slots: deque[ReplySlot] = deque()

    def __len__(self) -> int:
        return len(self._slots)

    @property
    def is_full(self) -> bool:
        """Whether no further request should be read for now."""
        return len(self._slots) >= self.limit

    def add(self, slot: ReplySlot) -> None:
        """`slot` answers the request that was read last."""
        self._slots.append(slot)

    def find_overtaken(self, held: Sequence[Slot]) -> list[Slot]:
        """Those of these open slots that stand before one that is ready; both are in the order of the queue."""
        last = max((at for at, slot in enumerate(self._slots) if slot.state is SlotState.READY), default=-1)
        before = {id(slot) for at, slot in enumerate(self._slots) if at < last}
        return [slot for slot in held if id(slot) in before]

    def take(self, limit_bytes: int) -> list[Buffer]:
        """The parts of the ready answers at the head; stops after the answer with which `limit_bytes` is reached."""
        slots = self._slots
        taken: list[Buffer] = []
        size = 0
        while slots and slots[0].state is SlotState.READY and size < limit_bytes:
            slot = slots.popleft()
            slot.state = TRANSITIONS[SlotState.READY, SlotEvent.SEND]
            taken += slot.parts
            size += sum(map(len, slot.parts))
            slot.parts = []
        return taken

    def abandon(self) -> None:
        """The connection is gone."""
        while self._slots:
            self._slots.popleft().abandon()
