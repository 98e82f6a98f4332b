"""The recovery of a partition from its folder: checks all bytes that may not have been durable.

Laws: a torn tail is cut and reported. Damage with valid batches behind it, or where a clean stop had records, is
never cut: it is kept in a file of its own, and what follows is served (`quarantine`). Nothing is changed before the
whole partition is understood.
Source: Apache Kafka's log recovery, which would cut at the first bad batch whatever follows.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import field
from itertools import groupby, pairwise
from struct import Struct
from typing import Final

from kohort.base.values import value
from kohort.errors import ErrorCode, Refused
from kohort.records.checksum import crc32c
from kohort.records.header import HEADER_SIZE, BatchHeader
from kohort.storage.catalog import CatalogCut
from kohort.storage.data_directory import LOG_START_NAME, PartitionEnd
from kohort.storage.files.fs import FilesOverlapError, FileSystem, read_bounded, remove_file, replace_file
from kohort.storage.log_state import LAST_STOP_NAME, STATE_NAME, LogState, latest_state, load_snapshot, recall
from kohort.storage.partitions.leader_epoch_runs import EpochRun, EpochRuns, mend_epochs
from kohort.storage.partitions.partition import PartitionLog, count_below, read_marker
from kohort.storage.partitions.producers import HangingTransaction, ProducerStates
from kohort.storage.partitions.quarantine import UNFINISHED_SUFFIX, Hole, copy_range, keep_damage, load_holes
from kohort.storage.segments.indexes import (
    SUFFIXES,
    SYNCED_SUFFIX,
    TRANSACTION_SUFFIX,
    has_index,
    index_path,
    load_facts,
    load_index,
    mark_synced,
)
from kohort.storage.segments.scan import NO_LIMIT, Piece, Rules, ends_before, scan_file
from kohort.storage.segments.segment import DELETED_SUFFIX, Segment, segment_base, segment_name
from kohort.storage.segments.transaction_index import (
    EndedTransaction,
    read_entries,
    replace_entries,
    sum_of_entries,
)
from kohort.storage.topicconfig import LogConfig

_RECORD_COUNT: Final = Struct(">i")
_RECORD_COUNT_POSITION: Final = 57


@value
class TailCut:
    """The end of a log that was written in part when the broker stopped, and never acknowledged."""

    path: str
    #: Byte at which the file ends now.
    position: int
    bytes_cut: int
    #: The offset that the next record gets; those from here on were cut.
    next_offset: int
    #: Records that the first cut batch says it had; `None` if its header is not whole.
    records_cut: int | None
    reason: str

    def __str__(self) -> str:
        records = "" if self.records_cut is None else f" ({self.records_cut} records)"
        return f"{self.path}: cut {self.bytes_cut} bytes{records} from offset {self.next_offset} on: {self.reason}"


@value
class RecoveryReport:
    """The findings of opening a data directory."""

    #: Whether the last broker stopped cleanly, so that only headers were read.
    is_clean: bool = True
    partitions: int = 0
    bytes_checked: int = 0
    cuts: tuple[TailCut, ...] = ()
    #: The bytes that were cut off the end of the catalog.
    catalog_cut: CatalogCut | None = None
    #: (folder, offsets that are damaged or gone), those that were known before as well.
    holes: tuple[tuple[str, Hole], ...] = ()
    #: (folder, transaction whose end may have been in a hole): none of its records is shown as committed.
    hanging: tuple[tuple[str, HangingTransaction], ...] = ()
    #: (folder, leader epochs that stood wrong in batches, and were written anew).
    mended_epochs: tuple[tuple[str, EpochRun], ...] = ()
    #: (folder, bytes that a clean stop had left before the offset with which its log begins now).
    shortened: tuple[tuple[str, int, int], ...] = ()
    #: (folder, why it could not be read): the partition is offline until the next start.
    offline: tuple[tuple[str, str], ...] = ()


@value(kw_only=False, frozen=False)
class Findings:
    """The result of reading a partition's files."""

    #: All of them in the order of their offsets; those behind the last good batch are not worth keeping.
    pieces: list[Piece] = field(default_factory=list)
    #: Files that were replaced by a compacted one.
    covered: list[Segment] = field(default_factory=list)
    producers: ProducerStates = field(default_factory=ProducerStates)
    #: Transactions that abort markers behind `known_before` have ended.
    aborted: list[EndedTransaction] = field(default_factory=list)
    epochs: EpochRuns = field(default_factory=EpochRuns)
    #: Offset before which producers and epochs were known, and indexes may be in files.
    known_before: int = 0
    #: Bytes of the batches that were checked.
    bytes_checked: int = 0
    #: The offset behind the last batch; -1: there was none.
    next_offset: int = -1
    #: Offsets before it may lie in no batch without damage.
    sparse_before: int = 0
    #: Whether there is damage behind the last batch.
    is_broken: bool = False

    @property
    def end(self) -> PartitionEnd:
        """The end offset and the size of the log."""
        end_offset = self.pieces[-1].segment.next_offset if self.pieces else 0
        return PartitionEnd(end_offset, sum(piece.segment.size for piece in self.pieces))

    def note(self, header: BatchHeader) -> None:
        """Note a valid batch, in log order."""
        expected, self.next_offset = self.next_offset, header.next_offset
        is_broken, self.is_broken = self.is_broken, False
        if header.base_offset < self.known_before:
            return
        if 0 <= expected < header.base_offset and (is_broken or header.base_offset > self.sparse_before):
            self.producers.lose(expected)
        if not header.is_control:
            self.producers.note(header)
        self.epochs.note(header.base_offset, header.next_offset, header.partition_leader_epoch)

    def _end_hanging(self, producer_id: int) -> list[EndedTransaction]:
        ended = self.producers.would_end_hanging(producer_id)
        self.producers.end_hanging(producer_id)
        return ended

    def note_control(self, header: BatchHeader, batch: bytes) -> None:
        """Note a valid control batch, in log order."""
        if header.base_offset < self.known_before:
            return
        marker = None if len(batch) < header.size_bytes else read_marker(header, batch)
        if marker is None:
            return
        ended = self.producers.note_marker(header, marker[1])
        if not marker[0]:
            # One that ends nothing else is for what hangs before a hole; see `PartitionLog`.
            self.aborted += [ended] if ended is not None else self._end_hanging(header.producer_id)

    def note_damage(self) -> None:
        """Note damage behind the last batch."""
        self.is_broken = True

    def settle_hanging(self, holes: Sequence[Hole], end_offset: int) -> None:
        """Note a hole at the end of the log, and abort the hanging transactions before settled holes."""
        if holes and holes[-1].next_offset == end_offset > self.next_offset:
            self.producers.lose(holes[-1].first_offset)
        settled = {hole.first_offset for hole in holes if hole.is_settled}
        for each in self.producers.hanging:
            # Readers go on behind the hole, and this may not be shown to them as committed.
            if each.lost_offset in settled:
                self.aborted += self._end_hanging(each.producer_id)


