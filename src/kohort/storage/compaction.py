"""The compaction of closed segments, which leaves only the newest record of every key.

Laws: offsets stay what they were, and batches still cover all of them: where records went, batches are sparse, or
empty, and one record's batch may have become part of a longer one. The newest segment is never touched, nor one that
a crash could still take, nor anything at or behind the last stable offset. Tombstones stay for `delete.retention.ms`
after they were first compacted (KIP-534). Records of aborted transactions go. A marker stays until a compaction has
found nothing of its transaction any more, and `delete.retention.ms` from then on. The last batch of each producer that
the partition remembers stays, empty if need be, and so does the last marker of one of which nothing else is known. A
batch that cannot be read stays as it is. What was compressed stays so.
A new file takes the place of the first old one by one rename, and the old ones that it covers go after that, before
the next new file comes; whatever moment a crash chooses, opening the log finds each record that counts.
Source: Apache Kafka's log cleaner and its CleanedTransactionMetadata (KIP-98); requirement G1.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import field
from itertools import accumulate, takewhile
from math import inf
from typing import Final, NamedTuple

from kohort.base.values import value
from kohort.errors import CorruptRecordError, StorageError
from kohort.records import layout
from kohort.records.batch import iterate_records
from kohort.records.columns import gather_columns
from kohort.records.compression import DEFAULT_LIMIT_BYTES
from kohort.records.header import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    DELETE_HORIZON_BIT,
    HEADER_SIZE,
    LOG_APPEND_TIME_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    parse_header,
)
from kohort.records.scan import ScannedRecords, scan_batches
from kohort.records.sparse import LooseRecord, fasten, gather_batch, loosen, thin_batch, with_horizon
from kohort.storage.files.fs import FileSystem, LogFile
from kohort.storage.partitions.leader_epochs import LeaderEpochs
from kohort.storage.partitions.partition import PartitionLog, read_marker
from kohort.storage.partitions.producers import ProducerRow
from kohort.storage.partitions.quarantine import UNFINISHED_SUFFIX
from kohort.storage.segments import indexes
from kohort.storage.segments.segment import Segment, segment_name
from kohort.storage.segments.transaction_index import EndedTransaction, read_entries

#: Bytes that a remembered key takes beside its own, roughly.
_KEY_OVERHEAD_BYTES: Final = 160
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
#: Bytes of the log that are decompressed at a time.
READ_BYTES: Final = 1 << 20


@value
class Compacted:
    """The result of a compaction; it has no effect before it is put in place."""

    segments: tuple[CompactedSegment, ...]
    #: Before it the log is compacted.
    end_offset: int
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int


@value(frozen=False)
class _OffsetMap:
    """The result of the first pass over the log."""

    #: Key -> offset of its newest record that was not aborted, in the dirty part.
    newest: dict[bytes, int] = field(default_factory=dict)
    end_offset: int = 0

    def learn(self, records: RecordRows) -> int:
        """Add the keys of records; return about how many bytes they take."""
        before = len(self.newest)
        self.newest.update(zip(records.keys, records.offsets, strict=True))  # type: ignore[arg-type]
        # Records without a key supersede nothing.
        self.newest.pop(None, None)  # type: ignore[call-overload]
        added = len(self.newest) - before
        return added * (_KEY_OVERHEAD_BYTES + records.key_bytes // max(len(records.keys), 1))

    def kept(self, records: RecordRows) -> list[int]:
        """Return the rows that no later record supersedes; rows without a key always stay."""
        offsets = records.offsets
        latest: Iterable[int] = map(self.newest.get, records.keys, offsets)  # type: ignore[arg-type]
        return [row for row, offset in enumerate(latest) if offset <= offsets[row]]

    def without_expired(self, rows: list[int], records: RecordRows, horizon_ms: int | None, now_ms: int) -> list[int]:
        """Drop expired tombstones from rows; `horizon_ms` is the delete horizon of their batch."""
        if not records.lengths or horizon_ms is None or horizon_ms > now_ms:
            return rows
        return [row for row in rows if records.lengths[row] >= 0]


def plan_compaction(
    log: PartitionLog, first_dirty_offset: int, *, now_ms: int, dedupe_buffer_bytes: int, least_share: float = 0.0
) -> tuple[CompactionPlan, float] | None:
    """Plan a compaction, with its urgency: the dirty part's share of its bytes.

    The share is infinite where a record has waited for `max.compaction.lag.ms`. `None` if nothing there is dirty, or
    less than `least_share`.
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
    share = sum(segment.size for segment in dirty) / sum(segment.size for segment in closed)
    if dirty[0].first_timestamp < now_ms - config.max_compaction_lag_ms:
        share = inf
    if share < least_share:
        return None
    plan = CompactionPlan(
        directory=log.directory,
        bases=tuple(segment.base_offset for segment in closed),
        end_offset=closed[-1].next_offset,
        first_dirty_offset=first_dirty_offset,
        segment_bytes=config.segment_bytes,
        delete_retention_ms=config.delete_retention_ms,
        dedupe_buffer_bytes=dedupe_buffer_bytes,
        epochs=log.epochs.starts,
        aborted=tuple(
            (segment.base_offset, segment.aborted_bytes) for segment in log.segments if segment.aborted_bytes
        ),
        producers={row.producer_id: _last_of(row) for row in log.producers.rows()},
    )
    return plan, share


