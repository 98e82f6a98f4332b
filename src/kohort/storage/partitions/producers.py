"""The producers of a partition: detects repeated and lost batches, and keeps the open transactions.

Laws: checks change nothing; state changes only by `note` and `note_marker`, with a batch that is in the log, in log
order, so that reading the log again gives the same state. The last 5 batches of each producer are answered again with
their offsets. A transaction is undecided until its marker is durable: nothing from its first offset on is stable.
Source: KIP-98, KIP-185 (five batches in flight), KIP-360 (a producer that the partition does not know may begin at
any sequence), KIP-890; Apache Kafka's ProducerAppendInfo and ProducerStateManager.
"""

from __future__ import annotations

from collections.abc import Iterable
from struct import Struct
from typing import Final, NamedTuple

from kohort.errors import ErrorCode, Refused
from kohort.records.header import TRANSACTIONAL_BIT, BatchHeader
from kohort.storage.segments.transaction_index import EndedTransaction

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
    #: The last `REMEMBERED_BATCHES` of this epoch, oldest first; none behind a marker of a new epoch.
    batches: tuple[StoredBatch, ...]


class ProducerRow(NamedTuple):
    """One producer of one partition, as snapshots store it and DescribeProducers returns it."""

    producer_id: int
    epoch: int
    #: The remembered ones, oldest first; none if its last epoch has written nothing but a marker.
    batches: tuple[StoredBatch, ...]
    #: The epoch of the coordinator that has sent its last marker; -1: it has none.
    coordinator_epoch: int = -1
    #: The first offset of its open transaction; -1: none is open.
    transaction_start: int = -1
    #: When it wrote last, milliseconds; -1: as its last batch says.
    written_ms: int = -1


class HangingTransaction(NamedTuple):
    """A transaction whose marker, if there was one, was in a hole: it is neither committed nor aborted."""

    producer_id: int
    epoch: int
    first_offset: int
    #: The first offset of the hole.
    lost_offset: int

    def __str__(self) -> str:
        return (
            f"offsets {self.first_offset} to {self.lost_offset - 1} have records of a transaction of producer "
            f"{self.producer_id}, whose end is missing"
        )