def open_partition(
    fs: FileSystem,
    directory: str,
    *,
    topic: str,
    partition: int,
    config: LogConfig,
    expected: PartitionEnd | None = None,
    highest_epoch: int | None = None,
    earlier: LogState | None = None,
) -> tuple[PartitionLog, TailCut | None]:
    """Open the log in `directory` for appends; its `holes` are its missing offsets.

    Args:
        expected: the end of the log at a clean stop; `None` if the stop was not clean.
        highest_epoch: no leader epoch is above it; `None` if that is unknown.
        earlier: the log's state in the rows of a clean stop; `None` if it has none.
    """
    names = fs.list_directory(directory)
    bases = sorted(base for name in names if (base := segment_base(name)) is not None)
    _remove_leftovers(fs, directory, names, bases)
    known = load_holes(fs, directory, names)
    sparse_before = load_sparse(fs, directory, names)
    reader = _Reader(fs, directory, bases, config, sparse_before=sparse_before, highest_epoch=highest_epoch)
    state = _state_of(fs, directory, names, bases, earlier)
    found = reader.read(state, with_crc=state is not None or expected is None)
    promised = max(expected.end_offset if expected else 0, state.offset if state else 0)
    is_clean = expected is not None and found.end == expected and not any(piece.damage for piece in found.pieces)
    is_mixed = bool(found.covered and state is not None and state.aborted)
    if is_mixed or found.end.end_offset < promised or (expected is not None and not is_clean):
        # The log is not as the broker left it: something changed it, so every byte is checked.
        found = reader.read(None, trusted=state)
    unpromised = unpromised_pieces(found.pieces, names, known, promised, sparse_before=sparse_before, config=config)
    if unpromised:
        # The records in these files were not acknowledged either.
        reader.read_before(unpromised[0].file_base)
        found = reader.read(state if found.known_before else None, trusted=state)
    if is_mixed or any(piece.damage for piece in found.pieces[:-1]) or found.end.end_offset < promised:
        # What is said of a log before its repair, or a compaction that a crash interrupted, is no longer reliable.
        remove_file(fs, directory, STATE_NAME)
        if earlier is not None:
            remove_file(fs, directory.rpartition("/")[0], LAST_STOP_NAME)
    mender = _Mender(fs, directory, known, sparse_before=sparse_before)
    segments, cut = mender.mend(found.pieces, promised, unpromised)
    _remove_covered(fs, directory, found.covered)
    log = PartitionLog(fs, directory, topic=topic, partition=partition, config=config, segments=segments)
    log.producers, log.epochs, log.holes = found.producers, found.epochs.epochs(), mender.holes
    _restore_transactions(fs, log, found, state)
    if not found.known_before:
        # Compaction may have taken the batches by which producers were known.
        recall(log.producers, state.producers if state else load_snapshot(fs, directory, names), log.log_end_offset)
    log.mended_epochs = tuple(found.epochs.wrong())
    has_changed = bool(mend_epochs(segments, log.mended_epochs)) or not is_clean
    if state is not None and found.known_before and state.offset == log.log_end_offset:
        log.state_offset = state.offset
    log.bytes_checked = 0 if is_clean else found.bytes_checked
    log.bytes_gone = _gone_before(found.end, expected) if {*known} >= {*log.holes} else 0
    _begin(log, load_log_start(fs, directory))
    _let_go(segments, directory, has_changed=has_changed)
    return log, cut


