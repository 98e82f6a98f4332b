"""The state of a partition for its next start, written at times and at a stop.

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
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from struct import Struct
from struct import error as struct_error
from typing import Final

from kohort.errors import StorageError
from kohort.jsontext import parse_json
from kohort.records.checksum import crc32c
from kohort.storage.directory.checkpoints import load_epochs, save_epochs
from kohort.storage.files.fs import FileSystem, place_file
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.partitions.producers import SEQUENCES, ProducerRow, ProducerStates, StoredBatch
from kohort.storage.segments.indexfiles import SegmentFacts, save_facts, save_index, sum_of
from kohort.storage.segments.segment import Segment
from kohort.storage.segments.segmentindex import SegmentIndex

#: The file with a log's state, and Kafka's snapshot of producers.
STATE_NAME: Final = "log.state"
SNAPSHOT_SUFFIX: Final = ".snapshot"
_STATE_LIMIT_BYTES: Final = 64 << 20
_SNAPSHOT_VERSION: Final = 1
_SNAPSHOT_HEAD: Final = Struct(">hI")
_COUNT: Final = Struct(">i")
_PRODUCER: Final = Struct(">qhiqiqiq")


@dataclass(frozen=True, slots=True, kw_only=True)
class LogState:
    """The epochs and producers of a log at an offset."""

    offset: int
    epochs: tuple[tuple[int, int], ...]
    producers: tuple[ProducerRow, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Part:
    """A segment with an index that is to be written."""

    segment: Segment
    index: SegmentIndex
    #: The facts without the files' checksums, which `write` adds.
    facts: SegmentFacts
    is_closed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
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
    state = LogState(offset=log.log_end_offset, epochs=log.epochs.starts, producers=log.producers.rows())
    return Captured(log=log, state=state, parts=tuple(parts), is_durable=log.durable_offset >= state.offset)


def write(fs: FileSystem, captured: Captured) -> list[tuple[Segment, SegmentFacts]]:
    """Write the captured state; blocking, beside the log's owner.

    Returns:
        Closed segments whose indexes are in files by now; the owner tells them by `Segment.use_files`.

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
        facts = replace(part.facts, index=sum_of(image.offsets), timeindex=sum_of(image.times))
        save_index(fs, log.directory, part.segment.base_offset, image)
        save_facts(fs, log.directory, part.segment.base_offset, facts)
        if part.is_closed:
            filed.append((part.segment, facts))
    if tuple(load_epochs(fs, log.directory)) != state.epochs:
        save_epochs(fs, log.directory, state.epochs)
    save_state(fs, log.directory, state)
    return filed


def save_state(fs: FileSystem, directory: str, state: LogState) -> None:
    """Write a state, in kohort's format and in Kafka's."""
    document = {"offset": state.offset, "epochs": state.epochs, "producers": state.producers}
    text = json.dumps(document).encode()
    place_file(fs, f"{directory}/{STATE_NAME}", b"%08x %s\n" % (crc32c(text), text))
    kept = f"{state.offset:020d}{SNAPSHOT_SUFFIX}" if state.producers else None
    for name in fs.list_directory(directory):
        # Kafka's tools read the newest snapshot: older ones would be wrong.
        if name.endswith(SNAPSHOT_SUFFIX) and name != kept:
            fs.remove(f"{directory}/{name}")
    if kept is not None:
        place_file(fs, f"{directory}/{kept}", snapshot_of(state.producers))


def forget_state(fs: FileSystem, directory: str) -> None:
    """Remove the state of a log that is about to be repaired, since it is no longer reliable."""
    if fs.exists(f"{directory}/{STATE_NAME}"):
        fs.remove(f"{directory}/{STATE_NAME}")
        fs.sync_directory(directory)


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
        if int(checksum, 16) != crc32c(text):
            return None
        document = parse_json(text)
        state = LogState(
            offset=document["offset"],
            epochs=tuple((epoch, offset) for epoch, offset in document["epochs"]),
            producers=tuple(
                (producer_id, epoch, tuple(StoredBatch(*batch) for batch in batches))
                for producer_id, epoch, batches in document["producers"]
            ),
        )
        # Numbers that cannot be packed were never written: this raises for them.
        ProducerStates().restore(state.producers)
    except (StorageError, ValueError, TypeError, KeyError, IndexError, struct_error):
        return None
    return state


def snapshot_of(producers: Sequence[ProducerRow]) -> bytes:
    """Build Kafka's snapshot of producers, with the last batch of each."""
    rows = [_COUNT.pack(len(producers))]
    for producer_id, epoch, batches in producers:
        last = batches[-1]
        delta = last.last_offset - last.base_offset
        rows.append(
            _PRODUCER.pack(producer_id, epoch, last.last_sequence, last.last_offset, delta, last.timestamp, -1, -1)
        )
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
    for producer_id, epoch, sequence, last_offset, delta, timestamp, _, _ in rows:
        if not 0 <= delta <= last_offset or sequence < 0:
            return []
        first = (sequence - delta) % SEQUENCES
        found.append((producer_id, epoch, (StoredBatch(first, sequence, last_offset - delta, last_offset, timestamp),)))
    return found


def recall(producers: ProducerStates, rows: Iterable[ProducerRow], end_offset: int) -> None:
    """Restore producers' states from before `end_offset` where the remaining batches have older ones."""
    newest = {row[0]: row for row in rows if row[2][-1].last_offset < end_offset}
    for row in producers.rows():
        known = newest.get(row[0])
        if known is None or known[2][-1].last_offset <= row[2][-1].last_offset:
            newest[row[0]] = row
    producers.restore(sorted(newest.values(), key=lambda row: row[2][-1].last_offset))
