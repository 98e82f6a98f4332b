"""What a partition remembers of idempotent producers: how a repeated or lost batch is told from a new one.

Laws: checks change nothing; state changes only by `note`, with a batch that is in the log, in log order, so that
reading the log again gives the same state. The last 5 batches of each producer are answered again with their offsets.
Source: KIP-98, KIP-185 (five batches in flight), KIP-360 (a producer that the partition does not know may begin at
any sequence); Apache Kafka's ProducerAppendInfo.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final, NamedTuple, TypeAlias

from kohort.errors import ErrorCode, Refused
from kohort.records.header import BatchHeader

#: Batches per producer that a retry can repeat; clients keep at most this many in flight.
REMEMBERED_BATCHES: Final = 5
#: Producers that one partition remembers; of more, those that wrote least recently are forgotten.
PRODUCER_LIMIT: Final = 20_000
_SEQUENCES: Final = 1 << 31


class StoredBatch(NamedTuple):
    """A batch that is in the log, as its producer numbered it."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    #: Largest timestamp of the batch, milliseconds.
    timestamp: int


class ProducerState:
    """One producer's writes to one partition."""

    __slots__ = ("batches", "epoch")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        #: The last `REMEMBERED_BATCHES` of this epoch, oldest first; empty only while a check is under way.
        self.batches: deque[StoredBatch] = deque(maxlen=REMEMBERED_BATCHES)

    def copy(self) -> ProducerState:
        """A state of its own with the same content."""
        other = ProducerState(self.epoch)
        other.batches.extend(self.batches)
        return other

    def find(self, header: BatchHeader) -> StoredBatch | None:
        """The remembered batch that `header` repeats."""
        if header.producer_epoch != self.epoch:
            return None
        wanted = (header.base_sequence, last_sequence(header))
        return next((batch for batch in self.batches if batch[:2] == wanted), None)

    def check(self, header: BatchHeader) -> None:
        """Refuse a batch that an old incarnation sent or that leaves a gap."""
        if header.producer_epoch < self.epoch:
            raise Refused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {header.producer_id} has epoch {self.epoch}, the batch has {header.producer_epoch}",
            )
        if header.producer_epoch > self.epoch:
            expected = 0
        elif self.batches:
            expected = (self.batches[-1].last_sequence + 1) % _SEQUENCES
        else:
            return
        if header.base_sequence != expected:
            raise Refused(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"producer {header.producer_id} sent sequence {header.base_sequence}, {expected} is next",
            )

    def note(self, header: BatchHeader) -> None:
        """Remember a batch."""
        if header.producer_epoch != self.epoch:
            self.epoch = header.producer_epoch
            self.batches.clear()
        base_offset = header.base_offset
        self.batches.append(
            StoredBatch(
                header.base_sequence,
                last_sequence(header),
                base_offset,
                base_offset + header.last_offset_delta,
                header.max_timestamp,
            )
        )


#: A producer as it is kept: its id, epoch and remembered batches, oldest first.
ProducerRow: TypeAlias = tuple[int, int, tuple[StoredBatch, ...]]


class ProducerStates:
    """Every idempotent producer of one partition."""

    __slots__ = ("_limit", "_states")

    def __init__(self, *, limit: int = PRODUCER_LIMIT) -> None:
        self._limit = limit
        #: Producer id -> its state, in the order of their last writes.
        self._states: dict[int, ProducerState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def get(self, producer_id: int) -> ProducerState | None:
        """What is known of a producer; `None` if it never wrote here or is forgotten."""
        return self._states.get(producer_id)

    def rows(self) -> tuple[ProducerRow, ...]:
        """All of it, in the order of the last writes."""
        return tuple((key, state.epoch, tuple(state.batches)) for key, state in self._states.items())

    def restore(self, rows: Iterable[ProducerRow]) -> None:
        """Remember what `rows` told, instead of what is known."""
        self._states.clear()
        for producer_id, epoch, batches in rows:
            state = self._states[producer_id] = ProducerState(epoch)
            state.batches.extend(batches)

    def check(self, headers: Iterable[BatchHeader]) -> StoredBatch | None:
        """Check batches that are to be appended together, before any of them is.

        Returns:
            The stored batch that the first repeated one stands for: then nothing is to be appended. `None`: append.

        Raises:
            Refused: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        # Batches of one set follow each other: the second is held against the state that the first will leave.
        changed: dict[int, ProducerState] = {}
        for header in headers:
            if header.producer_id < 0:
                continue
            known = changed.get(header.producer_id) or self._states.get(header.producer_id)
            if known is None:
                known = ProducerState(header.producer_epoch)
            else:
                repeated = known.find(header)
                if repeated is not None:
                    return repeated
                known.check(header)
            changed[header.producer_id] = known = known.copy()
            known.note(header)
        return None

    def check_one(self, header: BatchHeader) -> StoredBatch | None:
        """`check` for a single batch, which needs no working copy."""
        known = self._states.get(header.producer_id)
        if known is None:
            return None
        repeated = known.find(header)
        if repeated is None:
            known.check(header)
        return repeated

    def note(self, header: BatchHeader) -> None:
        """Remember a batch that is in the log; called in log order, also when the log is read at start."""
        if header.producer_id < 0:
            return
        state = self._states.pop(header.producer_id, None)
        if state is None:
            state = ProducerState(header.producer_epoch)
            if len(self._states) >= self._limit:
                del self._states[next(iter(self._states))]
        self._states[header.producer_id] = state
        state.note(header)


def last_sequence(header: BatchHeader) -> int:
    """The sequence of a batch's last record; sequences start again at 0 behind the largest int32."""
    return (header.base_sequence + header.last_offset_delta) % _SEQUENCES
