"""A batch query, whose first and last offsets are fixed by the plan, or looked up when a task runs.

The query joins no group, even if it starts at a group's committed offsets.

Laws: earliest and latest are looked up again when a task runs, so that records which arrive or are deleted between
plan and task are not missed and do not fail the query.
Apart: a process of Spark's that plans or reads a batch imports no code of streams and groups.
Source: Spark's Kafka source (`KafkaBatch`, `KafkaOffsetReader.getOffsetRangesFromUnresolvedOffsets`).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kohort.client.consumer.consumer import Consumer
from kohort.errors import ConfigError
from kohort.ids import TopicPartition
from kohort.spark.offsets import Span
from kohort.spark.options import COMMITTED, EARLIEST, LATEST, Offsets, SourceOptions, option_of, tell_remarks
from kohort.spark.planning import find_topics, partitions_of, plan_tasks, resolve_offsets
from kohort.spark.reading import SpansToRead, read_spans, settle_positions

if TYPE_CHECKING:
    import pyarrow


class KohortBatchReader(DataSourceReader):
    """The reader of a batch: a task reads many short partitions, or a part of a long one."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """Return the tasks, by partition and offset."""
        tell_remarks(self._options)
        with Consumer.from_config(_settings(self._options)) as consumer:
            return _plan(consumer, self._options)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read the records of a task; runs in an executor."""
        if not isinstance(partition, SpansToRead):
            # PySpark makes a partition object of its own if the plan has no tasks.
            return iter(())
        return read_spans(self._options, partition)


def _settings(options: SourceOptions) -> dict[str, object]:
    settings: dict[str, object] = {**options.client, "enable.auto.commit": False}
    # The group whose committed offsets are looked up; the query does not join it.
    return {**settings, "group.id": options.group_id} if options.starting == COMMITTED else settings


def _plan(consumer: Consumer, options: SourceOptions) -> list[SpansToRead]:
    starting = EARLIEST if options.starting is None else options.starting
    ending = LATEST if options.ending is None else options.ending
    topics = find_topics(consumer, options)
    partitions = partitions_of(topics, options)
    starts = resolve_offsets(consumer, partitions, starting, option="startingOffsets")
    ends = resolve_offsets(consumer, partitions, ending, option="endingOffsets")
    open_starts, open_ends = _at(starting, EARLIEST, partitions), _at(ending, LATEST, partitions)
    begins = consumer.beginning_offsets(partitions)
    for partition in open_starts:
        # If all records up to the end were deleted, the batch is empty, and `settle_positions` reports the loss.
        starts[partition] = min(begins[partition], ends[partition])
    _check_order(starts, ends, starting, ending)
    starts = settle_positions(starts, begins=begins, ends=ends, fails=options.own["failOnDataLoss"])
    spans = {partition: Span(start, max(start, ends[partition])) for partition, start in starts.items()}
    topic_ids = {name: topic.topic_id for name, topic in topics.items()}
    return plan_tasks(spans, options, open_starts=open_starts, open_ends=open_ends, topic_ids=topic_ids)


def _at(bound: Offsets, which: int, partitions: Sequence[TopicPartition]) -> frozenset[TopicPartition]:
    """Return the partitions with this bound (earliest or latest), which a task looks up again."""
    if isinstance(bound, dict):
        return frozenset(partition for partition, offset in bound.items() if offset == which)
    return frozenset(partitions if bound == which else ())


def _check_order(
    starts: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int], starting: Offsets, ending: Offsets
) -> None:
    if starting == COMMITTED and ending == LATEST:
        # A committed offset beyond the end of a log means that records were lost; `settle_positions` reports it.
        return
    for partition, start in starts.items():
        if start > ends[partition]:
            raise ConfigError(
                f"{option_of(ending, 'ending')}: the batch of {partition} would end at {ends[partition]} and begin at "
                f"{start} ({option_of(starting, 'starting')}); give an end that is not before its beginning"
            )
