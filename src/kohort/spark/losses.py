"""Records that were deleted before they were read: the query fails, or skips them with a warning.

Laws: each partition is settled by itself; nothing is skipped without a line of the log that says from where to where.
Source: `failOnDataLoss` of Spark's Kafka source.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from typing import Final

from kohort.ids import TopicPartition
from kohort.spark.offsets import RecordsLostError, Span

MADE_ANEW: Final = "its topic was deleted and made anew"

_log = logging.getLogger(__name__)


def settle_positions(
    positions: Mapping[TopicPartition, int],
    *,
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    renewed: Collection[TopicPartition] = (),
    fails: bool,
) -> dict[TopicPartition, int]:
    """Return the positions that the logs have, in place of those that they do not.

    Args:
        positions: where each partition goes on.
        begins: the first offset of each.
        ends: the offset behind the last record of each.
        renewed: those whose topic was deleted and made anew since the positions were taken.
        fails: whether a loss is an error (`failOnDataLoss`).

    Raises:
        RecordsLostError: a position is not in its log, or that of another topic of the same name.
    """
    settled = dict(positions)
    for partition, position in positions.items():
        begin, end = begins[partition], ends[partition]
        if partition in renewed:
            settled[partition] = go_on_at(partition, position, begin, MADE_ANEW, fails=fails)
        elif position < begin:
            settled[partition] = go_on_at(partition, position, begin, f"it begins at {begin}", fails=fails)
        elif position > end:
            settled[partition] = go_on_at(partition, position, end, f"it ends at {end}", fails=fails)
    return settled


def drop_renewed(
    spans: Mapping[TopicPartition, Span], renewed: Collection[str], *, fails: bool
) -> dict[TopicPartition, Span]:
    """Drop the records of deleted and recreated topics from a batch to repeat: they are gone.

    Raises:
        RecordsLostError: there are such, and `fails`.
    """
    left = dict(spans)
    for partition, span in spans.items():
        if partition.topic in renewed and span.size > 0:
            go_on_at(partition, span.start, span.end, MADE_ANEW, fails=fails)
            left[partition] = Span(span.end, span.end)
    return left


def go_on_at(partition: TopicPartition, position: int, found: int, why: str, *, fails: bool) -> int:
    """Return `found` and log the skipped offsets, or raise `RecordsLostError`."""
    if fails:
        raise RecordsLostError(partition, position, why)
    _log.warning("%s goes on at offset %d and not at %d: %s (failOnDataLoss=false)", partition, found, position, why)
    return found