class ProducerStates:
    """The idempotent and transactional producers of one partition."""

    __slots__ = ("_coordinators", "_ending", "_limit", "_states", "hanging", "open_transactions")

    def __init__(self, *, limit: int = PRODUCER_LIMIT) -> None:
        self._limit = limit
        #: Producer id -> first offset of its open transaction, ascending.
        self.open_transactions: dict[int, int] = {}
        #: First offset, and that of the marker, of transactions whose marker may not be durable.
        self._ending: list[tuple[int, int]] = []
        #: Transactions that nothing behind them decides: no record of them is given out as committed.
        self.hanging: tuple[HangingTransaction, ...] = ()
        #: Producer id -> epoch of the coordinator that has sent its last marker.
        self._coordinators: dict[int, int] = {}
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

    def ids(self) -> list[int]:
        """Return the ids of all producers, in the order of their last writes."""
        return list(self._states)

    def rows(self, ids: Iterable[int] | None = None) -> tuple[ProducerRow, ...]:
        """Return the state of all producers, in the order of their last writes, or of those of `ids` that are known."""
        known = ((producer_id, self.get(producer_id)) for producer_id in (self._states if ids is None else ids))
        return tuple(
            ProducerRow(
                producer_id,
                state.epoch,
                state.batches,
                self._coordinators.get(producer_id, -1),
                self.open_transactions.get(producer_id, -1),
                state.written_ms,
            )
            for producer_id, state in known
            if state is not None
        )

    def restore(self, rows: Iterable[ProducerRow]) -> None:
        """Replace the state of all producers by `rows`."""
        rows = list(rows)
        self._states = {
            row.producer_id: _HEAD.pack(row.epoch, row.batches[-1].timestamp if row.batches else row.written_ms)
            + b"".join(_BATCH.pack(*batch) for batch in row.batches)
            for row in rows
        }
        starts = sorted((row.transaction_start, row.producer_id) for row in rows if row.transaction_start >= 0)
        self.open_transactions = {producer_id: start for start, producer_id in starts}
        self._coordinators = {row.producer_id: row.coordinator_epoch for row in rows if row.coordinator_epoch >= 0}
        self._ending = []

    def epochs_of(self, producer_id: int) -> tuple[int, int]:
        """Return a producer's epoch and the coordinator epoch of its last marker; -1 for an unknown one."""
        packed = self._states.get(producer_id)
        epoch = -1 if packed is None else _HEAD.unpack_from(packed)[0]
        return epoch, self._coordinators.get(producer_id, -1)

    @property
    def has_undecided(self) -> bool:
        """Whether a transaction is open or hangs, or has a marker that may not be durable."""
        return bool(self.open_transactions or self._ending or self.hanging)

    def is_in_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether a producer has a transaction open here that began with this epoch."""
        packed = self._states.get(producer_id) if producer_id in self.open_transactions else None
        return packed is not None and _HEAD.unpack_from(packed)[0] == producer_epoch

    def stable_before(self, high_watermark: int) -> int:
        """Return the last stable offset: all before it is decided, and durable as far as the high watermark says."""
        if self._ending:
            self._ending = [each for each in self._ending if each[1] >= high_watermark]
        stable = high_watermark
        for first_offset in self.open_transactions.values():
            # The first is the smallest.
            stable = min(stable, first_offset)
            break
        if self._ending or self.hanging:
            others = (first_offset for first_offset, _ in self._ending)
            stable = min([stable, *others, *(each.first_offset for each in self.hanging)])
        return stable

    def check_marker(self, *, producer_id: int, producer_epoch: int, coordinator_epoch: int, is_v2: bool) -> None:
        """Check a marker that is to be written.

        `is_v2`: the marker has a new epoch (KIP-890 part 2).

        Raises:
            Refused: INVALID_PRODUCER_EPOCH, TRANSACTION_COORDINATOR_FENCED.
        """
        packed = self._states.get(producer_id)
        epoch = -1 if packed is None else _HEAD.unpack_from(packed)[0]
        if producer_id < 0 or producer_epoch < max(epoch, 0) or (is_v2 and producer_epoch == epoch):
            raise Refused(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"producer {producer_id} has epoch {epoch}, the marker has {producer_epoch}",
            )
        latest = self._coordinators.get(producer_id, 0)
        if coordinator_epoch < latest:
            raise Refused(
                ErrorCode.TRANSACTION_COORDINATOR_FENCED,
                f"coordinator epoch {latest} is known of producer {producer_id}, the marker has {coordinator_epoch}",
            )

    def check_transaction(self, header: BatchHeader, *, begins: bool) -> None:
        """Check that a producer's batch belongs to its open transaction, or to none if it has none open.

        `begins`: the coordinator knows of a transaction that has nothing here yet.

        Raises:
            Refused: INVALID_TXN_STATE.
        """
        producer_id = header.producer_id
        if not header.is_transactional:
            if producer_id in self.open_transactions:
                raise Refused(ErrorCode.INVALID_TXN_STATE, f"producer {producer_id} has a transaction open here")
        elif not begins and not self.is_in_transaction(producer_id, header.producer_epoch):
            raise Refused(
                ErrorCode.INVALID_TXN_STATE,
                f"producer {producer_id} has not added this partition to a transaction of epoch "
                f"{header.producer_epoch}",
            )

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
        known = self._take(producer_id)
        self._states[producer_id] = _with(known, header, header.max_timestamp if now_ms is None else now_ms)
        # Compaction leaves empty batches only of transactions that have ended.
        if header.attributes & TRANSACTIONAL_BIT and header.record_count:
            self.open_transactions.setdefault(producer_id, header.base_offset)

    def lose(self, offset: int) -> None:
        """Note a hole in the log from `offset` on: open transactions hang, since it may have held their markers."""
        # A later marker of the same producer may be that of a later transaction.
        self.hanging += tuple(
            HangingTransaction(producer_id, _HEAD.unpack_from(self._states[producer_id])[0], first_offset, offset)
            for producer_id, first_offset in self.open_transactions.items()
            # Of others nothing is left.
            if first_offset < offset
        )
        self.open_transactions.clear()

    def would_end_hanging(self, producer_id: int) -> list[EndedTransaction]:
        """Return a producer's hanging transactions as aborted ones that end before their hole."""
        # A reader that goes on behind the hole is told nothing of them: no marker there would end what it leaves out.
        return [
            EndedTransaction(producer_id, each.first_offset, each.lost_offset - 1, each.first_offset)
            for each in self.hanging
            if each.producer_id == producer_id
        ]

    def end_hanging(self, producer_id: int) -> None:
        """Drop a producer's hanging transactions, which are listed as aborted by now."""
        self.hanging = tuple(each for each in self.hanging if each.producer_id != producer_id)

    def forget_before(self, offset: int) -> None:
        """Forget the transactions of which no record is left, now that the log begins at `offset`."""
        for producer_id, first_offset in [*self.open_transactions.items()]:
            if first_offset >= offset:
                break
            state = self.get(producer_id)
            if state is not None and state.batches and state.batches[-1].last_offset < offset:
                del self.open_transactions[producer_id]
        if self.hanging:
            self.hanging = tuple(each for each in self.hanging if each.lost_offset > offset)

    def note_marker(
        self, header: BatchHeader, coordinator_epoch: int, now_ms: int | None = None
    ) -> EndedTransaction | None:
        """Note a marker that is in the log; return the transaction that it ends, `None` if none was open."""
        producer_id, written_ms = header.producer_id, header.max_timestamp if now_ms is None else now_ms
        known = self._take(producer_id)
        head = _HEAD.pack(header.producer_epoch, written_ms)
        # A marker of a new epoch ends the sequence, too.
        is_same = known is not None and _HEAD.unpack_from(known)[0] == header.producer_epoch
        self._states[producer_id] = head + known[_HEAD_SIZE:] if known is not None and is_same else head
        self._coordinators[producer_id] = coordinator_epoch
        ended = self.would_end(header)
        if ended is not None:
            del self.open_transactions[producer_id]
            self._ending.append((ended.first_offset, header.base_offset))
        return ended

    def would_end(self, header: BatchHeader) -> EndedTransaction | None:
        """Return the transaction that a marker would end, as `note_marker` does, without noting it."""
        first_offset = self.open_transactions.get(header.producer_id)
        if first_offset is None:
            return None
        others = (first for producer_id, first in self.open_transactions.items() if producer_id != header.producer_id)
        return EndedTransaction(header.producer_id, first_offset, header.base_offset, next(others, header.next_offset))

    def _take(self, producer_id: int) -> bytes | None:
        """Remove and return the state of a producer that writes now; make room for a new producer."""
        known = self._states.pop(producer_id, None)
        # KIP-360: a forgotten producer may begin again at any sequence.
        if known is None and len(self._states) >= self._limit:
            self.forget_oldest()
        return known

    def forget_oldest(self) -> None:
        """Forget the producer that has been silent for longest and has no transaction open."""
        held = self.open_transactions.keys() | {each.producer_id for each in self.hanging}
        oldest = next((producer_id for producer_id in self._states if producer_id not in held), None)
        if oldest is not None:
            self._forget(oldest)

    def _forget(self, producer_id: int) -> None:
        del self._states[producer_id]
        self._coordinators.pop(producer_id, None)

    def expire(self, before_ms: int) -> int:
        """Forget the producers that last wrote before a time and have no transaction open; return their number."""
        held = self.open_transactions.keys() | {each.producer_id for each in self.hanging}
        silent = [
            producer_id
            for producer_id, packed in self._states.items()
            if _HEAD.unpack_from(packed)[1] < before_ms and producer_id not in held
        ]
        for producer_id in silent:
            self._forget(producer_id)
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
        row = None
        for row in _BATCH.iter_unpack(known[_HEAD_SIZE:]):
            if row[:2] == wanted:
                return StoredBatch._make(row)
        # Nothing but a marker has this epoch yet (KIP-890): its first batch has sequence 0.
        expected = 0 if row is None else (row[1] + 1) % SEQUENCES
    if header.base_sequence != expected:
        raise Refused(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"producer {header.producer_id} sent sequence {header.base_sequence}, {expected} is next",
        )
    return None
