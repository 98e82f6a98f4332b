"""The state of partitions for the next start: written at times for one, at a clean stop for all.

`log.state` says for one offset, before which everything is durable, which leader epochs and producers were there; the
segments before it have their indexes in files. `<offset>.snapshot` and `leader-epoch-checkpoint` say the same in Apache
Kafka's formats, for its tools.

Laws: `capture` is quick and belongs to the log's owner; `write` blocks, and is for a thread: it syncs the log before it
says anything, where that was not done, and what it says itself not at all. A file that is damaged or missing costs a
longer start and no record.
Source: Apache Kafka's recovery point, ProducerStateManager (snapshots, version 1) and LeaderEpochFileCache.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from struct import Struct
from struct import error as struct_error
from typing import Any, Final

from kohort.base.jsontext import parse_json
from kohort.base.values import value
from kohort.errors import StorageError
from kohort.ids import TopicId
from kohort.records.checksum import crc32c
from kohort.storage.data_directory import NO_SUM, PARTITION_METADATA_NAME, load_epochs, save_epochs
from kohort.storage.files.fs import FileSystem, place_file, read_bounded, replace_file
from kohort.storage.partitions.leader_epochs import LeaderEpochs
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.partitions.producers import (
    SEQUENCES,
    HangingTransaction,
    ProducerRow,
    ProducerStates,
    StoredBatch,
)
from kohort.storage.partitions.quarantine import UNFINISHED_SUFFIX
from kohort.storage.segments.indexes import (
    TRANSACTION_SUFFIX,
    IndexImage,
    SegmentFacts,
    SegmentIndex,
    index_path,
    save_facts,
    save_index,
    sum_of,
)
from kohort.storage.segments.segment import DELETED_SUFFIX, Segment, segment_name
from kohort.storage.segments.transaction_index import sum_of_entries
from kohort.storage.topicconfig import LogConfig

#: The file with a log's state, and Kafka's snapshot of producers.
STATE_NAME: Final = "log.state"
SNAPSHOT_SUFFIX: Final = ".snapshot"
_STATE_LIMIT_BYTES: Final = 64 << 20
_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_PRODUCER: Final = Struct(">qhiqiqiq")
#: The errors of reading a damaged state.
_UNREADABLE: Final = (ValueError, KeyError, TypeError, IndexError, OverflowError, struct_error)
#: The file of the rows, in the data directory.
LAST_STOP_NAME: Final = ".kohort_laststop"
_LIMIT_BYTES: Final = 256 << 20
#: Logs with more segments or producers have their state in their folders.
_MOST_SEGMENTS: Final = 64
_MOST_PRODUCERS: Final = 100
#: A longer index of the newest segment is kept in its files.
_MOST_INDEX_BYTES: Final = 512

Row = dict[str, Any]


@value
class LogState:
    """The epochs and producers of a log at an offset."""

    offset: int
    epochs: tuple[tuple[int, int], ...]
    producers: tuple[ProducerRow, ...]
    #: Base offset, size and CRC-32C of the files of aborted transactions; a CRC of -1 is not known yet.
    aborted: tuple[tuple[int, int, int], ...] = ()
    hanging: tuple[HangingTransaction, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> LogState:
        """Read `log.state` or a row of a clean stop; raise one of `_UNREADABLE` if it is damaged."""
        state = cls(
            offset=document["offset"],
            epochs=tuple((epoch, offset) for epoch, offset in document["epochs"]),
            producers=tuple(
                # Older files have no transactions.
                ProducerRow(producer_id, epoch, tuple(StoredBatch(*batch) for batch in batches), *rest)
                for producer_id, epoch, batches, *rest in document["producers"]
            ),
            aborted=tuple((base, size, checksum) for base, size, checksum in document.get("aborted", ())),
            hanging=tuple(HangingTransaction(*row) for row in document.get("hanging", ())),
        )
        # Numbers that cannot be packed were never written: this raises for them.
        ProducerStates().restore(state.producers)
        return state


@value
class _Part:
    """A segment with an index that is to be written."""

    segment: Segment
    index: SegmentIndex
    #: The facts without the files' checksums, which `write` adds.
    facts: SegmentFacts
    is_closed: bool


@value
class Captured:
    """The state of a log that is to be written."""

    log: PartitionLog
    state: LogState
    parts: tuple[_Part, ...]
    #: Whether all records before the state's offset are durable already.
    is_durable: bool


def is_outdated(log: PartitionLog) -> bool:
    """Whether a log has state that is not written yet."""
    return log.log_end_offset != log.state_offset or any(segment.needs_filing for segment in log.segments[:-1])


def settle(captured: Captured, filed: Sequence[tuple[Segment, SegmentFacts]]) -> None:
    """Note that the captured state is written, and release memory; called by the log's owner."""
    log, offset = captured.log, captured.state.offset
    log.state_offset = offset
    if log.high_watermark >= offset:
        # No request waits for this sync, but a log that grows no more has no other, and compaction needs one.
        log.mark_durable(offset)
    for segment, facts in filed:
        segment.use_files(facts)


