"""Rewrites the closed segments of a compacted log so that of every key only the newest record is left.

Laws: offsets stay what they were, and batches still cover all of them: where records went, batches are sparse, or
empty, and one record's batch may have become part of a longer one. The newest segment is never touched, nor one that
a crash could still take. Tombstones stay for `delete.retention.ms` after they were first compacted (KIP-534). Batches
of transactions and their markers stay as they are, supersede nothing, and hold back the tombstones of their keys.
A new file takes the place of the first old one by one rename, and the old ones that it covers go after that, before
the next new file comes; whatever moment a crash chooses, opening the log finds each record that counts.
Source: Apache Kafka's log cleaner; requirement G1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Final

from kohort.errors import StorageError
from kohort.records.batch import Record, build_sparse_batch
from kohort.records.columns import decode_columns
from kohort.records.header import (
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    parse_header,
)
from kohort.storage.fs import FileSystem, LogFile
from kohort.storage.partition import PartitionLog
from kohort.storage.recovery import CLEANED_SUFFIX
from kohort.storage.segment import Segment, segment_name

#: Bytes of the log that are unfolded at a time.
READ_BYTES: Final = 1 << 20
#: Size at which a batch is written; large ones are quick to load, and a reader's fetch still takes several.
BATCH_BYTES: Final = 128 * 1024
#: A batch of somebody else's, compressed, may unfold to this.
_BATCH_LIMIT_BYTES: Final = 1 << 30
#: What a key that is remembered takes beside its own bytes, roughly.
_KEY_OVERHEAD_BYTES: Final = 160
#: What a record takes in a batch beside key and value, roughly.
_RECORD_OVERHEAD_BYTES: Final = 20
#: Batches that are kept as they are.
_AS_IT_IS: Final = TRANSACTIONAL_BIT | CONTROL_BIT
_LONGEST_BATCH: Final = (1 << 31) - 1


class CompactionStopped(Exception):
    """The broker stops; what was written of new files is removed when the log is opened next."""


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
    """One new segment, in a file that waits to be put in the place of those whose offsets it covers."""

    segment: Segment
    cleaned_path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What a compaction made; nothing of it counts before it is put in place."""

    segments: tuple[CompactedSegment, ...]
    #: Before it the log is compacted.
    end_offset: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int


@dataclass(slots=True, kw_only=True)
class _Keys:
    """What the first pass over the log learns."""

    #: Key -> offset of its newest record outside of transactions, in the dirty part.
    newest: dict[bytes, int] = field(default_factory=dict)
    #: Keys that transactions wrote: a tombstone of one must not go before they do.
    pinned: set[bytes] = field(default_factory=set)
    end_offset: int = 0

    def keeps(self, record: Record, horizon_ms: int | None, now_ms: int) -> bool:
        """Whether a record stays; `horizon_ms` is that of its batch."""
        key = record.key
        if key is None:
            return True
        if self.newest.get(key, record.offset) > record.offset:
            return False
        return record.value is not None or horizon_ms is None or horizon_ms > now_ms or key in self.pinned


def plan_compaction(
    log: PartitionLog, first_dirty_offset: int, *, dedupe_buffer_bytes: int
) -> tuple[CompactionPlan, float] | None:
    """What can be rewritten now, and the dirty part's share of its bytes; `None` if nothing there is dirty."""
    closed = log.closed_segments
    dirty = sum(segment.size for segment in closed if segment.next_offset > first_dirty_offset)
    if not dirty:
        return None
    config = log.config
    plan = CompactionPlan(
        directory=log.directory,
        bases=tuple(segment.base_offset for segment in closed),
        end_offset=closed[-1].next_offset,
        first_dirty_offset=first_dirty_offset,
        segment_bytes=config.segment_bytes,
        delete_retention_ms=config.delete_retention_ms,
        dedupe_buffer_bytes=dedupe_buffer_bytes,
    )
    return plan, dirty / sum(segment.size for segment in closed)


