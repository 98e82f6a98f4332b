"""A streaming query: micro-batches over the partitions that the query owns.

Laws: Spark's checkpoint is the authority of the query; the group's offsets follow it. A batch counts as finished when
its end comes back as the `start` of the next `latestOffset`, because Spark passes it only once its commit log has it;
`commit` comes later than that, and never for the last batch, so nothing hangs on it.
Source: measured behaviour of PySpark 4.3; architecture, journey of a micro-batch.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, cast

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kohort.errors import KohortError
from kohort.ids import TopicPartition
from kohort.spark.batch import plan_tasks, resolve_offsets
from kohort.spark.membership import EveryPartition, GroupMember, Ownership
from kohort.spark.offsets import OffsetJson, Span, from_json, share_limit, to_json
from kohort.spark.options import EARLIEST, LATEST, SourceOptions
from kohort.spark.reading import SpanToRead, read_span

if TYPE_CHECKING:
    import pyarrow

try:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, SupportsTriggerAvailableNow

    _SPARK_IS_TOO_OLD = False
except ImportError:
    _SPARK_IS_TOO_OLD = True
    SupportsTriggerAvailableNow = object  # type: ignore[assignment,misc]


class SparkTooOldError(KohortError):
    """This PySpark cannot tell a source when a batch is finished."""

    def __str__(self) -> str:
        return (
            f'readStream.format("kohort") needs PySpark 4.2 or newer, this is {pyspark.__version__}: older ones never '
            "tell a source when a batch is finished; upgrade PySpark (batch reads work with 4.0)"
        )


def require_streaming_support() -> None:
    """`SparkTooOldError` where the stream reader cannot work."""
    if _SPARK_IS_TOO_OLD:
        raise SparkTooOldError


class KohortStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Lives in a process of its own beside the driver for as long as the query; `read` runs in the executors.

    Spark makes several of these and pickles them: nothing is live before the first call that needs it.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._ownership: Ownership | None = None
        #: What was ours when the last batch was planned.
        self._owned: set[TopicPartition] = set()
        #: Ends that an AvailableNow run must not pass; `None` for other triggers.
        self._horizon: dict[TopicPartition, int] | None = None
        self._finished: OffsetJson | None = None

    def initialOffset(self) -> OffsetJson:
        """Nothing is read yet; where to start is decided when partitions are known."""
        return {}

    def getDefaultReadLimit(self) -> Any:
        """`maxOffsetsPerTrigger`, if it is set."""
        limit = self._options.max_offsets_per_trigger
        return ReadAllAvailable() if limit is None else ReadMaxRows(limit)

    def prepareForTriggerAvailableNow(self) -> None:
        """Remember the present end of every partition: what comes later is for the next run."""
        ownership = self._live()
        consumer = ownership.consumer
        wanted = self._options.topics or {partition.topic for partition in self._options.partitions}
        everything = [
            TopicPartition(topic, number) for topic in sorted(wanted) for number in consumer.partitions_for(topic) or ()
        ]
        self._horizon = consumer.end_offsets(everything)

    def latestOffset(self, start: OffsetJson, limit: Any) -> OffsetJson:
        """Everything up to `start` is finished: commit that, then plan the next batch."""
        ownership = self._live()
        done = from_json(start)
        if start and start != self._finished:
            ownership.finish(done)
            self._finished = start
        cap = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        spans = ownership.plan(lambda owned: self._choose(owned, done, cap))
        if not any(span.size for span in spans.values()):
            return start
        return to_json(spans)

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        """The present end of what we own, for the query's progress."""
        if self._ownership is None or not self._owned:
            return None
        report: dict[str, dict[str, int]] = {}
        for (topic, partition), end in sorted(self._ownership.consumer.end_offsets(sorted(self._owned)).items()):
            report.setdefault(topic, {})[str(partition)] = end
        return report

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """The tasks of the batch that ends at `end`; also the first call after a crash, with the batch to repeat."""
        spans = from_json(end)
        if start == end:
            return []
        is_replay = self._ownership is None
        ownership = self._live()
        if is_replay:
            ownership.resume_batch(spans)
        return plan_tasks(spans)

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Runs in an executor."""
        return read_span(self._options, cast(SpanToRead, partition))

    def commit(self, end: OffsetJson) -> None:
        """Too late and not always called: see the module's laws."""

    def stop(self) -> None:
        """Called when the JVM is gone; also the end of a clean leave."""
        if self._ownership is not None:
            self._ownership.close()

    def _live(self) -> Ownership:
        """The ownership, joined; made on first use, in the one process that plans."""
        if self._ownership is None:
            is_member = self._options.group_id is not None
            self._ownership = GroupMember(self._options) if is_member else EveryPartition(self._options)
            self._leave_on_sigterm()
        self._ownership.wait_until_joined()
        return self._ownership

    def _leave_on_sigterm(self) -> None:
        # Spark ends this process by SIGTERM, without a call of stop() and without waiting.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda *_: self._exit())

    def _exit(self) -> None:
        # A second SIGTERM follows the first one; the leave must not start twice.
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        try:
            self.stop()
        finally:
            os._exit(0)

    def _choose(
        self, owned: set[TopicPartition], done: Mapping[TopicPartition, Span], cap: int | None
    ) -> dict[TopicPartition, Span]:
        """Spans for the next batch: from where each partition stands to its end, under the cap."""
        assert self._ownership is not None
        self._owned = owned
        positions = self._positions(owned, done)
        ends = self._ownership.consumer.end_offsets(sorted(owned)) if owned else {}
        if self._horizon is not None:
            ends = {partition: min(end, self._horizon.get(partition, 0)) for partition, end in ends.items()}
        spans = {
            partition: Span(start, max(start, ends.get(partition, start)))
            for partition, start in sorted(positions.items())
        }
        return share_limit(spans, cap)

    def _positions(self, owned: set[TopicPartition], done: Mapping[TopicPartition, Span]) -> dict[TopicPartition, int]:
        """Where each owned partition goes on: at the group's offset, after our last batch, or at its first start."""
        assert self._ownership is not None
        # Another query may have read on since our last batch; our checkpoint may be ahead of a commit that was lost.
        known = [self._ownership.committed(owned), {partition: span.end for partition, span in done.items()}]
        positions = {
            partition: max(offsets[partition] for offsets in known if partition in offsets)
            for partition in owned
            if any(partition in offsets for offsets in known)
        }
        fresh = sorted(owned - set(positions))
        if fresh:
            starts = self._first_starts(fresh, is_new_query=not done)
            self._ownership.begin_at(starts)
            positions.update(starts)
        return positions

    def _first_starts(self, partitions: list[TopicPartition], *, is_new_query: bool) -> dict[TopicPartition, int]:
        """`startingOffsets` for a new query; a partition that appears later is read from its beginning."""
        asked = LATEST if self._options.starting is None else self._options.starting
        if not is_new_query and self._options.group_id is None:
            asked = EARLIEST
        if isinstance(asked, dict):
            asked = {partition: asked.get(partition, EARLIEST) for partition in partitions}
        assert self._ownership is not None
        return resolve_offsets(self._ownership.consumer, partitions, asked)