def _begin(log: PartitionLog, start_offset: int) -> None:
    log.start_offset = min(start_offset, log.log_end_offset)
    log.producers.forget_before(log.log_start_offset)


def _state_of(
    fs: FileSystem, directory: str, names: Sequence[str], bases: Sequence[int], earlier: LogState | None
) -> LogState | None:
    """Return the latest state of the log; `None` if there is none, or its lists of aborted transactions are damaged."""
    state = latest_state(fs, directory, names, earlier)
    if state is None or all(
        sum_of_entries(fs, directory, base, size) == checksum
        for base, size, checksum in state.aborted
        # Retention may have taken the first segments since.
        if bases and base >= bases[0]
    ):
        return state
    # Without the lists aborted records would be read as committed: the log is read whole, and they are made again.
    remove_file(fs, directory, STATE_NAME)
    return None


def _restore_transactions(fs: FileSystem, log: PartitionLog, found: Findings, state: LogState | None) -> None:
    """Write the `.txnindex` files: the entries that the log state covers, and those found behind it."""
    directory, segments = log.directory, log.segments
    found.settle_hanging(log.holes, log.log_end_offset)
    known = {base: size for base, size, _ in state.aborted} if state is not None and found.known_before else {}
    names = fs.list_directory(directory)
    ends = [*(segment.base_offset for segment in segments[1:]), NO_LIMIT]
    for segment, end in zip(segments, ends, strict=True):
        base = segment.base_offset
        size = known.get(base, 0)
        added = [each for each in found.aborted if base <= each.last_offset < end]
        if f"{base:020d}{TRANSACTION_SUFFIX}" not in names and not added:
            continue
        path = index_path(directory, base, TRANSACTION_SUFFIX)
        # A hole may have cut the segment in two.
        is_whole = not size or next(read_entries(fs, directory, base, size, ended_from=end), None) is None
        if size and is_whole and not added and fs.open(path).size() == size:
            segment.aborted_bytes = size
            continue
        kept = list(read_entries(fs, directory, base, size)) if size else []
        found.aborted += [each for each in kept if each.last_offset >= end]
        entries = sorted([*kept, *added], key=lambda each: each.last_offset)
        here = [each for each in entries if each.last_offset < end]
        segment.aborted_bytes = replace_entries(fs, directory, base, here)


