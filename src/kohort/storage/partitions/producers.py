"""The idempotent producers of a partition: detects repeated and lost batches.

Laws: checks change nothing; state changes only by `note`, with a batch that is in the log, in log order, so that
reading the log again gives the same batches. The last 5 batches of each producer are answered again with their offsets.
Source: KIP-98, KIP-185 (five batches in flight), KIP-360 (a producer that the partition does not know may begin at
any sequence); Apache Kafka's ProducerAppendInfo.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple, TypeAlias

from kohort.errors import ErrorCode, Refused
from kohort.records.header import BatchHeader

#: Batches per producer that a retry can repeat; clients keep at most this many in flight.
REMEMBERED_BATCHES: Final = 5
#: Producers that one partition remembers; of more, those that wrote least recently are forgotten.
PRODUCER_LIMIT: Final = 20_000
#: Numbers of records that a producer has; then they begin anew.
SEQUENCES: Final = 1 << 31
#: A producer's state is one run of bytes, a fifth of what objects take: epoch and time, then a row for each batch.
_HEAD: Final = Struct(">hq")
_BATCH: Final = Struct(">iiqqq")
_HEAD_SIZE: Final = _HEAD.size
_FULL_SIZE: Final = _HEAD.size + REMEMBERED_BATCHES * _BATCH.size


class StoredBatch(NamedTuple):
    """A batch in the log, with its producer's sequence numbers."""

    base_sequence: int
    last_sequence: int
    base_offset: int
    last_offset: int
    #: Largest timestamp of the batch, milliseconds.
    timestamp: int


class ProducerState(NamedTuple):
    """One producer's writes to one partition."""

    epoch: int
    #: When it wrote last; after a restart the largest time of that batch, milliseconds.
    written_ms: int
    #: The last `REMEMBERED_BATCHES` of this epoch, oldest first; at least one.
    batches: tuple[StoredBatch, ...]


#: A producer as it is kept: its id, epoch and remembered batches, oldest first.
ProducerRow: TypeAlias = tuple[int, int, tuple[StoredBatch, ...]]


class ProducerStates:
    """The idempotent producers of one partition."""

    __slots__ = ("_limit", "_states")

    def __init__(self, *, limit: int = PRODUCER_LIMIT) -> None:
        self._limit = limit
        #: Producer id -> its state, packed, in the order of their last writes.
        self._states: dict[int, bytes] = {}

    def __len__(self) -> int:
        return len(self._states)

    def get(self, producer_id: int) -> ProducerState | None:
        """Return the state of a producer; `None` if it never wrote here or is forgotten."""
        packed = self._states.get(producer_id)
        if packed is None:
            return None
        epoch, written_ms = _HEAD.unpack_from(packed)
        return ProducerState(epoch, written_ms, tuple(map(StoredBatch._make, _BATCH.iter_unpack(packed[_HEAD_SIZE:]))))

    def rows(self) -> tuple[ProducerRow, ...]:
        """Return the state of all producers, in the order of their last writes."""
        known = ((producer_id, self.get(producer_id)) for producer_id in self._states)
        return tuple((producer_id, state.epoch, state.batches) for producer_id, state in known if state is not None)

    def restore(self, rows: Iterable[ProducerRow]) -> None:
        """Replace the state of all producers by `rows`."""
        self._states = {
            producer_id: _HEAD.pack(epoch, batches[-1].timestamp) + b"".join(_BATCH.pack(*batch) for batch in batches)
            for producer_id, epoch, batches in rows
        }

    def check(self, header: BatchHeader) -> StoredBatch | None:
        """Return the stored batch that a producer's batch repeats; `None` if it is to be appended.

        Raises:
            Refused: INVALID_PRODUCER_EPOCH, OUT_OF_ORDER_SEQUENCE_NUMBER.
        """
        known = self._states.get(header.producer_id)
        return None if known is None else _check(known, header)

    def note(self, header: BatchHeader, now_ms: int | None = None) -> None:
        """Remember a batch that is in the log; called in log order, also when the log is read at start.

        `now_ms` is the time at which it was written; `None` if that is unknown.
        """
        producer_id = header.producer_id
        if producer_id < 0:
            return
        known = self._states.pop(producer_id, None)
        # KIP-360: a forgotten producer may begin again at any sequence.
        if known is None and len(self._states) >= self._limit:
            self.forget_oldest()
        self._states[producer_id] = _with(known, header, header.max_timestamp if now_ms is None else now_ms)

    def forget_oldest(self) -> None:
        """Forget the producer that has been silent for longest."""
        del self._states[next(iter(self._states))]

    def expire(self, before_ms: int) -> int:
        """Forget the producers that last wrote before a time; return their number."""
        silent = [
            producer_id for producer_id, packed in self._states.items() if _HEAD.unpack_from(packed)[1] < before_ms
        ]
        for producer_id in silent:
            del self._states[producer_id]
        return len(silent)


def last_sequence(header: BatchHeader) -> int:
    """Return the sequence of a batch's last record; sequences restart at 0 behind the largest int32."""
    return (header.base_sequence + header.last_offset_delta) % SEQUENCES


def _with(known: bytes | None, header: BatchHeader, written_ms: int) -> bytes:
    """Return the packed state after a batch."""
    batch = _BATCH.pack(
        header.base_sequence, last_sequence(header), header.base_offset, header.last_offset, header.max_timestamp
    )
    head = _HEAD.pack(header.producer_epoch, written_ms)
    if known is None or _HEAD.unpack_from(known)[0] != header.producer_epoch:
        return head + batch
    return head + known[_HEAD_SIZE if len(known) < _FULL_SIZE else _HEAD_SIZE + _BATCH.size :] + batch


def _check(known: bytes, header: BatchHeader) -> StoredBatch | None:
    """Return the remembered batch that `header` repeats; `Refused` for an old epoch or a gap."""
    epoch = _HEAD.unpack_from(known)[0]
    if header.producer_epoch < epoch:
        raise Refused(
            ErrorCode.INVALID_PRODUCER_EPOCH,
            f"producer {header.producer_id} has epoch {epoch}, the batch has {header.producer_epoch}",
        )
    # A new epoch begins at sequence 0.
    expected = 0
    if header.producer_epoch == epoch:
        wanted = header.base_sequence, last_sequence(header)
        # KIP-185: up to five batches are in flight, so any of them may be repeated.
        for row in _BATCH.iter_unpack(known[_HEAD_SIZE:]):
            if row[:2] == wanted:
                return StoredBatch._make(row)
        expected = (row[1] + 1) % SEQUENCES
    if header.base_sequence != expected:
        raise Refused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {header.base_sequence}, {expected} is next",
        )
    return None
