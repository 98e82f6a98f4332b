"""A streaming query: micro-batches over the partitions that the query owns.

Laws: Spark's checkpoint decides what the query has read; the group's offsets follow it. A batch counts as finished
when Spark passes its end as the `start` of the next `latestOffset`, which it does only once its commit log has the
batch. Spark calls `commit` later than that, and never for the last batch, so nothing depends on that call. The query's
name in its group is generated once and kept in its checkpoint.
Source: measured behaviour of PySpark 4.3; architecture, journey of a micro-batch.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, cast

import pyspark
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition

from kohort.client.consumer.consumer import Consumer
from kohort.client.records import ListedTopic
from kohort.errors import KohortError, KohortTimeoutError, StateError
from kohort.ids import TopicPartition
from kohort.spark import planning
from kohort.spark.member.lineage import Place
from kohort.spark.member.names import QueryName
from kohort.spark.member.ownership import EveryPartition, Existing, Ownership, Spans
from kohort.spark.member.requests import Places
from kohort.spark.member.thread import GroupMember
from kohort.spark.offsets import OffsetJson, QueryOffset, from_json, to_json
from kohort.spark.options import SourceOptions, tell_remarks
from kohort.spark.reading import SpansToRead, drop_renewed, read_spans, settle_positions

if TYPE_CHECKING:
    import pyarrow

try:
    from pyspark.sql.streaming.datasource import (
        ReadAllAvailable,
        ReadMaxBytes,
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
    """Raise `SparkTooOldError` if the stream reader cannot work."""
    if _SPARK_IS_TOO_OLD:
        raise SparkTooOldError


class KohortStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The reader of a stream, in a process of its own next to the driver; `read` runs in executors.

    Spark makes several of these and pickles them, so none opens a connection before the first call that needs one.
    """

    def __init__(self, options: SourceOptions) -> None:
        self._options = options
        self._ownership: Ownership | None = None
        #: The end of the last batch that this process planned; any other batch was planned by an earlier run.
        self._planned: OffsetJson | None = None
        self._name = QueryName(options.group_instance_id)
        #: Whether the trigger is AvailableNow.
        self._is_bounded = False
        #: For a new query: the partitions at its first plan, to which startingOffsets applies.
        self._existing_first: set[TopicPartition] | None = None
        self._limits = planning.BatchLimits(options)
        #: topic -> its id when this process first saw it, for a checkpoint without topic ids.
        self._seen_ids: dict[str, str] = {}
        #: Whether the plan continues at other offsets than the known ones, because records were lost.
        self._has_skipped = False
        #: Log end offsets of the partitions that the query owned when the last batch was planned.
        self._ends: dict[TopicPartition, int] = {}
        #: Log end offsets that an AvailableNow run must not pass; `None` for other triggers.
        self._horizon: dict[TopicPartition, int] | None = None

    # -- planning -----------------------------------------------------------------------------------------------------

    def initialOffset(self) -> OffsetJson:
        """Return an empty offset: a start is chosen once partitions are known. Spark calls this twice."""
        return to_json({}, name=self._known_as(None))

    def getDefaultReadLimit(self) -> Any:
        """Return one of the options that limit a batch, if one is set."""
        options = self._options
        # Spark's API takes one limit; kohort applies all that are set.
        if options.own["maxOffsetsPerTrigger"] is not None:
            return ReadMaxRows(options.own["maxOffsetsPerTrigger"])
        if options.own["maxBytesPerTrigger"] is not None:
            return ReadMaxBytes(options.own["maxBytesPerTrigger"])
        if options.own["minOffsetsPerTrigger"] is not None:
            return ReadMinRows(options.own["minOffsetsPerTrigger"])
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Mark the run as bounded (AvailableNow).

        The first plan fixes the end: before it the query does not know its name in the group.
        """
        self._is_bounded = True

    def latestOffset(self, start: OffsetJson, limit: Any) -> OffsetJson:
        """Plan the next batch; everything up to `start` is finished."""
        with self._reasons():
            ownership = self._open(from_json(start))
            try:
                return start if ownership.has_drained else self._plan(ownership, start, limit)
            except StateError:
                # As no batch was open the member has left during this call, on a request to drain.
                if not ownership.has_drained:
                    raise
                return start

    def reportLatestOffset(self) -> dict[str, dict[str, int]] | None:
        """Return the owned partitions' log end offsets at the last plan, for the query's progress."""
        report: dict[str, dict[str, int]] = {}
        for (topic, partition), end in sorted(self._ends.items()):
            report.setdefault(topic, {})[str(partition)] = end
        return report or None

    def partitions(self, start: OffsetJson, end: OffsetJson) -> Sequence[InputPartition]:
        """Return the tasks of the batch that ends at `end`.

        After a crash this is the first call, with the batch to repeat.
        """
        if start == end:
            return []
        before, wanted = from_json(start), from_json(end)
        spans = wanted.following(before)
        if end != self._planned:
            with self._reasons():
                ownership = self._open(wanted)
                topics = planning.find_topics(ownership.consumer, self._options)
                existing = _with_ids(planning.partitions_of(topics, self._options), topics)
                self._note_first(ownership, topics, existing, is_new=False)
                renewed = self._find_renewed(topics, wanted)
                spans = ownership.resume(before, wanted, existing, renewed)
                spans = drop_renewed(spans, renewed, fails=self._options.own["failOnDataLoss"])
            self._planned = end
            ownership.note_planned(end)
        assert self._ownership is not None
        self._ownership.note_logged()
        return planning.plan_tasks(spans, self._options, topic_ids=wanted.topic_ids)

    # -- the rest of Spark's calls ------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pyarrow.RecordBatch]:
        """Read the records of a task; runs in an executor."""
        return read_spans(self._options, cast(SpansToRead, partition))

    def commit(self, end: OffsetJson) -> None:
        """Do nothing: Spark calls this late, and not for every batch; see the module's laws."""

    def stop(self) -> None:
        """Close the stream after a failed call or the end of the JVM."""
        # If a query ends normally, Spark ends this process by SIGTERM instead.
        self._limits.close()
        if self._ownership is not None:
            self._ownership.close()

    # -- inside -------------------------------------------------------------------------------------------------------

    def _plan(self, ownership: Ownership, start: OffsetJson, limit: Any) -> OffsetJson:
        """Return the end of the next batch; `start` itself if there is nothing to do."""
        done = from_json(start)
        # A deleted topic is reported before its offsets are committed, or its partitions waited for.
        topics = planning.find_topics(ownership.consumer, self._options)
        existing = _with_ids(planning.partitions_of(topics, self._options), topics)
        self._note_first(ownership, topics, existing, is_new=not done.spans)
        renewed = self._find_renewed(topics, done)
        self._has_skipped = False
        plan = ownership.plan(
            done,
            existing,
            lambda places: self._choose(
                ownership.consumer,
                {each: places[each] for each in existing if each in places},
                renewed=renewed,
                # A trigger of `once` asks for everything.
                is_limited=not isinstance(limit, ReadAllAvailable),
            ),
            renewed=renewed,
        )
        end = plan.offset(
            start,
            done,
            name=self._known_as(done.name),
            topic_ids={**done.topic_ids, **{name: topic.topic_id for name, topic in topics.items() if topic.topic_id}},
            renewed={name: done.topic_ids.get(name, self._seen_ids[name]) for name in renewed},
            has_skipped=self._has_skipped,
        )
        if end is not start:
            self._planned = end
            ownership.note_planned(end)
        return end

    def _known_as(self, stored: str | None) -> str | None:
        return None if self._options.group_id is None else self._name.take(stored)

    def _open(self, offset: QueryOffset) -> Ownership:
        """Open the ownership on first use, in the one process that plans."""
        if self._ownership is None:
            tell_remarks(self._options)
            name = self._known_as(offset.name)
            if name is None:
                self._ownership = EveryPartition(self._options)
            else:
                self._ownership = member = GroupMember(self._options, name, is_bounded=self._is_bounded)
                member.leave_on_sigterm()
        return self._ownership

    def _note_first(
        self,
        ownership: Ownership,
        topics: Mapping[str, ListedTopic],
        existing: Existing,
        *,
        is_new: bool,
    ) -> None:
        """Note at the first plan where a new query starts and where a bounded run ends."""
        if self._is_bounded and self._horizon is None:
            self._horizon = ownership.consumer.end_offsets(list(existing))
        if self._existing_first is None:
            self._existing_first = set(existing) if is_new else set()
            if is_new:
                planning.check_starts(list(existing), self._options.starting)
        for name, topic in topics.items():
            self._seen_ids.setdefault(name, topic.topic_id)

    def _find_renewed(self, topics: Mapping[str, ListedTopic], offset: QueryOffset) -> set[str]:
        """Return the topics with other ids than those of the offset."""
        renewed = planning.find_renewed(topics, {**self._seen_ids, **offset.topic_ids})
        assert self._existing_first is not None
        # Such a topic is newer than the query, so startingOffsets does not apply to it.
        self._existing_first = {each for each in self._existing_first if each.topic not in renewed}
        return renewed

    @contextmanager
    def _reasons(self) -> Iterator[None]:
        """Raise the cause of a `StateError` or a timeout instead of that error, if it is known."""
        try:
            yield
        except StateError:
            if self._ownership is not None:
                self._ownership.check()
            raise
        except KohortTimeoutError:
            if self._ownership is not None:
                # Requests for a deleted topic end in timeouts; this raises `UnknownTopicError`.
                planning.find_partitions(self._ownership.consumer, self._options)
            raise

    def _choose(self, consumer: Consumer, places: Places, *, renewed: Collection[str], is_limited: bool) -> Spans:
        """Choose the spans of the next batch under the limits; empty spans mean to wait."""
        assert self._existing_first is not None
        partitions = list(places)
        fresh = [partition for partition, place in places.items() if place is None]
        positions = planning.find_first_starts(consumer, self._options, fresh, existing_first=self._existing_first)
        stops: dict[TopicPartition, int] = {}
        for partition, place in places.items():
            if place is not None:
                positions[partition] = place.start
                if place.stop is not None:
                    stops[partition] = place.stop
        self._ends = consumer.end_offsets(partitions)
        begins = consumer.beginning_offsets(partitions)
        settled = settle_positions(
            {each: positions[each] for each in partitions},
            begins=begins,
            ends=self._ends,
            renewed=[each for each in partitions if each.topic in renewed and is_own(places[each])],
            fails=self._options.own["failOnDataLoss"],
        )
        self._has_skipped = settled != positions
        positions = settled
        # Other queries have read beyond a stop; after skipped offsets the position may lie beyond it, too.
        ends = {each: max(positions[each], min(end, stops.get(each, end))) for each, end in self._ends.items()}
        spans = planning.choose_spans(positions, ends, horizon=self._horizon)
        if not is_limited:
            return spans
        return self._limits.apply(spans, may_wait=self._horizon is None, now_s=time.monotonic())


def is_own(place: Place | None) -> bool:
    """Return whether this position is from the query's own checkpoint, not from another member."""
    # Deleting a topic deletes the groups' offsets for it, so other members' offsets are those of the new topic.
    return place is not None and len(place.chain) <= 1


def _with_ids(partitions: Sequence[TopicPartition], topics: Mapping[str, ListedTopic]) -> Existing:
    return {each: topics[each.topic].topic_id for each in partitions}
