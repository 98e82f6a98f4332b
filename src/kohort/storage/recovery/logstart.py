"""The start offset of a log with records that were deleted by request, kept for the next start.

Laws: the file is replaced whole and goes with the folder, so that no topic inherits it. The offset stands in it twice,
each time with its checksum: a number that is damaged deletes nothing. If both are, or the file is missing, the log
begins with its first segment: what was deleted may come back then, nothing else is lost.
Source: Apache Kafka's log-start-offset-checkpoint, which has a line for each partition of a directory.
"""

from __future__ import annotations

from typing import Final

from kohort.errors import ErrorCode, Refused
from kohort.records.checksum import crc32c
from kohort.storage.directory.checkpoints import LOG_START_NAME
from kohort.storage.files.fs import FileSystem, read_bounded, replace_file
from kohort.storage.partitions.partition import PartitionLog
from kohort.storage.partitions.retention import count_below

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
    """Delete the records before an offset; drop segments that have only such records.

    Returns:
        Files, as `PartitionLog.drop_expired` does.

    Raises:
        Refused: OFFSET_OUT_OF_RANGE above what consumers see, POLICY_VIOLATION where nothing but compaction lets
            records go.
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
    return log.drop_segments(count_below(log.segments, log.start_offset))
