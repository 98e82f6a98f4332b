"""Commits of offsets to a group for queries on Spark's own Kafka source, so that lag tools see them.

Laws: the query is not affected: a commit that fails is tried again, or logged at the end. Only ends of finished batches
are committed. Spark's listener only stores progress; a thread of its own sends the commits.
Source: Spark's source commits nothing (SPARK-27549); a listener is called after Spark has written its commit log.
"""

from __future__ import annotations

import atexit
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, Unpack
from uuid import UUID

from pyspark.sql.streaming import listener

from kohort.client.admin.admin import Admin
from kohort.client.consumer.consumer import Consumer
from kohort.client.options import CONSUMER_OPTIONS
from kohort.client.typed_options import SharedOptions
from kohort.errors import BrokerError, ConfigError, ErrorCode, FencedError, KohortError, StateError
from kohort.ids import TopicPartition
from kohort.spark.offsets import read_sources

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_log = logging.getLogger(__name__)

#: The timeout of one attempt to commit; closing waits for it at most.
_ATTEMPT_S: Final = 5.0
#: The pause before the next attempt for a group whose commit has failed.
_PAUSE_S: Final = 2.0
_LOOK_UP_S: Final = 0.05
_AT_EXIT_S: Final = 5.0


def follow(spark: SparkSession, group_id: str | Mapping[str, str], **options: Unpack[SharedOptions]) -> Follower:
    """Commit the progress of streaming queries that read Kafka without a group to a group.

    These are all queries on Spark's own `format("kafka")`, real-time mode included, and on `format("kohort")` without
    `kafka.group.id`. Offsets are committed as soon as Spark reports a finished batch; nothing else changes for the
    queries. Offsets never move backwards; if two queries of one group read a partition, the slower one counts.

    `spark`: the session whose queries are followed, including those that run already. `group_id`: the group, which must
    have no members; or a dictionary from `queryName` to group, and then queries that it does not name are not followed.
    `options`: how to reach the brokers, as for `kohort.Consumer`.

    Raises:
        StateError: the group has members, which commit its offsets themselves.
        ConfigError: an option is unknown or has an invalid value, or a name is empty.

    >>> with follow(spark, "reports", bootstrap_servers="127.0.0.1:9092"):  # doctest: +SKIP
    ...     query.awaitTermination()
    """
    follower = Follower(spark, group_id, **options)
    try:
        follower.start()
    except BaseException:
        follower.close(0)
        raise
    return follower


