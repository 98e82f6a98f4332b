"""The compaction of closed segments, which leaves only the newest record of every key.

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

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import takewhile
from math import inf
from typing import Final

from kohort.records.header import CONTROL_BIT, DELETE_HORIZON_BIT, TRANSACTIONAL_BIT, BatchHeader
from kohort.storage.files.fs import FileSystem
from kohort.storage.maintenance.closedbatches import AS_IT_IS, BatchRows, CompactionStopped, Run, Sheet, runs, sheets
from kohort.storage.maintenance.segmentwriter import CompactedSegment, CompactionPlan, KeptRecords, SegmentWriter
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.recovery.recovery import CLEANED_SUFFIX
from kohort.storage.segments.indexfiles import SYNCED_SUFFIX, index_path, remove_index
from kohort.storage.segments.segment import segment_name

#: Bytes that a remembered key takes beside its own, roughly.
_KEY_OVERHEAD_BYTES: Final = 160


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """The result of a compaction; it has no effect before it is put in place."""

    segments: tuple[CompactedSegment, ...]
    #: Before it the log is compacted.
    end_offset: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int


@dataclass(slots=True, kw_only=True)
class _Keys:
    """The result of the first pass over the log."""

    #: Key -> offset of its newest record outside of transactions, in the dirty part.
    newest: dict[bytes, int] = field(default_factory=dict)
    #: Keys that transactions wrote: a tombstone of one must not go before they do.
    pinned: set[bytes] = field(default_factory=set)
    end_offset: int = 0

    def learn(self, sheet: Sheet) -> int:
        """Add the keys of records; return about how many bytes they take."""
        before = len(self.newest)
        self.newest.update(zip(sheet.keys, sheet.offsets, strict=True))  # type: ignore[arg-type]
        # Records without a key supersede nothing.
        self.newest.pop(None, None)  # type: ignore[call-overload]
        added = len(self.newest) - before
        return added * (_KEY_OVERHEAD_BYTES + sheet.key_bytes // max(len(sheet.keys), 1))

    def kept(self, sheet: Sheet) -> list[int]:
        """Return the rows that no later record supersedes; rows without a key always stay."""
        offsets = sheet.offsets
        latest: Iterable[int] = map(self.newest.get, sheet.keys, offsets)  # type: ignore[arg-type]
        return [row for row, offset in enumerate(latest) if offset <= offsets[row]]

    def without_expired(self, rows: list[int], sheet: Sheet, horizon_ms: int | None, now_ms: int) -> list[int]:
        """Drop expired tombstones from rows; `horizon_ms` is the delete horizon of their batch."""
        if not sheet.lengths or horizon_ms is None or horizon_ms > now_ms:
            return rows
        return [row for row in rows if sheet.lengths[row] >= 0 or sheet.keys[row] in self.pinned]


def plan_compaction(
    log: PartitionLog, first_dirty_offset: int, *, now_ms: int, dedupe_buffer_bytes: int
) -> tuple[CompactionPlan, float] | None:
    """Plan a compaction, with its urgency: the dirty part's share of its bytes.

    The share is infinite where a record has waited for `max.compaction.lag.ms`. `None` if nothing there is dirty.
    """
    config = log.config
    youngest_ms = now_ms - config.min_compaction_lag_ms
    closed = log.closed_segments
    # Kafka's min.compaction.lag.ms: young records are not compacted.
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
        epochs=log.epochs.starts,
    )
    share = sum(segment.size for segment in dirty) / sum(segment.size for segment in closed)
    return plan, inf if is_overdue else share


def compact(
    fs: FileSystem, plan: CompactionPlan, *, now_ms: int, is_stopped: Callable[[], bool] = lambda: False
) -> Compacted:
    """Write the new segments; blocking, for a thread beside the log's owner.

    Args:
        now_ms: tombstones that expire by then are removed.
        is_stopped: asked every `READ_BYTES`.

    Raises:
        CompactionStopped: `is_stopped` returned `True`.
        StorageError: the disk; the log is as it was.
    """
    keys = _collect_keys(fs, plan, is_stopped)
    bases = [base for base in plan.bases if base < keys.end_offset]
    writer = SegmentWriter(fs, plan, keys.end_offset)
    before = records_before = 0
    for at, base in enumerate(bases):
        if is_stopped():
            # Asked before a file is made, too: the broker may be gone, and another may work in its place.
            raise CompactionStopped
        file = fs.open(f"{plan.directory}/{segment_name(base)}")
        size = file.size()
        before += size
        writer.begin_source(base, size)
        for run in runs(file, size, is_stopped):
            records_before += sum(header.record_count for header in run.headers)
            if run.headers[0].attributes & AS_IT_IS:
                writer.keep_batch(run.view, run.headers[0])
                continue
            for found in sheets(run):
                if isinstance(found, Run):
                    writer.keep_batch(found.view, found.headers[0])
                else:
                    _rewrite(found, keys, writer, now_ms=now_ms, horizon_ms=now_ms + plan.delete_retention_ms)
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


def _rewrite(sheet: Sheet, keys: _Keys, writer: SegmentWriter, *, now_ms: int, horizon_ms: int) -> None:
    """Hand on the remaining records; `horizon_ms` is the delete horizon of newly met tombstones."""
    kept, ends = keys.kept(sheet), sheet.ends()
    for batch, found in sheet.batches(kept):
        known_ms = _horizon(batch.header)
        rows = keys.without_expired(found, sheet, known_ms, now_ms)
        if not rows:
            continue
        has_tombstones = bool(sheet.lengths) and min(map(sheet.lengths.__getitem__, rows)) < 0
        writer.add(
            KeptRecords(
                batch=batch,
                records=_slices(batch, rows, ends),
                offsets=[sheet.offsets[row] for row in rows],
                timestamps=[sheet.timestamps[row] for row in rows],
                # KIP-534: the horizon is set when a tombstone is first compacted, and kept from then on.
                horizon_ms=(known_ms or horizon_ms) if has_tombstones else None,
            )
        )


def _slices(batch: BatchRows, rows: list[int], ends: list[int]) -> list[memoryview]:
    """Return the bytes of some of a batch's records."""
    body, first = batch.body, batch.first
    bounds = [batch.start, *ends[first : batch.stop]]
    return [body[bounds[row - first] : bounds[row - first + 1]] for row in rows]


