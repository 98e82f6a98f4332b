"""A batch query: offsets are fixed when it is planned; executors read them; no group takes part."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Final, cast

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kohort.client.consumer import Consumer
from kohort.errors import ConfigError, UnknownTopicError
from kohort.ids import TopicPartition
from kohort.spark.offsets import Span, split_spans
from kohort.spark.options import EARLIEST, LATEST, Offsets, SourceOptions
from kohort.spark.reading import SpanToRead, read_span

if TYPE_CHECKING:
    import pyarrow

#: Longer spans are cut, so that a few large partitions keep every core busy.
RECORDS_PER_TASK: Final = 2_500_000


class KohortBatchReader(DataSourceReader):
    """Plans one task per partition, more for long ones."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks, by partition and offset."""
        options = self._options
        if options.starting == LATEST:
            raise ConfigError("startingOffsets cannot be latest in a batch: it would read nothing")
        with Consumer.from_config({**options.client, "enable.auto.commit": False}) as consumer:
            partitions = find_partitions(consumer, options)
            starts = resolve_offsets(consumer, partitions, EARLIEST if options.starting is None else options.starting)
            ends = resolve_offsets(consumer, partitions, LATEST if options.ending is None else options.ending)
        return plan_tasks({partition: Span(starts[partition], ends[partition]) for partition in partitions})

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Runs in an executor."""
        return read_span(self._options, cast(SpanToRead, partition))


def plan_tasks(spans: Mapping[TopicPartition, Span]) -> list[SpanToRead]:
    """Spans as tasks; a partition without records gives none."""
    return [
        SpanToRead(topic=partition.topic, partition=partition.partition, start=span.start, end=span.end)
        for partition, span in split_spans(spans, records_per_task=RECORDS_PER_TASK)
    ]


def find_partitions(consumer: Consumer, options: SourceOptions) -> list[TopicPartition]:
    """Every partition of `subscribe`, or those of `assign` if they exist; in order."""
    wanted = options.topics or tuple({partition.topic for partition in options.partitions})
    found: list[TopicPartition] = []
    for topic in wanted:
        numbers = consumer.partitions_for(topic)
        if not numbers:
            raise UnknownTopicError(topic)
        found += [TopicPartition(topic, number) for number in numbers]
    if options.partitions:
        missing = set(options.partitions) - set(found)
        if missing:
            raise ConfigError(f"assign names partitions that do not exist: {', '.join(map(str, sorted(missing)))}")
        found = list(options.partitions)
    return sorted(found)


def resolve_offsets(
    consumer: Consumer, partitions: Sequence[TopicPartition], asked: Offsets
) -> dict[TopicPartition, int]:
    """Numbers for `EARLIEST` and `LATEST`; a JSON of offsets must name every partition, as Spark demands."""
    by_partition = asked if isinstance(asked, dict) else dict.fromkeys(partitions, asked)
    missing = set(partitions) - set(by_partition)
    if missing:
        raise ConfigError(
            f"offsets are given for some partitions only; missing: {', '.join(map(str, sorted(missing)))}"
        )
    surplus = set(by_partition) - set(partitions)
    if surplus:
        raise ConfigError(f"offsets name partitions that are not read: {', '.join(map(str, sorted(surplus)))}")
    earliest = [partition for partition in partitions if by_partition[partition] == EARLIEST]
    latest = [partition for partition in partitions if by_partition[partition] == LATEST]
    found = {**by_partition}
    if earliest:
        found.update(consumer.beginning_offsets(earliest))
    if latest:
        found.update(consumer.end_offsets(latest))
    return {partition: found[partition] for partition in partitions}
