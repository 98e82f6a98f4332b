"""What is in a partition's folder after a stop: read every header, check every byte unless the stop was clean.

Laws: a torn tail is cut and reported. Damage with valid batches behind it is never cut: that is an error that names
file and position. After a clean stop nothing may be missing, so a shorter log is an error too. Nothing is changed
before the whole partition is understood.
Source: Apache Kafka's log recovery, which would cut at the first bad batch whatever follows.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from struct import Struct
from typing import Final

from kohort.errors import CorruptRecordError, StorageError
from kohort.records.header import HEADER_SIZE, check_batch, parse_header
from kohort.storage.datadir import PartitionEnd
from kohort.storage.epochs import LeaderEpochs
from kohort.storage.findbatch import find_batch
from kohort.storage.fs import FileSystem
from kohort.storage.logstart import load_log_start
from kohort.storage.partition import PartitionLog
from kohort.storage.producers import ProducerStates
from kohort.storage.segment import DELETED_SUFFIX, Segment, segment_base, segment_name
from kohort.storage.topicconfig import LogConfig

#: Ends the name of a file that becomes a segment; what a crash leaves of it is removed here.
CLEANED_SUFFIX: Final = ".cleaned"
#: Ends the name of an index that only Apache Kafka keeps.
FOREIGN_SUFFIX: Final = ".timeindex"
_RECORD_COUNT: Final = Struct(">i")
_RECORD_COUNT_POSITION: Final = 57


@dataclass(frozen=True, slots=True, kw_only=True)
class TailCut:
    """The end of a log that was written only in part when the broker stopped, and that nobody was answered for."""

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


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveryReport:
    """What opening a data directory found."""

    #: The last broker stopped cleanly, so that only headers were read.
    is_clean: bool = True
    partitions: int = 0
    bytes_checked: int = 0
    cuts: tuple[TailCut, ...] = ()


@dataclass(frozen=True, slots=True)
class _Damage:
    """Where reading a segment stopped before its end."""

    segment: Segment
    file_size: int
    reason: str


@dataclass(slots=True)
class _Found:
    """What reading a partition's files gave."""

    #: All that count; those behind the damage are not read.
    segments: list[Segment] = field(default_factory=list)
    #: Those that a compacted one has taken the place of.
    covered: list[Segment] = field(default_factory=list)
    producers: ProducerStates = field(default_factory=ProducerStates)
    epochs: LeaderEpochs = field(default_factory=LeaderEpochs)
    damage: _Damage | None = None


def open_partition(
    fs: FileSystem,
    directory: str,
    *,
    topic: str,
    partition: int,
    config: LogConfig,
    expected: PartitionEnd | None = None,
) -> tuple[PartitionLog, TailCut | None]:
    """The log in `directory`, ready for appends.

    Args:
        expected: where the log ended at a clean stop; `None` if the stop was not clean.

    Raises:
        StorageError: damage in the middle, a missing segment, or less than a clean stop left.
    """
    names = fs.list_directory(directory)
    for name in names:
        if name.endswith((CLEANED_SUFFIX, DELETED_SUFFIX)):
            fs.remove(f"{directory}/{name}")
    bases = sorted(base for name in names if (base := segment_base(name)) is not None)
    # Apache Kafka's compaction leaves gaps, ours does not; its index files tell whose log it is.
    with_gaps = config.is_compacted and any(name.endswith(FOREIGN_SUFFIX) for name in names)
    read = partial(_read_segments, fs, directory, bases, is_compacted=config.is_compacted, with_gaps=with_gaps)
    is_trusted = expected is not None
    found = read(is_trusted=is_trusted)
    if is_trusted and (found.damage or _end(found.segments) != expected):
        # Not as the clean stop left it: somebody touched it, so every byte is looked at.
        is_trusted = False
        found = read(is_trusted=False)
    segments, damage = found.segments, found.damage
    if not is_trusted:
        _check_nothing_lost(directory, segments, damage, expected)
    cut = _cut(fs, segments, damage) if damage else None
    if found.covered:
        # What covers them is durable, but its name may not be yet.
        fs.sync_directory(directory)
        for segment in found.covered:
            fs.remove(segment.path)
    if not segments:
        segments = [Segment(fs, directory, 0, is_entry_durable=False)]
        segments[0].make_file()
    log = PartitionLog(fs, directory, topic=topic, partition=partition, config=config, segments=segments)
    log.producers = found.producers
    log.epochs = found.epochs
    log.start_offset = min(load_log_start(fs, directory, topic, partition), log.log_end_offset)
    for segment in segments:
        if not is_trusted and segment.size:
            # What was found in the page cache after a kill is not yet on the disk.
            segment.sync(directory)
        segment.release()
    return log, cut


def _end(segments: list[Segment]) -> PartitionEnd:
    if not segments:
        return PartitionEnd(0, 0)
    return PartitionEnd(segments[-1].next_offset, sum(segment.size for segment in segments))


