"""The writer of compacted segments: makes batches of the remaining records, and files of batches.

Laws: batches cover every offset of the old segments, so that a batch may be sparse, or empty. A batch of a producer
that numbers its batches, one that is dated by the broker, and one of which much is left stay batches of their own, with
what their headers say; what is left of others becomes part of longer ones. A file is durable, but for its name, when it
is given out; none is longer than the topic's segments, unless an old one was.
Source: Apache Kafka's log cleaner; KIP-534 (when tombstones may go).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kohort.records.header import (
    COMPRESSION_MASK,
    DELETE_HORIZON_BIT,
    LOG_APPEND_TIME_BIT,
    BatchHeader,
    parse_header,
)
from kohort.records.sparse import LooseRecord, fasten, gather_batch, loosen, thin_batch, with_horizon
from kohort.storage.files.fs import FileSystem, LogFile
from kohort.storage.maintenance.closedbatches import BatchRows
from kohort.storage.partitions.leader_epochs import LeaderEpochs
from kohort.storage.recovery.recovery import CLEANED_SUFFIX
from kohort.storage.segments.indexfiles import SegmentFacts
from kohort.storage.segments.segment import Segment, segment_name
from kohort.storage.segments.segmentindex import INDEX_INTERVAL_BYTES, IndexImage, SegmentIndex

#: Size at which a batch is written; large ones are quick to load, and a reader's fetch still takes several.
BATCH_BYTES: Final = 128 * 1024
#: Bytes of records that are worth a batch of their own.
OWN_BATCH_BYTES: Final = 4 * 1024
#: Bytes that a record takes in a batch beside its tail, roughly.
_RECORD_OVERHEAD_BYTES: Final = 10
#: Times between which any two differ by a number that fits.
_EARLIEST_MS, _LATEST_MS = -1, 1 << 62
#: Most offsets of a segment or batch: 31 bits.
_LONGEST_BATCH: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """The plan of a compaction: the segments that begin at `bases`, up to `end_offset`."""

    directory: str
    bases: tuple[int, ...]
    end_offset: int
    #: Before it the log is compacted already.
    first_dirty_offset: int
    segment_bytes: int
    delete_retention_ms: int
    #: Memory for the keys of the dirty part; at least one segment is taken even if it needs more.
    dedupe_buffer_bytes: int
    #: (leader epoch, its first offset), ascending.
    epochs: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedSegment:
    """A new segment, in a file that waits to replace the segments with its offsets.

    It is plain data, so that another process can have made it.
    """

    base_offset: int
    facts: SegmentFacts
    index: IndexImage
    cleaned_path: str

    def segment(self, fs: FileSystem, directory: str) -> Segment:
        """Build the segment for the log."""
        segment = Segment(fs, directory, self.base_offset, is_entry_durable=False)
        index = SegmentIndex.of_image(self.base_offset, self.index, interval_bytes=INDEX_INTERVAL_BYTES)
        segment.go_on(index, self.facts)
        return segment


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptRecords:
    """The remaining records of one batch, at least one."""

    batch: BatchRows
    #: The bytes of each.
    records: list[memoryview]
    offsets: list[int]
    timestamps: list[int]
    #: When the tombstones among them may go; `None` if there are none.
    horizon_ms: int | None

    @property
    def is_whole(self) -> bool:
        """Whether all records of the batch remain."""
        return len(self.records) == self.batch.header.record_count

    @property
    def is_datable(self) -> bool:
        """Whether these records' timestamps fit as deltas from another one."""
        times = self.timestamps if self.horizon_ms is None else [*self.timestamps, self.horizon_ms]
        return min(times) >= _EARLIEST_MS and max(times) < _LATEST_MS

    @property
    def stands_alone(self) -> bool:
        """Whether the records stay a batch of their own."""
        header = self.batch.header
        if header.producer_id >= 0 or header.attributes & LOG_APPEND_TIME_BIT or not self.is_datable:
            return True
        return sum(map(len, self.records)) >= OWN_BATCH_BYTES