def _let_go(segments: Sequence[Segment], directory: str, *, has_changed: bool) -> None:
    for segment in segments:
        if has_changed and segment.size:
            # Bytes that are in the page cache after a kill may not be on the disk yet.
            segment.sync(directory)
        segment.release()


def _gone_before(end: PartitionEnd, expected: PartitionEnd | None) -> int:
    """Return the bytes of missing files at the beginning, if nothing is missing at the end."""
    if expected is None or end.end_offset != expected.end_offset:
        return 0
    return max(0, expected.size_bytes - end.size_bytes)


def _remove_covered(fs: FileSystem, directory: str, covered: Sequence[Segment]) -> None:
    if covered:
        # The file that covers them is durable, but its name may not be yet.
        fs.sync_directory(directory)
        for segment in covered:
            fs.remove(segment.path)


def unreadable_partition(
    fs: FileSystem, directory: str, *, topic: str, partition: int, config: LogConfig, reason: str
) -> PartitionLog:
    """Open a log with unreadable files: it refuses everything, and its files stay untouched."""
    nothing = Segment(fs, directory, 0, is_entry_durable=True)
    log = PartitionLog(fs, directory, topic=topic, partition=partition, config=config, segments=[nothing])
    log.offline = reason
    log.close()
    return log


def _remove_leftovers(fs: FileSystem, directory: str, names: Sequence[str], bases: Sequence[int]) -> None:
    """Remove unfinished files, files that have left the log, and indexes without their segments."""
    for name in names:
        if name.endswith((UNFINISHED_SUFFIX, DELETED_SUFFIX)):
            fs.remove(f"{directory}/{name}")
    kept = {f"{base:020d}" for base in bases}
    for name in names:
        stem, dot, suffix = name.partition(".")
        if (
            dot + suffix in (*SUFFIXES, SYNCED_SUFFIX, TRANSACTION_SUFFIX)
            and stem not in kept
            and len(stem) == len(f"{0:020d}")
        ):
            fs.remove(f"{directory}/{name}")


class _Reader:
    """The reader of a partition's files, once or twice."""

    def __init__(
        self,
        fs: FileSystem,
        directory: str,
        bases: list[int],
        config: LogConfig,
        *,
        sparse_before: int,
        highest_epoch: int | None,
    ) -> None:
        self._fs = fs
        self._directory = directory
        self._bases = bases
        self._highest_epoch = highest_epoch
        self._is_compacted = config.is_compacted
        self._interval_bytes = config.index_interval_bytes
        self._sparse_before = sparse_before

    def read(self, state: LogState | None, *, with_crc: bool = True, trusted: LogState | None = None) -> Findings:
        """Read every file, without the batches that `state` covers.

        Args:
            trusted: a state for facts that files do not have, or have without a checksum, when all files are read.
        """
        known = state or trusted
        runs = EpochRuns(known.epochs, known.offset, highest=self._highest_epoch) if known else None
        found = Findings(epochs=runs or EpochRuns(highest=self._highest_epoch), sparse_before=self._sparse_before)
        if state is not None:
            found.known_before = found.next_offset = state.offset
            found.producers.restore(state.producers)
            found.producers.hanging = state.hanging
        rules = Rules(
            with_crc=with_crc,
            sparse_before=self._sparse_before,
            on_batch=found.note,
            on_control=found.note_control,
            on_damage=found.note_damage,
        )
        for base, next_base in zip(self._bases, [*self._bases[1:], NO_LIMIT], strict=False):
            end_offset = max((piece.segment.next_offset for piece in found.pieces), default=0)
            if found.pieces and base < end_offset:
                if self._is_compacted and ends_before(self._fs, self._directory, base, end_offset, self._sparse_before):
                    found.covered.append(Segment(self._fs, self._directory, base, is_entry_durable=False))
                    continue
                path = f"{self._directory}/{segment_name(base)}"
                raise FilesOverlapError(
                    f"{path} begins at offset {base}, but the file before it ends at {end_offset}; "
                    "is it of another log? Move one of them away"
                )
            found.pieces += self._read_file(base, next_base, rules, found)
        return found

    def read_before(self, base: int) -> None:
        """Ignore the files from `base` on in later reads."""
        self._bases = [each for each in self._bases if each < base]

    def _read_file(self, base: int, next_base: int, rules: Rules, found: Findings) -> list[Piece]:
        """Read the pieces of one file, without the batches that its facts cover."""
        fs, directory = self._fs, self._directory
        segment = Segment(fs, directory, base, is_entry_durable=False)
        segment.interval_bytes = self._interval_bytes
        facts = load_facts(fs, directory, base) if found.known_before > base or next_base == NO_LIMIT else None
        if facts is not None and facts.end_offset <= found.known_before:
            size = fs.open(f"{directory}/{segment_name(base)}").size()
            is_closed = next_base <= found.known_before
            if is_closed and size == facts.size and has_index(fs, directory, base, facts):
                known = Segment(fs, directory, base, is_entry_durable=True)
                known.use_filed(facts)
                found.next_offset = known.next_offset
                return [Piece(segment=known, file_base=base, start=0)]
            index = load_index(fs, directory, base, facts, interval_bytes=self._interval_bytes)
            if not is_closed and size >= facts.size and index is not None:
                segment.go_on(index, facts)
                found.next_offset = segment.next_offset
        known_size = segment.size
        pieces = scan_file(fs, directory, base, rules=rules, before_offset=next_base, known=segment)
        found.bytes_checked += sum(piece.segment.size for piece in pieces) - known_size
        return pieces


