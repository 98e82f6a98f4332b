"""Writes the segments that a compaction makes: the records that stay as batches, and those as files.

Laws: batches cover every offset of the old segments, so that a batch may be sparse, or empty. A file is durable, but
for its name, when it is given out; none is longer than the topic's segments, unless an old one was.
Source: Apache Kafka's log cleaner; KIP-534 (when tombstones may go).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kohort.records.batch import Record, build_sparse_batch
from kohort.records.header import CODEC_NAMES, COMPRESSION_MASK, BatchHeader, parse_header
from kohort.storage.fs import FileSystem, LogFile
from kohort.storage.indexfiles import SegmentFacts
from kohort.storage.recovery import CLEANED_SUFFIX
from kohort.storage.segment import Segment, segment_name
from kohort.storage.segmentindex import INDEX_INTERVAL_BYTES, IndexImage, SegmentIndex

#: Size at which a batch is written; large ones are quick to load, and a reader's fetch still takes several.
BATCH_BYTES: Final = 128 * 1024
#: What a record takes in a batch beside key and value, roughly.
_RECORD_OVERHEAD_BYTES: Final = 20
_LONGEST_BATCH: Final = (1 << 31) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactionPlan:
    """What is to be rewritten: the segments that begin at `bases`, up to `end_offset`."""

    directory: str
    bases: tuple[int, ...]
    end_offset: int
    #: Before it the log is compacted already.
    first_dirty_offset: int
    segment_bytes: int
    delete_retention_ms: int
    #: Memory for the keys of the dirty part; at least one segment is taken whatever it needs.
    dedupe_buffer_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactedSegment:
    """One new segment, in a file that waits to be put in the place of those whose offsets it covers.

    It is plain data, so that another process can have made it.
    """

    base_offset: int
    facts: SegmentFacts
    index: IndexImage
    cleaned_path: str

    def segment(self, fs: FileSystem, directory: str) -> Segment:
        """As the log is to have it."""
        segment = Segment(fs, directory, self.base_offset, is_entry_durable=False)
        index = SegmentIndex.of_image(self.base_offset, self.index, interval_bytes=INDEX_INTERVAL_BYTES)
        segment.go_on(index, self.facts)
        return segment


class SegmentWriter:
    """Turns the records that stay into batches, and batches into files."""

    def __init__(self, fs: FileSystem, plan: CompactionPlan, end_offset: int) -> None:
        self._fs = fs
        self._plan = plan
        self._end_offset = end_offset
        self._done: list[CompactedSegment] = []
        self._segment: Segment | None = None
        self._file: LogFile | None = None
        self._path = ""
        #: Records of the batch that is under way, which begins at `_next_offset`.
        self._pending: list[Record] = []
        self._pending_bytes = 0
        self._pending_horizon_ms: int | None = None
        #: Of the run that is under way, which is that of what is pending: when tombstones of it may go.
        self._leader_epoch = 0
        self._codec = 0
        self._horizon_ms = 0
        #: Every offset before it is covered by a batch.
        self._next_offset = 0
        #: Where the old segment ends whose records come.
        self._source_end = 0
        #: Records that were written.
        self.records = 0

    def begin_source(self, base: int, size: int) -> None:
        """The records that come next are those of an old segment of `size` bytes."""
        segment = self._segment
        is_full = segment is not None and segment.size + self._pending_bytes + size > self._plan.segment_bytes
        if is_full or (segment is not None and self._end_offset - segment.base_offset > _LONGEST_BATCH):
            self._finish_segment()
        if self._segment is None:
            self._path = f"{self._plan.directory}/{segment_name(base)}{CLEANED_SUFFIX}"
            self._fs.remove(self._path)
            self._file = self._fs.open(self._path, create=True)
            self._segment = Segment(self._fs, self._plan.directory, base, is_entry_durable=False)
            self._next_offset = base

    def end_source(self, end_offset: int) -> None:
        """The old segment covered the offsets before `end_offset`, and so shall what is written."""
        self._source_end = end_offset

    def begin_run(self, header: BatchHeader, horizon_ms: int) -> None:
        """The records that come next are of batches like this one; those of them that are tombstones may go then."""
        codec = header.attributes & COMPRESSION_MASK
        if self._pending and (codec != self._codec or header.partition_leader_epoch != self._leader_epoch):
            self._flush(header.base_offset)
        self._codec, self._leader_epoch, self._horizon_ms = codec, header.partition_leader_epoch, horizon_ms

    def add(self, record: Record) -> None:
        """A record that stays."""
        horizon = self._horizon_ms if record.value is None else None
        is_other = horizon is not None and self._pending_horizon_ms not in (None, horizon)
        if self._pending and (is_other or self._pending_bytes >= BATCH_BYTES):
            self._flush(record.offset)
        self._pending.append(record)
        self._pending_bytes += len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD_BYTES
        if horizon is not None:
            self._pending_horizon_ms = horizon

    def keep_batch(self, view: memoryview, header: BatchHeader) -> None:
        """A batch that stays as it is."""
        self._flush(header.base_offset)
        self._write(view, header)
        self.records += header.record_count

    def finish(self) -> tuple[CompactedSegment, ...]:
        """Every new segment, durable but for its name."""
        if self._segment is not None:
            self._finish_segment()
        return tuple(self._done)

    def _flush(self, until: int) -> None:
        """Cover the offsets before `until` with what is pending, or with an empty batch."""
        if self._next_offset >= until:
            assert not self._pending, "a batch covers its records"
            return
        batch = build_sparse_batch(
            self._pending,
            base_offset=self._next_offset,
            last_offset=until - 1,
            leader_epoch=self._leader_epoch,
            delete_horizon_ms=self._pending_horizon_ms,
            compression=CODEC_NAMES[self._codec] if self._pending else "none",
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
