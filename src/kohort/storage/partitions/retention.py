"""The choice of a log's oldest segments to delete, by their records' times and the log's size.

Laws: only whole segments go, the oldest first, and none with records that consumers may not see yet. A segment whose
records have no times goes by size alone.
Source: Apache Kafka's `retention.ms` and `retention.bytes`: what is left is at least `retention.bytes`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kohort.storage.segments.segment import Segment
from kohort.storage.topicconfig import LogConfig


def count_below(segments: Sequence[Segment], start_offset: int) -> int:
    """Return how many of the oldest `segments` hold only records below an offset; perhaps all."""
    return sum(1 for segment in segments if segment.size and segment.next_offset <= start_offset)


def count_expired(segments: Sequence[Segment], config: LogConfig, *, high_watermark: int, now_ms: int) -> int:
    """Return how many of the oldest `segments` are to be deleted; perhaps all."""
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
