"""A batch query: offsets are fixed when it is planned; executors read them; no group takes part."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSourceReader, InputPartition

from kohort.client.consumer.consumer import Consumer
from kohort.errors import ConfigError
from kohort.spark.offsets import Span
from kohort.spark.options import EARLIEST, LATEST, SourceOptions
from kohort.spark.planning import find_partitions, plan_tasks, resolve_offsets
from kohort.spark.reading import SpanToRead, read_span

if TYPE_CHECKING:
    import pyarrow


class KohortBatchReader(DataSourceReader):
    """Plans one task per partition, more for long ones."""

    def __init__(self, options: SourceOptions) -> None:
        self._options = options

    def partitions(self) -> Sequence[InputPartition]:
        """The tasks, by partition and offset."""
        starting = EARLIEST if self._options.starting is None else self._options.starting
        ending = LATEST if self._options.ending is None else self._options.ending
        if starting == LATEST:
            raise ConfigError("startingOffsets cannot be latest in a batch: it would read nothing")
        with Consumer.from_config({**self._options.client, "enable.auto.commit": False}) as consumer:
            partitions = find_partitions(consumer, self._options)
            starts = resolve_offsets(consumer, partitions, starting, option="startingOffsets")
            ends = resolve_offsets(consumer, partitions, ending, option="endingOffsets")
        spans = {partition: Span(starts[partition], ends[partition]) for partition in partitions}
        for partition, span in spans.items():
            if span.size < 0:
                raise ConfigError(f"the batch of {partition} starts at {span.start} and ends at {span.end}")
        return plan_tasks(spans)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Runs in an executor."""
        return read_span(self._options, cast(SpanToRead, partition))
