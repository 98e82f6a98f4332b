"""Rewrites the closed segments of a compacted log so that of every key only the newest record is left.

Laws: offsets stay what they were, and batches still cover all of them: where records went, batches are sparse, or
empty, and one record's batch may have become part of a longer one. The newest segment is never touched, nor one that
a crash could still take. Tombstones stay for `delete.retention.ms` after they were first compacted (KIP-534). Batches
of transactions and their markers stay as they are, supersede nothing, and hold back the tombstones of their keys. A
batch that cannot be read stays as it is, too. What was compressed stays so.
A new file takes the place of the first old one by one rename, and the old ones that it covers go after that, before
the next new file comes; whatever moment a crash chooses, opening the log finds each record that counts.
Source: Apache Kafka's log cleaner; requirement G1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import Final

from kohort.errors import CorruptRecordError, StorageError
from kohort.records.batch import Record
from kohort.records.columns import RecordColumns, decode_columns
from kohort.records.compression import DEFAULT_LIMIT_BYTES
from kohort.records.header import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    parse_header,
)
from kohort.storage.fs import FileSystem, LogFile
from kohort.storage.indexfiles import remove_index
from kohort.storage.partition import PartitionLog
from kohort.storage.recovery import CLEANED_SUFFIX
from kohort.storage.segment import segment_name
from kohort.storage.segmentwriter import CompactedSegment, CompactionPlan, SegmentWriter

#: Bytes of the log that are unfolded at a time.
READ_BYTES: Final = 1 << 20
#: What a key that is remembered takes beside its own bytes, roughly.
_KEY_OVERHEAD_BYTES: Final = 160
#: Batches that are kept as they are.
_AS_IT_IS: Final = TRANSACTIONAL_BIT | CONTROL_BIT
#: What batches that are unfolded together have in common.
_KIND_BITS: Final = COMPRESSION_MASK | _AS_IT_IS


class CompactionStopped(Exception):
    """The broker stops; what was written of new files is removed when the log is opened next."""


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

    def learn(self, names: list[bytes | None], offsets: memoryview) -> int:
        """Take keys in, in the order of their records; returns about how many bytes they take."""
        before = len(self.newest)
        found = dict(zip(names, offsets, strict=True))
        found.pop(None, None)
        self.newest.update(found)  # type: ignore[arg-type]
        added = len(self.newest) - before
        return added * _KEY_OVERHEAD_BYTES + sum(len(name or b"") for name in found)

    def keeps(self, record: Record, horizon_ms: int | None, now_ms: int) -> bool:
        """Whether a record stays; `horizon_ms` is that of its batch."""
        key = record.key
        if key is None:
            return True
        if self.newest.get(key, record.offset) > record.offset:
            return False
        return record.value is not None or horizon_ms is None or horizon_ms > now_ms or key in self.pinned


def plan_compaction(
    log: PartitionLog, first_dirty_offset: int, *, now_ms: int, dedupe_buffer_bytes: int
) -> tuple[CompactionPlan, float] | None:
    """What can be rewritten now, and how urgently: the dirty part's share of its bytes.

    The share is infinite where a record has waited for `max.compaction.lag.ms`. `None` if nothing there is dirty.
    """
    config = log.config
    youngest_ms = now_ms - config.min_compaction_lag_ms
    closed = log.closed_segments
    if config.min_compaction_lag_ms:
        closed = list(takewhile(lambda segment: segment.max_timestamp <= youngest_ms, closed))
    dirty = [segment for segment in closed if segment.next_offset > first_dirty_offset]
    if not sum(segment.size for segment in dirty):
        return None
    is_overdue = dirty[0].first_timestamp < now_ms - config.max_compaction_lag_ms
    plan = CompactionPlan(
        directory=log.directory,
        bases=tuple(segment.base_offset for segment in closed),
        end_offset=closed[-1].next_offset,
        first_dirty_offset=first_dirty_offset,
        segment_bytes=config.segment_bytes,
        delete_retention_ms=config.delete_retention_ms,
        dedupe_buffer_bytes=dedupe_buffer_bytes,
    )
    share = sum(segment.size for segment in dirty) / sum(segment.size for segment in closed)
    return plan, inf if is_overdue else share


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
    writer = SegmentWriter(fs, plan, keys.end_offset)
    before = records_before = 0
    for at, base in enumerate(bases):
        if is_stopped():
            # Asked before a file is made, too: whoever ordered it may be gone, and another at work in its place.
            raise CompactionStopped
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
            writer.begin_run(header, horizon_ms or now_ms + plan.delete_retention_ms)
            for found in _columns(view):
                if isinstance(found, _Unreadable):
                    records_before += found.header.record_count
                    writer.keep_batch(found.view, found.header)
                    continue
                records_before += len(found)
                for record in found.records():
                    if keys.keeps(record, horizon_ms, now_ms):
                        writer.add(record)
        writer.end_source(bases[at + 1] if at + 1 < len(bases) else keys.end_offset)
    segments = writer.finish()
    return Compacted(
        segments=segments,
        end_offset=keys.end_offset,
        bytes_before=before,
        bytes_after=sum(made.facts.size for made in segments),
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
            if header.attributes & CONTROL_BIT or not (is_dirty or header.attributes & TRANSACTIONAL_BIT):
                continue
            for found in _columns(view, only_keys=True):
                if isinstance(found, _Unreadable):
                    continue
                assert found.keys is not None, "they were asked for"
                names = found.keys.to_list()
                if header.attributes & TRANSACTIONAL_BIT:
                    keys.pinned.update(name for name in names if name is not None)
                else:
                    used += keys.learn(names, found.offsets)
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
    position = next_offset = 0
    while position < size:
        if is_stopped():
            raise CompactionStopped
        view = _window(file, position, size)
        start = at = 0
        first: BatchHeader | None = None
        while (header := _whole_batch(view, at)) is not None:
            if header.base_offset < next_offset:
                # The offset is not under the batch's checksum.
                raise StorageError(f"offset {header.base_offset} stands where {next_offset} belongs at {position + at}")
            next_offset = header.next_offset
            if first is not None and not _is_alike(first, header):
                yield view[start:at], first
                start, first = at, None
            first = first or header
            at += header.size_bytes
        assert first is not None, "a window has a batch"
        yield view[start:at], first
        position += at


def _window(file: LogFile, position: int, size: int) -> memoryview:
    """What is to be read next: as many batches as fit, or a longer one alone. Read and not mapped: files can be cut."""
    raw = file.read(position, min(READ_BYTES, size - position))
    needed = parse_header(raw).size_bytes
    if len(raw) < needed <= size - position:
        raw = file.read(position, needed)
    if len(raw) < needed:
        raise StorageError("a closed segment ends in the middle of a batch; it is not compacted")
    return memoryview(raw)


def _whole_batch(view: memoryview, at: int) -> BatchHeader | None:
    """The header of the batch that begins there, if all of it is there."""
    if len(view) - at < HEADER_SIZE:
        return None
    header = parse_header(view, at)
    return header if header.size_bytes <= len(view) - at else None


def _is_alike(first: BatchHeader, header: BatchHeader) -> bool:
    return (
        not first.attributes & _AS_IT_IS
        and first.attributes & _KIND_BITS == header.attributes & _KIND_BITS
        and first.partition_leader_epoch == header.partition_leader_epoch
        and _horizon(first) == _horizon(header)
    )


def _horizon(header: BatchHeader) -> int | None:
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


@dataclass(frozen=True, slots=True)
class _Unreadable:
    """A batch that is damaged, or unfolds to more than is sensible."""

    view: memoryview
    header: BatchHeader


def _columns(view: memoryview, *, only_keys: bool = False) -> Iterator[RecordColumns | _Unreadable]:
    """The records of whole batches, and batches that have none that could be read."""
    start = 0
    while start < len(view):
        try:
            columns = decode_columns(
                view[start:],
                max_batch_bytes=DEFAULT_LIMIT_BYTES,
                with_values=not only_keys,
                with_headers=not only_keys,
            )
        except CorruptRecordError:
            header = parse_header(view, start)
            yield _Unreadable(view[start : start + header.size_bytes], header)
            start += header.size_bytes
            continue
        assert columns.consumed_bytes, "these are whole batches"
        yield columns
        start += columns.consumed_bytes


def discard_cleaned(fs: FileSystem, directory: str) -> None:
    """Remove what a compaction that came to nothing has left; blocking, while no other is under way there."""
    for name in fs.list_directory(directory):
        if name.endswith(CLEANED_SUFFIX):
            fs.remove(f"{directory}/{name}")


def finish_replacement(fs: FileSystem, directory: str, replaced: list[int]) -> None:
    """Make a new file's name durable, then remove the files it covers; blocking, after `PartitionLog.replace`."""
    fs.sync_directory(directory)
    for base in replaced:
        remove_index(fs, directory, base)
        fs.remove(f"{directory}/{segment_name(base)}")
    fs.sync_directory(directory)
