"""The transactions in a partition of Apache Kafka's: which of their records count.

Laws: a transaction begins with its producer's first transactional batch and ends with the producer's next marker.
Records of one that was aborted never count; those of one that is open count only where its coordinator had decided on a
commit. What is known of a transaction takes 32 bytes here, fewer than its smallest batch takes in the log.
Source: KIP-98; Apache Kafka's ProducerAppendInfo, TransactionLogValue and TransactionState.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from kohort.errors import CorruptRecordError
from kohort.records.batch import iterate_records
from kohort.records.control import build_marker, is_commit_marker
from kohort.records.header import BatchHeader, rebase
from kohort.storage.files.fs import FileSystem
from kohort.storage.offline.inspection import FoundBatch, walk_segment
from kohort.storage.segments.segment import segment_base

#: The topic in which the transaction coordinator keeps its decisions.
DECISIONS_TOPIC: Final = "__transaction_state"
_KEY_VERSION: Final = Struct(">h")
#: Version of the value, producer's id, its epoch, timeout, state.
_DECISION: Final = Struct(">hqhib")
_PREPARE_COMMIT: Final = 2
#: Ends of open and of committed transactions: larger than any offset, and smaller.
_OPEN: Final = (1 << 63) - 1
_COMMITTED: Final = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenTransaction:
    """A producer's transaction without a marker."""

    producer_id: int
    producer_epoch: int
    records: int
    #: Whether its coordinator had decided on a commit, and had not written the marker yet.
    is_committed: bool


