"""Offset gaps between two files of a log that are no damage.

Apache Kafka's compaction takes whole batches away, which `sparse-before-offset` tells of a log that was taken over. A
power cut may take the end of a file and leave what was written to the next one, before either was synced.

Source: Apache Kafka's log cleaner; fsync(2), which promises nothing of files that nobody has synced.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import Final

from kohort.storage.files.fs import FileSystem, read_bounded, replace_file
from kohort.storage.partitions.quarantine import Hole
from kohort.storage.segments.indexfiles import SYNCED_SUFFIX
from kohort.storage.segments.scan import Piece
from kohort.storage.topicconfig import LogConfig

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

    What was appended before a file was begun is durable before anybody is answered for what is in it, and a mark says
    so. A log without any mark is of other software, or of an older one: nothing of it is taken for unpromised. Where
    records need not be synced before an answer, only what was not written is taken for that, and not what is damaged.
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
