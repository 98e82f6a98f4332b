"""The scrubbing of segments: reads them again, long after the writes, and checks their checksums.

Laws: a closed segment gets a checksum once each of its batches is found right. From then on every byte counts, those
too that no batch's own checksum covers. Of the newest segment each batch is checked that was written whole. Nothing of
a segment is changed here: damage is reported. `keep` writes the result down, if the segment is the same by then: the
facts of a damaged segment go, so that the next start reads every byte and quarantines the damage (`recovery`).
Source: scrubbing in file systems and in Ceph; Apache Kafka has none.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kohort.base.values import value
from kohort.records.checksum import crc32c
from kohort.records.header import BatchHeader
from kohort.storage.files.fs import FileSystem, LogFile
from kohort.storage.partitions.leader_epoch_runs import EpochRun, EpochRuns
from kohort.storage.partitions.quarantine import Hole
from kohort.storage.segments.indexes import FACTS_SUFFIX, SegmentFacts, index_path, load_facts, save_facts
from kohort.storage.segments.scan import NO_LIMIT, Piece, Rules, scan_file
from kohort.storage.segments.segment import segment_name

#: Bytes that are read between two calls of `pause`.
READ_BYTES: Final = 1 << 20


class ScrubStoppedError(Exception):
    """The end of scrubbing because the broker stops."""


@value
class Scrubbed:
    """The result of scrubbing a segment."""

    size_bytes: int
    #: The damaged offsets; empty if the segment is as it was written.
    damages: tuple[Hole, ...] = ()
    reason: str = ""
    #: Batches with wrong leader epochs, with the right ones.
    epochs: tuple[EpochRun, ...] = ()
    #: The new facts about the segment; `None` if they do not change.
    facts: SegmentFacts | None = None

    @property
    def is_news(self) -> bool:
        """Whether `keep` has something to write."""
        return self.facts is not None or bool(self.reason)


def keep(fs: FileSystem, directory: str, base_offset: int, found: Scrubbed) -> None:
    """Write down the result; blocking, for a thread, announced to `PartitionLog.filing`.

    A `StorageError` does no harm: the next round finds the same.
    """
    if found.reason:
        # Without facts the next start reads every byte, and quarantines the damage.
        fs.remove(index_path(directory, base_offset, FACTS_SUFFIX))
    elif found.facts is not None:
        save_facts(fs, directory, base_offset, found.facts)


def scrub(
    fs: FileSystem,
    directory: str,
    base_offset: int,
    *,
    pause: Callable[[int], None],
    epochs: Sequence[tuple[int, int]] = (),
) -> Scrubbed | None:
    """Scrub a closed segment; `None` if it was replaced meanwhile or has no facts yet. Blocking.

    Args:
        epochs: (leader epoch, first offset) pairs, by the log's owner.
        pause: called with the bytes that were read since it was called last.

    Raises:
        StorageError: it cannot be read.
    """
    facts = load_facts(fs, directory, base_offset)
    path = f"{directory}/{segment_name(base_offset)}"
    if facts is None or not fs.exists(path):
        return None
    file = fs.open(path)
    if file.size() < facts.size:
        return _damaged(fs, directory, base_offset, facts, f"{facts.size - file.size()} bytes are gone")
    found = _checksum(file, facts.size, pause)
    # The whole segment is as it was: no batch needs a look.
    if facts.checksum == found:
        return Scrubbed(size_bytes=facts.size)
    runs = EpochRuns(epochs, facts.end_offset)
    (*others, last) = scan_file(fs, directory, base_offset, rules=_rules(facts, runs))
    if others or last.damage:
        return _damaged(fs, directory, base_offset, facts, "a batch is damaged")
    if wrong := runs.wrong():
        # The owner writes them, and the next round looks at the whole of it.
        return Scrubbed(size_bytes=facts.size, epochs=tuple(wrong))
    if facts.checksum is not None:
        return _damaged(fs, directory, base_offset, facts, "its checksum is another one")
    return Scrubbed(size_bytes=facts.size, facts=facts._replace(checksum=found))


def scrub_newest(
    fs: FileSystem,
    directory: str,
    base_offset: int,
    *,
    end_offset: int,
    size_bytes: int,
    has_gaps: bool,
    pause: Callable[[int], None],
    epochs: Sequence[tuple[int, int]] = (),
) -> Scrubbed:
    """Scrub the written batches of the growing segment; blocking, for a thread. Raises as `scrub` does.

    `end_offset`: records before it are written, in `size_bytes`; more may be on their way. `has_gaps`: some offsets are
    in no batch.
    """
    runs, unpaused = EpochRuns(epochs, end_offset), 0

    def note(header: BatchHeader) -> None:
        nonlocal unpaused
        runs.note(header.base_offset, header.next_offset, header.partition_leader_epoch)
        unpaused += header.size_bytes
        if unpaused >= READ_BYTES:
            pause(unpaused)
            unpaused = 0

    rules = Rules(with_crc=True, sparse_before=NO_LIMIT if has_gaps else 0, on_batch=note)
    pieces = scan_file(fs, directory, base_offset, rules=rules, before_offset=end_offset, limit_bytes=size_bytes)
    pause(unpaused)
    holes = _holes(pieces, base_offset, end_offset, f"{size_bytes} bytes were written, and some are gone")
    reason = holes[0].reason if holes else ""
    return Scrubbed(size_bytes=size_bytes, damages=holes, reason=reason, epochs=tuple(runs.wrong()))


def _checksum(file: LogFile, size: int, pause: Callable[[int], None]) -> int:
    checksum = 0
    for position in range(0, size, READ_BYTES):
        chunk = file.read(position, min(READ_BYTES, size - position))
        checksum = crc32c(chunk, checksum)
        pause(len(chunk))
    return checksum


def _rules(facts: SegmentFacts, runs: EpochRuns) -> Rules:
    def note(header: BatchHeader) -> None:
        runs.note(header.base_offset, header.next_offset, header.partition_leader_epoch)

    return Rules(with_crc=True, sparse_before=NO_LIMIT if facts.has_gaps else 0, on_batch=note)


def _damaged(fs: FileSystem, directory: str, base_offset: int, facts: SegmentFacts, reason: str) -> Scrubbed:
    """Return the valid and the damaged parts of a segment."""
    end_offset = facts.end_offset
    pieces = scan_file(fs, directory, base_offset, rules=_rules(facts, EpochRuns()), before_offset=end_offset)
    holes = _holes(pieces, base_offset, end_offset, reason)
    return Scrubbed(size_bytes=sum(piece.segment.size for piece in pieces), damages=holes, reason=reason)


def _holes(pieces: Sequence[Piece], base_offset: int, end_offset: int, reason: str) -> tuple[Hole, ...]:
    ends = [*(piece.segment.base_offset for piece in pieces[1:]), end_offset]
    return tuple(
        Hole(
            first_offset=piece.segment.next_offset,
            next_offset=end,
            file=segment_name(base_offset),
            position=piece.damage.position if piece.damage else piece.start + piece.segment.size,
            size_bytes=piece.damage.size_bytes if piece.damage else 0,
            reason=piece.damage.reason if piece.damage else reason,
        )
        for piece, end in zip(pieces, ends, strict=True)
        if piece.segment.next_offset < end
    )
