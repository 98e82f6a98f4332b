"""The inspection of an offline data directory: every batch, and every place without a valid one.

Laws: nothing is changed, and nothing that was read is believed before its CRC is right. Behind damage reading goes on
with the next whole batch that belongs there, so that one bad byte hides nothing that follows.
Source: Apache Kafka's DumpLogSegments and its log recovery.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import NamedTuple

from kohort.base.values import value
from kohort.errors import CorruptRecordError, StorageError
from kohort.records.header import BatchHeader
from kohort.storage import data_directory, log_state
from kohort.storage.catalog import Catalog, TopicEntry, load_catalog, split_folder_name
from kohort.storage.data_directory import META_NAME, PartitionEnd
from kohort.storage.files.fs import FileLock, FileSystem, UnreadableError
from kohort.storage.log_state import LogState
from kohort.storage.partitions.leader_epoch_runs import EpochRuns
from kohort.storage.partitions.producers import HangingTransaction
from kohort.storage.partitions.quarantine import QUARANTINE_SUFFIX, Hole, load_holes
from kohort.storage.recovery import Findings, load_sparse
from kohort.storage.segments import indexes
from kohort.storage.segments.indexes import SegmentFacts
from kohort.storage.segments.scan import NO_LIMIT, BatchReader, ends_before, find_batch, valid_batch
from kohort.storage.segments.segment import SUFFIX, segment_base, segment_name
from kohort.storage.segments.transaction_index import ENTRY_SIZE, EndedTransaction, read_entries, sum_of_entries
from kohort.storage.topicconfig import LogConfig

#: Suffixes of files with records, or former records.
_RECORDS = (SUFFIX, QUARANTINE_SUFFIX)


class FoundBatch(NamedTuple):
    """A whole batch with a valid CRC."""

    position: int
    header: BatchHeader
    reader: BatchReader

    def read(self) -> bytes:
        """Read the batch."""
        return self.reader.read(self.position, self.header.size_bytes)


@value
class Damage:
    """Bytes that are no batches, or offsets that are missing."""

    path: str
    position: int = 0
    bytes: int = 0
    #: The first offset that cannot be read.
    offset: int = 0
    #: The first readable offset behind it; `None` if nothing follows, so that a start would cut it.
    next_offset: int | None = None
    reason: str
    #: Whether the disk cannot read the bytes.
    is_unreadable: bool = False
    #: Whether it is a file that is rebuilt from the records, none of which is damaged.
    is_rebuilt: bool = False
    #: Whether it was before the offset with which the log begins now.
    is_beginning: bool = False

    def __str__(self) -> str:
        if self.is_beginning:
            return f"{self.path}: {self.bytes} bytes before offset {self.next_offset}: {self.reason}"
        if self.is_rebuilt:
            return f"{self.path}: {self.reason}; it is made anew from the records"
        follows = "nothing follows" if self.next_offset is None else f"offset {self.next_offset} follows"
        return (
            f"{self.path}: {self.bytes} bytes at byte {self.position}, offset {self.offset}; {follows}: {self.reason}"
        )


@dataclass(slots=True, kw_only=True)
class PartitionContent:
    """The content of a partition's folder."""

    topic: str
    partition: int
    files: int = 0
    bytes: int = 0
    batches: int = 0
    records: int = 0
    #: Its first offset, and the one that the next record gets.
    begin: int = 0
    end: int = 0
    damages: list[Damage] = field(default_factory=list)
    #: Damage that starts have taken out of the middle, settled or not.
    holes: list[Hole] = field(default_factory=list)
    #: Transactions whose end may be missing: their records are neither committed nor aborted.
    hanging: list[HangingTransaction] = field(default_factory=list)

    @property
    def concerned(self) -> list[Damage]:
        """The damages that affect records."""
        return [damage for damage in self.damages if not damage.is_rebuilt]

    @property
    def is_damaged(self) -> bool:
        """Whether records are damaged."""
        return bool(self.concerned)


def hold_offline(fs: FileSystem, directory: str) -> FileLock:
    """Lock a data directory of kohort's; `StorageError` if there is none, or a broker works on it."""
    if not fs.exists(f"{directory}/{META_NAME}"):
        raise StorageError(f"{directory} is no data directory of kohort: it has no {META_NAME}")
    lock = data_directory.take_directory(fs, directory)
    try:
        data_directory.load_identity(fs, directory)
    except BaseException:
        lock.release()
        raise
    return lock