def capture(log: PartitionLog) -> Captured:
    """Capture the present state of a log."""
    newest = log.segments[-1]
    parts = []
    for segment in log.segments:
        index = segment.index
        if index is not None and segment.needs_filing and (segment.size or segment is newest):
            # A closed segment's index changes no more.
            kept = index.copy() if segment is newest else index
            parts.append(_Part(segment=segment, index=kept, facts=segment.facts, is_closed=segment is not newest))
    state = LogState(
        offset=log.log_end_offset,
        epochs=log.epochs.starts,
        producers=log.producers.rows(),
        aborted=tuple((each.base_offset, each.aborted_bytes, -1) for each in log.segments if each.aborted_bytes),
        hanging=log.producers.hanging,
    )
    return Captured(log=log, state=state, parts=tuple(parts), is_durable=log.durable_offset >= state.offset)


def write(fs: FileSystem, captured: Captured) -> list[tuple[Segment, SegmentFacts]]:
    """Write the captured state; blocking. Return the facts of each segment for `Segment.use_files`.

    Raises:
        StorageError: what was known before stays known, or a little more.
    """
    log, state = captured.log, captured.state
    # The state may say nothing that a crash could still take.
    if not captured.is_durable:
        log.sync()
    filed = []
    for part in captured.parts:
        image = part.index.image()
        facts = part.facts._replace(offset_index=sum_of(image.offsets), time_index=sum_of(image.times))
        save_index(fs, log.directory, part.segment.base_offset, image)
        save_facts(fs, log.directory, part.segment.base_offset, facts)
        if part.is_closed:
            filed.append((part.segment, facts))
    if tuple(load_epochs(fs, log.directory)) != state.epochs:
        save_epochs(fs, log.directory, state.epochs)
    save_state(fs, log.directory, replace(state, aborted=_sums_of_aborted(fs, log.directory, state)))
    return filed


def _sums_of_aborted(fs: FileSystem, directory: str, state: LogState) -> tuple[tuple[int, int, int], ...]:
    """Make the files of aborted transactions durable, and return them with their checksums."""
    found = []
    for base, size, _ in state.aborted:
        checksum = sum_of_entries(fs, directory, base, size)
        if checksum is not None:
            fs.open(index_path(directory, base, TRANSACTION_SUFFIX)).sync()
            found.append((base, size, checksum))
        elif fs.exists(f"{directory}/{segment_name(base)}"):
            # Such a sum never matches: the next start makes the file again.
            found.append((base, size, NO_SUM))
    return tuple(found)


