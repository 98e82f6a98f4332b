"""One partition's log: append, read, find by time, and track the durable offset.

Laws: nothing of a refused set of batches is stored. `log_end_offset` rises only when the bytes are in the file, and
`high_watermark` only to what a crash cannot take, if the topic syncs each append. Everything belongs to one thread
but `sync`, which touches file descriptors and reads numbers only. After a failed sync the log takes nothing more.
Source: architecture rules 3 and 18; Apache Kafka's log; KIP-98 for idempotent producers.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar
from zlib import crc32

from kohort.errors import ErrorCode, Refused, StorageError
from kohort.records.batch import coordinator_epoch_of, is_commit_marker, iterate_records
from kohort.records.header import LOG_APPEND_TIME_BIT, TRANSACTIONAL_BIT, BatchHeader, rebase
from kohort.storage.files.fs import Buffer, FileSystem, SegmentsGoneError, SyncFailedError
from kohort.storage.partitions.leader_epoch_runs import EpochRun
from kohort.storage.partitions.leader_epochs import LeaderEpochs
from kohort.storage.partitions.producers import ProducerStates, StoredBatch
from kohort.storage.partitions.quarantine import Hole, readable_end
from kohort.storage.partitions.validation import CheckedBatch, find_batches, prepare, stamp
from kohort.storage.segments import transaction_index
from kohort.storage.segments.indexes import TRANSACTION_SUFFIX, index_path, remove_index
from kohort.storage.segments.segment import DELETED_SUFFIX, BatchPlace, Segment, measure, read_batches, segment_name
from kohort.storage.topicconfig import INT_MAX, LONG_MAX, LogConfig

#: Larger than any number of unsynced records.
_NEVER: Final = 1 << 63
T = TypeVar("T")


class Appended(NamedTuple):
    """The result of an append."""

    base_offset: int
    last_offset: int
    #: The broker's time, if the topic is dated by it; -1: the producer's timestamps stand.
    log_append_time_ms: int
    #: Whether the batch was in the log already; then these are its earlier offsets, and nothing was appended.
    duplicate: bool


class PartitionLog:
    """The log of one partition; `open_partition` in `recovery` opens it from its folder."""

    __slots__ = (
        "_fs",
        "_is_closed",
        "_is_synced_per_append",
        "_segment_ms",
        "_sync_after",
        "_unsynced",
        "bytes_checked",
        "bytes_gone",
        "config",
        "directory",
        "durable_offset",
        "epochs",
        "filing",
        "has_dropped",
        "high_watermark",
        "holes",
        "is_failed",
        "leader_epoch",
        "log_end_offset",
        "mended_epochs",
        "name",
        "offline",
        "partition",
        "producers",
        "segments",
        "start_offset",
        "state_offset",
        "topic",
    )

    def __init__(
        self, fs: FileSystem, directory: str, *, topic: str, partition: int, config: LogConfig, segments: list[Segment]
    ) -> None:
        self._fs = fs
        self._is_closed = False
        self.topic = topic
        self.partition = partition
        #: As its folder is called.
        self.name = f"{topic}-{partition}"
        self.directory = directory
        #: Ascending and without gaps; the last one grows.
        self.segments = segments
        #: Records before it are deleted though their segment may be there; see `recovery.delete_before`.
        self.start_offset = 0
        #: Segments with bytes that `mark_durable` has not covered, ascending; replaced as a whole, never changed.
        self._unsynced: tuple[Segment, ...] = tuple(segments[-1:])
        self.producers = ProducerStates()
        #: Epoch of this broker as leader, and those in which something was written.
        self.leader_epoch = 0
        self.epochs = LeaderEpochs()
        #: Threads that write beside segments; `replace` is called when there are none.
        self.filing = IndexWriter()
        #: Whether segments have left the log; their files may still be there.
        self.has_dropped = False
        #: The offset at which the state for a start was last written.
        self.state_offset = 0
        #: Bytes that were read when it was opened, and bytes missing at its beginning since the last clean stop.
        self.bytes_checked = self.bytes_gone = 0
        #: Leader epochs that stood wrong in batches when it was opened.
        self.mended_epochs: tuple[EpochRun, ...] = ()
        #: Offsets whose records are damaged or gone, ascending.
        self.holes: tuple[Hole, ...] = ()
        self.log_end_offset = segments[-1].next_offset
        #: Everything before it survives a crash.
        self.durable_offset = self.log_end_offset
        #: The offset before which consumers may read.
        self.high_watermark = self.log_end_offset
        #: Whether a sync failed; the content of the files is unknown then.
        self.is_failed = False
        #: Why the log cannot be used until the next start, whose files were unreadable at this one; empty if it can.
        self.offline = ""
        self.configure(config)

    def configure(self, config: LogConfig) -> None:
        """Apply the topic's configs; records that consumers have seen stay visible."""
        self.config = config
        self._sync_after = _NEVER if self._fs.volatile else config.flush_messages
        self._is_synced_per_append = self._sync_after == 1
        self.segments[-1].interval_bytes = config.index_interval_bytes
        # Partitions that were filled together do not all begin a file at once: by their names, alike at every start.
        segment_ms = min(config.segment_ms, config.max_compaction_lag_ms) if config.is_compacted else config.segment_ms
        jitter_ms = min(config.segment_jitter_ms, segment_ms)
        self._segment_ms = segment_ms - (crc32(self.directory.encode()) % jitter_ms if jitter_ms else 0)
        if not self._is_synced_per_append:
            self.high_watermark = self.log_end_offset

    @property
    def log_start_offset(self) -> int:
        """The first offset of the log."""
        return max(self.segments[0].base_offset, self.start_offset)

    @property
    def last_stable_offset(self) -> int:
        """The offset before which every transaction is decided, durably; where reading of committed records ends."""
        high_watermark = self.high_watermark
        if not self.producers.has_undecided:
            return high_watermark
        # The records of an open transaction may be deleted before it ends.
        return max(self.producers.stable_before(high_watermark), min(self.log_start_offset, high_watermark))

    @property
    def has_aborted(self) -> bool:
        """Whether a segment has aborted transactions."""
        return any(segment.aborted_bytes for segment in self.segments)

    def aborted_transactions(
        self, offset: int, up_to: int, *, most: int = LONG_MAX, wait: bool = True
    ) -> tuple[list[transaction_index.EndedTransaction], int]:
        """Return the aborted transactions with records from `offset` to before `up_to`, by their markers.

        Returns:
            The transactions, and `up_to`, lowered so far that they are no more than `most`; those that are open at
            `offset` do not count.

        Raises:
            StorageError: a file of them is not as it was written.
            NotResidentError: there is long work to be done first, unless `wait`.
        """
        found = transaction_index.Found(offset, up_to, most)
        for segment in self.segments:
            size = segment.aborted_bytes
            if not size or segment.next_offset <= offset:
                continue
            path = index_path(self.directory, segment.base_offset, TRANSACTION_SUFFIX)
            starts = segment.aborted_starts
            if starts is None:
                starts = segment.aborted_starts = transaction_index.BlockStarts()
            transaction_index.read_between(self._fs.open(path), path, size, starts, found, wait=wait)
            if found.is_over:
                break
        if len(found.transactions) > most:
            found.cut()
        return found.transactions, found.up_to

    @property
    def size_bytes(self) -> int:
        """The bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    @property
    def closed_segments(self) -> list[Segment]:
        """The segments that may be compacted: closed, durable if the topic asks for that, and before holes."""
        end = self.durable_offset if self._sync_after < LONG_MAX else self.log_end_offset
        end = min([end, *(hole.first_offset for hole in self.holes)])
        if len(self.producers) and not self._fs.volatile:
            # A start must not find the batches gone by which it knows a producer.
            end = min(end, self.state_offset)
        if self.producers.has_undecided:
            end = min(end, self.last_stable_offset)
        return [segment for segment in self.segments[:-1] if segment.next_offset <= end]

    @property
    def needs_sync(self) -> bool:
        """Whether enough records are unsynced for a `sync` now."""
        return self.log_end_offset - self.durable_offset >= self._sync_after

    @property
    def sync_within_ms(self) -> int | None:
        """The time that unsynced records may stay so, ms; `None` if there are none, or no limit."""
        is_limited = self.config.flush_ms < LONG_MAX and self.log_end_offset > self.durable_offset
        return self.config.flush_ms if is_limited else None

    def append(
        self, batches: Buffer | CheckedBatch, *, now_ms: int, validate: bool = True, begins_transaction: bool = False
    ) -> Appended:
        """Store whole record batches at the end, in one write.

        Args:
            batches: a client's, maybe checked by `validation.prepare` already, or several of the broker's own; their
                offsets and leader epoch are written in place where possible. They may change afterwards.
            now_ms: the broker's time, for topics dated by it.
            validate: `False` for batches that the broker itself made: no limits, CRC or producer checks.
            begins_transaction: the producer's transaction, of which its coordinator knows, may begin here.

        Raises:
            Refused: nothing was stored; see `validation` and `producers`.
            StorageError: nothing was stored; the disk is full, or an earlier sync failed.
        """
        if validate:
            if not isinstance(batches, CheckedBatch):
                batches = prepare(batches, self.config, name=self.name, now_ms=now_ms)
            batches, header = batches
            places = [BatchPlace(0, header)]
            if header.producer_id >= 0:
                repeated = self.producers.check(header)
                if repeated is not None:
                    return self._repeat(repeated)
                if header.attributes & TRANSACTIONAL_BIT or self.producers.open_transactions:
                    self.producers.check_transaction(header, begins=begins_transaction)
        else:
            assert not isinstance(batches, CheckedBatch)
            places = find_batches(batches)
        if self.is_failed or self._is_closed:
            raise self._unusable()
        buffer = bytearray(batches) if memoryview(batches).readonly else batches
        assert not isinstance(buffer, bytes)
        base_offset = next_offset = self.log_end_offset
        for at, (position, header) in enumerate(places):
            rebase(buffer, position, next_offset, self.leader_epoch)
            places[at] = BatchPlace(position, BatchHeader._make((next_offset, *header[1:])))
            next_offset += header.last_offset_delta + 1
        append_time = -1
        if self.config.is_log_append_time:
            append_time, bit = now_ms, LOG_APPEND_TIME_BIT
            places = [stamp(buffer, place, place.header.attributes | bit, now_ms) for place in places]
        segment = self._segment_for(len(buffer), next_offset, places[-1].header.max_timestamp)
        if not validate and any(place.header.is_control for place in places):
            self._append_markers(segment, buffer, places, now_ms)
        else:
            segment.append(buffer, places)
            for place in places:
                if place.header.producer_id >= 0:
                    self.producers.note(place.header, now_ms)
        # KIP-101: the epoch begins with its first record.
        if self.epochs.latest != self.leader_epoch:
            self.epochs.note(self.leader_epoch, base_offset)
        self.log_end_offset = next_offset
        if not self._is_synced_per_append:
            self.high_watermark = next_offset
            if self._sync_after == _NEVER:
                self.durable_offset = next_offset
        return Appended(base_offset, next_offset - 1, append_time, False)

    def _segment_for(self, size: int, next_offset: int, timestamp: int) -> Segment:
        """Return the segment that takes so many bytes, up to an offset; roll if the newest one is full or old."""
        segment = self.segments[-1]
        if (
            segment.size + size > self.config.segment_bytes
            # An index entry has 31 bits for an offset within its segment.
            or next_offset - segment.base_offset > INT_MAX
            or timestamp - segment.first_timestamp > self._segment_ms
        ):
            return self._roll(segment)
        return segment

    def _append_markers(self, segment: Segment, buffer: Buffer, places: list[BatchPlace], now_ms: int) -> None:
        """Append the broker's own batches with markers among them, and end the transactions that these end."""
        markers = [
            read_marker(header, memoryview(buffer)[position : position + header.size_bytes])
            for position, header in places
        ]
        aborted_bytes = segment.aborted_bytes
        for (_, header), marker in zip(places, markers, strict=True):
            aborted = self.producers.would_end(header) if marker is not None and not marker[0] else None
            if aborted is not None:
                # Before the marker: without the entry it would show the records as committed.
                transaction_index.append_entry(self._fs, self.directory, segment.base_offset, aborted_bytes, aborted)
                aborted_bytes += transaction_index.ENTRY_SIZE
            elif marker is not None and not marker[0]:
                self._abort_hanging(header.producer_id)
        segment.append(buffer, places)
        segment.aborted_bytes = max(aborted_bytes, segment.aborted_bytes)
        for (_, header), marker in zip(places, markers, strict=True):
            if marker is not None:
                self.producers.note_marker(header, marker[1], now_ms)
            elif not header.is_control:
                self.producers.note(header, now_ms)
        if not self._is_synced_per_append:
            self.producers.stable_before(places[-1].header.next_offset)

    def _abort_hanging(self, producer_id: int) -> None:
        """End a producer's transactions that hang before a hole: an abort marker that ends nothing else is for them."""
        ended = self.producers.would_end_hanging(producer_id)
        if ended:
            # The list comes first: without it their records would be given out as committed.
            add_aborted(self._fs, self.directory, self.segments, ended)
            self.producers.end_hanging(producer_id)

    def _repeat(self, stored: StoredBatch) -> Appended:
        append_time = stored.timestamp if self.config.is_log_append_time else -1
        return Appended(stored.base_offset, stored.last_offset, append_time, True)

    def _roll(self, full: Segment) -> Segment:
        """Begin a new segment, unless the newest one is empty."""
        if full.size == 0:
            return full
        segment = Segment(self._fs, self.directory, self.log_end_offset, is_entry_durable=False)
        segment.interval_bytes = self.config.index_interval_bytes
        segment.make_file()
        self._unsynced = (*self._unsynced, segment)
        self.segments.append(segment)
        return segment

    def refuse(self, holes: Sequence[Hole]) -> None:
        """Mark offsets as damaged for readers; their bytes are still in their segments."""
        files = {segment_name(segment.base_offset): segment for segment in self.segments}
        for hole in holes:
            if hole.file in files:
                files[hole.file].note_damage(hole.first_offset, hole.next_offset, hole.position, hole.size_bytes)
        known = {hole.first_offset: hole for hole in (*holes, *self.holes)}
        self.holes = tuple(known[offset] for offset in sorted(known))

    def roll_overdue(self, now_ms: int) -> None:
        """Close the newest segment if its records are due for compaction, even without new appends."""
        newest = self.segments[-1]
        if self.config.is_compacted and newest.first_timestamp < now_ms - self.config.max_compaction_lag_ms:
            self._roll(newest)

    def read(
        self, offset: int, max_bytes: int, *, at_least_one: bool = True, up_to: int | None = None, wait: bool = True
    ) -> list[memoryview]:
        """Read whole batches from the one with `offset`; the views stay valid even if the log is deleted.

        Args:
            max_bytes: the most to be had; with `at_least_one` the first batch is in it even if it is larger.
            up_to: the offset at which reading ends, usually the high watermark; `None`: the end of the log.

        Raises:
            Refused: OFFSET_OUT_OF_RANGE; CORRUPT_MESSAGE: what was there is damaged or gone.
            StorageError: a file has less than was written to it, or cannot be read.
            NotResidentError: the disk would have to be asked, unless `wait`.
        """
        end_offset = self._readable_end(offset, up_to)
        if offset >= end_offset:
            return []
        return read_batches(self.segments, offset, end_offset, max_bytes, at_least_one=at_least_one, wait=wait)

    def end_before_hole(self, offset: int, end: int) -> int:
        """Return the end offset, at most `end`, of one response with committed records from `offset` on.

        A transaction whose marker was in a hole is told as aborted. A client would not see that it ends there.
        """
        return min([end, *(hole.first_offset for hole in self.holes if hole.first_offset > offset)])

    def measure(self, offset: int, max_bytes: int, *, up_to: int, wait: bool = True) -> int:
        """Estimate the bytes that `read` would return, at most `max_bytes`; raise as `read` does."""
        end_offset = self._readable_end(offset, up_to)
        return 0 if offset >= end_offset else measure(self.segments, offset, end_offset, max_bytes, wait=wait)

    def _readable_end(self, offset: int, up_to: int | None) -> int:
        """Return the offset at which reading from `offset` ends."""
        log_end = self.log_end_offset
        if self.offline:
            raise self._unusable()
        if offset < self.log_start_offset or offset > log_end:
            raise Refused(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"offset {offset} of {self.topic}-{self.partition} is not within {self.log_start_offset} to {log_end}",
            )
        end_offset = log_end if up_to is None or up_to > log_end else up_to
        return readable_end(self.holes, offset, end_offset) if self.holes else end_offset

    def replace(self, compacted: Segment, cleaned_path: str) -> list[int]:
        """Replace segments by a compacted one with their offsets, by a rename; readers go on with it.

        Returns:
            Base offsets of segments whose files are of no use any more once the rename is durable.

        Raises:
            StorageError: nothing changed; old ones have gone meanwhile, or the disk.
        """
        first, end = compacted.base_offset, compacted.next_offset
        old = [segment for segment in self.segments[:-1] if first <= segment.base_offset < end]
        if self._is_closed or not old or old[0].base_offset != first or old[-1].next_offset != end:
            raise SegmentsGoneError(f"segments of {self.topic}-{self.partition} went while they were compacted")
        self.has_dropped = True
        # The index of the old file must not be taken for that of the new one.
        remove_index(self._fs, self.directory, first)
        # Nothing aborted is in a compacted segment. The old list goes first: a start makes a missing one again.
        aborted: list[transaction_index.EndedTransaction] = []
        try:
            self._take_aborted(old, aborted)
            self._fs.rename(cleaned_path, compacted.path)
        except StorageError as why:
            try:
                add_aborted(self._fs, self.directory, self.segments, aborted)
            except StorageError:
                # Without the list aborted records would be given out as committed: a start makes it again.
                self.offline = f"its lists of aborted transactions were lost while it was compacted ({why})"
            raise
        at = self.segments.index(old[0])
        self.segments[at : at + len(old)] = [compacted]
        left = tuple(segment for segment in self._unsynced if segment not in old)
        # Where the system decides when files are written, the old ones may not have been.
        self._unsynced = left if len(left) == len(self._unsynced) else (compacted, *left)
        for segment in old:
            segment.release()
        return [segment.base_offset for segment in old[1:]]

    def _take_aborted(self, segments: Sequence[Segment], taken: list[transaction_index.EndedTransaction]) -> None:
        """Remove the lists of aborted transactions of some segments, each after `taken` has its entries."""
        for segment in segments:
            base, size = segment.base_offset, segment.aborted_bytes
            if size:
                taken += transaction_index.read_entries(self._fs, self.directory, base, size)
                segment.aborted_bytes = transaction_index.replace_entries(self._fs, self.directory, base, ())
                segment.aborted_starts = None

    def drop_oldest(self) -> None:
        """Remove the oldest segment and its file, except the newest one. Views in use stay valid."""
        for path in self.drop_segments(1):
            self._fs.remove(path)

    def drop_expired(self, now_ms: int) -> list[str]:
        """Drop the segments that retention no longer keeps; return their renamed files, to be removed.

        Raises:
            StorageError: a file could not be renamed; what was not let go is still there.
        """
        count = count_expired(self.segments, self.config, high_watermark=self.high_watermark, now_ms=now_ms)
        return self.drop_segments(max(count, count_below(self.segments, self.start_offset)))

    def drop_segments(self, count: int) -> list[str]:
        """Drop the oldest `count` segments; return and raise as `drop_expired` does."""
        if count == len(self.segments):
            self._roll(self.segments[-1])
        gone = []
        # A clean stop looks for leftover files in such a folder.
        self.has_dropped |= count > 0
        for segment in self.segments[:count]:
            gone.append(f"{segment.path}{DELETED_SUFFIX}")
            self._fs.rename(segment.path, gone[-1])
            gone += segment.index_files
            self.segments.remove(segment)
            self._unsynced = tuple(each for each in self._unsynced if each is not segment)
            segment.release()
        if self.producers.has_undecided:
            self.producers.forget_before(self.log_start_offset)
        return gone

    def sync(self) -> int:
        """Make all appended bytes durable; return their end for `mark_durable`. Blocking, for a thread.

        Raises:
            DiskFailedError: the log has failed and takes nothing more; the broker is to stop.
            StorageError: nothing was synced, but no sync has failed; later it may work.
        """
        # The end is read before the segments: every record before it is in one of these files by now.
        end = self.log_end_offset
        try:
            for segment in self._unsynced:
                segment.sync(self.directory)
        except StorageError as why:
            # A deleted partition has nothing to keep.
            if not self._is_closed:
                # After a failed sync the content of the files is unknown: the log takes nothing more.
                self.is_failed |= why.fatal
                raise
        return end

    def mark_durable(self, offset: int) -> None:
        """Take over the result of `sync`; consumers may see up to there."""
        if offset <= self.durable_offset:
            return
        self.durable_offset = offset
        self.high_watermark = max(self.high_watermark, offset)
        if self.producers.has_undecided:
            self.producers.stable_before(self.high_watermark)
        if len(self._unsynced) > 1:
            newest = self._unsynced[-1]
            self._unsynced = tuple(s for s in self._unsynced if s is newest or s.next_offset > offset)

    def close(self) -> None:
        """Close all files without a sync; views in use stay valid."""
        self._is_closed = True
        for segment in self.segments:
            segment.release()

    def _unusable(self) -> StorageError:
        if self.is_failed:
            words = f"an earlier sync of {self.name} failed; check the disk of {self.directory}, then restart"
            return SyncFailedError(words)
        return StorageError(f"{self.name} is offline: {self.offline}" if self.offline else f"{self.name} is closed")