class SegmentWriter:
    """Turns the remaining records into batches, and batches into files."""

    def __init__(self, fs: FileSystem, plan: CompactionPlan, end_offset: int) -> None:
        self._fs = fs
        self._plan = plan
        self._end_offset = end_offset
        self._epochs = LeaderEpochs(plan.epochs)
        self._done: list[CompactedSegment] = []
        self._segment: Segment | None = None
        self._file: LogFile | None = None
        self._path = ""
        #: Records of the batch that is under way, which begins at `_next_offset`.
        self._pending: list[LooseRecord] = []
        self._pending_bytes = 0
        self._pending_horizon_ms: int | None = None
        #: Leader epoch and codec of the last batch, and so of the pending records.
        self._leader_epoch = 0
        self._codec = 0
        #: Every offset before it is covered by a batch.
        self._next_offset = 0
        #: The end offset of the old segment that is being added.
        self._source_end = 0
        #: Records that were written.
        self.records = 0

    def begin_source(self, base: int, size: int) -> None:
        """Begin with the records of an old segment of `size` bytes."""
        segment = self._segment
        is_full = segment is not None and segment.size + self._pending_bytes + size > self._plan.segment_bytes
        # A new file stays within the topic's segment size and the index's 31 bits.
        if is_full or (segment is not None and self._end_offset - segment.base_offset > _LONGEST_BATCH):
            self._finish_segment()
        if self._segment is None:
            self._path = f"{self._plan.directory}/{segment_name(base)}{CLEANED_SUFFIX}"
            self._fs.remove(self._path)
            self._file = self._fs.open(self._path, create=True)
            self._segment = Segment(self._fs, self._plan.directory, base, is_entry_durable=False)
            self._next_offset = base

    def end_source(self, end_offset: int) -> None:
        """Note the end of an old segment: the new ones have to cover the offsets before `end_offset`."""
        self._source_end = end_offset

    def add(self, kept: KeptRecords) -> None:
        """Add the remaining records of a batch."""
        header = kept.batch.header
        if kept.stands_alone:
            self._add_alone(kept)
            return
        codec = header.attributes & COMPRESSION_MASK
        is_other = codec != self._codec or header.partition_leader_epoch != self._leader_epoch
        if kept.horizon_ms is not None:
            is_other |= self._pending_horizon_ms not in {None, kept.horizon_ms}
        if self._pending and (is_other or self._pending_bytes >= BATCH_BYTES):
            self._flush(kept.offsets[0])
        self._codec, self._leader_epoch = codec, header.partition_leader_epoch
        loose = list(map(loosen, kept.records, kept.offsets, kept.timestamps))
        self._pending += loose
        self._pending_bytes += sum(len(record.tail) + _RECORD_OVERHEAD_BYTES for record in loose)
        self._pending_horizon_ms = kept.horizon_ms or self._pending_horizon_ms

    def _add_alone(self, kept: KeptRecords) -> None:
        header, records = kept.batch.header, kept.records
        is_dated_anew = kept.horizon_ms is not None and not header.attributes & DELETE_HORIZON_BIT and kept.is_datable
        if kept.is_whole and not is_dated_anew:
            self.keep_batch(kept.batch.view, header)
            return
        pieces: list[memoryview] | list[bytes] = records
        if is_dated_anew:
            assert kept.horizon_ms is not None
            header = with_horizon(header, kept.horizon_ms)
            pieces = fasten(list(map(loosen, records, kept.offsets, kept.timestamps)), header)
        latest = header.max_timestamp if header.has_log_append_time else max(kept.timestamps)
        batch = thin_batch(header, pieces, max_timestamp=latest)
        self.keep_batch(memoryview(batch), parse_header(batch))

    def keep_batch(self, view: memoryview, header: BatchHeader) -> None:
        """Write a batch that stays as it is."""
        self._flush(header.base_offset)
        self._write(view, header)
        self._leader_epoch = header.partition_leader_epoch
        self.records += header.record_count

    def finish(self) -> tuple[CompactedSegment, ...]:
        """Return all new segments, durable except for their names."""
        if self._segment is not None:
            self._finish_segment()
        return tuple(self._done)

    def _flush(self, until: int) -> None:
        """Write the pending records, or an empty batch, to cover the offsets before `until`."""
        if self._next_offset >= until:
            assert not self._pending, "a batch covers its records"
            return
        if not self._pending:
            # The batches that were there are gone, and theirs may be another epoch than that of the one before.
            self._leader_epoch = max(self._epochs.of(self._next_offset), self._leader_epoch)
        batch = gather_batch(
            self._pending,
            base_offset=self._next_offset,
            last_offset=until - 1,
            leader_epoch=self._leader_epoch,
            codec=self._codec,
            delete_horizon_ms=self._pending_horizon_ms,
        )
        self.records += len(self._pending)
        self._pending = []
        self._pending_bytes = 0
        self._pending_horizon_ms = None
        self._write(memoryview(batch), parse_header(batch))

    def _write(self, batch: memoryview, header: BatchHeader) -> None:
        assert self._segment is not None and self._file is not None, "a source was begun"
        self._file.write(self._segment.size, batch)
        self._segment.note(self._segment.size, header)
        self._next_offset = header.next_offset

    def _finish_segment(self) -> None:
        assert self._segment is not None and self._file is not None, "a source was begun"
        self._flush(self._source_end)
        # The file is durable before it is handed out; its rename is synced by the caller.
        self._file.sync()
        index = self._segment.index
        assert index is not None, "it grew until now"
        self._done.append(
            CompactedSegment(
                base_offset=self._segment.base_offset,
                facts=self._segment.facts,
                index=index.image(),
                cleaned_path=self._path,
            )
        )
        self._segment = self._file = None
