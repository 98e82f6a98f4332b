"""Where a log begins whose oldest records were deleted by request: kept in its folder, for the next start.

Laws: the file is replaced whole and goes with the folder, so that no topic inherits it. One that is missing or damaged
means that the log begins with its first segment: what was deleted may come back then, nothing else is lost.
Source: Apache Kafka's log-start-offset-checkpoint, which has the same lines for all partitions of a directory.
"""

from __future__ import annotations

from kohort.errors import ErrorCode, Refused
from kohort.storage.checkpoints import LOG_START_NAME, load_offsets, save_offsets
from kohort.storage.fs import FileSystem
from kohort.storage.partition import PartitionLog
from kohort.storage.retention import count_below


def load_log_start(fs: FileSystem, folder: str, topic: str, partition: int) -> int:
    """The offset; 0 if there is none."""
    return load_offsets(fs, folder, LOG_START_NAME).get((topic, partition), 0)


def keep_log_start(fs: FileSystem, log: PartitionLog, offset: int) -> None:
    """Have what `delete_before` did in force after a restart, too; blocking, for a thread beside the log's owner."""
    save_offsets(fs, log.directory, LOG_START_NAME, {(log.topic, log.partition): offset})


def delete_before(log: PartitionLog, offset: int) -> list[str]:
    """Delete the records before an offset; their files go where all of a segment's records are before it.

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
    log.start_offset = max(log.start_offset, offset)
    return log.drop_segments(count_below(log.segments, log.start_offset))