class IndexWriter:
    """Work that is under way for one log, and callbacks that wait for its end.

    Laws: while a thread writes, no file takes the place of a segment's: the written files would be taken for those of
    the new one. Once the folder has left its name, which another topic may have by then, no thread writes there. All
    methods except `do` and `give_up` are called on the loop.
    Source: of ours; Apache Kafka takes a lock of the log for both.
    """

    __slots__ = ("_is_given_up", "_lock", "_pending", "_waiting")

    def __init__(self) -> None:
        #: Held by a thread that changes files of the folder by their names.
        self._lock = threading.Lock()
        self._is_given_up = False
        self._pending = 0
        self._waiting: list[Callable[[], None]] = []

    @property
    def is_awaited(self) -> bool:
        """Whether a callback waits for the end of the work."""
        return bool(self._waiting)

    def begin(self) -> None:
        """Note that a thread is about to write about present segments."""
        self._pending += 1

    def end(self) -> None:
        """Note the end of one piece of work; call the waiting callbacks after the last one."""
        self._pending -= 1
        while self._waiting and not self._pending:
            self._waiting.pop(0)()

    def when_over(self, then: Callable[[], None]) -> None:
        """Call `then` while no thread writes: now, or as soon as the last one has ended."""
        if self._pending:
            self._waiting.append(then)
        else:
            then()

    def do(self, work: Callable[[], T]) -> T | None:
        """Run `work`, which changes files of the folder, and return its result; `None` after `give_up`."""
        with self._lock:
            # After `give_up` the folder's name may belong to another topic.
            return None if self._is_given_up else work()

    def give_up(self) -> None:
        """Forbid further work, since the topic's folder is to be moved; wait until no thread works there."""
        with self._lock:
            self._is_given_up = True