def _last_of(row: ProducerRow) -> tuple[int, int]:
    """Return the epoch and the last data offset of a producer; -1: it has no batches of this epoch."""
    return row.epoch, row.batches[-1].last_offset if row.batches else -1


def compact(
    fs: FileSystem, plan: CompactionPlan, *, now_ms: int, is_stopped: Callable[[], bool] = lambda: False
) -> Compacted:
    """Write the new segments, without tombstones that expired by `now_ms`; blocking.

    Raises:
        CompactionStopped: `is_stopped`, which is asked every `READ_BYTES`, returned `True`.
        StorageError: the disk; the log is as it was.
    """
    aborted = _read_aborted(fs, plan)
    keys = _collect_keys(fs, plan, _Transactions(aborted, plan.producers), is_stopped)
    transactions = _Transactions(aborted, plan.producers)
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
        for run in batch_runs(file, size, is_stopped, transactions.stands_alone):
            records_before += sum(header.record_count for header in run.headers)
            first = run.headers[0]
            horizon_ms = now_ms + plan.delete_retention_ms
            if first.attributes & CONTROL_BIT:
                _keep_marker(run, transactions, writer, now_ms=now_ms, horizon_ms=horizon_ms)
                continue
            transactions.see(run.headers)
            for found in () if transactions.is_aborted(first) else record_rows(run):
                if isinstance(found, BatchRun):
                    writer.keep_batch(found.view, found.headers[0])
                else:
                    _rewrite(found, keys, writer, now_ms=now_ms, horizon_ms=horizon_ms)
            if transactions.is_last(first) and not writer.holds(first):
                # The state of a producer that may write again.
                empty = thin_batch(first, [], max_timestamp=first.max_timestamp)
                writer.keep_batch(memoryview(empty), parse_header(empty))
        # The new segments have to cover every offset before the end of the old one.
        writer.source_end = bases[at + 1] if at + 1 < len(bases) else keys.end_offset
    segments = writer.finish()
    return Compacted(
        segments=segments,
        end_offset=keys.end_offset,
        bytes_before=before,
        bytes_after=sum(made.facts.size for made in segments),
        records_before=records_before,
        records_after=writer.records,
    )


def _rewrite(records: RecordRows, keys: _OffsetMap, writer: SegmentWriter, *, now_ms: int, horizon_ms: int) -> None:
    """Hand on the remaining records; `horizon_ms` is the delete horizon of newly met tombstones."""
    kept, ends = keys.kept(records), records.ends()
    for batch, found in records.batches(kept):
        header = batch.header
        known_ms = header.base_timestamp if header.attributes & DELETE_HORIZON_BIT else None
        rows = keys.without_expired(found, records, known_ms, now_ms)
        if not rows:
            continue
        has_tombstones = bool(records.lengths) and min(map(records.lengths.__getitem__, rows)) < 0
        writer.add(
            KeptRecords(
                batch=batch,
                records=_slices(batch, rows, ends),
                offsets=[records.offsets[row] for row in rows],
                timestamps=[records.timestamps[row] for row in rows],
                # KIP-534: the horizon is set when a tombstone is first compacted, and kept from then on.
                horizon_ms=(known_ms or horizon_ms) if has_tombstones else None,
            )
        )