def inspect_directory(fs: FileSystem, directory: str) -> Iterator[PartitionContent]:
    """Inspect every partition of the catalog, then folders of partitions that it does not know."""
    catalog = load_catalog(fs, directory)
    marker = data_directory.load_marker(fs, directory)
    ends = marker or {}
    last_stop = log_state.load_last_stop(fs, directory, data_directory.load_last_sum(fs, directory, marker))
    for entry in catalog.topics.values():
        for partition, folder in enumerate(entry.folders()):
            earlier = last_stop.state_of(folder, entry.topic_id)
            content = _inspect_known(fs, f"{directory}/{folder}", entry, partition, earlier)
            # Where files cannot be read at all, missing ends say nothing.
            if not any(each.is_unreadable or not each.path.endswith(_RECORDS) for each in content.concerned):
                _hold_to_promise(fs, f"{directory}/{folder}", content, ends.get(folder), earlier)
            yield content
    yield from _unknown_folders(fs, directory, catalog)


def _inspect_known(
    fs: FileSystem, path: str, entry: TopicEntry, partition: int, earlier: LogState | None
) -> PartitionContent:
    if not fs.exists(path):
        missing = Damage(path=path, reason="the folder is missing, though the catalog has the topic")
        return PartitionContent(topic=entry.name, partition=partition, damages=[missing])
    is_compacted = LogConfig.of_stored(entry.configs, {}).is_compacted
    content = inspect_partition(fs, path, entry.name, partition, is_compacted=is_compacted, earlier=earlier)
    try:
        named = data_directory.read_partition_metadata(fs, path)
    except UnreadableError as why:
        content.damages.append(Damage(path=path, reason=str(why), is_unreadable=True))
        return content
    if named not in (None, entry.topic_id):
        content.damages.append(Damage(path=path, reason="the folder belongs to another topic of the same name"))
    return content


def _hold_to_promise(
    fs: FileSystem, path: str, content: PartitionContent, left: PartitionEnd | None, earlier: LogState | None
) -> None:
    """Note records that are missing at either end: `left` by a clean stop, or durable by the state."""
    names = fs.list_directory(path)
    state = log_state.latest_state(fs, path, names, earlier)
    promised = max(left.end_offset if left else 0, state.offset if state else 0)
    last = content.concerned[-1] if content.is_damaged else None
    if content.end < promised:
        if last is not None and last.next_offset is None:
            content.damages[content.damages.index(last)] = replace(last, next_offset=promised)
        else:
            newest = max((name for name in names if segment_base(name) is not None), default=None)
            missing = Damage(
                path=f"{path}/{newest or segment_name(0)}",
                position=fs.open(f"{path}/{newest}").size() if newest else 0,
                offset=content.end,
                next_offset=promised,
                reason="what was there is gone",
            )
            content.damages.append(missing)
        content.end = promised
    elif last is None and left is not None and content.bytes < left.size_bytes:
        gone = Damage(
            path=path,
            bytes=left.size_bytes - content.bytes,
            next_offset=content.begin,
            reason="a clean stop had left them, and their files are gone",
            is_beginning=True,
        )
        content.damages.append(gone)


def _unknown_folders(fs: FileSystem, directory: str, catalog: Catalog) -> Iterator[PartitionContent]:
    known = {folder for entry in (*catalog.topics.values(), *catalog.deleting) for folder in entry.folders()}
    for folder in fs.list_directory(directory):
        parts = split_folder_name(folder)
        if parts is not None and folder not in known:
            content = inspect_partition(fs, f"{directory}/{folder}", *parts)
            if content.bytes:
                unknown = Damage(path=f"{directory}/{folder}", reason="the catalog does not know this folder")
                content.damages.append(unknown)
                yield content


def inspect_partition(
    fs: FileSystem,
    path: str,
    topic: str,
    partition: int,
    *,
    is_compacted: bool = False,
    earlier: LogState | None = None,
) -> PartitionContent:
    """Read all segments of a folder; unsettled holes and unreadable files count as damage, too.

    `earlier` is its row of a clean stop in `.kohort_laststop`; `None` if there is none.
    """
    content = PartitionContent(topic=topic, partition=partition)
    try:
        _read_files(content, fs, path, is_compacted=is_compacted, earlier=earlier)
    except UnreadableError as why:
        content.damages.append(Damage(path=path, reason=str(why), offset=content.end, is_unreadable=True))
    return content