def save_state(fs: FileSystem, directory: str, state: LogState) -> None:
    """Write a state, in kohort's format and in Kafka's."""
    document: dict[str, Any] = {"offset": state.offset, "epochs": state.epochs, "producers": state.producers}
    if state.aborted:
        document["aborted"] = state.aborted
    if state.hanging:
        document["hanging"] = state.hanging
    text = json.dumps(document).encode()
    place_file(fs, f"{directory}/{STATE_NAME}", b"%08x %s\n" % (crc32c(text), text))
    kept = f"{state.offset:020d}{SNAPSHOT_SUFFIX}" if state.producers else None
    for name in fs.list_directory(directory):
        # Kafka's tools read the newest snapshot: older ones would be wrong.
        if name.endswith(SNAPSHOT_SUFFIX) and name != kept:
            fs.remove(f"{directory}/{name}")
    if kept is not None:
        place_file(fs, f"{directory}/{kept}", snapshot_of(state.producers))


def latest_state(fs: FileSystem, directory: str, names: Sequence[str], earlier: LogState | None) -> LogState | None:
    """Return the latest state of a folder; `earlier` is its state in the rows of a clean stop."""
    states = [each for each in (load_state(fs, directory, names), earlier) if each is not None]
    return max(states, key=lambda each: each.offset, default=None)


def load_state(fs: FileSystem, directory: str, names: Sequence[str]) -> LogState | None:
    """Read the written state; `None` if it is missing or damaged."""
    if STATE_NAME not in names:
        return None
    try:
        file = fs.open(f"{directory}/{STATE_NAME}")
        if file.size() > _STATE_LIMIT_BYTES:
            return None
        checksum, _, text = file.read(0, _STATE_LIMIT_BYTES).removesuffix(b"\n").partition(b" ")
        return LogState.of(parse_json(text)) if int(checksum, 16) == crc32c(text) else None
    except (StorageError, *_UNREADABLE):
        return None


def snapshot_of(producers: Sequence[ProducerRow]) -> bytes:
    """Build Kafka's snapshot of producers, with the last batch of each."""
    rows = [_COUNT.pack(len(producers))]
    for row in producers:
        last = row.batches[-1] if row.batches else StoredBatch(-1, -1, -1, -1, row.written_ms)
        delta = last.last_offset - last.base_offset
        rows.append(
            _PRODUCER.pack(
                row.producer_id, row.epoch, last.last_sequence, last.last_offset, delta, last.timestamp,
                row.coordinator_epoch, row.transaction_start,
            )
        )  # fmt: skip
    content = b"".join(rows)
    return _SNAPSHOT_HEAD.pack(_SNAPSHOT_VERSION, crc32c(content)) + content


def load_snapshot(fs: FileSystem, directory: str, names: Sequence[str]) -> list[ProducerRow]:
    """Read Kafka's snapshot of producers, the last batch of each; empty if it is missing or damaged."""
    name = max((each for each in names if each.endswith(SNAPSHOT_SUFFIX)), default=None)
    if name is None:
        return []
    try:
        file = fs.open(f"{directory}/{name}")
        raw = file.read(0, min(file.size(), _STATE_LIMIT_BYTES))
        version, checksum = _SNAPSHOT_HEAD.unpack_from(raw)
        content = raw[_SNAPSHOT_HEAD.size :]
        if version != _SNAPSHOT_VERSION or checksum != crc32c(content):
            return []
        rows = list(_PRODUCER.iter_unpack(content[_COUNT.size :]))
    except (StorageError, struct_error):
        return []
    found: list[ProducerRow] = []
    for producer_id, epoch, sequence, last_offset, delta, timestamp, coordinator_epoch, start in rows:
        batches: tuple[StoredBatch, ...] = ()
        # Without a sequence its last epoch has written nothing but a marker.
        if sequence >= 0:
            if not 0 <= delta <= last_offset:
                return []
            first = (sequence - delta) % SEQUENCES
            batches = (StoredBatch(first, sequence, last_offset - delta, last_offset, timestamp),)
        found.append(ProducerRow(producer_id, epoch, batches, coordinator_epoch, start, timestamp))
    return found


