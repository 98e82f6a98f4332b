"""Which of a log's oldest segments are to go, by the times of their records and by the size of the log.

Laws: only whole segments go, the oldest first, and none with records that consumers may not see yet. A segment whose
records have no times goes by size alone.
Source: Apache Kafka's `retention.ms` and `retention.bytes`: what is left is at least `retention.bytes`.
"""

from __future__ import annotations

from collections.abc import Sequence

from kohort.storage.segment import Segment
from kohort.storage.topicconfig import LogConfig


def count_expired(segments: Sequence[Segment], config: LogConfig, *, high_watermark: int, now_ms: int) -> int:
    """How many of `segments`, from the oldest on, are to go; perhaps all of them."""
    if not config.is_deleted:
        return 0
    excess = sum(segment.size for segment in segments) - config.retention_bytes if config.retention_bytes >= 0 else -1
    for count, segment in enumerate(segments):
        excess -= segment.size
        is_old = 0 <= config.retention_ms < now_ms - segment.max_timestamp and segment.max_timestamp >= 0
        if not segment.size or segment.next_offset > high_watermark or not (is_old or excess >= 0):
            return count
    return len(segments)