@value(kw_only=False, frozen=False)
class _Transactions:
    """The transactions of a log while its batches are read in order; all of them are decided.

    Source: Apache Kafka's CleanedTransactionMetadata.
    """

    #: By first offset, descending.
    aborted: list[EndedTransaction]
    #: Producer -> its epoch and the last offset of its last batch.
    producers: Mapping[int, tuple[int, int]]
    #: Producer -> its latest aborted transaction.
    _latest: dict[int, EndedTransaction] = field(default_factory=dict)
    #: Producers with batches of a transaction whose marker comes yet.
    _seen: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.aborted = self.aborted[:]

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether a batch has records of an aborted transaction; asked in log order."""
        while self.aborted and self.aborted[-1].first_offset <= header.base_offset:
            entry = self.aborted.pop()
            self._latest[entry.producer_id] = entry
        if header.attributes & (TRANSACTIONAL_BIT | CONTROL_BIT) != TRANSACTIONAL_BIT:
            return False
        entry = self._latest.get(header.producer_id, _NOT_ABORTED)
        return entry.first_offset <= header.base_offset <= entry.last_offset

    def is_last(self, header: BatchHeader) -> bool:
        """Whether a data batch is the last of a remembered producer."""
        return header.producer_id >= 0 and self.producers.get(header.producer_id, (-1, -1))[1] == header.last_offset

    def stands_alone(self, header: BatchHeader) -> bool:
        """Whether a batch is to be looked at alone."""
        if header.attributes & CONTROL_BIT:
            return True
        return header.producer_id >= 0 and (self.is_aborted(header) or self.is_last(header))

    def see(self, headers: Iterable[BatchHeader]) -> None:
        """Note data batches."""
        self._seen.update(header.producer_id for header in headers if header.attributes & TRANSACTIONAL_BIT)

    def is_needed(self, header: BatchHeader) -> bool:
        """Whether batches of a marker's transaction precede it, or it alone keeps its producer's state."""
        is_seen = header.producer_id in self._seen
        self._seen.discard(header.producer_id)
        return is_seen or self.producers.get(header.producer_id) == (header.producer_epoch, -1)


#: In place of an aborted transaction.
_NOT_ABORTED: Final = EndedTransaction(-1, 0, -1, 0)


def _read_aborted(fs: FileSystem, plan: CompactionPlan) -> list[EndedTransaction]:
    """Read the aborted transactions with records in the plan's segments, by first offset, descending."""
    found = [
        entry
        for base, size in plan.aborted
        for entry in read_entries(fs, plan.directory, base, size, ended_from=plan.bases[0])
        if entry.first_offset < plan.end_offset
    ]
    return sorted(found, key=lambda entry: entry.first_offset, reverse=True)


def _keep_marker(
    run: BatchRun, transactions: _Transactions, writer: SegmentWriter, *, now_ms: int, horizon_ms: int
) -> None:
    """Hand on a marker, dated when its transaction is gone, unless it has expired."""
    (header,) = run.headers
    try:
        is_marker = read_marker(header, run.view) is not None and not header.attributes & COMPRESSION_MASK
    except CorruptRecordError:
        is_marker = False
    if transactions.is_needed(header) or not is_marker:
        writer.keep_batch(run.view, header)
    elif not header.attributes & DELETE_HORIZON_BIT:
        writer.keep_batch(*_dated(run.view, header, horizon_ms))
    elif header.base_timestamp > now_ms:
        writer.keep_batch(run.view, header)


def _dated(view: memoryview, header: BatchHeader, horizon_ms: int) -> tuple[memoryview, BatchHeader]:
    """Return a marker with the time from which it may go."""
    (record,) = iterate_records(view, include_control=True)
    dated = with_horizon(header, horizon_ms)
    loose = loosen(view[HEADER_SIZE:], record.offset, record.timestamp)
    batch = thin_batch(dated, fasten([loose], dated), max_timestamp=header.max_timestamp)
    return memoryview(batch), parse_header(batch)


def _slices(batch: BatchRows, rows: list[int], ends: list[int]) -> list[memoryview]:
    """Return the bytes of some of a batch's records."""
    body, first = batch.body, batch.first
    bounds = [batch.start, *ends[first : batch.stop]]
    return [body[bounds[row - first] : bounds[row - first + 1]] for row in rows]


def _collect_keys(
    fs: FileSystem, plan: CompactionPlan, transactions: _Transactions, is_stopped: Callable[[], bool]
) -> _OffsetMap:
    keys = _OffsetMap(end_offset=plan.end_offset)
    used = 0
    ends = (*plan.bases[1:], plan.end_offset)
    is_first_dirty = True
    for base, end in zip(plan.bases, ends, strict=True):
        is_dirty = end > plan.first_dirty_offset
        file = fs.open(f"{plan.directory}/{segment_name(base)}") if is_dirty else None
        for run in () if file is None else batch_runs(file, file.size(), is_stopped, transactions.stands_alone):
            if run.headers[0].attributes & CONTROL_BIT or transactions.is_aborted(run.headers[0]):
                continue
            for found in record_rows(run):
                if not isinstance(found, BatchRun):
                    used += keys.learn(found)
        if is_dirty:
            if used > plan.dedupe_buffer_bytes and not is_first_dirty:
                # This segment does not fit any more and waits for the next compaction. Its keys do no harm: the newest
                # record of a key may lie behind the rewritten segments.
                keys.end_offset = base
                break
            is_first_dirty = False
    return keys


