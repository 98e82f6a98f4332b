"""A listener of queries that read Kafka: it counts lag, batches and moves, and notifies their readers.

Laws: an error here neither ends nor delays a query; the state of a query is dropped when it ends.
Source: Spark's StreamingQueryListener, which is called after a batch, by one thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from uuid import UUID

from pyspark.sql.streaming import listener

from kohort.ids import TopicPartition
from kohort.metrics.exposition import escape
from kohort.spark.driver_channel import BatchDone, fingerprint, post
from kohort.spark.offsets import SourceState, read_sources

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchReport:
    """A query's report after a batch, or while it had nothing to read."""

    #: The query's name, or its id.
    query: str
    batch_id: int
    records: int
    duration_ms: int
    #: Partition -> number of unread offsets at the plan, for the partitions that the query owned then.
    lag: dict[TopicPartition, int]
    #: Partitions gained and lost since the last report.
    gained: frozenset[TopicPartition]
    lost: frozenset[TopicPartition]


@dataclass(slots=True)
class _Query:
    """The listener's state of a running query."""

    name: str
    batches: int = 0
    records: int = 0
    gained: int = 0
    lost: int = 0
    last: BatchReport | None = None


class QueryListener(listener.StreamingQueryListener):
    """A listener of every streaming query of a session that reads Kafka, by kohort or by Spark's source.

    With it, offsets are committed as soon as Spark has finished a batch instead of with the next trigger, and revoked
    partitions are given up then, too. Moves of partitions are logged, and `metrics` returns the numbers.

    Args:
        on_report: called with each `BatchReport`, in the listener's thread; its exceptions are logged.

    >>> from kohort.spark import QueryListener
    >>> spark.streams.addListener(QueryListener(print))  # doctest: +SKIP
    >>> QueryListener().metrics()
    {}
    """

    def __init__(self, on_report: Callable[[BatchReport], object] | None = None) -> None:
        if on_report is not None and not callable(on_report):
            raise TypeError(f"on_report cannot be {on_report!r}: a function of a BatchReport is expected")
        self._on_report = on_report
        self._lock = threading.Lock()
        #: run id -> the numbers of its query; only running queries.
        self._queries: dict[UUID, _Query] = {}

    def metrics(self) -> dict[str, float]:
        """Return the metrics of running queries, in names that `kohort.to_prometheus` accepts.

        Lag is a number of offsets, durations are in milliseconds; totals count from the start of the query's run.
        """
        found: dict[str, float] = {}
        with self._lock:
            for query in self._queries.values():
                if query.last is None:
                    continue
                label = f'query="{escape(query.name)}"'
                of = f"{{{label}}}"
                found[f"batches-total{of}"] = query.batches
                found[f"records-consumed-total{of}"] = query.records
                found[f"batch-duration-ms{of}"] = query.last.duration_ms
                found[f"assigned-partitions{of}"] = len(query.last.lag)
                found[f"partitions-gained-total{of}"] = query.gained
                found[f"partitions-lost-total{of}"] = query.lost
                found[f"records-lag-max{of}"] = max(query.last.lag.values(), default=0)
                for (topic, number), lag in sorted(query.last.lag.items()):
                    found[f'records-lag{{{label},topic="{topic}",partition="{number}"}}'] = lag
        return found

    # -- Spark's calls ------------------------------------------------------------------------------------------------

    def onQueryStarted(self, event: listener.QueryStartedEvent) -> None:
        """Do nothing: a started query has no numbers yet."""

    def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:
        """Note the progress of a query: a batch is finished, or there was nothing to read for a while."""
        progress = event.progress
        states = read_sources(progress)
        if not states:
            return
        for state in states:
            if state.name is not None:
                post(state.name, BatchDone(fingerprint(state.end)))
        report = self._note(progress, states)
        if report.gained or report.lost:
            _log.info(
                "query=%s batch=%d partitions moved: gained=%s lost=%s",
                report.query,
                report.batch_id,
                _join(report.gained),
                _join(report.lost),
            )
        if self._on_report is not None:
            try:
                self._on_report(report)
            except Exception:
                _log.exception("query=%s on_report has failed", report.query)

    def onQueryIdle(self, event: listener.QueryIdleEvent) -> None:
        """Do nothing: the event has no offsets."""

    def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None:
        """Drop the numbers of an ended query, and log the reason if its reader's process was lost."""
        with self._lock:
            query = self._queries.pop(event.runId, None)
        if query is not None and _lost_its_reader(event.exception or ""):
            _log.error(
                "query=%s its reader's process was killed, or has run out of memory, and Spark has ended the query "
                "without a reason; start it again: its partitions wait for it for the session timeout, nothing is lost",
                query.name,
            )

    # -- inside -------------------------------------------------------------------------------------------------------

    def _note(self, progress: listener.StreamingQueryProgress, states: Sequence[SourceState]) -> BatchReport:
        lag: dict[TopicPartition, int] = {}
        for state in states:
            for partition, behind in state.lag.items():
                # A query may read a partition twice, in a join with itself.
                lag[partition] = max(behind, lag.get(partition, 0))
        with self._lock:
            query = self._queries.setdefault(progress.runId, _Query(progress.name or str(progress.id)))
            before = lag.keys() if query.last is None else query.last.lag.keys()
            query.last = report = BatchReport(
                query=query.name,
                batch_id=progress.batchId,
                records=sum(state.records for state in states),
                duration_ms=progress.batchDuration,
                lag=lag,
                gained=frozenset(lag.keys() - before),
                lost=frozenset(before - lag.keys()),
            )
            # Progress without records has no batch.
            query.batches += "addBatch" in progress.durationMs
            query.records += report.records
            query.gained += len(report.gained)
            query.lost += len(report.lost)
        return report


def _lost_its_reader(exception: str) -> bool:
    """Return whether Spark has lost the connection to a Python source."""
    # An error that such a source raises itself has another class.
    return exception.startswith(("java.io.", "java.net.")) and "PythonStreamingSourceRunner" in exception


def _join(partitions: Iterable[TopicPartition]) -> str:
    return ",".join(map(str, sorted(partitions))) or "-"