class Follower(listener.StreamingQueryListener):
    """A listener of a Spark session that commits its queries' progress, until `close`.

    `follow` returns it. It is a context manager, which commits the last progress of its queries at its end. If a
    program does not close it, that progress is committed when the program exits.

    >>> follower.committed  # doctest: +SKIP
    {'reports': {TopicPartition(topic='orders', partition=0): 42}}
    """

    def __init__(self, spark: SparkSession, group_id: str | Mapping[str, str], **options: Any) -> None:
        if not hasattr(spark, "streams"):
            raise TypeError(f"a Spark session is expected, not {type(spark).__name__}")
        self._session = spark
        self._group_of = check_groups(group_id)
        self._groups = [group_id] if isinstance(group_id, str) else sorted(set(group_id.values()))
        # A wrong name or value raises here, not in the thread.
        CONSUMER_OPTIONS.parse({name: value for name, value in options.items() if value is not None})
        self._options = options
        self._consumers: dict[str, Consumer] = {}
        self._changed = threading.Condition()
        # Guarded by the condition:
        self._progress = ProgressCommits()
        #: Ids of runs that have started or reported progress, and have not ended.
        self._running: set[UUID] = set()
        self._trouble: dict[str, KohortError] = {}
        self._is_closing = False
        self._thread = threading.Thread(target=self._run, name="kohort-spark-follow", daemon=True)

    @property
    def committed(self) -> dict[str, Offsets]:
        """The known committed offsets: group -> partition -> offset."""
        with self._changed:
            return self._progress.committed()

    @property
    def trouble(self) -> dict[str, KohortError]:
        """The error of the last attempt to commit, by group; empty if all commits succeed."""
        with self._changed:
            return dict(self._trouble)

    def start(self) -> None:
        """Check that the groups have no members, then listen to the session; `follow` calls this."""
        self._refuse_members()
        self._thread.start()
        self._session.streams.addListener(self)
        atexit.register(self.close, _AT_EXIT_S)

    def close(self, timeout: float = 30.0) -> None:
        """Wait for the queries' last progress, commit it, and stop listening; a second call does nothing.

        `timeout`: seconds; offsets that could not be committed until then are logged.
        """
        atexit.unregister(self.close)
        deadline_s = time.monotonic() + timeout
        if self._thread.is_alive():
            self._hear_the_rest(deadline_s)
            with self._changed:
                while self._progress.groups() and time.monotonic() < deadline_s and not self._is_closing:
                    self._changed.wait(_LOOK_UP_S)
                for group in self._progress.groups():
                    why = self._trouble.get(group, "there was no time")
                    _log.warning("group=%s offsets are not committed: %s", group, why)
                self._is_closing = True
                self._changed.notify_all()
            self._thread.join(_ATTEMPT_S)
        for consumer in self._consumers.values():
            consumer.close(timeout=0)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # -- Spark's calls; they only note --------------------------------------------------------------------------------

    def onQueryStarted(self, event: listener.QueryStartedEvent) -> None:
        """Note a started query; `close` awaits its end."""
        with self._changed:
            self._running.add(event.runId)

    def onQueryProgress(self, event: listener.QueryProgressEvent) -> None:
        """Note the progress of a query: a batch is finished, or there was nothing to read for a while."""
        self.note(event.progress)

    def onQueryIdle(self, event: listener.QueryIdleEvent) -> None:
        """Do nothing: the event has no offsets."""

    def onQueryTerminated(self, event: listener.QueryTerminatedEvent) -> None:
        """Note the end of a query, which reports no more progress."""
        with self._changed:
            self._running.discard(event.runId)
            self._progress.end(event.id)
            self._changed.notify_all()

    def note(self, progress: listener.StreamingQueryProgress) -> None:
        """Note the offsets that a query has read."""
        group = self._group_of(progress.name)
        states = [state for state in read_sources(progress) if state.name is None]
        if group is None or not states:
            return
        with self._changed:
            self._running.add(progress.runId)
            self._progress.note(group, progress.id, (end for state in states for end in state.ends.items()))
            self._changed.notify_all()

    # -- the thread ---------------------------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._is_closing and not self._progress.groups():
                    self._changed.wait()
                if self._is_closing:
                    return
                groups = self._progress.groups()
            done = [self._commit(group) for group in groups]
            if not all(done):
                with self._changed:
                    self._changed.wait_for(lambda: self._is_closing, _PAUSE_S)

    def _commit(self, group: str) -> bool:
        """Try once to commit a group's offsets; return whether that succeeded."""
        consumer = self._consumers.get(group)
        if consumer is None:
            settings = {**self._options, "group_id": group, "enable_auto_commit": False}
            consumer = self._consumers[group] = Consumer(**settings)
        # No error of a broker ends the thread.
        try:
            with self._changed:
                unknown = self._progress.unknown(group)
            if unknown:
                self._drop_missing(group, consumer)
                known = consumer.committed(unknown, _ATTEMPT_S)
                with self._changed:
                    self._progress.know(group, known)
            with self._changed:
                due = self._progress.due(group)
            if due:
                consumer.commit(due, timeout=_ATTEMPT_S)
        except KohortError as why:
            self._complain(group, _members(group) if isinstance(why, FencedError) else why)
            return False
        with self._changed:
            self._progress.know(group, due)
            if self._trouble.pop(group, None) is not None:
                _log.info("group=%s offsets are committed again", group)
            self._changed.notify_all()
        return True

    def _complain(self, group: str, why: KohortError) -> None:
        with self._changed:
            # A part of the offsets may be committed, and a topic may be deleted, for which requests time out.
            self._progress.doubt(group)
            if str(self._trouble.get(group)) != str(why):
                _log.warning("group=%s offsets are committed later: %s", group, why)
            self._trouble[group] = why

    def _drop_missing(self, group: str, consumer: Consumer) -> None:
        with self._changed:
            topics = sorted({partition.topic for partition in self._progress.due(group)})
        missing = set(topics) - consumer.describe_topics(topics, _ATTEMPT_S).keys()
        if missing:
            _log.warning("group=%s offsets of topics that do not exist: %s", group, ",".join(sorted(missing)))
            with self._changed:
                self._progress.drop(group, missing)

    # -- beginning and end --------------------------------------------------------------------------------------------

    def _refuse_members(self) -> None:
        settings = {**self._options, "default_api_timeout_ms": round(1000 * _ATTEMPT_S)}
        with Admin(**settings) as admin:
            for group in self._groups:
                try:
                    has_members = bool(admin.describe_group(group).members)
                except BrokerError as why:
                    if why.code is ErrorCode.GROUP_ID_NOT_FOUND:
                        continue
                    raise
                except KohortError as why:
                    if not why.retriable:
                        raise
                    _log.warning("group=%s offsets are committed later: %s", group, why)
                    return
                if has_members:
                    raise _members(group)

    def _hear_the_rest(self, deadline_s: float) -> None:
        """Wait for the last progress of queries that have ended, and read that of running ones."""
        # Spark delivers the progress of a batch some time after the batch.
        while True:
            try:
                active = {query.runId: query for query in self._session.streams.active}
            except Exception as why:
                # The session is stopped, so no more events arrive.
                _log.debug("the session cannot be asked any more: %s", why)
                return
            with self._changed:
                ending = self._running - {UUID(str(run)) for run in active}
            if not ending or time.monotonic() >= deadline_s:
                break
            time.sleep(_LOOK_UP_S)
        for query in active.values():
            progress = query.lastProgress
            if progress is not None:
                self.note(progress)
        self._session.streams.removeListener(self)