def discard_cleaned(fs: FileSystem, directory: str) -> None:
    """Remove the files of a failed compaction; blocking, while no other works in the folder."""
    for name in fs.list_directory(directory):
        if name.endswith(UNFINISHED_SUFFIX):
            fs.remove(f"{directory}/{name}")


def finish_replacement(fs: FileSystem, directory: str, replaced: list[int]) -> None:
    """Sync a new file's name, then remove the files it covers; blocking, after `PartitionLog.replace`."""
    fs.sync_directory(directory)
    for base in replaced:
        indexes.remove_index(fs, directory, base)
        fs.remove(f"{directory}/{segment_name(base)}")
        fs.remove(indexes.index_path(directory, base, indexes.SYNCED_SUFFIX))
    fs.sync_directory(directory)


class CompactionStopped(Exception):
    """The end of a compaction because the broker stops; the next start removes its unfinished files."""


class BatchRun(NamedTuple):
    """Consecutive batches; a batch that stays as it is makes a run of its own.

    Laws: files are read and not mapped, since they can be cut from outside. What was never checked is not given out as
    records: a batch that is damaged, or unfolds to more than is sensible, comes alone and without any.
    Source: Apache Kafka's record format, magic 2 (KIP-98).
    """

    view: memoryview
    headers: list[BatchHeader]


def batch_runs(
    file: LogFile, size: int, is_stopped: Callable[[], bool], stands_alone: Callable[[BatchHeader], bool]
) -> Iterator[BatchRun]:
    """Yield all batches in the first `size` bytes, those that stand alone each in a run of its own.

    `is_stopped` is asked once a window.
    """
    position = next_offset = 0
    while position < size:
        if is_stopped():
            raise CompactionStopped
        view = _window(file, position, size)
        start = at = 0
        headers: list[BatchHeader] = []
        was_alone = False
        while (header := _whole_batch(view, at)) is not None:
            if header.base_offset < next_offset:
                # The offset is not under the batch's checksum.
                raise StorageError(f"offset {header.base_offset} stands where {next_offset} belongs at {position + at}")
            next_offset = header.next_offset
            is_alone = stands_alone(header)
            if headers and (is_alone or was_alone):
                yield BatchRun(view[start:at], headers)
                start, headers = at, []
            was_alone = is_alone
            headers.append(header)
            at += header.size_bytes
        assert headers, "a window has a batch"
        yield BatchRun(view[start:at], headers)
        position += at


def _window(file: LogFile, position: int, size: int) -> memoryview:
    """Read the next window: as many batches as fit, or a longer one alone."""
    raw = file.read(position, min(READ_BYTES, size - position))
    needed = parse_header(raw).size_bytes
    if len(raw) < needed <= size - position:
        raw = file.read(position, needed)
    if len(raw) < needed:
        raise StorageError("a closed segment ends in the middle of a batch; it is not compacted")
    return memoryview(raw)


def _whole_batch(view: memoryview, at: int) -> BatchHeader | None:
    """Return the header of the batch at a position, if the batch is there as a whole."""
    if len(view) - at < HEADER_SIZE:
        return None
    header = parse_header(view, at)
    return header if header.size_bytes <= len(view) - at else None


class BatchRows(NamedTuple):
    """One batch, and the rows [first, stop) that are its records."""

    header: BatchHeader
    view: memoryview
    first: int
    stop: int
    #: Holds the records; the bytes of the first begin at `start`.
    body: memoryview
    start: int