def read_marker(header: BatchHeader, batch: Buffer) -> tuple[bool, int] | None:
    """Return whether a control batch commits, and its coordinator's epoch; `None` if it ends no transaction."""
    if not header.is_control:
        return None
    control = next(iterate_records(batch, include_control=True), None)
    is_commit = None if control is None else is_commit_marker(control.key)
    return None if control is None or is_commit is None else (is_commit, coordinator_epoch_of(control.value))


def add_aborted(
    fs: FileSystem, directory: str, segments: Sequence[Segment], added: Sequence[transaction_index.EndedTransaction]
) -> None:
    """Add aborted transactions to the files of the segments in which they ended, in the order of their ends."""
    for segment, after in zip(segments, [*segments[1:], None], strict=True):
        base, end = segment.base_offset, _NEVER if after is None else after.base_offset
        here = [each for each in added if base <= each.last_offset < end]
        if here:
            size = segment.aborted_bytes
            known = transaction_index.read_entries(fs, directory, base, size) if size else ()
            entries = sorted([*known, *here], key=lambda entry: entry.last_offset)
            segment.aborted_bytes = transaction_index.replace_entries(fs, directory, base, entries)
            segment.aborted_starts = None


def count_below(segments: Sequence[Segment], start_offset: int) -> int:
    """Return how many of the oldest `segments` hold only records below an offset; perhaps all."""
    return sum(1 for segment in segments if segment.size and segment.next_offset <= start_offset)


def count_expired(segments: Sequence[Segment], config: LogConfig, *, high_watermark: int, now_ms: int) -> int:
    """Return how many of the oldest `segments` are to be deleted; perhaps all.

    Laws: only whole segments go, the oldest first, and none with records that consumers may not see yet. A segment
    whose records have no times goes by size alone.
    Source: Apache Kafka's `retention.ms` and `retention.bytes`: what is left is at least `retention.bytes`.
    """
    if not config.is_deleted:
        return 0
    excess = sum(segment.size for segment in segments) - config.retention_bytes if config.retention_bytes >= 0 else -1
    count = 0
    for number, segment in enumerate(segments, 1):
        excess -= segment.size
        is_dated = segment.max_timestamp >= 0
        is_old = is_dated and 0 <= config.retention_ms < now_ms - segment.max_timestamp
        # Records that consumers may not see yet are never deleted.
        if not segment.size or segment.next_offset > high_watermark:
            break
        if is_old or excess >= 0:
            count = number
        elif is_dated or not config.is_compacted:
            # Compaction may have left nothing in a segment: it goes with the next that has to go.
            break
    return count