def recall(producers: ProducerStates, rows: Iterable[ProducerRow], end_offset: int) -> None:
    """Restore producers' states from before `end_offset` where the remaining batches have older ones."""
    # What is open is known from the log that was just read.
    newest = {row.producer_id: row._replace(transaction_start=-1) for row in rows if _last_offset(row) < end_offset}
    for row in producers.rows():
        known = newest.get(row.producer_id)
        if known is None or _last_offset(known) <= _last_offset(row) or row.epoch > known.epoch:
            newest[row.producer_id] = row
        else:
            newest[row.producer_id] = known._replace(
                transaction_start=row.transaction_start,
                coordinator_epoch=max(row.coordinator_epoch, known.coordinator_epoch),
            )
    producers.restore(sorted(newest.values(), key=_last_offset))


def _last_offset(row: ProducerRow) -> int:
    return row.batches[-1].last_offset if row.batches else -1


def has_last_stop(fs: FileSystem, directory: str) -> bool:
    """Whether the file with the rows exists."""
    return fs.exists(f"{directory}/{LAST_STOP_NAME}")


class LastStop:
    """The rows of a stop, by the names of folders.

    `.kohort_laststop` has a row for each log: where it ended, its epochs and producers, and of each segment what its
    facts say. A log of which little was written is not written down elsewhere. The row also says how the folder and the
    files of the segments were found then: inode, size, time of the last change.

    Laws: a start that follows a clean stop believes a row as long as folder and files are as they were, and reads
    nothing of them; any other start reads the files, and takes of a row what `log.state` would have told. A row counts
    for the topic whose id it names. What cannot be read counts as missing: the files say it all, at the price of a
    longer start.
    Source: of ours; Apache Kafka's clean shutdown file, recovery points and producer snapshots.
    """

    def __init__(self, rows: Mapping[str, Row], *, is_believed: bool) -> None:
        self._rows: Final = rows
        #: Whether the directory was not changed after the stop.
        self._is_believed: Final = is_believed

    def state_of(self, folder: str, topic_id: TopicId) -> LogState | None:
        """Return the state that `log.state` would have if the stop had written it."""
        row = self._rows.get(folder)
        try:
            return None if row is None or row["id"] != topic_id.hex() else LogState.of(row)
        except _UNREADABLE:
            return None

    def open(
        self, fs: FileSystem, directory: str, *, topic: str, topic_id: TopicId, partition: int, config: LogConfig
    ) -> PartitionLog | None:
        """Open a log as the stop left it; `None` if it changed since or has no row, and has to be read."""
        row = self._rows.get(directory.rpartition("/")[2]) if self._is_believed else None
        try:
            if row is None or row["id"] != topic_id.hex() or _stamps(fs, directory) != list(map(tuple, row["at"])):
                return None
            segments = _segments(fs, directory, row, config)
            if segments is None:
                return None
            log = PartitionLog(fs, directory, topic=topic, partition=partition, config=config, segments=segments)
            if log.log_end_offset != row["offset"]:
                return None
            state = LogState.of(row)
            if state.producers:
                log.producers.restore(state.producers)
            log.epochs = LeaderEpochs(state.epochs)
            log.start_offset, log.state_offset = row["start"], state.offset
        except _UNREADABLE:
            return None
        return log


def _segments(fs: FileSystem, directory: str, row: Row, config: LogConfig) -> list[Segment] | None:
    """Open the segments of a row; `None` if a file has changed since."""
    segments, newest = [], row["segments"][-1][0]
    for base, stamp, end, size, first, most, at, has_gaps, index, timeindex in row["segments"]:
        facts = SegmentFacts(end, size, first, most, at, has_gaps, (index[0], index[1]), (timeindex[0], timeindex[1]))
        segment = Segment(fs, directory, base, is_entry_durable=True)
        numbers = (base, *facts[:5], row["start"], *facts.offset_index, *facts.time_index)
        # A file that changed since the stop is read again.
        if fs.stamp(segment.path) != tuple(stamp) or stamp[1] != size or not all(type(each) is int for each in numbers):
            return None
        if base == newest and row["index"] is not None:
            image = IndexImage(*map(bytes.fromhex, row["index"]))
            segment.go_on(SegmentIndex.of_image(base, image, interval_bytes=config.index_interval_bytes), facts)
        else:
            segment.use_filed(facts)
        segments.append(segment)
    segments[-1].is_entry_durable = row["named"]
    return segments