class _Mender:
    """The repair of the found pieces: cuts the torn tail, and quarantines damage in the middle."""

    def __init__(self, fs: FileSystem, directory: str, known: Iterable[Hole], *, sparse_before: int) -> None:
        self._fs = fs
        self._directory = directory
        self._known = {(hole.first_offset, hole.next_offset): hole for hole in known}
        self._sparse_before = sparse_before
        #: Every hole of the log, ascending.
        self.holes: tuple[Hole, ...] = ()

    def mend(self, pieces: list[Piece], promised: int, unpromised: list[Piece]) -> tuple[list[Segment], TailCut | None]:
        """Return the segments and the cut; everything before offset `promised` was once durable."""
        last = max((at for at, piece in enumerate(pieces) if piece.segment.size), default=0)
        end_offset = pieces[last].segment.next_offset if pieces else 0
        promised = max([promised, *(hole.next_offset for hole in self._known.values())])
        is_short = promised > end_offset
        if is_short:
            last = max((at for at, piece in enumerate(pieces) if piece.segment.size or piece.damage), default=0)
        kept, behind = pieces[: last + 1], pieces[last + 1 :] + unpromised
        if not kept:
            kept = [self._empty_piece(0)]
            mark_synced(self._fs, self._directory, 0)
        next_base = promised if is_short else end_offset
        damage = None if is_short else kept[-1].damage
        if (is_short or damage is None) and next_base != kept[-1].segment.base_offset:
            # A roll that nothing was written to yet.
            newest = [piece for piece in behind if piece.segment.base_offset == next_base and not piece.damage]
            behind = [piece for piece in behind if piece not in newest]
            kept += newest
        # The next record must not get the offset of one that was acknowledged.
        if is_short and kept[-1].segment.next_offset != next_base:
            kept.append(self._empty_piece(next_base))
        self.holes = tuple(hole for hole in map(self._hole, kept, kept[1:]) if hole is not None)
        cut = self._cut(kept[-1], behind)
        for piece in reversed(behind):
            piece.segment.release()
            self._fs.remove(piece.segment.path)
        if unpromised:
            # The next records may get their offsets.
            self._fs.sync_directory(self._directory)
        for file_base, group in groupby(kept, key=lambda piece: piece.file_base):
            self._separate(file_base, list(group))
        self._forget(kept[0].segment.base_offset)
        return [piece.segment for piece in kept], cut

    def _empty_piece(self, base: int) -> Piece:
        segment = Segment(self._fs, self._directory, base, is_entry_durable=False)
        segment.make_file()
        return Piece(segment=segment, file_base=base, start=0)

    def _hole(self, piece: Piece, after: Piece) -> Hole | None:
        """Return the hole between two pieces, after its damaged bytes were kept."""
        first, next_offset = piece.segment.next_offset, after.segment.base_offset
        damage = piece.damage
        if first == next_offset or (damage is None and next_offset <= self._sparse_before):
            return None
        known = self._known.get((first, next_offset))
        if known is not None and damage is None:
            return known
        file = segment_name(piece.file_base)
        hole = Hole(
            first_offset=first,
            next_offset=next_offset,
            file=file,
            position=damage.position if damage else piece.start + piece.segment.size,
            size_bytes=damage.size_bytes if damage else 0,
            reason=damage.reason if damage else "their file is gone, or was cut",
        )
        source = self._fs.open(f"{self._directory}/{file}") if damage else None
        # The damaged bytes are durable in their own file before the segment is cut.
        keep_damage(self._fs, self._directory, hole, source)
        return hole

    def _cut(self, last: Piece, behind: list[Piece]) -> TailCut | None:
        """Cut the unacknowledged end of the log."""
        damages = [piece.damage for piece in (last, *behind) if piece.damage]
        if not damages and not behind:
            return None
        bytes_cut = sum(damage.size_bytes for damage in damages) + sum(piece.segment.size for piece in behind)
        file = self._fs.open(f"{self._directory}/{segment_name(last.file_base)}")
        position = last.start + last.segment.size
        records_cut = None
        if last.damage and last.damage.size_bytes >= HEADER_SIZE:
            count: int = _RECORD_COUNT.unpack(file.read(position + _RECORD_COUNT_POSITION, _RECORD_COUNT.size))[0]
            # Zeros or noise in place of a header are no count.
            records_cut = count if 0 < count <= bytes_cut else None
        return TailCut(
            path=last.segment.path,
            position=last.segment.size,
            bytes_cut=bytes_cut,
            next_offset=last.segment.next_offset,
            records_cut=records_cut,
            reason=damages[0].reason if damages else "the records before the next file are gone",
        )

    def _separate(self, file_base: int, pieces: list[Piece]) -> None:
        """Move each piece of a file into its own file, in an order that a crash may interrupt."""
        if len(pieces) == 1 and not pieces[0].damage:
            return
        file = self._fs.open(f"{self._directory}/{segment_name(file_base)}")
        # The last one first: after a crash, the pieces that have no own file yet are still found in this one.
        for piece in reversed(pieces[1:]):
            segment = piece.segment
            name = segment_name(segment.base_offset)
            copy_range(self._fs, self._directory, name, file, start=piece.start, size=segment.size)
            segment.is_entry_durable = True
            mark_synced(self._fs, self._directory, segment.base_offset)
        pieces[0].segment.release()
        # All pieces behind the first have durable files of their own by now.
        file.truncate(pieces[0].segment.size)
        file.sync()
        self._fs.sync_directory(self._directory)

    def _forget(self, start_offset: int) -> None:
        """Remove the files of holes that readers can no longer reach."""
        for hole in self._known.values():
            if hole.next_offset <= start_offset:
                self._fs.remove(f"{self._directory}/{hole.name}")


