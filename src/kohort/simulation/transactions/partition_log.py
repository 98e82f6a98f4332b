"""A partition's log in the transactions' world: batches and markers in memory, as far as transactions need them.

Laws: what is acknowledged or read is durable; a crash loses some of the rest. The state of producers is a fold over the
entries. `StableOffset`: the last stable offset never falls, and no committed reader sees an open transaction.
Source: Apache Kafka's ProducerStateManager and ProducerAppendInfo; KIP-98, KIP-890.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Final

from kohort.errors import ErrorCode, Refused
from kohort.simulation.trace import LawBroken


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """A batch of one record, or a marker. `attempt`: the transaction that its producer had in mind, -1: a marker."""

    producer_id: int
    epoch: int
    sequence: int = -1
    attempt: int = -1
    is_commit: bool = False

    @property
    def is_marker(self) -> bool:
        """Return whether this is a marker."""
        return self.attempt < 0


@dataclass(slots=True)
class ProducerState:
    """The state of one producer id. `first`: offset of its open transaction, -1: none; `since_ms`: time of it.

    `markers`: number of its markers.
    """

    epoch: int
    sequence: int = -1
    first: int = -1
    since_ms: int = 0
    markers: int = 0
    #: sequence -> offset of the batches of this epoch: repeated ones are acknowledged again.
    offsets: dict[int, int] = field(default_factory=dict)


class SimulatedLog:
    """The log of one partition."""

    def __init__(self, name: str) -> None:
        self.name: Final = name
        self.entries: list[Entry] = []
        #: Number of entries that no crash loses; readers see no others.
        self.durable = 0
        self.producers: dict[int, ProducerState] = {}
        #: Largest last stable offset that a reader was told.
        self._told_stable = 0
        #: Producer id -> offset of the first record of a transaction whose marker is not durable yet.
        self._ending: dict[int, int] = {}

    def append(self, entry: Entry, *, begins: bool, now_ms: int) -> int:
        """Append a client's batch; return its offset, an older one if the batch is a repeated one.

        `begins`: the coordinator has the partition in the producer's open transaction.
        """
        state = self.producers.get(entry.producer_id)
        if state is not None and entry.epoch < state.epoch:
            raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH)
        if state is None or entry.epoch > state.epoch:
            expected = 0
        else:
            known = state.offsets.get(entry.sequence)
            if known is not None:
                return known
            expected = state.sequence + 1
        if entry.sequence != expected:
            raise Refused(ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)
        if not self.is_in_transaction(entry.producer_id, entry.epoch) and not begins:
            raise Refused(ErrorCode.INVALID_TXN_STATE)
        self.entries.append(entry)
        self._note(entry, len(self.entries) - 1, now_ms)
        return len(self.entries) - 1

    def mark(self, entry: Entry, *, is_bumped: bool, now_ms: int) -> None:
        """Append a marker. `is_bumped`: its transaction had the epoch before (KIP-890 part 2)."""
        state = self.producers.get(entry.producer_id)
        if state is not None:
            is_late = state.epoch == entry.epoch and state.first >= 0 if is_bumped else False
            if entry.epoch < state.epoch or is_late:
                raise Refused(ErrorCode.INVALID_PRODUCER_EPOCH)
        self.entries.append(entry)
        self._note(entry, len(self.entries) - 1, now_ms)

    def is_in_transaction(self, producer_id: int, epoch: int) -> bool:
        """Return whether a transaction of exactly this epoch is open here."""
        state = self.producers.get(producer_id)
        return state is not None and state.first >= 0 and state.epoch == epoch

    def markers_of(self, producer_id: int) -> int:
        """Return the number of a producer's markers, by which a leader sees that a transaction has ended meanwhile."""
        state = self.producers.get(producer_id)
        return 0 if state is None else state.markers

    def make_durable(self, count: int) -> None:
        """Note that the first `count` entries are durable."""
        if count > self.durable:
            for entry in self.entries[self.durable : count]:
                if entry.is_marker:
                    self._ending.pop(entry.producer_id, None)
            self.durable = count
            self.stable_offset()

    def stable_offset(self) -> int:
        """Return the last stable offset; it must not fall."""
        open_ones = [state.first for state in self.producers.values() if state.first >= 0]
        stable = min(self.durable, *open_ones, *self._ending.values(), len(self.entries))
        if stable < self._told_stable:
            raise LawBroken("StableOffset", f"of {self.name} falls from {self._told_stable} to {stable}")
        self._told_stable = stable
        return stable

    def crash(self, kept: int, now_ms: int) -> None:
        """Lose all entries from `kept` on, and derive the state of producers anew."""
        del self.entries[max(kept, self.durable) :]
        # What a start finds is durable from then on.
        self.durable = len(self.entries)
        self.producers, self._ending = {}, {}
        for offset, entry in enumerate(self.entries):
            self._note(entry, offset, now_ms)
        self._ending = {}
        self.stable_offset()

    def open_transactions(self) -> Iterator[tuple[int, ProducerState]]:
        """Yield the producers with an open transaction."""
        return ((producer_id, state) for producer_id, state in self.producers.items() if state.first >= 0)

    def results(self) -> Iterator[tuple[int, int, bool | None]]:
        """Yield offset and attempt of each record, with whether it is committed; `None`: open."""
        result: dict[int, bool | None] = {}
        unfinished: dict[int, list[int]] = {}
        for offset, entry in enumerate(self.entries):
            if entry.is_marker:
                for each in unfinished.pop(entry.producer_id, ()):
                    result[each] = entry.is_commit
            else:
                unfinished.setdefault(entry.producer_id, []).append(offset)
                result[offset] = None
        return ((offset, self.entries[offset].attempt, is_committed) for offset, is_committed in result.items())

    def _note(self, entry: Entry, offset: int, now_ms: int) -> None:
        state = self.producers.get(entry.producer_id)
        if state is None or entry.epoch > state.epoch:
            former = ProducerState(entry.epoch) if state is None else state
            state = ProducerState(entry.epoch, first=former.first, since_ms=former.since_ms, markers=former.markers)
            self.producers[entry.producer_id] = state
        if entry.is_marker:
            state.markers += 1
            if state.first >= 0:
                self._ending.setdefault(entry.producer_id, state.first)
            state.first = -1
            return
        state.sequence = entry.sequence
        state.offsets[entry.sequence] = offset
        if state.first < 0:
            state.first, state.since_ms = offset, now_ms
