"""A streaming query: micro-batches over the partitions that the query owns.

Laws: Spark's checkpoint is the authority of what the query has read; the group's offsets follow it. A batch counts as
finished when its end comes back as the `start` of the next `latestOffset`, because Spark passes it only once its commit
log has it; `commit` comes later than that, and never for the last batch, so nothing hangs on it. The query's name in
its group is minted once and lives in its checkpoint.
Source: measured behaviour of PySpark 4.3; architecture, journey of a micro-batch.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kohort.errors import KohortError, KohortTimeoutError, StateError
from kohort.ids import TopicPartition
from kohort.spark.limits import BatchDelay
from kohort.spark.losses import settle_positions
from kohort.spark.member.requests import Places
from kohort.spark.member.thread import GroupMember
from kohort.spark.offsets import OffsetJson, QueryOffset, Span, from_json, share_limit, to_json
from kohort.spark.options import SourceOptions, tell_remarks
from kohort.spark.ownership import EveryPartition, Ownership, Spans
from kohort.spark.planning import check_starts, choose_spans, find_first_starts, find_partitions
from kohort.spark.reading import SpanToRead, read_span
from kohort.spark.tasks import plan_tasks

if TYPE_CHECKING:
    import pyarrow

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxRows,
        ReadMinRows,
        SupportsTriggerAvailableNow,
    )

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
        #: The end of the last batch that this process planned; any other batch was planned by an earlier run.
        self._planned: OffsetJson | None = None
        #: Of the query in its group, from its checkpoint; minted for a new query.
        self._name: str | None = None
        #: An AvailableNow run.
        self._is_bounded = False
        #: For a new query: what there was when it first planned, which is where startingOffsets applies.
        self._existing_first: set[TopicPartition] | None = None
        least = options.min_offsets_per_trigger
        #: `None` where a batch may be as small as it likes.
        self._delay = (
            None if least is None else BatchDelay(min_offsets=least, max_delay_ms=options.max_trigger_delay_ms)
        )
        #: Ends of what was ours when the last batch was planned.
        self._ends: dict[TopicPartition, int] = {}
        #: Ends that an AvailableNow run must not pass; `None` for other triggers.
        self._horizon: dict[TopicPartition, int] | None = None

    # -- planning -----------------------------------------------------------------------------------------------------

    def initialOffset(self) -> OffsetJson:
        """Nothing is read yet; where to start is decided when partitions are known. Spark asks twice."""
        return to_json({}, name=self._known_as(None))

    def getDefaultReadLimit(self) -> Any:
        """`maxOffsetsPerTrigger`, or `minOffsetsPerTrigger`, if one is set; a limit of Spark's is only one of them."""
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """What comes after the next call is for the next run: before it nobody knows under which name to join."""
        self._is_bounded = True

    def latestOffset(self, start: OffsetJson, limit: Any) -> OffsetJson:
        """Everything up to `start` is finished; plan the next batch."""
        done = from_json(start)
        cap = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        # A trigger of `once` asks for everything.
        delay = None if isinstance(limit, ReadAllAvailable) else self._delay
        with self._reasons():
            ownership = self._open(done)
            if ownership.has_drained:
                return start
            # That a topic is gone is said before anything of it is committed, or waited for.
            existing = self._look_up(ownership, is_new=not done.spans)
            plan = ownership.plan(
                done, lambda places: self._choose(ownership, places, existing=existing, cap=cap, delay=delay)
            )
        # A new query writes its starts into the checkpoint even if there is nothing to read yet.
        if not any(span.size for span in plan.spans.values()) and (done.spans or not plan.spans):
            return start
        self._planned = to_json({**plan.others, **plan.spans}, name=self._name, since=plan.since)
        ownership.note_planned(self._planned)
        return self._planned

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        """The ends of what we own, as of the last plan, for the query's progress."""
        report: dict[str, dict[str, int]] = {}
        for (topic, partition), end in sorted(self._ends.items()):
            report.setdefault(topic, {})[str(partition)] = end
        return report or None

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """The tasks of the batch that ends at `end`; also the first call after a crash, with the batch to repeat."""
        if start == end:
            return []
        before, wanted = from_json(start), from_json(end)
        spans = wanted.following(before)
        if end != self._planned:
            with self._reasons():
                ownership = self._open(wanted)
                self._look_up(ownership, is_new=False)
                spans = ownership.resume(before, wanted)
            self._planned = end
            ownership.note_planned(end)
        return plan_tasks(spans, self._options)

    # -- the rest of Spark's calls ------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Runs in an executor."""
        return read_span(self._options, cast(SpanToRead, partition))

    def commit(self, end: OffsetJson) -> None:
        """Too late and not always called: see the module's laws."""

    def stop(self) -> None:
        """Called when a call has failed or the JVM is gone; a query that ends normally sends SIGTERM instead."""
        if self._ownership is not None:
            self._ownership.close()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _known_as(self, stored: str | None) -> str | None:
        """The query's name: that of its checkpoint, else one that is minted once in a process."""
        if self._options.group_id is None:
            return None
        # Spark asks for the initial offset before it repeats a query's first batch, which has the name in its end.
        self._name = stored or self._name or self._options.group_instance_id or f"kohort-{secrets.token_hex(4)}"
        return self._name

    def _open(self, offset: QueryOffset) -> Ownership:
        """Made on first use, in the one process that plans."""
        if self._ownership is None:
            tell_remarks(self._options)
            name = self._known_as(offset.name)
            if name is None:
                self._ownership = EveryPartition(self._options)
            else:
                self._ownership = member = GroupMember(self._options, name)
                member.leave_on_sigterm()
            self._ownership.is_bounded = self._is_bounded
        return self._ownership

    def _look_up(self, ownership: Ownership, *, is_new: bool) -> list[TopicPartition]:
        """What there is to read now; the first look says where a new query starts and a bounded one ends."""
        existing = find_partitions(ownership.consumer, self._options)
        if self._is_bounded and self._horizon is None:
            self._horizon = ownership.consumer.end_offsets(existing)
        if self._existing_first is None:
            self._existing_first = set(existing) if is_new else set()
            if is_new:
                check_starts(existing, self._options.starting)
        return existing

    @contextmanager
    def _reasons(self) -> Iterator[None]:
        """Let the reason be raised where an error is only what follows from it."""
        try:
            yield
        except StateError:
            if self._ownership is not None:
                self._ownership.check()
            raise
        except KohortTimeoutError:
            if self._ownership is not None:
                # Nothing is answered about a topic that was deleted.
                find_partitions(self._ownership.consumer, self._options)
            raise

    def _choose(
        self,
        ownership: Ownership,
        places: Places,
        *,
        existing: Sequence[TopicPartition],
        cap: int | None,
        delay: BatchDelay | None,
    ) -> Spans:
        """Spans for the next batch: from where each partition stands to its end, under the cap; empty ones to wait."""
        assert self._existing_first is not None
        consumer = ownership.consumer
        partitions = [partition for partition in existing if partition in places]
        fresh = [partition for partition in partitions if places[partition] is None]
        positions = find_first_starts(consumer, self._options, fresh, existing_first=self._existing_first)
        stops: dict[TopicPartition, int] = {}
        for partition in partitions:
            place = places[partition]
            if place is not None:
                positions[partition] = place.start
                if place.stop is not None:
                    stops[partition] = place.stop
        self._ends = consumer.end_offsets(partitions)
        begins = consumer.beginning_offsets(partitions)
        positions = settle_positions(
            {each: positions[each] for each in partitions},
            begins=begins,
            ends=self._ends,
            fails=self._options.fails_on_data_loss,
        )
        # Behind a stop others have read; what was skipped may lie beyond it.
        ends = {each: max(positions[each], min(end, stops.get(each, end))) for each, end in self._ends.items()}
        spans = choose_spans(positions, ends, horizon=self._horizon)
        if delay is not None and self._horizon is None and delay.hold_back(spans, now_s=time.monotonic()):
            return {partition: Span(span.start, span.start) for partition, span in spans.items()}
        return share_limit(spans, cap)
