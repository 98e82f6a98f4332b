"""The orderly stop of a query: it gives up its partitions first, and no record is read twice.

Laws: a query is stopped only after its reader has left its group, or if it has no group. A stop that takes too long
raises in time; the query then runs on, and drains as requested.
Source: Spark ends a reader by a signal, in a batch or between two. It is then unknown whether the planned spans were
read, unless the reader has drained.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from kohort.errors import ConfigError, KohortTimeoutError, StateError
from kohort.ids import TopicPartition
from kohort.spark.driver_channel import BatchDone, Drain, fingerprint, is_open, post
from kohort.spark.offsets import SourceState, read_sources

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import StreamingQueryProgress
    from pyspark.sql.streaming.query import StreamingQuery


_LOOK_UP_S: Final = 0.05
#: A day: a longer timeout is refused as a mistake, such as milliseconds.
_LONGEST_S: Final = 86_400.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopped:
    """The final state of a stopped query."""

    #: The query's name, or its id.
    query: str
    #: The number of its last finished batch, -1 if there is none.
    batch_id: int
    #: Partition -> the next offset to read; the smaller one if two sources read a partition.
    ends: Mapping[TopicPartition, int]
    #: Names of the members that have given up their partitions; empty for a query without a group.
    drained: tuple[str, ...]


def drain_and_stop(query: StreamingQuery, timeout: float = 60.0) -> Stopped:
    """Let a query finish its batch and give its partitions up, then stop it.

    The other members of its group continue at once from its last offsets, and nothing is read twice. A query without a
    group is just stopped: its checkpoint has all its offsets. A query that has ended already is left as it is.

    Args:
        query: the query that `start()` has returned.
        timeout: seconds until the batch has to be finished.

    Raises:
        KohortTimeoutError: the query has not drained in time; it runs on, and gives its partitions up once it can.
        StateError: the query's reader cannot be reached: it runs on another machine, or before PySpark 4.2.

    >>> drain_and_stop(query)  # doctest: +SKIP
    Stopped(query='departures', batch_id=12, ends={...}, drained=('q-1',))
    """
    if not callable(getattr(query, "stop", None)) or not hasattr(query, "lastProgress"):
        raise TypeError(f"a streaming query is expected, as start() returns it, not {type(query).__name__}")
    if isinstance(timeout, bool) or not isinstance(timeout, (int, float)):
        raise TypeError(f"timeout must be seconds, not {type(timeout).__name__}")
    if not 0 <= timeout <= _LONGEST_S:
        raise ConfigError(f"timeout cannot be {timeout}: 0 to {_LONGEST_S:g} seconds are expected")
    drain = _Drain(query, time.monotonic() + timeout, timeout)
    drained = drain.run() if query.isActive else ()
    query.stop()
    return _report(query, drained)


class _Drain:
    """One call of `drain_and_stop`, up to the stop."""

    def __init__(self, query: StreamingQuery, deadline_s: float, timeout_s: float) -> None:
        self._query = query
        self._deadline_s = deadline_s
        self._timeout_s = timeout_s

    def run(self) -> tuple[str, ...]:
        """Wait until the query's members have given up everything and left; return their names."""
        states = self._first_states()
        names = tuple(sorted({state.name for state in states if state.name is not None}))
        unheard = [name for name in names if not (post(name, Drain()) or is_open(name))]
        if unheard:
            raise StateError(
                f"query {_name(self._query)} cannot be drained: its reader {', '.join(unheard)} is not on this machine "
                "or has just ended; call query.stop(), after which its partitions wait for it for the session timeout"
            )
        said = None
        while self._query.isActive and any(is_open(name) for name in names):
            # Without this message the reader learns of its finished batch at the next trigger, perhaps much later.
            states = self._states()
            ends = {state.name: fingerprint(state.end) for state in states if state.name is not None}
            if ends != said:
                said = ends
                for name, end in ends.items():
                    post(name, BatchDone(end))
                    post(name, Drain())
            self._wait("has not given its partitions up")
        return names

    def _first_states(self) -> list[SourceState]:
        """Return the states of the query's sources, once its first batch is finished."""
        while self._query.isActive and self._query.lastProgress is None:
            self._wait("has not finished its first batch")
        return self._states()

    def _states(self) -> list[SourceState]:
        progress = self._query.lastProgress
        return read_sources(progress) if progress is not None else []

    def _wait(self, what: str) -> None:
        if time.monotonic() > self._deadline_s:
            raise KohortTimeoutError(
                f"query {_name(self._query)} {what} within {self._timeout_s:g} s; it runs on: call drain_and_stop "
                "again with more time, or query.stop(), after which its last batch may be in doubt"
            )
        time.sleep(_LOOK_UP_S)


def _name(query: Any) -> str:
    return str(query.name or query.id)


def _report(query: StreamingQuery, drained: tuple[str, ...]) -> Stopped:
    progress = query.lastProgress
    ends: dict[TopicPartition, int] = {}
    for state in read_sources(progress) if progress is not None else ():
        for partition, end in state.ends.items():
            ends[partition] = min(end, ends.get(partition, end))
    return Stopped(query=_name(query), batch_id=last_batch_id(progress), ends=ends, drained=drained)


def last_batch_id(progress: StreamingQueryProgress | None) -> int:
    """Return the number of the last batch that a query's run has finished, -1 before that."""
    if progress is None:
        return -1
    # Progress without records has the number of the next batch.
    return progress.batchId if "addBatch" in progress.durationMs else progress.batchId - 1