class RecordRows:
    """The records of a run, or of a part of it, as rows."""

    def __init__(self, run: BatchRun, scanned: ScannedRecords) -> None:
        self._run = run
        self._scanned = scanned
        rows = len(scanned)
        columns = gather_columns([(scanned, 0, rows)], with_values=False, with_headers=False)
        assert columns.keys is not None, "they were asked for"
        self.key_bytes = len(columns.keys.data)
        self.keys: list[bytes | None] = columns.keys.to_list()
        self.offsets: list[int] = scanned.offsets.tolist()
        self.timestamps: list[int] = scanned.timestamps.tolist()
        #: Whether rows are tombstones; none is where this is empty.
        self.lengths: list[int] = []
        if scanned.kernels.count_nulls(scanned.spans, layout.SPAN_WIDTH, layout.VALUE_LENGTH, rows):
            self.lengths = scanned.spans[layout.VALUE_LENGTH :: layout.SPAN_WIDTH].tolist()

    def ends(self) -> list[int]:
        """Return the end of each record in the body of its batch."""
        scanned = self._scanned
        ends: list[int] = scanned.spans[layout.HEADERS :: layout.SPAN_WIDTH].tolist()
        headers = scanned.headers
        if headers is None:
            return ends
        # Where its last header's value ends, if it has one.
        values: list[int] = headers.spans[layout.HEADER_VALUE :: layout.HEADER_WIDTH].tolist()
        lengths: list[int] = headers.spans[layout.HEADER_VALUE + 1 :: layout.HEADER_WIDTH].tolist()
        counts = scanned.spans[layout.HEADER_COUNT :: layout.SPAN_WIDTH].tolist()
        for row, (count, stop) in enumerate(zip(counts, accumulate(counts), strict=True)):
            if count:
                ends[row] = values[stop - 1] + max(lengths[stop - 1], 0)
        return ends

    def batches(self, kept: list[int]) -> Iterator[tuple[BatchRows, list[int]]]:
        """Yield the batches with some of these ascending rows, in order, each with its rows."""
        table, regions = self._scanned.table, iter(self._scanned.regions)
        region = next(regions, None)
        position = row = at = 0
        for batch, header in enumerate(self._run.headers):
            if at == len(kept):
                return
            here = batch * layout.TABLE_WIDTH
            first, row = row, table[here + layout.ROW_STOP] if table[here + layout.RECORD_COUNT] else row
            start, position = position, position + header.size_bytes
            if kept[at] >= row:
                continue
            while region is not None and region.stop <= batch:
                region = next(regions, None)
            assert region is not None, "records lie in a region"
            body, view = memoryview(region.join()), self._run.view[start:position]
            until = bisect_left(kept, row, at)
            yield BatchRows(header, view, first, row, body, table[here + layout.BODY]), kept[at:until]
            at = until


def record_rows(run: BatchRun) -> Iterator[RecordRows | BatchRun]:
    """Yield the records of a run; an unreadable batch makes a run of its own."""
    start = at = 0
    while at < len(run.headers):
        try:
            scanned = scan_batches(run.view[start:], max_batch_bytes=DEFAULT_LIMIT_BYTES)
        except CorruptRecordError:
            size = run.headers[at].size_bytes
            yield BatchRun(run.view[start : start + size], run.headers[at : at + 1])
            start, at = start + size, at + 1
            continue
        first, end = at, start
        while end < start + scanned.consumed_bytes:
            end += run.headers[at].size_bytes
            at += 1
        yield RecordRows(BatchRun(run.view[start:end], run.headers[first:at]), scanned)
        start = end


@value
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
    #: Base offset of each segment with aborted transactions, and the size of their file.
    aborted: tuple[tuple[int, int], ...] = ()
    #: Producer -> its epoch and the last offset of its last batch; -1: it has no batches of that epoch.
    producers: Mapping[int, tuple[int, int]] = field(default_factory=dict)


@value
class CompactedSegment:
    """A new segment, in a file that waits to replace the segments with its offsets.

    It is plain data, so that another process can have made it.
    """

    base_offset: int
    facts: indexes.SegmentFacts
    index: indexes.IndexImage
    cleaned_path: str

    def segment(self, fs: FileSystem, directory: str) -> Segment:
        """Build the segment for the log."""
        segment = Segment(fs, directory, self.base_offset, is_entry_durable=False)
        index = indexes.SegmentIndex.of_image(self.base_offset, self.index, interval_bytes=indexes.INDEX_INTERVAL_BYTES)
        segment.go_on(index, self.facts)
        return segment


@value
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
    """Turns the remaining records into batches, and batches into files.

    Laws: batches cover every offset of the old segments, so that a batch may be sparse, or empty. A batch of a producer
    that numbers its batches, one that is dated by the broker, and one of which much is left stay batches of their own,
    with what their headers say; what is left of others becomes part of longer ones. A file is durable, but for its
    name, when it is given out; none is longer than the topic's segments, unless an old one was.
    Source: Apache Kafka's log cleaner; KIP-534 (when tombstones may go).
    """

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
        self.source_end = 0
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
            self._path = f"{self._plan.directory}/{segment_name(base)}{UNFINISHED_SUFFIX}"
            self._fs.remove(self._path)
            self._file = self._fs.open(self._path, create=True)
            self._segment = Segment(self._fs, self._plan.directory, base, is_entry_durable=False)
            self._next_offset = base

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

    def holds(self, header: BatchHeader) -> bool:
        """Whether the written batches end where this batch of a producer ends."""
        return self._next_offset == header.next_offset

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
        self._flush(self.source_end)
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