def row_of(fs: FileSystem, log: PartitionLog, topic_id: TopicId) -> Row | None:
    """Build the row of a durable log; `None` if its folder has to have its state."""
    if not _is_tellable(fs, log):
        return None
    newest = log.segments[-1]
    image = None if newest.index is None else newest.index.image()
    sums = None
    if image is not None and len(image.offsets) + len(image.times) > _MOST_INDEX_BYTES:
        if is_outdated(log):
            return None
        # Its files have been written since the last append.
        sums = sum_of(image.offsets), sum_of(image.times)
        image = None
    at, rows = _stamps(fs, log.directory), []
    for segment in log.segments:
        facts, stamp = segment.filed_facts, fs.stamp(segment.path)
        if None in at or stamp is None:
            return None
        if segment is newest and sums is not None:
            facts = facts._replace(offset_index=sums[0], time_index=sums[1])
        # All facts but the checksum of the whole segment, which is in its own file.
        rows.append((segment.base_offset, stamp, *facts[:-1]))
    return {
        "id": topic_id.hex(),
        "at": at,
        "start": log.start_offset,
        "offset": log.log_end_offset,
        "epochs": log.epochs.starts,
        "producers": log.producers.rows(),
        "segments": rows,
        "named": newest.is_entry_durable,
        "index": None if image is None else (image.offsets.hex(), image.times.hex()),
    }


def _is_tellable(fs: FileSystem, log: PartitionLog) -> bool:
    """Whether a row can describe a log whole, and its folder has nothing to repair or remove."""
    closed = log.segments[:-1]
    # Such logs have to be read at the next start.
    if log.offline or log.is_failed or log.holes or log.durable_offset != log.log_end_offset:
        return False
    if len(closed) >= _MOST_SEGMENTS or len(log.producers) > _MOST_PRODUCERS:
        return False
    # Checksums of such files stand in the folder's state.
    if any(segment.aborted_bytes for segment in log.segments):
        return False
    if any(segment.index is not None for segment in closed) or any(segment.is_mistrusted for segment in log.segments):
        return False
    if not log.has_dropped and not log.config.is_compacted:
        return True
    return not any(name.endswith((DELETED_SUFFIX, UNFINISHED_SUFFIX)) for name in fs.list_directory(log.directory))


def _stamps(fs: FileSystem, directory: str) -> list[tuple[int, int, int] | None]:
    """Return the stamps of a folder and of the file that ties it to its topic."""
    return [fs.stamp(directory), fs.stamp(f"{directory}/{PARTITION_METADATA_NAME}")]


def save_last_stop(fs: FileSystem, directory: str, rows: Mapping[str, Row]) -> int:
    """Write the rows durably; return their checksum, which the marker of the stop has to name."""
    text = json.dumps(rows, separators=(",", ":")).encode()
    checksum = crc32c(text)
    replace_file(fs, directory, LAST_STOP_NAME, b"%08x %s\n" % (checksum, text))
    return checksum


def load_last_stop(fs: FileSystem, directory: str, believed: int | None) -> LastStop:
    """Read the rows of the last clean stop; `believed` is the result of `load_last_sum`."""
    path = f"{directory}/{LAST_STOP_NAME}"
    try:
        head, _, text = read_bounded(fs, path, limit_bytes=_LIMIT_BYTES).removesuffix(b"\n").partition(b" ")
        checksum = crc32c(text)
        # A kohort that does not know these rows may have stopped since, or a copy of that time was put back.
        is_meant = believed in (NO_SUM, checksum) and int(head, 16) == checksum
        rows = parse_json(text) if is_meant else {}
        return LastStop(rows if isinstance(rows, dict) else {}, is_believed=checksum == believed)
    except (StorageError, ValueError):
        return LastStop({}, is_believed=False)