def _collect_keys(fs: FileSystem, plan: CompactionPlan, is_stopped: Callable[[], bool]) -> _Keys:
    keys = _Keys(end_offset=plan.end_offset)
    used = 0
    ends = (*plan.bases[1:], plan.end_offset)
    is_first_dirty = True
    for base, end in zip(plan.bases, ends, strict=True):
        is_dirty = end > plan.first_dirty_offset
        file = fs.open(f"{plan.directory}/{segment_name(base)}")
        for run in runs(file, file.size(), is_stopped):
            attributes = run.headers[0].attributes
            if attributes & CONTROL_BIT or not (is_dirty or attributes & TRANSACTIONAL_BIT):
                continue
            for found in sheets(run):
                if isinstance(found, Run):
                    continue
                if attributes & TRANSACTIONAL_BIT:
                    keys.pinned.update(name for name in found.keys if name is not None)
                else:
                    used += keys.learn(found)
        if is_dirty:
            if used > plan.dedupe_buffer_bytes and not is_first_dirty:
                # This segment does not fit any more and waits for the next compaction. Its keys do no harm: the newest
                # record of a key may lie behind the rewritten segments.
                keys.end_offset = base
                break
            is_first_dirty = False
    return keys


def _horizon(header: BatchHeader) -> int | None:
    return header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None


def discard_cleaned(fs: FileSystem, directory: str) -> None:
    """Remove the files of a failed compaction; blocking, while no other works in the folder."""
    for name in fs.list_directory(directory):
        if name.endswith(CLEANED_SUFFIX):
            fs.remove(f"{directory}/{name}")


def finish_replacement(fs: FileSystem, directory: str, replaced: list[int]) -> None:
    """Sync a new file's name, then remove the files it covers; blocking, after `PartitionLog.replace`."""
    fs.sync_directory(directory)
    for base in replaced:
        remove_index(fs, directory, base)
        fs.remove(f"{directory}/{segment_name(base)}")
        fs.remove(index_path(directory, base, SYNCED_SUFFIX))
    fs.sync_directory(directory)