# Offset gaps between two files of a log that are no damage.
#
# Apache Kafka's compaction takes whole batches away, which `sparse-before-offset` tells of a log that was taken over. A
# power cut may take the end of a file and leave what was written to the next one, before either was synced.
#
# Source: Apache Kafka's log cleaner; fsync(2), which promises nothing of files that were not synced.

#: The file with the offset before which Apache Kafka's compaction may have left gaps; see `mark_sparse`.
SPARSE_NAME: Final = "sparse-before-offset"
_SPARSE_LIMIT_BYTES: Final = 100


def unpromised_pieces(
    pieces: Sequence[Piece],
    names: Sequence[str],
    known: Sequence[Hole],
    promised: int,
    *,
    sparse_before: int,
    config: LogConfig,
) -> list[Piece]:
    """Return the files behind a gap that a power cut made before the records were acknowledged.

    The records before a file are durable before any record in it is acknowledged, and a mark says so.
    """
    marked = (name.removesuffix(SYNCED_SUFFIX) for name in names if name.endswith(SYNCED_SUFFIX))
    marks = [int(digits) for digits in marked if digits.isascii() and digits.isdigit()]
    promised = max([promised, sparse_before, *marks, *(hole.next_offset for hole in known)])
    # A log without marks is of other software or an older version: none of its records counts as unacknowledged.
    if not marks:
        return []
    for at, (piece, after) in enumerate(pairwise(pieces), 1):
        is_gap = piece.segment.next_offset != after.segment.base_offset and piece.file_base != after.file_base
        if is_gap and after.segment.base_offset > promised:
            # Where answers do not wait for syncs, only unwritten bytes count as unacknowledged, not damaged ones.
            is_synced = config.flush_messages == 1
            return list(pieces[at:]) if is_synced or piece.damage is None or piece.damage.is_unwritten else []
    return []