def compact(
    fs: FileSystem, plan: CompactionPlan, *, now_ms: int, is_stopped: Callable[[], bool] = lambda: False
) -> Compacted:
    """Write the new segments; blocking, for a thread of its own while the owner of the log goes on.

    Args:
        now_ms: tombstones whose time is over by then go.
        is_stopped: asked every `READ_BYTES`.

    Raises:
        CompactionStopped: `is_stopped` said so.
        StorageError: the disk; the log is as it was.
    """
    keys = _collect_keys(fs, plan, is_stopped)
    bases = [base for base in plan.bases if base < keys.end_offset]
    writer = _Writer(fs, plan, keys.end_offset)
    before = records_before = 0
    for at, base in enumerate(bases):
        file = fs.open(f"{plan.directory}/{segment_name(base)}")
        size = file.size()
        before += size
        writer.begin_source(base, size)
        for view, header in _runs(file, size, is_stopped):
            horizon_ms = _horizon(header)
            if header.attributes & _AS_IT_IS:
                records_before += header.record_count
                writer.keep_batch(view, header)
                continue
            for record in _records(view):
                records_before += 1
                if keys.keeps(record, horizon_ms, now_ms):
                    writer.add(record, header.partition_leader_epoch, horizon_ms or now_ms + plan.delete_retention_ms)
        writer.end_source(bases[at + 1] if at + 1 < len(bases) else keys.end_offset)
    segments = writer.finish()
    return Compacted(
        segments=segments,
        end_offset=keys.end_offset,
        bytes_before=before,
        bytes_after=sum(made.segment.size for made in segments),
        records_before=records_before,
        records_after=writer.records,
    )


def _collect_keys(fs: FileSystem, plan: CompactionPlan, is_stopped: Callable[[], bool]) -> _Keys:
    keys = _Keys(end_offset=plan.end_offset)
    used = 0
    ends = (*plan.bases[1:], plan.end_offset)
    is_first_dirty = True
    for base, end in zip(plan.bases, ends, strict=True):
        is_dirty = end > plan.first_dirty_offset
        file = fs.open(f"{plan.directory}/{segment_name(base)}")
        for view, header in _runs(file, file.size(), is_stopped):
            if header.attributes & TRANSACTIONAL_BIT:
                if not header.attributes & CONTROL_BIT:
                    keys.pinned.update(record.key for record in _records(view) if record.key is not None)
            elif is_dirty and not header.attributes & CONTROL_BIT:
                before = len(keys.newest)
                found = {record.key: record.offset for record in _records(view) if record.key is not None}
                keys.newest.update(found)
                used += (len(keys.newest) - before) * _KEY_OVERHEAD_BYTES + sum(map(len, found))
        if is_dirty:
            if used > plan.dedupe_buffer_bytes and not is_first_dirty:
                # This one does not fit any more: it waits for the next time. What is known of it does no harm: the
                # newest record of a key may lie behind what is rewritten now.
                keys.end_offset = base
                break
            is_first_dirty = False
    return keys


def _runs(file: LogFile, size: int, is_stopped: Callable[[], bool]) -> Iterator[tuple[memoryview, BatchHeader]]:
    """Runs of batches that are alike, and the header of the first; a batch that stays as it is runs alone."""
    view = file.map(size)
    start = position = 0
    first: BatchHeader | None = None
    while position < size:
        header = parse_header(view, position)
        if first is not None and (not _is_alike(first, header) or position - start >= READ_BYTES):
            yield view[start:position], first
            start, first = position, None
        if first is None:
            if is_stopped():
                raise CompactionStopped
            first = header
        position += header.size_bytes
    if first is not None:
        yield view[start:position], first


def _is_alike(first: BatchHeader, header: BatchHeader) -> bool:
    return (
        not (first.attributes | header.attributes) & _AS_IT_IS
        and first.partition_leader_epoch == header.partition_leader_epoch
        and _horizon(first) == _horizon(header)
    )


def _horizon(header: BatchHeader) -> int | None:
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


def _records(view: memoryview) -> Iterator[Record]:
    start = 0
    while start < len(view):
        columns = decode_columns(view[start:], max_batch_bytes=_BATCH_LIMIT_BYTES)
        if not columns.consumed_bytes:
            raise StorageError("a closed segment ends in the middle of a batch; it is not compacted")
        yield from columns.records()
        start += columns.consumed_bytes


class _Writer:
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
        self._leader_epoch = 0
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

    def add(self, record: Record, leader_epoch: int, horizon_ms: int) -> None:
        """A record that stays; `horizon_ms` is when it may go if it is a tombstone."""
        horizon = horizon_ms if record.value is None else None
        is_other = horizon is not None and self._pending_horizon_ms not in (None, horizon)
        if self._pending and (is_other or leader_epoch != self._leader_epoch or self._pending_bytes >= BATCH_BYTES):
            self._flush(record.offset)
        self._pending.append(record)
        self._pending_bytes += len(record.key or b"") + len(record.value or b"") + _RECORD_OVERHEAD_BYTES
        self._leader_epoch = leader_epoch
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
        self._done.append(CompactedSegment(segment=self._segment, cleaned_path=self._path))
        self._segment = self._file = None


def finish_replacement(fs: FileSystem, directory: str, replaced: list[int]) -> None:
    """Make a new file's name durable, then remove the files it covers; blocking, after `PartitionLog.replace`."""
    fs.sync_directory(directory)
    for base in replaced:
        fs.remove(f"{directory}/{segment_name(base)}")
    fs.sync_directory(directory)