def _read_files(
    content: PartitionContent, fs: FileSystem, path: str, *, is_compacted: bool, earlier: LogState | None
) -> None:
    names = fs.list_directory(path)
    state = log_state.latest_state(fs, path, names, earlier)
    runs = EpochRuns(state.epochs, state.offset) if state is not None else EpochRuns()
    holes = load_holes(fs, path, names)
    sparse_before = load_sparse(fs, path, names)
    found = Findings(sparse_before=sparse_before)
    bases = [base for name in names if (base := segment_base(name)) is not None]
    for base, limit in zip(bases, [*bases[1:], NO_LIMIT], strict=False):
        if is_compacted and base < content.end and ends_before(fs, path, base, content.end, sparse_before):
            # A compacted file has the place of those that begin within it, until a start removes them.
            continue
        if content.files and base < content.end:
            begins = f"{path}/{segment_name(base)} begins at offset {base}"
            reason = (
                f"{begins}, but the file before it ends at {content.end}; is it of another log? Move one of them away"
            )
            content.damages.append(Damage(path=path, reason=reason))
            continue
        if content.files == 0:
            content.begin = content.end = base
        content.files += 1
        # A known hole explains the offsets between two files.
        content.end = _behind_hole(content, path, holes, base)
        file = f"{path}/{segment_name(base)}"
        bound = NO_LIMIT if is_compacted else limit
        try:
            for each in walk_segment(fs, file, content.end, sparse_before=sparse_before, limit=bound):
                if isinstance(each, Damage):
                    content.damages.append(each)
                    content.bytes += each.bytes
                    found.note_damage()
                else:
                    _count(content, each.header)
                    found.note(each.header)
                    if each.header.is_control:
                        found.note_control(each.header, each.read())
                    runs.note(each.header.base_offset, each.header.next_offset, each.header.partition_leader_epoch)
        except UnreadableError as why:
            content.damages.append(Damage(path=file, reason=str(why), offset=content.end, is_unreadable=True))
    known = state.hanging if state is not None else found.producers.hanging
    settled = {hole.first_offset for hole in holes if hole.is_settled}
    content.hanging += [each for each in known if each.lost_offset not in settled]
    wrong = ((path, f"{run}, and their batches say something else") for run in runs.wrong())
    # One by one: a file that cannot be read ends this, and what was found before stays.
    for file, reason in chain(wrong, wrong_files(fs, path, names), _wrong_lists(fs, path, bases, state, found.aborted)):
        content.damages.append(Damage(path=file, reason=reason, is_rebuilt=True))


def _behind_hole(content: PartitionContent, path: str, holes: Sequence[Hole], base: int) -> int:
    """Return the offset with which the file `base` should begin."""
    hole = next((each for each in holes if (each.first_offset, each.next_offset) == (content.end, base)), None)
    if hole is not None:
        content.holes.append(hole)
        if not hole.is_settled:
            kept = Damage(
                path=f"{path}/{hole.name}",
                bytes=hole.size_bytes,
                offset=hole.first_offset,
                next_offset=hole.next_offset,
                reason=f"taken out of {hole.file}: {hole.reason}",
            )
            content.damages.append(kept)
        return base
    # A file that is damaged to its end may have had all the missing offsets.
    is_open = bool(content.damages) and content.damages[-1].next_offset is None
    return max(base, content.end) if is_open else content.end


def _count(content: PartitionContent, header: BatchHeader) -> None:
    if content.damages and content.damages[-1].next_offset is None:
        content.damages[-1] = replace(content.damages[-1], next_offset=header.base_offset)
    content.batches += 1
    content.records += header.record_count
    content.bytes += header.size_bytes
    content.end = header.next_offset


def walk_segment(
    fs: FileSystem, path: str, next_offset: int, *, sparse_before: int = NO_LIMIT, limit: int = NO_LIMIT
) -> Iterator[FoundBatch | Damage]:
    """Yield the batches of a file, and the damage between them.

    Args:
        next_offset: the offset that its first batch should have.
        sparse_before: offsets before it may be missing without damage, since they were compacted away.
        limit: the offset with which the next file begins.
    """
    reader = BatchReader(fs.open(path))
    size = reader.size
    base = segment_base(path.rpartition("/")[2]) or 0
    position = 0
    while position < size:
        try:
            header = reader.header_at(position)
            reader.check(position, header)
            is_off = header.base_offset != next_offset and (
                # The first batch of a file has its name's offset, even if the file before is damaged.
                (header.base_offset >= sparse_before and (position > 0 or header.base_offset != base))
                or _is_out_of_place(reader, position, header, next_offset, limit)
            )
            reason = f"offset {header.base_offset} stands here" if is_off else ""
        except CorruptRecordError as why:
            reason = str(why)
        if reason:
            expected = max(base, next_offset)
            found = find_batch(
                reader, position, beyond_offset=expected, before_offset=limit, is_sparse=expected < sparse_before
            )
            follows = None if found is None else reader.header_at(found).base_offset
            yield Damage(
                path=path,
                position=position,
                bytes=(size if found is None else found) - position,
                offset=next_offset,
                next_offset=follows,
                reason=reason,
            )
            if found is None or follows is None:
                return
            position, next_offset = found, follows
            continue
        if header.base_offset > max(next_offset, sparse_before - 1):
            yield Damage(
                path=path,
                position=position,
                offset=next_offset,
                next_offset=header.base_offset,
                reason="offsets are missing",
            )
        yield FoundBatch(position, header, reader)
        position += header.size_bytes
        next_offset = header.next_offset