def load_sparse(fs: FileSystem, directory: str, names: Sequence[str]) -> int:
    """Read the offset before which gaps are no damage; the file has it twice, in case one is damaged."""
    if SPARSE_NAME not in names:
        return 0
    lines = read_bounded(fs, f"{directory}/{SPARSE_NAME}", limit_bytes=_SPARSE_LIMIT_BYTES).split(b"\n")
    return max((int(line) for line in lines if line.isdigit()), default=0)


def mark_sparse(fs: FileSystem, directory: str, end_offset: int) -> None:
    """Mark a log of Apache Kafka's: its compaction may have left gaps before `end_offset`."""
    replace_file(fs, directory, SPARSE_NAME, b"%d\n%d\n" % (end_offset, end_offset))


# The start offset of a log with records that were deleted by request, kept for the next start.
#
# Laws: the file is replaced whole and goes with the folder, so that no topic inherits it. The offset stands in it
# twice, each time with its checksum: a number that is damaged deletes nothing. If both are, or the file is missing, the
# log begins with its first segment: what was deleted may come back then, nothing else is lost.
# Source: Apache Kafka's log-start-offset-checkpoint, which has a line for each partition of a directory.

#: No file with a start offset is longer.
_LIMIT_BYTES: Final = 1_000


def load_log_start(fs: FileSystem, folder: str) -> int:
    """Read the start offset; 0 if there is none."""
    path = f"{folder}/{LOG_START_NAME}"
    lines = read_bounded(fs, path, limit_bytes=_LIMIT_BYTES).split(b"\n") if fs.exists(path) else []
    # Lines that are not a number with its checksum are ignored.
    return max((int(number) for number in map(_number_in, lines) if number), default=0)


def _number_in(line: bytes) -> bytes:
    number, _, checksum = line.partition(b" ")
    return number if number.isdigit() and checksum == _sum_of(number) else b""


def _sum_of(number: bytes) -> bytes:
    return b"%08x" % crc32c(number)


def keep_log_start(fs: FileSystem, folder: str, offset: int) -> None:
    """Keep the result of `delete_before` for later starts; blocking, for a thread beside the log's owner."""
    number = b"%d" % offset
    line = number + b" " + _sum_of(number)
    # An empty line between the two, so that they do not become one if a line's end is damaged.
    replace_file(fs, folder, LOG_START_NAME, line + b"\n\n" + line + b"\n")


def delete_before(log: PartitionLog, offset: int) -> list[str]:
    """Delete the records before an offset; drop segments with only such records, return their files.

    Raises:
        Refused: OFFSET_OUT_OF_RANGE above what consumers see, POLICY_VIOLATION where only compaction removes records.
        StorageError: a file could not be renamed; the records are deleted, and the file goes later.
    """
    if not log.config.is_deleted:
        raise Refused(
            ErrorCode.POLICY_VIOLATION, f"the cleanup.policy of {log.topic} lets no records be deleted by request"
        )
    if not 0 <= offset <= log.high_watermark:
        raise Refused(ErrorCode.OFFSET_OUT_OF_RANGE, f"offset {offset} is not within 0 to {log.high_watermark}")
    # The start never moves back: deleted records stay deleted.
    log.start_offset = max(log.start_offset, offset)
    log.producers.forget_before(log.log_start_offset)
    return log.drop_segments(count_below(log.segments, log.start_offset))