@dataclass(slots=True)
class Transactions:
    """The transactions of one partition; `note` is called for each batch, in log order."""

    #: Producers whose open transactions were decided to be committed.
    committed: frozenset[int] = frozenset()
    #: Whether the coordinator of groups reads it, which knows aborted transactions from others by their markers.
    is_of_groups: bool = False
    aborted: int = 0
    aborted_records: int = 0
    #: By transaction in the order in which they began: first offset, producer, the offset at which it was aborted or
    #: one of the two ends above, records.
    _first: array[int] = field(default_factory=lambda: array("q"))
    _producer: array[int] = field(default_factory=lambda: array("q"))
    _end: array[int] = field(default_factory=lambda: array("q"))
    _records: array[int] = field(default_factory=lambda: array("q"))
    #: Producer -> its open transaction, and the largest epoch in it.
    _open: dict[int, tuple[int, int]] = field(default_factory=dict)
    _latest: BatchHeader | None = None

    def note(self, batch: FoundBatch) -> None:
        """Note the next batch of the log."""
        header = batch.header
        self._latest = header
        if not header.is_transactional or header.producer_id < 0:
            return
        if header.is_control:
            self._note_marker(batch)
        elif header.record_count:
            # Compaction leaves empty batches of producers behind, and takes their markers.
            slot, epoch = self._open.get(header.producer_id, (len(self._first), -1))
            if slot == len(self._first):
                for column, value in zip(
                    self._columns(), (header.base_offset, header.producer_id, _OPEN, 0), strict=True
                ):
                    column.append(value)
            self._open[header.producer_id] = slot, max(epoch, header.producer_epoch)
            self._records[slot] += header.record_count

    def _columns(self) -> Iterable[array[int]]:
        return self._first, self._producer, self._end, self._records

    def _note_marker(self, batch: FoundBatch) -> None:
        try:
            control = next(iterate_records(batch.read(), include_control=True), None)
        except CorruptRecordError:
            control = None
        is_commit = None if control is None else is_commit_marker(control.key)
        if is_commit is None or batch.header.producer_id not in self._open:
            return
        slot, _ = self._open.pop(batch.header.producer_id)
        # Records before the abort marker do not count; those of committed transactions do.
        self._end[slot] = _COMMITTED if is_commit else batch.header.base_offset
        if not is_commit:
            self.aborted += 1
            self.aborted_records += self._records[slot]

    @property
    def open(self) -> list[OpenTransaction]:
        """The transactions without a marker, in the order in which they began."""
        return [
            OpenTransaction(
                producer_id=producer_id,
                producer_epoch=epoch,
                records=self._records[slot],
                is_committed=producer_id in self.committed,
            )
            for producer_id, (slot, epoch) in self._open.items()
        ]

    @property
    def records_left_out(self) -> int:
        """The number of records that a copy leaves out."""
        if self.is_of_groups:
            return 0
        return self.aborted_records + sum(each.records for each in self.open if not each.is_committed)

    @property
    def is_in_the_way(self) -> bool:
        """Whether an exact copy would show records that do not count, or wait for a missing marker."""
        return bool(self._open) or bool(self.aborted and not self.is_of_groups)

    def is_open(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to an open transaction."""
        slot, _ = self._open.get(header.producer_id, (-1, 0))
        return slot >= 0 and _is_data(header) and header.base_offset >= self._first[slot]

    def sieve(self) -> Sieve:
        """Return a filter of the batches that a copy leaves out."""
        ends = self._end
        if self.is_of_groups:
            ends = array("q", [_COMMITTED]) * len(ends)
        elif self.committed:
            ends = array("q", ends)
            for producer_id in self.committed & self._open.keys():
                ends[self._open[producer_id][0]] = _COMMITTED
        return Sieve(self._first, self._producer, ends)

    def markers(self, offset: int) -> list[bytearray]:
        """Build the marker batches that end the open transactions, from `offset` on."""
        latest, found = self._latest, []
        for number, each in enumerate(self.open):
            assert latest is not None, "it has batches"
            marker = bytearray(
                build_marker(
                    producer_id=each.producer_id,
                    producer_epoch=each.producer_epoch,
                    is_commit=each.is_committed,
                    timestamp_ms=latest.max_timestamp,
                )
            )
            rebase(marker, 0, offset + number, latest.partition_leader_epoch)
            found.append(marker)
        return found


class Sieve:
    """A filter of the batches that are left out; asked in log order."""

    def __init__(self, first: array[int], producer: array[int], end: array[int]) -> None:
        self._first, self._producer, self._end = first, producer, end
        self._next = 0
        #: Producer -> the offset at which its latest transaction was aborted.
        self._ends: dict[int, int] = {}

    def leaves_out(self, header: BatchHeader) -> bool:
        """Whether a batch belongs to a transaction that does not count."""
        while self._next < len(self._first) and self._first[self._next] <= header.base_offset:
            self._ends[self._producer[self._next]] = self._end[self._next]
            self._next += 1
        return _is_data(header) and header.base_offset < self._ends.get(header.producer_id, _COMMITTED)


def _is_data(header: BatchHeader) -> bool:
    return header.is_transactional and not header.is_control


def read_decisions(fs: FileSystem, folders: Iterable[str]) -> frozenset[int]:
    """Read the producers with transactions that are to be committed, though markers may be missing.

    Args:
        folders: the partitions of `DECISIONS_TOPIC`.
    """
    states = last_states(fs, folders).values()
    # The coordinator has decided: only the markers are missing.
    return frozenset(producer_id for producer_id, state in states if state == _PREPARE_COMMIT)


def last_states(fs: FileSystem, folders: Iterable[str]) -> dict[bytes, tuple[int, int]]:
    """Read the latest (producer id, state) of each transactional id, by its key."""
    states: dict[bytes, tuple[int, int]] = {}
    for folder in folders:
        for name in fs.list_directory(folder):
            base = segment_base(name)
            for each in () if base is None else walk_segment(fs, f"{folder}/{name}", base):
                if isinstance(each, FoundBatch) and not each.header.is_control:
                    _note_decisions(states, each)
    return states


def _note_decisions(states: dict[bytes, tuple[int, int]], batch: FoundBatch) -> None:
    try:
        for record in iterate_records(batch.read(), check_crcs=False):
            key, value = record.key or b"", record.value
            if len(key) < _KEY_VERSION.size or _KEY_VERSION.unpack_from(key)[0] != 0:
                continue
            if value is None or len(value) < _DECISION.size:
                states.pop(key, None)
            else:
                _, producer_id, _, _, state = _DECISION.unpack_from(value)
                states[key] = producer_id, state
    except CorruptRecordError:
        # A transaction of which nothing is known is not committed.
        return