def check_groups(group_id: object) -> Callable[[str | None], str | None]:
    """Return a function from a query's name to its group, or to `None` if it is not followed."""
    if not isinstance(group_id, (str, Mapping)):
        raise TypeError(f"group_id cannot be {group_id!r}: a name, or {{query name: group}}, is expected")
    groups: dict[str, str] = {"": group_id} if isinstance(group_id, str) else dict(group_id)
    if not groups:
        raise ConfigError("group_id names no group: {query name: group} is expected")
    for query, group in groups.items():
        if not isinstance(query, str) or not isinstance(group, str):
            raise TypeError(f"group_id cannot have {query!r}: {group!r}: {{query name: group}} is expected")
        if not group:
            raise ConfigError("group_id is empty: the name of a group is expected")
    if isinstance(group_id, str):
        return lambda _: group_id
    return lambda name: groups.get(name) if name is not None else None


def _members(group: str) -> StateError:
    return StateError(
        f"group {group} has members, whose offsets they are: stop them, or follow queries under a group of their own"
    )


Offsets = dict[TopicPartition, int]

#: Stands for a group's missing offset; lower than every offset.
NONE: Final = -1


# Pure. A group's offset never moves backwards; where several running queries of one group read a partition, the slowest
# counts; a query that has ended counts until its last offsets are committed.
class ProgressCommits:
    """The offsets due for commit, by group; a query is any value that stays equal over its restarts."""

    def __init__(self) -> None:
        #: group -> query -> the next offset that it reads of each partition.
        self._ends: dict[str, dict[object, Offsets]] = {}
        #: group -> its queries that have ended, a subset of those of `_ends`.
        self._ended: dict[str, set[object]] = {}
        #: group -> its committed offsets, for the partitions for which they were fetched.
        self._known: dict[str, Offsets] = {}

    def note(self, group: str, query: object, ends: Iterable[tuple[TopicPartition, int]]) -> None:
        """Note a finished batch of a query; a partition that it reads twice is at its slower position."""
        found: Offsets = {}
        for partition, end in ends:
            found[partition] = min(end, found.get(partition, end))
        self._ends.setdefault(group, {}).setdefault(query, {}).update(found)
        self._ended.get(group, set()).discard(query)

    def end(self, query: object) -> None:
        """Note the end of a query, in every group that has it."""
        for group, queries in self._ends.items():
            if query in queries:
                self._ended.setdefault(group, set()).add(query)
        self._forget()

    def groups(self) -> list[str]:
        """Return the groups with offsets to commit, sorted."""
        return [group for group in sorted(self._ends) if self.due(group)]

    def due(self, group: str) -> Offsets:
        """Return the offsets that the group lacks, including `unknown` partitions."""
        known = self._known.get(group, {})
        return {
            partition: offset
            for partition, offset in self._slowest(group).items()
            if offset > known.get(partition, NONE)
        }

    def unknown(self, group: str) -> set[TopicPartition]:
        """Return the partitions whose committed offsets must be fetched before a commit."""
        return self.due(group).keys() - self._known.get(group, {}).keys()

    def know(self, group: str, offsets: Mapping[TopicPartition, int | None]) -> None:
        """Note the offsets that the group has committed, by any member."""
        self._known.setdefault(group, {}).update(
            {partition: NONE if offset is None else offset for partition, offset in offsets.items()}
        )
        self._forget()

    def doubt(self, group: str) -> None:
        """Forget the group's offsets, so that they are fetched again."""
        self._known.pop(group, None)

    def drop(self, group: str, topics: Collection[str]) -> None:
        """Drop topics that do not exist any more."""
        for offsets in (*self._ends.get(group, {}).values(), self._known.get(group, {})):
            for partition in [partition for partition in offsets if partition.topic in topics]:
                del offsets[partition]
        self._forget()

    def committed(self) -> dict[str, Offsets]:
        """Return the known committed offsets: group -> partition -> offset."""
        return {
            group: {partition: offset for partition, offset in offsets.items() if offset != NONE}
            for group, offsets in self._known.items()
        }

    def _slowest(self, group: str) -> Offsets:
        ended = self._ended.get(group, set())
        found: Offsets = {}
        for is_running in (True, False):
            slowest: Offsets = {}
            for query, ends in self._ends.get(group, {}).items():
                if (query not in ended) == is_running:
                    for partition, end in ends.items():
                        slowest[partition] = min(end, slowest.get(partition, end))
            found = {**slowest, **found}
        return found

    def _forget(self) -> None:
        """Forget ended queries after their last commit."""
        for group, ended in self._ended.items():
            if ended and not self.due(group):
                for query in ended:
                    del self._ends[group][query]
                ended.clear()
