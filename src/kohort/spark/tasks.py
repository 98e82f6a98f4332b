"""The plan of the tasks that read a batch's spans.

Laws: the tasks of a partition follow each other without a gap; only the last one of a partition may end "where the log
ends when it runs", and only the first one may begin at "what the log begins with then".
Source: `KafkaOffsetRangeCalculator` of Spark's Kafka source.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import pairwise
from typing import Final

from kohort.ids import TopicPartition
from kohort.spark.offsets import Span
from kohort.spark.option_values import EARLIEST, LATEST
from kohort.spark.options import SourceOptions
from kohort.spark.reading import SpanToRead

#: Longer spans are cut where the options say nothing, so that a few large partitions keep every core busy.
RECORDS_PER_TASK: Final = 2_500_000


def plan_tasks(
    spans: Mapping[TopicPartition, Span],
    options: SourceOptions,
    *,
    open_starts: frozenset[TopicPartition] = frozenset(),
    open_ends: frozenset[TopicPartition] = frozenset(),
    topic_ids: Mapping[str, str] | None = None,
) -> list[SpanToRead]:
    """Plan the tasks of a batch, by partition and offset; a partition without records gives none.

    Args:
        spans: the offsets to read, as of now.
        options: `minPartitions` and `maxRecordsPerPartition`.
        open_starts: partitions that are read from wherever their log begins when the task runs.
        open_ends: partitions that are read up to wherever their log ends when the task runs, be they empty now.
        topic_ids: of topics; a task notices where its topic was made anew.
    """
    tasks: list[SpanToRead] = []
    for partition, pieces in split_spans(spans, options).items():
        edges = [*(piece.start for piece in pieces), pieces[-1].end]
        if partition in open_starts:
            edges[0] = EARLIEST
        if partition in open_ends:
            edges[-1] = LATEST
        if pieces[-1].size or partition in open_ends:
            topic_id = (topic_ids or {}).get(partition.topic, "")
            tasks += [SpanToRead(*partition, low, high, topic_id) for low, high in pairwise(edges)]
    return tasks


def split_spans(spans: Mapping[TopicPartition, Span], options: SourceOptions) -> dict[TopicPartition, list[Span]]:
    """Split each span into pieces of nearly equal length, in order; an empty span stays one piece."""
    most = options.own["maxRecordsPerPartition"]
    if most is None and options.own["minPartitions"] is None:
        most = RECORDS_PER_TASK
    parts = {partition: 1 if most is None else max(1, -(-span.size // most)) for partition, span in spans.items()}
    if options.own["minPartitions"] is not None:
        parts = _raise_to(options.own["minPartitions"], spans, parts)
    return {partition: _cut(span, parts[partition]) for partition, span in sorted(spans.items())}


def _raise_to(
    least: int, spans: Mapping[TopicPartition, Span], parts: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Split the largest pieces into more parts, until there are about `least`."""
    sizes = {partition: span.size / parts[partition] for partition, span in spans.items() if span.size > 0}
    count = sum(parts[partition] for partition in sizes)
    if count >= least:
        return dict(parts)
    total = sum(spans[partition].size for partition in sizes)
    # Spans that stay whole take no part in the shares of those that are cut.
    whole = {partition for partition, size in sizes.items() if _round(size / total * least) <= 1}
    rest = sum(spans[partition].size for partition in sizes.keys() - whole)
    left = max(least - sum(parts[partition] for partition in whole), 1)
    more = {
        partition: parts[partition] * max(1, _round(sizes[partition] / rest * left))
        for partition in sizes.keys() - whole
    }
    return {**parts, **more}


def _round(number: float) -> int:
    """Round as Java does: halves go up."""
    return int(number + 0.5)


def _cut(span: Span, parts: int) -> list[Span]:
    parts = min(parts, max(1, span.size))
    edges = [span.start + span.size * part // parts for part in range(parts + 1)]
    return [Span(low, high) for low, high in pairwise(edges)]