def batches_in(fs: FileSystem, folder: str) -> Iterator[FoundBatch]:
    """Yield the whole batches of all segments in a folder, and skip damages between them."""
    for name in fs.list_directory(folder):
        base = segment_base(name)
        for each in () if base is None else walk_segment(fs, f"{folder}/{name}", base):
            if isinstance(each, FoundBatch):
                yield each


def _is_out_of_place(reader: BatchReader, position: int, header: BatchHeader, next_offset: int, limit: int) -> bool:
    """Whether a batch with an unexpected offset is out of place; no checksum covers the offset."""
    if header.base_offset < next_offset or header.next_offset > limit:
        return True
    following = valid_batch(reader, position + header.size_bytes)
    return following is not None and next_offset <= following.base_offset < header.next_offset


# The check of the files beside segments against the records, from which each can be rebuilt.
#
# Laws: a missing file costs a longer start and is no damage; one with another content than was written is reported,
# though a start believes none of them.
# Source: Apache Kafka's index files, producer snapshots and leader-epoch-checkpoint; `log_state` and `indexes`.


def wrong_files(fs: FileSystem, folder: str, names: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Yield (path, error) of each file that differs from its checksum or from the log."""
    state = log_state.load_state(fs, folder, names)
    if state is None and log_state.STATE_NAME in names:
        yield f"{folder}/{log_state.STATE_NAME}", "it is damaged"
    if state is not None:
        yield from _wrong_checkpoints(fs, folder, names, state)
    bases = sorted(base for name in names if (base := segment_base(name)) is not None)
    for base in bases:
        if indexes.index_path("", base, indexes.FACTS_SUFFIX)[1:] not in names:
            continue
        facts = indexes.load_facts(fs, folder, base)
        if facts is None:
            yield indexes.index_path(folder, base, indexes.FACTS_SUFFIX), "it is damaged"
        # The newest segment may have been cut below its facts since.
        elif base != bases[-1] or facts.size <= fs.open(f"{folder}/{segment_name(base)}").size():
            yield from _wrong_indexes(fs, folder, base, facts)


def _wrong_lists(
    fs: FileSystem, folder: str, bases: Sequence[int], state: LogState | None, aborted: Sequence[EndedTransaction]
) -> Iterator[tuple[str, str]]:
    """Yield (path, error) of each `.txnindex` file that is missing or differs from the log."""
    sums = {base: (size, checksum) for base, size, checksum in state.aborted} if state is not None else {}
    for base, end in zip(bases, [*bases[1:], NO_LIMIT], strict=False):
        path = indexes.index_path(folder, base, indexes.TRANSACTION_SUFFIX)
        size, checksum = sums.get(base, (0, None))
        if size and sum_of_entries(fs, folder, base, size) != checksum:
            yield path, "its aborted transactions are not those of the log"
            continue
        # Of what began in a segment that is gone, or was compacted, the file knows more than the log.
        ended = {(each.producer_id, each.last_offset) for each in aborted if base <= each.last_offset < end}
        written = fs.open(path).size() if ended and fs.exists(path) else 0
        try:
            listed = read_entries(fs, folder, base, written - written % ENTRY_SIZE) if written else ()
            ended -= {(each.producer_id, each.last_offset) for each in listed}
        except StorageError as why:
            yield path, str(why)
            continue
        if ended:
            yield path, f"{len(ended)} aborted transactions of the log are not in it"


def _wrong_checkpoints(fs: FileSystem, folder: str, names: Sequence[str], state: LogState) -> Iterator[tuple[str, str]]:
    starts = tuple(data_directory.load_epochs(fs, folder)) if data_directory.EPOCHS_NAME in names else state.epochs
    # It is written before the state: a broker that was killed between the two has left more.
    if starts[: len(state.epochs)] != state.epochs:
        yield f"{folder}/{data_directory.EPOCHS_NAME}", "its leader epochs are not those of the log"
    name = f"{state.offset:020d}{log_state.SNAPSHOT_SUFFIX}"
    if state.producers and name in names:
        content = log_state.snapshot_of(state.producers)
        file = fs.open(f"{folder}/{name}")
        if file.size() != len(content) or file.read(0, len(content)) != content:
            yield f"{folder}/{name}", "its producers are not those of the log"


def _wrong_indexes(fs: FileSystem, folder: str, base: int, facts: SegmentFacts) -> Iterator[tuple[str, str]]:
    for suffix, expected in ((indexes.INDEX_SUFFIX, facts.offset_index), (indexes.TIME_SUFFIX, facts.time_index)):
        path = indexes.index_path(folder, base, suffix)
        if not fs.exists(path):
            continue
        try:
            if indexes.sum_of(fs.open(path).read(0, expected[0])) != expected:
                yield path, "its checksum is another one"
        except UnreadableError as why:
            yield path, str(why)