def _read_segments(
    fs: FileSystem, directory: str, bases: list[int], *, is_trusted: bool, is_compacted: bool, with_gaps: bool
) -> _Found:
    """Read segments up to the first damage; those behind it stay unread."""
    unread = [Segment(fs, directory, base, is_entry_durable=is_trusted) for base in bases]
    found = _Found()
    while unread:
        segment = unread[0]
        before = found.segments[-1] if found.segments else None
        if before is not None and is_compacted and _is_covered(fs, directory, segment, before.next_offset):
            found.covered.append(unread.pop(0))
            continue
        if before is not None and not _follows(segment.base_offset, before.next_offset, with_gaps=with_gaps):
            found.damage = _Damage(before, before.size, f"the next file begins at {segment.base_offset}")
            break
        found.segments.append(unread.pop(0))
        found.damage = _read_segment(segment, found, with_crc=not is_trusted, with_gaps=with_gaps)
        if found.damage:
            break
    found.segments += unread
    return found


def _is_covered(fs: FileSystem, directory: str, segment: Segment, end_offset: int) -> bool:
    """Whether a compacted file has taken this one's place, and the broker stopped before it removed this one."""
    if segment.base_offset >= end_offset:
        return False
    copy = Segment(fs, directory, segment.base_offset, is_entry_durable=False)
    return _read_segment(copy, _Found(), with_crc=True) is None and copy.next_offset <= end_offset


def _follows(offset: int, next_offset: int, *, with_gaps: bool) -> bool:
    return offset == next_offset or (with_gaps and offset > next_offset)


def _read_segment(segment: Segment, found: _Found, *, with_crc: bool, with_gaps: bool = False) -> _Damage | None:
    file = segment.file
    file_size = file.size()
    view = file.map(file_size)
    position = 0
    while position < file_size:
        try:
            header = parse_header(view, position)
            check_batch(view, position, header, with_crc=with_crc)
        except CorruptRecordError as why:
            return _Damage(segment, file_size, str(why))
        if not _follows(header.base_offset, segment.next_offset, with_gaps=with_gaps):
            return _Damage(
                segment, file_size, f"offset {header.base_offset} stands where {segment.next_offset} belongs"
            )
        segment.note(position, header)
        found.producers.note(header)
        found.epochs.note(header.partition_leader_epoch, header.base_offset)
        position += header.size_bytes
    return None


def _check_nothing_lost(
    directory: str, segments: list[Segment], damage: _Damage | None, expected: PartitionEnd | None
) -> None:
    """Before anything is cut: refuse if what would be cut was there for good."""
    if damage:
        _check_is_tail(segments, damage)
    end_offset = damage.segment.next_offset if damage else _end(segments).end_offset
    if expected and end_offset < expected.end_offset:
        path = damage.segment.path if damage else (segments[-1].path if segments else directory)
        why = f" ({damage.reason})" if damage else ""
        raise StorageError(
            f"{path} ends at offset {end_offset}{why}, but the broker stopped cleanly at {expected.end_offset}: "
            "somebody changed the file; restore it from a backup"
        )


def _check_is_tail(segments: list[Segment], damage: _Damage) -> None:
    """Refuse to cut where valid batches follow."""
    segment = damage.segment
    view = segment.file.map(damage.file_size)
    found = find_batch(view, segment.size, beyond_offset=segment.next_offset)
    path = segment.path
    if found is None:
        for later in segments[segments.index(segment) + 1 :]:
            size = later.file.size()
            found = find_batch(later.file.map(size), 0, beyond_offset=segment.next_offset)
            if found is not None:
                path = later.path
                break
    if found is not None:
        raise StorageError(
            f"{segment.path} is damaged at byte {segment.size}, offset {segment.next_offset}: {damage.reason}; "
            f"valid records follow at byte {found} of {path}, so nothing is cut; restore the file from a backup"
        )


def _cut(fs: FileSystem, segments: list[Segment], damage: _Damage) -> TailCut:
    """Cut the log behind the damaged segment's last good batch; later segments hold nothing valid and go."""
    segment = damage.segment
    position = segment.size
    records_cut = None
    bytes_cut = damage.file_size - position
    if bytes_cut >= HEADER_SIZE:
        raw = segment.file.read(position + _RECORD_COUNT_POSITION, _RECORD_COUNT.size)
        count: int = _RECORD_COUNT.unpack(raw)[0]
        # Zeros or noise in place of a header are no count.
        records_cut = count if 0 < count <= bytes_cut else None
    for later in segments[segments.index(segment) + 1 :]:
        bytes_cut += later.file.size()
        later.release()
        fs.remove(later.path)
    del segments[segments.index(segment) + 1 :]
    directory = segment.path.removesuffix("/" + segment_name(segment.base_offset))
    if damage.file_size > position:
        segment.release()
        segment.file.truncate(position)
    # The first sync of a segment that was not trusted covers the directory, and so the removals.
    segment.sync(directory)
    return TailCut(
        path=segment.path,
        position=position,
        bytes_cut=bytes_cut,
        next_offset=segment.next_offset,
        records_cut=records_cut,
        reason=damage.reason,
    )
